"""Where episodes come from when no log is at hand: synthetic ones, drawn anew for each episode."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from attn_sched.choices import FAMILIES, check_choice
from attn_sched.cluster import Cluster
from attn_sched.errors import InputError
from attn_sched.simulator import fit_to_cluster
from attn_sched.workload import Workload, build_workload, check_estimate, offered_load, scale_load, synth

DrawEpisode = Callable[[np.random.Generator], Workload]

MOST_JOBS = 1_000_000
SPARE = 16  # jobs drawn beyond those needed, as some are too large for the cluster
MOST_DRAWN = 64  # jobs drawn for each job needed before a family is given up
TRIES = 100  # draws before episodes are given up whose jobs are all submitted at once


def _rising(values: Sequence[float]) -> tuple[float, float]:
    try:
        low, high = (float(value) for value in values)
    except (TypeError, ValueError):
        low, high = math.nan, math.nan
    if not 0 < low <= high < math.inf:
        raise InputError(f"{values!r} is no range", field="loads", expected="two rising numbers above 0")
    return low, high


@dataclass(frozen=True)
class SyntheticEpisodes:
    """Draws episodes of ``jobs`` jobs that fit ``cluster``, all counted, the first submitted at 0.

    Raises:
        InputError: an unknown family or estimate, or a number out of range.
    """

    cluster: Cluster
    families: tuple[str, ...] = ("helios",)  # each episode is of one, all with the same chance
    jobs: int = 64
    loads: tuple[float, float] = (0.6, 1.1)  # offered load, uniform between the two
    estimate: str = "oracle"  # what agents see as the duration; see ``workload.with_estimates``

    def __post_init__(self) -> None:
        object.__setattr__(self, "families", tuple(self.families))
        if not self.families:
            raise InputError("names none", field="families", expected=f"some of {', '.join(FAMILIES)}")
        for family in self.families:
            check_choice(family, FAMILIES, "episodes", "family")
        if not isinstance(self.jobs, int) or not 2 <= self.jobs <= MOST_JOBS:
            raise InputError(f"{self.jobs!r} jobs", field="jobs", expected=f"2 to {MOST_JOBS:,} jobs an episode")
        object.__setattr__(self, "loads", _rising(self.loads))
        check_estimate(self.estimate)

    def __call__(self, generator: np.random.Generator) -> Workload:
        """An episode. The same state of the generator gives the same one.

        Raises:
            InputError: hardly any job of the family fits the cluster.
        """
        family = self.families[generator.integers(len(self.families))]
        load = float(generator.uniform(*self.loads))
        for _ in range(TRIES):
            jobs = self._jobs(family, int(generator.integers(1 << 62)))
            if math.isfinite(offered_load(jobs, self.cluster.num_gpus)):
                return scale_load(jobs, self.cluster.num_gpus, load)
        raise InputError(
            f"{TRIES} episodes of {self.jobs} jobs were submitted at once", field="jobs", expected="longer episodes"
        )

    def _jobs(self, family: str, seed: int) -> Workload:
        """The first jobs of a synthetic log that fit the cluster."""
        drawn = 2 * self.jobs
        while drawn <= MOST_DRAWN * self.jobs:
            log = build_workload(synth(family, drawn + SPARE, seed), seed=seed, estimate=self.estimate)
            fitting = fit_to_cluster(log, self.cluster)
            if len(fitting) >= self.jobs:
                first = fitting.select(np.arange(self.jobs))
                start = first.submit_s[0]
                return first.replace(submit_s=first.submit_s - start, cancel_s=first.cancel_s - start)
            drawn *= 4
        raise InputError(
            f"of {drawn // 4:,} jobs of the family {family!r} only {len(fitting)} fit {self.cluster.name}",
            field="episodes",
            expected="a larger cluster or another family",
        )
