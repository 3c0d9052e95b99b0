"""From a trace file and a few wishes to a workload ready to replay: one order of steps for every command."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from attn_sched.choices import OVERSIZED, USERS, check_choice
from attn_sched.errors import InputError

if TYPE_CHECKING:
    from attn_sched.cluster import Cluster
    from attn_sched.workload import Workload


MOST_SECONDS = 1e9  # of any wait or cost, some 32 years: more is a slip of the unit
LEAST_LOAD, MOST_LOAD = 1e-3, 1e3
WINDOW_JOBS = 256  # that a window counts unless told


@dataclass(frozen=True)
class WorkloadSpec:
    """How a trace becomes a workload. Validated when made; what depends on the trace is checked when it is read."""

    estimate: str = "oracle"  # what policies see of a job's duration
    users: str = "trace"  # one of choices.USERS
    group: str | None = None  # keep one group (virtual cluster) only
    oversized: str = "drop"  # one of choices.OVERSIZED: what to do with jobs that fit nowhere
    load_by: str = "stretch"  # one of choices.LOAD_BY
    later: str = "same"  # one of choices.LATER: how the jobs after a window are scaled
    seed: int = 0

    def __post_init__(self) -> None:
        from attn_sched.workload import check_estimate
        from attn_sched.workload.load import check_scaling

        # Told before a long log is read.
        check_estimate(self.estimate)
        check_choice(self.users, USERS, "users", "users")
        check_choice(self.oversized, OVERSIZED, "oversized", "treatment")
        check_scaling(self.load_by, self.later)
        if self.seed < 0:
            raise InputError(f"{self.seed} is negative", field="seed", expected="a whole number of at least 0")


def check_load(load: float, field: str = "load") -> float:
    """A usable offered load: from ``LEAST_LOAD`` to ``MOST_LOAD``."""
    if not LEAST_LOAD <= load <= MOST_LOAD:
        expected = f"a number from {LEAST_LOAD:g} to {MOST_LOAD:g}, for example 0.9"
        raise InputError(f"{load:g} is not an offered load", field=field, expected=expected)
    return load


def check_seconds(value: float | None, field: str) -> None:
    """A usable wait or cost: from 0 to ``MOST_SECONDS``; None is one that nobody wants."""
    if value is not None and not 0 <= value <= MOST_SECONDS:
        expected = f"a number of seconds of at least 0 and at most {MOST_SECONDS:.0e}".replace("e+0", "e")
        raise InputError(f"{value:g} is not a time", field=field, expected=expected)


def parse_window(text: str) -> tuple[int, int]:
    """``A:B`` as a half-open range of kept jobs."""
    first, colon, last = text.partition(":")
    try:
        window = int(first), int(last)
    except ValueError:
        colon = ""
    if not colon:
        raise InputError(
            f"{text!r} is not a window", field="window", expected="A:B with 0 <= A < B, for example 5120:5376"
        )
    if window[0] < 0 or window[0] >= window[1]:
        raise InputError(f"{text!r} counts no jobs", field="window", expected="A:B with 0 <= A < B")
    return window


def check_warmup(warmup: int | None) -> int | None:
    """A usable number of warm-up jobs; None means the default."""
    if warmup is not None and warmup < 0:
        raise InputError(f"{warmup} is negative", field="warmup", expected="a number of jobs of at least 0")
    return warmup


def kept_workload(trace_path: str | Path, cluster: Cluster, spec: WorkloadSpec) -> Workload:
    """Read a trace and keep what the cluster can run. Raises InputError when nothing is left."""
    from attn_sched.simulator.fit import fit_to_cluster
    from attn_sched.workload import build_workload, read_trace

    trace = read_trace(trace_path)
    workload = build_workload(trace, seed=spec.seed, estimate=spec.estimate, users=spec.users, group=spec.group)
    kept = fit_to_cluster(workload, cluster, spec.oversized)
    if len(kept.submit_s) == 0:
        dropped = dropped_counts(kept.info)
        why = f" ({', '.join(f'{reason}: {n}' for reason, n in dropped.items())})" if dropped else ""
        raise InputError(
            f"no job can be replayed on cluster {cluster.name!r}{why}",
            file=trace_path,
            expected="at least one job that fits",
        )
    return kept


def cut(
    kept: Workload,
    cluster: Cluster,
    spec: WorkloadSpec,
    *,
    bounds: tuple[int, int] | None = None,
    warmup: int | None = None,
    load: float | None = None,
) -> Workload:
    """Cut a window out of the kept jobs (all of them without ``bounds``) at an offered load.

    Stretching scales what was cut; thinning comes before the cut, so that a window counts as many jobs as ``bounds``
    say (:func:`attn_sched.workload.load.thin_window`).
    """
    from attn_sched.workload import scale_load, thin_window, window

    workload = kept
    if bounds is not None:
        count = len(kept.submit_s)
        if bounds[1] > count:
            raise InputError(
                f"{bounds[0]}:{bounds[1]} ends after the last kept job",
                field="window",
                expected=f"A:B with B <= {count:,}",
            )
        if load is not None and spec.load_by == "thin":
            return thin_window(kept, *bounds, cluster.num_gpus, load, warmup=warmup, seed=spec.seed)
        workload = window(kept, *bounds, warmup=warmup)
    if load is not None:
        workload = scale_load(workload, cluster.num_gpus, load, by=spec.load_by, seed=spec.seed, later=spec.later)
    return workload


def dropped_counts(info: Mapping[str, object]) -> dict[str, int]:
    """Rows and jobs left out, by reason, from a workload's ``info``."""
    dropped = info.get("dropped")
    return {str(reason): int(n) for reason, n in dropped.items()} if isinstance(dropped, Mapping) else {}
