"""Where the clusters of a training run come from, told by names: light enough to go into every checkpoint."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from attn_sched.errors import InputError
from attn_sched.policies import orderings
from attn_sched.simulator import EngineRule, SimOptions
from attn_sched.simulator import layout as at
from attn_sched.training.batch import DrawWeights, EpisodeBatch, Shape, default_weights
from attn_sched.training.data import TrainingData
from attn_sched.workload.episodes import EpisodeSpec


def rule_for(agents: Collection[str]) -> EngineRule:
    """The engine's rule where these agents answer: with one alone, FIFO order or topo-best-fit is the other's part."""
    job, gpu = "job" in agents, "gpu" in agents
    return EngineRule(
        order=at.AGENT if job else at.STATIC,
        keys=None if job else orderings.fifo,
        placement=at.PLACE_AGENT if gpu else at.TOPO_BEST_FIT,
    )


@dataclass(frozen=True)
class DataSource:
    """Batches of clusters that run episodes drawn from the training part of logs; a ``runner.BatchSource``.

    Copies share what has been read; a pickle holds names alone, and its copy reads again.
    """

    data: TrainingData
    rule: EngineRule
    episodes: EpisodeSpec = field(default_factory=EpisodeSpec)
    options: SimOptions = field(default_factory=lambda: SimOptions(record_segments=False))
    window: int = 32
    weights: DrawWeights = default_weights
    fairness: str = "wait"

    def __call__(self, clusters: int, seed: int) -> EpisodeBatch:
        """So many clusters, shared evenly among the shapes of the data.

        Raises:
            InputError: a log cannot be read or used, or there are more shapes than clusters.
        """
        pools = self.data.pools("train")
        if clusters < len(pools):
            raise InputError(
                f"{clusters} clusters cannot be of {len(pools)} shapes",
                field="clusters",
                expected="at least one of each",
            )
        counts = [clusters // len(pools) + (i < clusters % len(pools)) for i in range(len(pools))]
        return EpisodeBatch(
            [
                Shape(pool.cluster, pool.source(self.episodes).draw, count)
                for pool, count in zip(pools, counts, strict=True)
            ],
            self.rule,
            self.options,
            window=self.window,
            weights=self.weights,
            fairness=self.fairness,
            seed=seed,
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> DataSource:
        return self  # nothing in it changes

    def __getstate__(self) -> dict[str, Any]:
        # ``TrainingData`` keeps the logs it has read: a new one has none.
        return {**self.__dict__, "data": dataclasses.replace(self.data)}
