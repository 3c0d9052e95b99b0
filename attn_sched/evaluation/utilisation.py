"""How much of the cluster was held, how much of that was useful, and what lay idle though a job waited."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from attn_sched.evaluation.fairness import Floats

if TYPE_CHECKING:
    from attn_sched.simulator.schedule import Schedule


def useful_rate(schedule: Schedule) -> Floats:
    """Useful GPU seconds per GPU second held, for each job: ``tau W / held``.

    A job that has not finished counts as placed best (``tau W / d``): how slow its remainder will be is not known.
    """
    duration = np.asarray(schedule.workload.duration_s, dtype=np.float64)
    best = np.asarray(schedule.useful_fraction, dtype=np.float64)
    held = np.asarray(schedule.held_s, dtype=np.float64)
    done = np.isfinite(schedule.finish_s) & ~np.asarray(schedule.cancelled, dtype=bool) & (held > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        rate = np.where(done, best * duration / held, best)
    return np.minimum(rate, 1.0)


def running_intervals(schedule: Schedule, until_s: float) -> tuple[NDArray[np.integer], Floats, Floats, Floats]:
    """Job, GPUs, start and end of every stretch of running (ends clipped to ``until_s``).

    Without recorded segments a job's span from first start to finish stands in, its GPUs thinned to the time it really
    held them (exact for jobs that were never suspended).
    """
    if len(schedule.seg_job):
        job: NDArray[np.integer] = np.asarray(schedule.seg_job)
        gpus = np.asarray(schedule.seg_count, dtype=np.float64)
        start = np.asarray(schedule.seg_start, dtype=np.float64)
        end = np.asarray(schedule.seg_end, dtype=np.float64)
    else:
        job = np.flatnonzero(np.isfinite(schedule.start_s))
        start = np.asarray(schedule.start_s, dtype=np.float64)[job]
        end = np.asarray(schedule.finish_s, dtype=np.float64)[job]
        gpus = np.asarray(schedule.workload.num_gpus, dtype=np.float64)[job]
        span = end - start
        held = np.asarray(schedule.held_s, dtype=np.float64)[job]
        with np.errstate(divide="ignore", invalid="ignore"):
            gpus = np.where(np.isfinite(end) & (span > 0), gpus * np.minimum(held / span, 1.0), gpus)
    end = np.where(np.isfinite(end), np.minimum(end, until_s), until_s)
    return job, gpus, start, end


def utilisation(schedule: Schedule, from_s: float, until_s: float) -> tuple[float, float]:
    """Allocated and useful share of the cluster's GPU time between two times; NaN for an empty span."""
    capacity = schedule.cluster.num_gpus * (until_s - from_s)
    if not capacity > 0:
        return float("nan"), float("nan")
    job, gpus, start, end = running_intervals(schedule, until_s)
    inside = gpus * np.maximum(0.0, end - np.maximum(start, from_s))
    useful = inside * useful_rate(schedule)[job]
    return float(inside.sum() / capacity), float(useful.sum() / capacity)


def fragmentation(schedule: Schedule, until_s: float) -> float:
    """Mean share of GPUs free but of no use to the oldest waiting job; NaN for an empty span.

    The engine adds them up from the first counted submission on (``fragmented_from_s``), and ends with the last counted
    job, ``until_s``.
    """
    capacity = schedule.cluster.num_gpus * (until_s - schedule.fragmented_from_s)
    return float(schedule.fragmented_gpu_s / capacity) if capacity > 0 else float("nan")
