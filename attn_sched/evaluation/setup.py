"""From a trace file and a few wishes to a workload ready to replay: one order of steps for every command."""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from attn_sched.errors import InputError

if TYPE_CHECKING:
    from attn_sched.cluster import Cluster
    from attn_sched.workload import Workload


@dataclass(frozen=True)
class WorkloadSpec:
    """How a trace becomes a workload. Validated when made; what depends on the trace is checked when it is read."""

    estimate: str = "oracle"  # what policies see of a job's duration
    users: str = "trace"  # trace | per-job | synthetic
    group: str | None = None  # keep one group (virtual cluster) only
    oversized: str = "drop"  # drop | clip | refuse jobs that fit nowhere
    load_by: str = "stretch"  # stretch | thin
    later: str = "same"  # same | steady: how the jobs after a window are scaled
    seed: int = 0

    def __post_init__(self) -> None:
        from attn_sched.workload.estimates import CHOICES

        # Told before a long log is read; the numbers inside the parentheses are checked when they are used.
        if self.estimate.split("(")[0].strip() not in {
            choice.split("(")[0] for choice in re.split(r", | or ", CHOICES)
        }:
            raise InputError(f"unknown estimate {self.estimate!r}", field="estimate", expected=CHOICES)
        if self.oversized not in ("drop", "clip", "refuse"):
            raise InputError(
                f"unknown treatment {self.oversized!r}", field="oversized", expected="drop, clip or refuse"
            )
        if self.load_by not in ("stretch", "thin"):
            raise InputError(f"unknown way {self.load_by!r}", field="load-by", expected="stretch or thin")
        if self.later not in ("same", "steady"):
            raise InputError(f"unknown treatment {self.later!r}", field="later", expected="same or steady")
        if self.later == "steady" and self.load_by == "thin":
            raise InputError("thinning has one chance for all jobs", field="later", expected="same with it")
        if self.seed < 0:
            raise InputError(f"{self.seed} is negative", field="seed", expected="a whole number of at least 0")


def check_load(load: float, field: str = "load") -> float:
    """A usable offered load: finite and above 0."""
    if not math.isfinite(load) or load <= 0:
        raise InputError(f"{load:g} is not an offered load", field=field, expected="a number above 0, for example 0.9")
    return load


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


def check_writable(path: str | Path | None, field: str) -> None:
    """Find out before the long work, not after it, that a result could not be written; leaves nothing behind."""
    if path is None:
        return
    target = Path(path)
    if target.is_dir():
        raise InputError("is a directory", file=target, field=field, expected="the name of a file to write")
    if not target.parent.is_dir():
        raise InputError(
            "its folder does not exist", file=target, field=field, expected="a file name in an existing folder"
        )
    try:
        with tempfile.TemporaryFile(dir=target.parent):
            pass
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", file=target, field=field) from error


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
    """Cut a window out of the kept jobs (all of them without ``bounds``), then scale it to an offered load."""
    from attn_sched.workload import scale_load, window

    workload = kept
    if bounds is not None:
        count = len(kept.submit_s)
        if bounds[1] > count:
            raise InputError(
                f"{bounds[0]}:{bounds[1]} ends after the last kept job",
                field="window",
                expected=f"A:B with B <= {count:,}",
            )
        workload = window(kept, bounds[0], bounds[1], warmup=warmup)
    if load is not None:
        workload = scale_load(workload, cluster.num_gpus, load, by=spec.load_by, seed=spec.seed, later=spec.later)
    return workload


def dropped_counts(info: Mapping[str, object]) -> dict[str, int]:
    """Rows and jobs left out, by reason, from a workload's ``info``."""
    dropped = info.get("dropped")
    return {str(reason): int(n) for reason, n in dropped.items()} if isinstance(dropped, Mapping) else {}
