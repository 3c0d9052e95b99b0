"""Parts of a workload: windows of consecutive jobs, and the split by time."""

from __future__ import annotations

import numpy as np

from attn_sched.choices import PARTS, check_choice
from attn_sched.errors import InputError
from attn_sched.workload.workload import Workload, require_jobs

# Shares of the time between the first and the last submission.
SPLIT = dict(zip(PARTS, ((0.0, 0.60), (0.60, 0.75), (0.75, 1.0)), strict=True))


def warm_up(first: int, last: int, warmup: int | None) -> int:
    """How many jobs run before a window: as many as asked for (None: as it counts), or as many as there are."""
    return min(first, last - first if warmup is None else warmup)


def spread_windows(jobs: int, count: int, size: int, warmup: int) -> list[tuple[int, int]]:
    """``count`` windows of ``size`` jobs over ``jobs``: evenly spread, apart and with room to warm up where they allow.

    Where they do not, the windows overlap and the first has fewer than ``warmup`` jobs before it.

    Raises:
        InputError: so many different windows do not fit.
    """
    last = jobs - size
    if last < 0:
        raise InputError(
            f"windows of {size} jobs do not fit a workload of {jobs:,}",
            field="window-jobs",
            expected=f"at most {jobs:,}",
        )
    if count > last + 1:
        raise InputError(
            f"{count:,} different windows of {size} jobs do not fit a workload of {jobs:,}",
            field="windows",
            expected=f"at most {last + 1:,}",
        )
    # The first window leaves room for its warm-up unless that would push the windows into one another.
    first = min(warmup, max(0, last - size * (count - 1)))
    starts = np.linspace(first, last, count) if count > 1 else np.array([(first + last) / 2])
    return [(int(start), int(start) + size) for start in np.floor(starts).astype(int)]


def window(workload: Workload, first: int, last: int, warmup: int | None = None) -> Workload:
    """Count the jobs ``first .. last-1`` only.

    The ``warmup`` jobs before them run first, uncounted, so that the cluster is warm (default: as many as are counted,
    or as many as there are); all later jobs keep arriving, uncounted too.

    Raises:
        InputError: the window is empty or reaches outside the workload.
    """
    jobs = len(workload)
    if not 0 <= first < last <= jobs:
        raise InputError(
            f"{first}:{last} is no window of {jobs} jobs", field="window", expected=f"0 <= A < B <= {jobs}"
        )
    if warmup is not None and warmup < 0:
        raise InputError(f"{warmup} jobs of warm-up", field="warmup", expected="0 or more")
    before = warm_up(first, last, warmup)
    start = first - before
    kept = workload.select(np.arange(start, jobs))
    counted = np.zeros(jobs - start, bool)
    counted[before : before + last - first] = True
    return kept.replace(counted=counted, info={"window": {"first": first, "last": last, "warmup": before}})


def split(workload: Workload, part: str) -> Workload:
    """The jobs submitted in one part of the time: train (the first 60 %), validation (15 %) or test (the last 25 %).

    Raises:
        InputError: the part is unknown or holds no job.
    """
    check_choice(part, PARTS, "split", "part")
    require_jobs(workload, "split")
    return cut_part(workload, part, split_bounds(workload.submit_s, part))


def split_bounds(submit_s: np.ndarray, part: str) -> tuple[int, int]:
    """The first job of a part by time and the one after its last; ``submit_s`` is sorted and holds at least one."""
    low, high = SPLIT[part]
    start, span = submit_s[0], submit_s[-1] - submit_s[0]
    # side="left" on both ends: a job on a border belongs to the later part, and none is lost or doubled.
    lo = 0 if low == 0 else int(np.searchsorted(submit_s, start + low * span, side="left"))
    hi = len(submit_s) if high == 1 else int(np.searchsorted(submit_s, start + high * span, side="left"))
    return lo, hi


def cut_part(workload: Workload, part: str, bounds: tuple[int, int]) -> Workload:
    """The jobs ``lo .. hi-1`` of a workload as its part of that name.

    Raises:
        InputError: there are none.
    """
    lo, hi = bounds
    if lo >= hi:
        raise no_job_in_part(workload.name, part)
    return workload.select(np.arange(lo, hi)).replace(info={"split": part})


def no_job_in_part(name: str, part: str) -> InputError:
    """The error for a part without jobs (to be raised by the caller)."""
    return InputError(f"its {part} part holds no job", file=name, field="split", expected="a longer trace")
