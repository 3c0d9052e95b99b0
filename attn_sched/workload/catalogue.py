"""The networks jobs train: a documented table, and the seeded draw of one for a job whose log names none.

``grad_bytes`` = 4 bytes x parameters (single-precision gradients). ``compute_s`` (tau) = 1 / (steps per second on one
V100, run alone), from the source named in the row.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from attn_sched.workload.hashing import text_key, text_keys, uniform
from attn_sched.workload.trace import SCHEMA, Trace

DEFAULT_OVERLAP = 0.5  # phi: share of tau that can hide communication
BYTES_PER_PARAMETER = 4
SKEW_THRESHOLD = 0.25  # largest tensor / all parameters from which a network counts as skewed
GAVEL = "Gavel simulation_throughputs.json, one V100 (Narayanan et al., OSDI '20)"
U39KUN = "u39kun/deep-learning-benchmark: PyTorch 0.3, FP32, V100 (Amazon p3), forward and backward"
MODELCENTER = "OpenBMB ModelCenter benchmark: Hugging Face Transformers, FP32, V100-32GB, 1.11 s a step"


@dataclass(frozen=True)
class Network:
    """A network's size, whatever its batch."""

    name: str
    parameters: int
    largest_tensor: int  # parameters of the largest single tensor
    distributed: bool  # measured on several workers; the others are drawn for one-GPU jobs only
    source: str  # of the counts

    @property
    def skewed(self) -> bool:
        """Whether one tensor dominates, so that the job suffers when spread.

        This is the model skew that decides placement in Tiresias (Gu et al., NSDI '19). Tiresias profiles message sizes
        at run time; here the largest tensor's share of the parameters stands for it.
        """
        return self.largest_tensor >= SKEW_THRESHOLD * self.parameters


@dataclass(frozen=True)
class ModelConfig:
    """A network at a batch size: what the communication model needs of a job."""

    name: str  # as Gavel spells it
    network: Network
    batch_size: int | None  # per GPU
    steps_per_second: float  # of one V100
    speed_source: str = GAVEL
    overlap: float = DEFAULT_OVERLAP

    @property
    def grad_bytes(self) -> float:
        """Bytes a worker contributes to one all-reduce."""
        return float(BYTES_PER_PARAMETER * self.network.parameters)

    @property
    def compute_s(self) -> float:
        """Seconds of one iteration on one GPU."""
        return 1.0 / self.steps_per_second


RESNET18 = Network(
    "ResNet-18", 11_173_962, 512 * 512 * 9, True,
    "derived: He et al., CVPR '16, blocks 2-2-2-2, CIFAR-10 form (3x3 stem, 10 classes)",
)  # fmt: skip
RESNET50 = Network(
    "ResNet-50", 25_557_032, 512 * 512 * 9, True, "published: torchvision model card (He et al., CVPR '16)"
)
RESNET152 = Network(
    "ResNet-152", 60_192_808, 512 * 512 * 9, True, "published: torchvision model card (He et al., CVPR '16)"
)
VGG16 = Network(
    "VGG-16", 138_357_544, 25_088 * 4096, True, "published: torchvision model card (Simonyan and Zisserman, ICLR '15)"
)
TRANSFORMER = Network(
    "Transformer", 47_240_192, 3149 * 512, True,
    "derived: Vaswani et al., NIPS '17, base (6+6 layers, width 512, inner 2048, biases) 44,138,496, and embeddings of "
    "Multi30k's 2909 + 3149 words x 512, output tied (jadore801120's implementation, as Gavel runs it)",
)  # fmt: skip
LSTM_LM = Network(
    "LM", 13_987_678, 33_278 * 200, True,
    "derived: PyTorch word_language_model defaults (2 LSTM layers of 200, embeddings of 200) on WikiText-2's 33,278 "
    "words, untied: 6,655,600 + 643,200 + 6,688,878",
)  # fmt: skip
RECOMMENDATION = Network(
    "Recommendation", 8_063_508, 20_108 * 200, False,
    "derived: Recoder autoencoder, one hidden layer of 200 over ML-20M's 20,108 items: 2 x 20,108 x 200 + 200 + 20,108",
)  # fmt: skip
CYCLEGAN = Network(
    "CycleGAN", 28_286_000, 256 * 256 * 9, False,
    "published: 2 generators of 11.378 M, 2 discriminators of 2.765 M (Zhu et al., ICCV '17; sizes their code prints)",
)  # fmt: skip
A3C = Network(
    "A3C", 3_249_639, 4 * 512 * 1024, False,
    "derived: rl_a3c_pytorch on Pong (4 convolutions, LSTM 1024 to 512, 6 actions), which Gavel's command line matches",
)  # fmt: skip
BERT_LARGE = Network(
    "BERT-large", 335_141_888, 30_522 * 1024, True,
    "derived: Devlin et al., NAACL '19 (24 layers, width 1024, 30,522 words; its '340 M')",
)  # fmt: skip

# Batch size -> steps per second on one V100.
_MEASURED: tuple[tuple[Network, Mapping[int | None, float]], ...] = (
    (RESNET18, {16: 32.353, 32: 29.947, 64: 24.093, 128: 17.995, 256: 10.300}),
    (RESNET50, {16: 11.396, 32: 7.7873, 64: 4.3948, 128: 2.4968}),
    (TRANSFORMER, {16: 11.064, 32: 10.621, 64: 8.6178, 128: 5.4461, 256: 1.5951}),
    (LSTM_LM, {5: 109.17, 10: 81.652, 20: 64.742, 40: 45.237, 80: 28.240}),
    (RECOMMENDATION, {512: 23.318, 1024: 13.283, 2048: 7.4696, 4096: 3.9061, 8192: 2.8415}),
    (CYCLEGAN, {None: 4.4261}),
    (A3C, {None: 7.1758}),
)
CONFIGS: tuple[ModelConfig, ...] = (
    *(
        ModelConfig(network.name if batch is None else f"{network.name} (batch size {batch})", network, batch, speed)
        for network, speeds in _MEASURED
        for batch, speed in speeds.items()
    ),
    ModelConfig("ResNet-152 (batch size 16)", RESNET152, 16, 1 / 0.1365, U39KUN),
    ModelConfig("VGG-16 (batch size 16)", VGG16, 16, 1 / 0.0835, U39KUN),
    ModelConfig("BERT-large (batch size 11)", BERT_LARGE, 11, 1 / 1.11, MODELCENTER),
)
BY_NAME = {config.name: index for index, config in enumerate(CONFIGS)}
# What other logs call them: the middle batch size stands for a name without one.
ALIASES = {
    "resnet18": "ResNet-18 (batch size 64)",
    "cifar10": "ResNet-18 (batch size 64)",  # Pollux: ResNet-18 on CIFAR-10
    "resnet50": "ResNet-50 (batch size 64)",
    "imagenet": "ResNet-50 (batch size 64)",  # Pollux: ResNet-50 on ImageNet
    "transformer": "Transformer (batch size 64)",
    "lm": "LM (batch size 20)",
    "lstm": "LM (batch size 20)",
    "recommendation": "Recommendation (batch size 2048)",
    "cyclegan": "CycleGAN",
    "a3c": "A3C",
    "resnet152": "ResNet-152 (batch size 16)",
    "vgg16": "VGG-16 (batch size 16)",
    "bertlarge": "BERT-large (batch size 11)",
}
_DISTRIBUTED = np.array([i for i, config in enumerate(CONFIGS) if config.network.distributed], np.int32)
_NOT_WORD = re.compile(r"[^a-z0-9]")


def find_config(name: str) -> int | None:
    """Index in CONFIGS of a model a log names; None when the catalogue does not know it."""
    exact = BY_NAME.get(name)
    if exact is not None:
        return exact
    alias = ALIASES.get(_NOT_WORD.sub("", name.lower()))
    return None if alias is None else BY_NAME[alias]


@dataclass(frozen=True, eq=False)
class Assignment:
    """The configuration of every job."""

    index: np.ndarray  # i4[J], in CONFIGS
    counts: Mapping[str, int]  # how many were named by the log, drawn, or drawn because the name is unknown


def assign_models(trace: Trace, seed: int) -> Assignment:
    """The log's model where the catalogue knows it, else a draw.

    The draw is that of :func:`draw_configs` by a hash of (seed, trace name, user or else group, job id): it is the same
    in every run and whatever other jobs there are.
    """
    table = trace.table
    jobs = len(table)
    gpus = table["num_gpus"].to_numpy()
    drawn = _draw(trace, seed, gpus)
    names = table["model"].combine_chunks().dictionary_encode()
    # The last entry stands for "no name".
    known = [find_config(name) for name in names.dictionary.to_pylist()]
    to_config = np.array([-1 if index is None else index for index in known] + [-1], np.int32)
    codes = np.where(
        names.indices.is_null().to_numpy(zero_copy_only=False),
        len(known),
        names.indices.fill_null(0).to_numpy(zero_copy_only=False),
    )
    named = to_config[codes]
    nameless = int((codes == len(known)).sum())
    counts = {"named by the trace": int((named >= 0).sum()), "drawn from the catalogue": nameless}
    unknown = jobs - nameless - counts["named by the trace"]
    if unknown:
        counts["drawn: the named model is not in the catalogue"] = unknown
    return Assignment(np.where(named >= 0, named, drawn).astype(np.int32), counts)


def _draw(trace: Trace, seed: int, gpus: np.ndarray) -> np.ndarray:
    table = trace.table
    owner = np.zeros(len(table), np.uint64)
    for column in ("group", "user"):  # the user wins where both are known
        encoded = table[column].combine_chunks().dictionary_encode()
        keys = np.append(text_keys(encoded.dictionary), np.uint64(0))
        codes = encoded.indices.fill_null(len(encoded.dictionary)).to_numpy(zero_copy_only=False)
        owner = np.where(codes == len(encoded.dictionary), owner, keys[codes])
    jobs = text_keys(table["job_id"].combine_chunks())
    key = text_key(trace.name)
    return draw_configs(gpus, uniform(seed, key, owner, jobs))


def draw_configs(num_gpus: np.ndarray, chance: np.ndarray) -> np.ndarray:
    """Index in CONFIGS of a draw for every job, i4[J]: uniform over the networks, then over their batch sizes.

    Args:
        num_gpus: i4[J]; jobs of several GPUs get networks that were measured on several.
        chance: f8[J], uniform in [0, 1): decides the draw.
    """
    result = np.empty(len(num_gpus), np.int32)
    single = num_gpus == 1
    for mask, pool, edges in ((single, _ALL, _ALL_EDGES), (~single, _DISTRIBUTED, _DISTRIBUTED_EDGES)):
        result[mask] = pool[np.minimum(np.searchsorted(edges, chance[mask], side="right"), len(pool) - 1)]
    return result


def config_fields(index: np.ndarray) -> dict[str, Any]:
    """A workload's columns, by name, that follow from its jobs' configurations, i4[J] in CONFIGS."""
    return {"model": index, **{name: values[index] for name, values in _BY_CONFIG.items()}}


def _weights(pool: np.ndarray) -> np.ndarray:
    """Equal chances of the networks, and of the batch sizes of one."""
    names = [CONFIGS[i].network.name for i in pool]
    networks = len(set(names))
    return np.array([1.0 / (networks * names.count(name)) for name in names])


_ALL = np.arange(len(CONFIGS), dtype=np.int32)
_ALL_EDGES, _DISTRIBUTED_EDGES = np.cumsum(_weights(_ALL)), np.cumsum(_weights(_DISTRIBUTED))
_BY_CONFIG = {
    "grad_bytes": np.array([config.grad_bytes for config in CONFIGS]),
    "compute_s": np.array([config.compute_s for config in CONFIGS]),
    "overlap": np.array([config.overlap for config in CONFIGS]),
    "skewed": np.array([config.network.skewed for config in CONFIGS]),
}


def record_models(trace: Trace, seed: int = 0) -> Trace:
    """The trace with every job's configuration written into its model column, so that the draw can be read and kept."""
    assignment = assign_models(trace, seed)
    names = pa.array([config.name for config in CONFIGS]).take(pa.array(assignment.index))
    column = SCHEMA.get_field_index("model")
    return Trace(trace.table.set_column(column, SCHEMA.field(column), names), trace.provenance)
