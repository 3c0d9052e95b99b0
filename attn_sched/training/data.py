"""What agents and rules are trained on: logs, divided into parts and fitted to clusters."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from attn_sched.choices import FAMILIES, USERS, check_choice
from attn_sched.cluster import Cluster, load_cluster
from attn_sched.errors import InputError
from attn_sched.simulator import fit_to_cluster
from attn_sched.simulator.world import largest_placeable
from attn_sched.workload import Workload, build_workload, check_estimate, read_trace, synth
from attn_sched.workload.episodes import EpisodeSource, EpisodeSpec, period, period_windows

DEFAULT_CLUSTERS = ("dgx64", "eth64")
DEFAULT_FAMILIES = ("philly", "helios", "pai", "acme")
LEAST_SYNTHETIC = 100


@dataclass(frozen=True, eq=False)
class ClusterPools:
    """One part of every log that has jobs for a cluster, fitted to it."""

    cluster: Cluster
    part: str  # train, validation or test
    pools: tuple[Workload, ...]

    def source(self, spec: EpisodeSpec | None = None) -> EpisodeSource:
        """Draws episodes from the pools."""
        largest = [largest_placeable(pool, self.cluster) for pool in self.pools]
        return EpisodeSource(self.pools, self.cluster.num_gpus, spec, largest=largest)

    def windows(
        self, load: float, count: int, jobs: int, *, short_jobs: int | None = None, warmup: int | None = None
    ) -> dict[str, list[Workload]]:
        """Windows of every log at an offered load, evenly spread over the part; see ``episodes.period_windows``.

        A part that is too short for three windows of ``jobs`` gets windows of ``short_jobs`` (default: half as many),
        or one of all its jobs.

        Returns:
            The windows by the log's name.
        """
        made = {}
        for pool in self.pools:
            size = jobs
            if len(pool) < 3 * jobs:
                size = min(short_jobs or max(2, jobs // 2), len(pool))
            made[pool.name] = period_windows(pool, self.cluster.num_gpus, load, count, size, warmup=warmup)
        return made


@dataclass(frozen=True)
class TrainingData:
    """The logs and the clusters. Validated when made; files are read when their jobs are first asked for.

    Every log is divided into a training, a validation and a test part (``episodes.period``) before anything else, so
    that a job is in the same part whatever the cluster. Without logs there are synthetic ones.

    Raises:
        InputError: there is no cluster, something stands twice, or a choice is unknown.
    """

    traces: tuple[str, ...] = ()  # files of logs
    families: tuple[str, ...] = DEFAULT_FAMILIES  # of synthetic logs where there are no files
    clusters: tuple[str, ...] = DEFAULT_CLUSTERS
    synthetic_jobs: int = 6000  # of each family
    estimate: str = "oracle"  # what policies see of a job's duration, before episodes add their noise
    users: str = "trace"
    seed: int = 0  # of synthetic logs, synthetic users and networks drawn for jobs that name none

    def __post_init__(self) -> None:
        for name in ("traces", "families", "clusters"):
            values = getattr(self, name)
            if len(set(values)) < len(values):
                raise InputError("names something twice", field=name, expected="each once")
        if not self.clusters:
            raise InputError("names none", field="clusters", expected="at least one cluster")
        if not self.traces and not self.families:
            raise InputError("there is no log to train on", field="traces", expected="files, or synthetic families")
        for family in self.families:
            check_choice(family, FAMILIES, "families", "family")
        if self.synthetic_jobs < LEAST_SYNTHETIC:
            raise InputError(
                f"{self.synthetic_jobs} jobs are too few", field="synthetic_jobs", expected=f"{LEAST_SYNTHETIC} or more"
            )
        check_estimate(self.estimate)
        check_choice(self.users, USERS, "users", "users")
        if self.seed < 0:
            raise InputError(f"{self.seed} is negative", field="seed", expected="a whole number of at least 0")

    @cached_property
    def logs(self) -> tuple[Workload, ...]:
        """All logs, whole, under names of their own.

        Raises:
            InputError: a file cannot be read or replayed.
        """
        if self.traces:
            traces = [read_trace(path) for path in self.traces]
        else:
            traces = [synth(family, self.synthetic_jobs, seed=self.seed) for family in self.families]
        made: list[Workload] = []
        for number, trace in enumerate(traces):
            log = build_workload(trace, seed=self.seed, estimate=self.estimate, users=self.users)
            if any(log.name == other.name for other in made):
                log = log.replace(name=f"{log.name}-{number}")
            made.append(log)
        return tuple(made)

    def pools(self, part: str) -> list[ClusterPools]:
        """One part of all logs for every cluster.

        Raises:
            InputError: an unknown part or cluster, a log without jobs in the part, or a cluster that can run none.
        """
        parts = [period(log, part) for log in self.logs]
        made = []
        for name in self.clusters:
            cluster = load_cluster(name)
            fitted = [fit_to_cluster(log, cluster) for log in parts]
            usable = tuple(pool for pool in fitted if len(pool) >= 2)
            if not usable:
                raise InputError(
                    f"no job of the {part} part can run on it", file=name, expected="another cluster or log"
                )
            made.append(ClusterPools(cluster, part, usable))
        return made

    def describe(self) -> list[dict[str, Any]]:
        """What a model card says of the data: one object a log, with the part used for training."""
        rows = []
        for number, log in enumerate(self.logs):
            train, chosen_by = (len(period(log, part)) for part in ("train", "validation"))
            source = Path(self.traces[number]).name if self.traces else f"synthetic, seed {self.seed}"
            rows.append(
                {
                    "name": log.name,
                    "source": source,
                    "jobs": len(log),
                    "trained_on": f"the first {train} jobs; the next {chosen_by} to choose by",
                }
            )
        return rows
