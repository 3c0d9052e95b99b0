"""Offered load: how much work arrives per unit of capacity, and bringing a workload to a given one."""

from __future__ import annotations

import math

import numpy as np

from attn_sched.errors import InputError
from attn_sched.seeding import stream
from attn_sched.workload.workload import Workload, require_jobs

LOAD_BY = ("stretch", "thin")
LATER = ("same", "steady")


def reference_jobs(workload: Workload) -> int:
    """How many jobs the load is measured over: all up to the last counted one (the window and its warm-up)."""
    counted = np.flatnonzero(workload.counted)
    return int(counted[-1]) + 1 if len(counted) else len(workload)


def offered_load(workload: Workload, num_gpus: int) -> float:
    """rho = sum(n d) / (GPUs x span), span from the first to the last submission of the window and its warm-up.

    Infinite when all of them are submitted at once.
    """
    end = reference_jobs(workload)
    work = float(workload.gpu_seconds[:end].sum())
    span = float(workload.submit_s[end - 1] - workload.submit_s[0]) if end else 0.0
    return work / (num_gpus * span) if span > 0 else math.inf


def scale_load(
    workload: Workload, num_gpus: int, load: float, by: str = "stretch", seed: int = 0, later: str = "same"
) -> Workload:
    """Bring a workload to an offered load.

    Args:
        workload: At least two different submit times among the jobs that count and their warm-up.
        num_gpus: GPUs of the cluster.
        load: The offered load wanted, above 0; above 1 the queue grows for ever.
        by: "stretch" multiplies all inter-arrival times by one factor, which is exact; the first submission stays.
            "thin" keeps jobs drawn at random, which keeps the rhythm of the day but can only lower the load; it stops
            at the number of jobs whose work is nearest to the target, over the unchanged span.
        seed: For "thin".
        later: What happens to the jobs after a window, which keep arriving until its last job has ended. "same": they
            get the window's factor (or chance to stay); where the log is busier after the window than in it, they then
            overload the cluster. "steady": each further block of as many jobs is stretched to the same load.

    ``info`` says what was done.

    Raises:
        InputError: the load or a choice is impossible.
    """
    if by not in LOAD_BY:
        raise InputError(
            f"unknown way to scale the load {by!r}", field="load-by", expected=f"one of {', '.join(LOAD_BY)}"
        )
    if not (math.isfinite(load) and load > 0):
        raise InputError(f"{load} is no load", field="load", expected="a number above 0, such as 0.9")
    if num_gpus < 1:
        raise InputError(f"{num_gpus} GPUs", field="cluster", expected="at least one GPU")
    require_jobs(workload, "scale the load of")
    now = offered_load(workload, num_gpus)
    if not math.isfinite(now):
        raise InputError(
            "all its jobs are submitted at once", file=workload.name, field="load", expected="a span of time"
        )
    if now <= 0:
        raise InputError("its jobs take no time", file=workload.name, field="load", expected="durations above 0")
    if later not in LATER:
        raise InputError(f"unknown treatment {later!r}", field="later", expected=f"one of {', '.join(LATER)}")
    if later == "steady":
        if by != "stretch":
            raise InputError("thinning has one chance for all jobs", field="later", expected="'same' with it")
        scaled = _stretch_steadily(workload, num_gpus, now / load, load)
    else:
        scaled = _stretch(workload, now / load) if by == "stretch" else _thin(workload, now, load, seed)
    info = {
        "load": load,
        "load_by": by,
        "load_later": later,
        "load_before": now,
        "load_achieved": offered_load(scaled, num_gpus),
    }
    return scaled.replace(info=info)


def _stretch(workload: Workload, factor: float) -> Workload:
    first = workload.submit_s[0]
    submit = first + (workload.submit_s - first) * factor
    # A user who gives up does so after the same time as before.
    return workload.replace(submit_s=submit, cancel_s=submit + (workload.cancel_s - workload.submit_s))


def _stretch_steadily(workload: Workload, num_gpus: int, factor: float, load: float) -> Workload:
    """Stretch the window by ``factor`` and every later block of as many jobs so that it offers ``load`` by itself."""
    jobs, block = len(workload), reference_jobs(workload)
    number = np.arange(jobs) // block
    starts = np.arange(0, jobs, block)
    work = np.add.reduceat(workload.gpu_seconds, starts)
    # A block lasts from its first submission to the next block's, so that blocks join without a gap.
    edges = np.append(workload.submit_s[starts], workload.submit_s[-1])
    spans = np.diff(edges)
    with np.errstate(divide="ignore", invalid="ignore"):
        factors = work / (num_gpus * spans) / load
    # A last block that is short, or one submitted at once, says nothing about the rhythm: it keeps the window's factor.
    factors[~np.isfinite(factors) | (factors <= 0)] = factor
    factors[0] = factor
    if jobs % block:
        factors[-1] = factor
    gaps = np.diff(workload.submit_s, prepend=workload.submit_s[0])
    gaps[1:] *= factors[number[:-1]]
    submit = workload.submit_s[0] + np.cumsum(gaps)
    return workload.replace(submit_s=submit, cancel_s=submit + (workload.cancel_s - workload.submit_s))


def _thin(workload: Workload, now: float, load: float, seed: int) -> Workload:
    if load > now:
        problem = f"thinning cannot raise the load from {now:.4g} to {load:g}"
        raise InputError(problem, field="load-by", expected="a lower load, or 'stretch'")
    end = reference_jobs(workload)
    rng = stream(seed, "load thinning")
    # The first and the last stay, so that the span does.
    inner = 1 + rng.permutation(end - 2)
    work = workload.gpu_seconds[:end]
    fixed = work[0] + work[end - 1]
    reached = np.concatenate(([fixed], fixed + np.cumsum(work[inner])))
    count = int(np.argmin(np.abs(reached - work.sum() * load / now)))
    keep = np.zeros(len(workload), bool)
    keep[[0, end - 1]] = True
    keep[inner[:count]] = True
    share = keep[:end].mean()
    keep[end:] = rng.random(len(workload) - end) < share
    return workload.select(np.flatnonzero(keep))
