"""A training run that takes seconds: synthetic logs, few clusters, tiny networks."""

from __future__ import annotations

from typing import Any

from attn_sched.training.configs import TrainingConfig

VALUES: dict[str, Any] = {
    "name": "tiny",
    "checkpoint_every": 1,
    "data.families": ("helios", "philly"),
    "data.clusters": ("nodes:2x4", "nodes:3x4"),
    "data.synthetic_jobs": 600,
    "episodes.jobs": 24,
    "network.window": 8,
    "network.width": 16,
    "network.heads": 2,
    "network.layers": 1,
    "network.feedforward": 16,
    "network.critic_width": 16,
    "tuned.evaluations": 12,
    "tuned.windows": 2,
    "tuned.bank": 4,
    "tuned.finalists": 2,
    "imitation.rounds": 2,
    "imitation.decisions": 100,
    "imitation.minibatch": 64,
    "imitation.value_decisions": 200,
    "imitation.value_epochs": 1,
    "ppo.clusters": 8,
    "ppo.decisions": 32,
    "ppo.minibatch": 64,
    "ppo.value_warmup": 1,
    "ppo.total_decisions": 1500,
    "validation.windows": 1,
    "validation.loads": (0.9,),
    "validation.jobs": 16,
    "validation.warmup": 0,
    "validation.every": 2,
    "validation.rules": ("sjf+topo-best-fit", "fifo+first-fit"),
}


def tiny_config(**changes: Any) -> TrainingConfig:
    """The configuration; ``changes`` have two underscores for the dot of a key."""
    given = {name.replace("__", "."): value for name, value in changes.items()}
    return TrainingConfig().with_values({**VALUES, **given})


def assignments() -> dict[str, str]:
    """The same as ``--set`` takes them: key -> text."""
    return {key: ",".join(map(str, value)) if isinstance(value, tuple) else str(value) for key, value in VALUES.items()}


def arguments(*more: str) -> list[str]:
    """The same as options of ``attn-sched train``."""
    return ["train", *(part for key, text in assignments().items() for part in ("--set", f"{key}={text}")), *more]
