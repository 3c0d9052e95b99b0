"""Everything a training run depends on, in one validated place, and the configurations that have a name."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from attn_sched.agents.rewards import DEFAULT_WEIGHTS, TERMS
from attn_sched.agents.spec import NetworkSpec
from attn_sched.choices import FAIRNESS, check_choice
from attn_sched.errors import InputError
from attn_sched.files import atomic_write
from attn_sched.policies import Policy, parse_policy
from attn_sched.simulator import EngineRule
from attn_sched.simulator import layout as at
from attn_sched.training.data import TrainingData
from attn_sched.training.imitation import ImitationSettings
from attn_sched.training.overrides import exchange, flatten, from_json, kind_of
from attn_sched.training.settings import PPOSettings
from attn_sched.training.tuned import TuneSettings
from attn_sched.workload.episodes import EpisodeSpec

FORMAT = "attn-sched training configuration"
VERSION = 1
MOST_MINUTES = 1e6
MOST_WEIGHT = 10.0

# Hand-written rules that validation compares with; the best of them is the measure.
RULES = (
    "fifo:easy+topo-best-fit",
    "sjf+best-fit",
    "sjf+topo-best-fit",
    "sjf+best-fit+hold(1.5,0.5)",
    "sjf+topo-best-fit+hold(1.5,0.5)",
    "sjf+topo-best-fit+hold(1.2,1)",
    "sjf+contention",
    "sjf+contention+hold(1.5,0.5)",
    "saf+topo-best-fit",
    "saf+topo-best-fit+hold(1.2,1)",
    "hrrn+topo-best-fit+hold(1.5,0.5)",
    "wfp3+topo-best-fit+hold(1.5,0.5)",
    "unicep+topo-best-fit+hold(1.5,0.5)",
)


@dataclass(frozen=True)
class Objective:
    """What the agents are rewarded for, and how the weights of the terms are drawn for each episode.

    Raises:
        InputError: a value out of range, or nothing is left to reward.
    """

    weights: tuple[float, float, float] = DEFAULT_WEIGHTS  # of completion, fairness, communication; the card's too
    share: float = 0.5  # of the episodes that have exactly these; the others' are drawn, with the same sum
    off: tuple[str, ...] = ()  # terms without any weight, for ablations
    fairness: str = "wait"  # the fairness term

    def __post_init__(self) -> None:
        for weight in self.weights:
            if not 0 <= weight <= MOST_WEIGHT:
                raise InputError(f"{weight} is no weight", field="weights", expected=f"numbers of 0 to {MOST_WEIGHT:g}")
        for term in self.off:
            check_choice(term, TERMS, "off", "reward term")
        if not any(self.effective):
            raise InputError("rewards nothing", field="weights", expected="a weight above 0 for a term that is not off")
        if not 0 <= self.share <= 1:
            raise InputError(f"{self.share} is no share", field="share", expected="0 to 1")
        check_choice(self.fairness, FAIRNESS, "fairness", "term")

    @property
    def effective(self) -> tuple[float, float, float]:
        """The weights, those of terms that are off at 0."""
        first, second, third = (
            0.0 if term in self.off else weight for term, weight in zip(TERMS, self.weights, strict=True)
        )
        return first, second, third

    def draw(self, generator: np.random.Generator) -> Sequence[float]:
        """Weights of one episode: the given ones, or a point drawn evenly from all of the same sum."""
        if generator.random() < self.share:
            return self.effective
        on = np.array([term not in self.off for term in TERMS])
        drawn = np.where(on, generator.exponential(size=len(TERMS)), 0.0)  # exponentials over their sum: Dirichlet(1)
        values: list[float] = (drawn / drawn.sum() * sum(self.effective)).tolist()
        return values


@dataclass(frozen=True)
class ValidationSettings:
    """On what, how often and against what the agents are measured while they learn.

    Raises:
        InputError: a value out of range.
    """

    windows: int = 2  # of each log, cluster and load; fewer where no more fit
    loads: tuple[float, ...] = (0.75, 0.95, 1.05)
    jobs: int = 192  # that a window counts; half as many where the part is short
    warmup: int | None = None  # jobs before them; None: as many
    every: int = 10  # iterations between two validations
    patience: int = 15  # validations without a better score after which training ends
    rules: tuple[str, ...] = RULES

    def __post_init__(self) -> None:
        for name, least in (("windows", 1), ("jobs", 2), ("warmup", 0), ("every", 1), ("patience", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise InputError(f"{value} is too few", field=name, expected=f"{least} or more")
        if not self.loads or not all(0.01 <= load <= 100 for load in self.loads):
            raise InputError(f"{self.loads} are no loads", field="loads", expected="numbers such as 0.75,0.95")
        if not self.rules:
            raise InputError("names no rule", field="rules", expected="hand-written policies to compare with")
        for rule in self.rules:
            if _parsed(rule, "rules").learned:
                raise InputError(f"{rule!r} is no hand-written rule", field="rules", expected="one")


def _parsed(name: str, field: str) -> Policy:
    """A policy's name, parsed; errors name the field it stands in."""
    try:
        return parse_policy(name)
    except InputError as error:
        raise InputError(error.problem, field=field, expected=error.expected) from None


@dataclass(frozen=True)
class TrainingConfig:
    """A training run. Validated when made.

    Raises:
        InputError: a value out of range, or one that does not go with another.
    """

    name: str = "full"  # of the agents that come out
    seed: int = 0  # of everything drawn in training; ``data.seed`` fixes the data
    minutes: float = 240.0  # of wall time, all stages and sessions together, after which training ends
    checkpoint_every: int = 5  # iterations between two checkpoints; each validation writes one too
    order: str = "fifo"  # who picks jobs where the GPU agent learns alone: ORDER[:QUEUEING][+hold(theta,patience)]
    placement: str = "topo-best-fit"  # who picks GPUs where the job agent learns alone
    data: TrainingData = field(default_factory=TrainingData)
    episodes: EpisodeSpec = field(default_factory=EpisodeSpec)
    network: NetworkSpec = field(default_factory=NetworkSpec)
    objective: Objective = field(default_factory=Objective)
    tuned: TuneSettings = field(default_factory=TuneSettings)
    imitation: ImitationSettings = field(default_factory=ImitationSettings)
    ppo: PPOSettings = field(default_factory=PPOSettings)
    validation: ValidationSettings = field(default_factory=ValidationSettings)

    def __post_init__(self) -> None:
        if not self.name or set(self.name) & set("+:,()/\\ \t\n") or self.name.startswith("."):
            raise InputError(
                f"{self.name!r} cannot name agents", field="name", expected="a name without + : , ( ) / or blanks"
            )
        if self.seed < 0:
            raise InputError(f"{self.seed} is negative", field="seed", expected="a whole number of at least 0")
        if not (math.isfinite(self.minutes) and 0 < self.minutes <= MOST_MINUTES):
            raise InputError(f"{self.minutes} is no time", field="minutes", expected="a number of minutes above 0")
        if self.checkpoint_every < 1:
            raise InputError(f"{self.checkpoint_every} is too few", field="checkpoint_every", expected="1 or more")
        shapes, processes = len(self.data.clusters), max(1, self.ppo.runners)
        if self.ppo.clusters < shapes * processes:
            raise InputError(
                f"{self.ppo.clusters} clusters side by side cannot be of {shapes} shapes",
                field="ppo.clusters",
                expected=f"{shapes * processes} or more",
            )
        _ = self.other_half  # checks the rules

    @property
    def agents(self) -> tuple[str, ...]:
        """Which agents learn."""
        return self.ppo.agents

    @property
    def other_half(self) -> Policy:
        """The policy whose ordering or placement does the part of an agent that does not learn."""
        _parsed(f"fifo+{self.placement}", "placement")
        order, plus, hold = self.order.partition("+")
        policy = _parsed(f"{order}+{self.placement}{plus}{hold}", "order")
        if policy.learned or policy.ordering.preempt or policy.ordering.called or policy.placement.called:
            raise InputError(
                f"{policy.name!r} cannot do an agent's part",
                field="order",
                expected="a built-in rule that is not preemptive",
            )
        return policy

    @property
    def engine_rule(self) -> EngineRule:
        """The engine's rule, with the agents in their places."""
        rule = self.other_half.engine_rule()
        if "gpu" in self.agents:
            rule = dataclasses.replace(rule, placement=at.PLACE_AGENT)
        if "job" in self.agents:
            rule = EngineRule(order=at.AGENT, placement=rule.placement)
        return rule

    @property
    def ppo_settings(self) -> PPOSettings:
        """PPO's, with the seed of the run."""
        return dataclasses.replace(self.ppo, seed=self.seed)

    @property
    def tune_settings(self) -> TuneSettings:
        """The tuned rule's, with the episodes and the window of the run."""
        return dataclasses.replace(self.tuned, window=self.network.window, episodes=self.episodes)

    def flat(self) -> dict[str, Any]:
        """Dotted key -> value of all that can be set."""
        return flatten(self, HIDDEN)

    def with_values(self, changes: Mapping[str, Any]) -> TrainingConfig:
        """The configuration with the values of some dotted keys exchanged. Raises InputError."""
        return exchange(self, changes)


# Fields of a part that the run decides for all its parts.
HIDDEN = frozenset({"ppo.seed", "tuned.window", "tuned.episodes"})

# Name of an ablation -> what it changes; the terms of the objective are further ones.
_ABLATIONS: dict[str, dict[str, Any]] = {
    "no-attention": {"network.attention": False},
    "no-topology": {"network.topology_bias": False},
    "no-hold": {"network.hold": False},
}
ABLATIONS = (*_ABLATIONS, *(f"no-{term}" for term in TERMS))

# An objective near to the one that validation measures, and small steps on many decisions each: what a choice changes
# is so small beside the noise in its advantage that larger steps wear an imitated policy down.
_STEADY: dict[str, Any] = {
    "objective.weights": (1.0, 0.25, 0.1),
    "objective.share": 0.7,
    "ppo.decisions": 256,
    "ppo.minibatch": 2048,
    "ppo.job_rate": 5e-5,
    "ppo.gpu_rate": 2e-5,
    "ppo.value_rate": 4e-4,
    "ppo.job_entropy": 0.0,
    "ppo.job_lam": 0.95,
    "ppo.clip": 0.1,
    "ppo.kl_limit": 0.01,
    "ppo.value_warmup": 5,
    "ppo.rate_warmup": 5,
    "ppo.final_rate": 0.1,
}

# What the named configurations change of the defaults.
_NAMED: dict[str, dict[str, Any]] = {
    "quick": {
        "minutes": 8.0,
        "data.families": ("helios", "philly"),
        "data.synthetic_jobs": 3000,
        "episodes.jobs": 128,
        "network.width": 32,
        "network.layers": 1,
        "network.feedforward": 64,
        "network.critic_width": 32,
        "tuned.evaluations": 360,
        "tuned.windows": 24,
        "tuned.bank": 120,
        "imitation.rounds": 12,
        "imitation.decisions": 8000,
        "imitation.last_epochs": 4,
        "ppo.clusters": 32,
        "ppo.job_rate": 3e-4,
        "ppo.gpu_rate": 3e-4,
        "ppo.value_rate": 1e-3,
        "ppo.advantage_clamp": 3.0,
        "ppo.kl_limit": 0.005,
        "ppo.job_entropy": 0.0,
        "ppo.value_warmup": 15,
        "ppo.total_decisions": 500_000,
        "validation.jobs": 128,
        "validation.warmup": 64,
    },
    "medium": {
        "minutes": 20.0,
        "tuned.evaluations": 700,
        "tuned.bank": 300,
        "imitation.rounds": 16,
        "imitation.value_decisions": 40_000,
        **_STEADY,
        "ppo.total_decisions": 1_000_000,
        "validation.every": 10,
    },
    "full": {
        "imitation.rounds": 32,
        "imitation.last_epochs": 6,
        **_STEADY,
        "ppo.total_decisions": 4_000_000,
        "validation.windows": 3,
        "validation.every": 20,
    },
}
NAMES = tuple(_NAMED)


def named_config(name: str) -> TrainingConfig:
    """The configuration called ``name``: quick, medium or full. Raises InputError that lists them."""
    check_choice(name, NAMES, "config", "configuration")
    return exchange(TrainingConfig(), {"name": name, **_NAMED[name]})


def ablate(config: TrainingConfig, names: Iterable[str]) -> dict[str, Any]:
    """What leaving something out changes, by dotted key.

    Args:
        config: What it is left out of.
        names: Some of ``ABLATIONS``.

    Raises:
        InputError: an unknown one.
    """
    changes: dict[str, Any] = {}
    off = list(config.objective.off)
    for name in names:
        check_choice(name, ABLATIONS, "ablate", "part")
        changes |= _ABLATIONS.get(name, {})
        term = name.removeprefix("no-")
        if term in TERMS and term not in off:
            off.append(term)
    if tuple(off) != config.objective.off:
        changes["objective.off"] = tuple(off)
    return changes


def save_config(config: TrainingConfig, path: str | os.PathLike[str]) -> None:
    """Write a configuration as JSON, whole or not at all. Raises InputError if the file cannot be written."""
    content = {"format": FORMAT, "version": VERSION, "values": config.flat()}
    with atomic_write(path) as part:
        part.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def load_config(path: str | os.PathLike[str]) -> TrainingConfig:
    """The configuration that ``save_config`` wrote.

    Raises:
        InputError: the file is missing or no configuration, or a value is missing, unknown or will not do.
    """
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", file=path, expected="a training run's config") from error
    except ValueError as error:
        raise InputError(f"is no whole JSON file: {error}", file=path, expected="a training run's config") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT or content.get("version") != VERSION:
        raise InputError("is no configuration of this release", file=path, expected=f"{FORMAT!r}, version {VERSION}")
    values = content.get("values")
    blank = TrainingConfig()
    known = blank.flat()
    if not isinstance(values, dict) or set(values) != set(known):
        odd = sorted(set(values) ^ set(known)) if isinstance(values, dict) else list(known)
        raise InputError(
            f"lacks values or has unknown ones: {', '.join(odd[:6])}", file=path, expected="the keys of this release"
        )
    try:
        return blank.with_values({key: from_json(value, kind_of(blank, key), key) for key, value in values.items()})
    except InputError as error:
        raise InputError(error.problem, file=path, field=error.field, expected=error.expected) from None
