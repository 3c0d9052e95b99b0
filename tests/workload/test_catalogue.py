"""The networks and their seeded draw."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from attn_sched.workload import Trace, build_workload, read_trace, synth
from attn_sched.workload.catalogue import (
    BY_NAME,
    CONFIGS,
    DEFAULT_OVERLAP,
    GAVEL,
    assign_models,
    find_config,
    record_models,
)
from attn_sched.workload.hashing import text_keys, uniform
from tests.shared_traces import shared_traces
from tests.workload.make import make_trace


def test_every_row_is_whole_and_sourced() -> None:
    assert len(BY_NAME) == len(CONFIGS)
    for config in CONFIGS:
        assert config.grad_bytes == 4 * config.network.parameters
        assert 0 < config.network.largest_tensor <= config.network.parameters
        assert 0.001 < config.compute_s < 10
        assert config.overlap == DEFAULT_OVERLAP
        assert config.network.source.startswith(("published: ", "derived: "))
        assert config.speed_source


def test_the_documented_table_agrees() -> None:
    text = (Path(__file__).parents[2] / "docs" / "traces.md").read_text(encoding="utf-8")
    for config in CONFIGS:
        network = config.network
        assert f"| {network.name} | {network.parameters:,} | {config.grad_bytes / 1e6:.1f} MB |" in text


def test_derived_counts() -> None:
    counts = {config.network.name: config.network.parameters for config in CONFIGS}
    # ResNet-18 for CIFAR: stem, four stages of two basic blocks, norms, and the classifier.
    total = 3 * 64 * 9 + 2 * 64
    previous = 64
    for width in (64, 128, 256, 512):
        total += previous * width * 9 + 3 * width * width * 9 + 4 * 2 * width
        total += (previous * width + 2 * width) if previous != width else 0
        previous = width
    assert counts["ResNet-18"] == total + 512 * 10 + 10
    # LSTM: per layer 4 gates x (input + hidden + two biases).
    assert counts["LM"] == 33_278 * 200 + 2 * 4 * (200 * 200 * 2 + 2 * 200) + 33_278 * 200 + 33_278
    attention = 4 * (512 * 512 + 512) + 2 * 512
    inner = 512 * 2048 + 2048 + 2048 * 512 + 512 + 2 * 512
    words = (2909 + 3149) * 512
    assert counts["Transformer"] == 6 * (attention + inner) + 6 * (2 * attention + inner) + words
    layer = 4 * (1024 * 1024 + 1024) + 2 * 1024 + 1024 * 4096 + 4096 + 4096 * 1024 + 1024 + 2 * 1024
    embedding = (30_522 + 512 + 2) * 1024 + 2 * 1024
    assert counts["BERT-large"] == embedding + 24 * layer + 1024 * 1024 + 1024
    convolutions = (32 * 25 + 32) + (32 * 32 * 25 + 32) + (32 * 64 * 16 + 64) + (64 * 64 * 9 + 64)
    assert counts["A3C"] == convolutions + 4 * 512 * (1024 + 512) + 2 * 4 * 512 + 513 + 6 * 513
    assert counts["Recommendation"] == 2 * 20_108 * 200 + 200 + 20_108


def test_speeds_agree_with_the_measurements() -> None:
    with (shared_traces() / "gavel" / "isolated_throughputs.csv").open() as file:
        measured = {
            row["job_type"]: float(row["steps_per_second"])
            for row in csv.DictReader(file)
            if row["gpu_type"] == "v100" and row["scale_factor"] == "1"
        }
    ours = {config.name: config.steps_per_second for config in CONFIGS if config.speed_source == GAVEL}
    assert ours.keys() == measured.keys()
    for name, speed in ours.items():
        assert speed == pytest.approx(measured[name], rel=1e-3)


def test_skew() -> None:
    skewed = {config.network.name for config in CONFIGS if config.network.skewed}
    assert skewed == {"VGG-16", "LM", "Recommendation", "A3C"}


def test_named_models_are_used() -> None:
    names = np.array(["vgg16", "ResNet-50 (batch size 128)", None, "deepspeech2", "CycleGAN"], dtype=object)
    w = build_workload(make_trace([0, 1, 2, 3, 4], [1] * 5, [8] * 5, model=names))
    assert w.model_names[w.model[0]] == "VGG-16 (batch size 16)"
    assert w.model_names[w.model[1]] == "ResNet-50 (batch size 128)"
    assert w.model_names[w.model[4]] == "CycleGAN"
    assert w.skewed.tolist()[:2] == [True, False]
    assert w.info["models"] == {
        "named by the trace": 3,
        "drawn from the catalogue": 1,
        "drawn: the named model is not in the catalogue": 1,
    }
    assert find_config("BERT-Large") is not None
    assert find_config("bert") is None


def test_gavel_models_are_all_known() -> None:
    w = build_workload(read_trace(shared_traces() / "gavel" / "103959.trace"))
    assert w.info["models"]["named by the trace"] == len(w)


def test_draws_are_the_same_in_any_subset_and_differ_by_seed() -> None:
    trace = synth("helios", 3000, 0)
    all_jobs = assign_models(trace, 7).index
    part = Trace(trace.table.slice(1000, 500), trace.provenance)
    np.testing.assert_array_equal(assign_models(part, 7).index, all_jobs[1000:1500])
    np.testing.assert_array_equal(assign_models(trace, 7).index, all_jobs)
    assert (assign_models(trace, 8).index != all_jobs).mean() > 0.8


def test_gangs_get_networks_measured_on_several_gpus() -> None:
    trace = synth("helios", 40_000, 0)
    index = assign_models(trace, 0).index
    gangs = trace.numbers("num_gpus") > 1
    assert all(CONFIGS[i].network.distributed for i in np.unique(index[gangs]))
    networks = [CONFIGS[i].network.name for i in index[gangs]]
    names, counts = np.unique(networks, return_counts=True)
    assert len(names) == 7
    np.testing.assert_allclose(counts / counts.sum(), 1 / 7, atol=0.01)
    assert set(np.unique(index[~gangs])) == set(range(len(CONFIGS)))


def test_recorded_models_are_read_back() -> None:
    trace = record_models(synth("pai", 500, 0), seed=9)
    assert trace.table["model"].null_count == 0
    np.testing.assert_array_equal(assign_models(trace, 1).index, assign_models(synth("pai", 500, 0), 9).index)


def test_text_keys() -> None:
    texts = ["", "a", "b", "ab", "ba", "é", "a" * 300, None, "a\0", "0", "00"]
    keys = text_keys(pa.array(texts, pa.string()))
    assert keys[0] == keys[7]  # null counts as empty
    assert len(set(keys.tolist())) == len(texts) - 1
    sliced = text_keys(pa.array(texts, pa.string()).slice(3, 4))
    np.testing.assert_array_equal(sliced, keys[3:7])
    assert len(text_keys(pa.array([], pa.string()))) == 0


def test_uniform() -> None:
    draws = uniform(1, 2, text_keys(pa.array([str(i) for i in range(100_000)])))
    assert ((draws >= 0) & (draws < 1)).all()
    np.testing.assert_allclose(np.histogram(draws, 20, (0, 1))[0] / 100_000, 0.05, atol=0.004)
