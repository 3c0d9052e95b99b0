"""Tiny clusters with episodes made by hand or drawn, for tests of what learns on them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from attn_sched.agents.schema import AGENTS
from attn_sched.agents.spec import NetworkSpec
from attn_sched.cluster import load_cluster
from attn_sched.training.batch import EpisodeBatch, Shape
from attn_sched.training.settings import PPOSettings
from attn_sched.training.source import rule_for
from attn_sched.workload import Workload
from tests.workload.make import make_workload

SPEC = NetworkSpec(window=6, width=8, heads=2, layers=1, feedforward=8, critic_width=8)
SETTINGS: dict[str, Any] = {"clusters": 4, "decisions": 24, "minibatch": 32, "value_warmup": 0, "total_decisions": 960}


def draw(generator: np.random.Generator, jobs: int = 10) -> Workload:
    """An episode of a crowded cluster of 8 GPUs."""
    gaps = generator.exponential(30.0, jobs)
    gaps[0] = 0.0
    durations = generator.uniform(30.0, 300.0, jobs)
    return make_workload(np.cumsum(gaps).tolist(), durations.tolist(), generator.choice([1, 2, 4, 8], jobs).tolist())


@dataclass(frozen=True)
class TinySource:
    """Clusters of the shapes named, in equal numbers."""

    shapes: tuple[str, ...] = ("nodes:2x4",)
    agents: tuple[str, ...] = AGENTS
    jobs: int = 10
    window: int = SPEC.window

    def __call__(self, clusters: int, seed: int) -> EpisodeBatch:
        shapes = [
            Shape(load_cluster(name), partial(draw, jobs=self.jobs), clusters // len(self.shapes))
            for name in self.shapes
        ]
        return EpisodeBatch(shapes, rule_for(self.agents), window=self.window, seed=seed)


def settings(**changes: Any) -> PPOSettings:
    """Those of a run that takes a moment."""
    return PPOSettings(**{**SETTINGS, **changes})
