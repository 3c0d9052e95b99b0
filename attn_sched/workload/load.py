"""Offered load: how much work arrives per unit of capacity, and bringing a workload to a given one."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from attn_sched.choices import LATER, LOAD_BY, check_choice
from attn_sched.errors import InputError
from attn_sched.seeding import stream
from attn_sched.workload.windows import warm_up, window
from attn_sched.workload.workload import Workload, require_jobs

NOTED_MISS = 0.05  # share of the load wanted by which the one reached may differ without a note


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
            at the number of jobs whose work is nearest to the target, over the unchanged span. It takes a whole log:
            a window would count fewer jobs than it should, so see :func:`thin_window`.
        seed: For "thin".
        later: What happens to the jobs after a window, which keep arriving until its last job has ended. "same": they
            get the window's factor; where the log is busier after the window than in it, they then overload the
            cluster. "steady": each further block of as many jobs is stretched to the same load.

    ``info`` says what was done; ``info["load_note"]`` is there when the load reached differs by more than 5 %.

    Raises:
        InputError: the load or a choice is impossible.
    """
    check_scaling(by, later)
    now = _load_before(workload, num_gpus, load)
    if later == "steady":
        scaled = _stretch_steadily(workload, num_gpus, now / load, load)
    else:
        scaled = _stretch(workload, now / load) if by == "stretch" else _thin(workload, now, load, seed)
    return _told(scaled, num_gpus, load, now, by, later)


def check_scaling(by: str, later: str) -> None:
    """Whether a way to scale the load and a treatment of the jobs after a window are known and go together.

    Raises:
        InputError: they are or do not.
    """
    check_choice(by, LOAD_BY, "load-by", "way to scale the load")
    check_choice(later, LATER, "later", "treatment")
    if later == "steady" and by != "stretch":
        raise InputError("thinning has one chance for all jobs", field="later", expected="'same' with it")


def thin_window(
    workload: Workload,
    first: int,
    last: int,
    num_gpus: int,
    load: float,
    *,
    warmup: int | None = None,
    seed: int = 0,
) -> Workload:
    """Thin a log until a window of as many jobs as ``first:last``, as far into it, offers a load.

    Which jobs stay is drawn once: fewer are always some of more. Warm-up and window are a block of consecutive jobs of
    the thinned log. It stands as far into the thinned log as the block of ``first:last`` into the whole one (the first
    block first, the last block last), so that it reaches over a longer time the fewer jobs stay. The load goes up and
    down with the number of jobs that stay, so the search for it begins at ``load`` over the window's own load and ends
    where the load is first crossed; it may jump over the one wanted there.

    Args:
        workload: A log that is neither cut nor scaled.
        first: First job of the window, as :func:`attn_sched.workload.windows.window` takes it.
        last: The job after its last one.
        num_gpus: GPUs of the cluster.
        load: The offered load wanted of the window and its warm-up.
        warmup: Jobs before the window, uncounted; default: as many as are counted.
        seed: Fixes the draw.

    Returns:
        The thinned log from the warm-up on, ``last - first`` jobs counted. ``info["window"]`` holds the positions that
        the first counted job and the one after the last had in ``workload``.

    Raises:
        InputError: the window is none, or offers less than ``load`` with all jobs.
    """
    whole = window(workload, first, last, warmup=warmup)
    now = _load_before(whole, num_gpus, load)
    if load > now:
        raise _cannot_raise(now, load)
    before = warm_up(first, last, warmup)
    block, jobs = before + last - first, len(workload)
    order = stream(seed, "load thinning").permutation(jobs)
    work, submit = workload.gpu_seconds, workload.submit_s

    def left(count: int) -> tuple[np.ndarray, int]:
        """The ``count`` jobs that stay, and where the block begins among them."""
        begin = round((first - before) * (count - block) / (jobs - block)) if jobs > block else 0
        return np.sort(order[:count]), begin

    def offered(count: int) -> float:
        kept, begin = left(count)
        inside = kept[begin : begin + block]
        span = float(submit[inside[-1]] - submit[inside[0]])
        return float(work[inside].sum()) / (num_gpus * span) if span > 0 else math.inf

    count = min(_crossing(offered, load, block, round(jobs * load / now), jobs), key=lambda c: abs(offered(c) - load))
    kept, begin = left(count)
    at = begin + before
    thinned = window(workload.select(kept), at, at + last - first, warmup=before)
    place = {"first": int(kept[at]), "last": int(kept[at + last - first - 1]) + 1, "warmup": before}
    return _told(thinned.replace(info={"window": place}), num_gpus, load, now, "thin", "same")


def _crossing(offered: Callable[[int], float], load: float, least: int, start: int, most: int) -> tuple[int, int]:
    """Neighbouring counts, of ``least .. most``, between which ``offered`` crosses ``load``, near ``start``.

    Steps of doubling length lead away from ``start``, upwards where too little is offered there, until the crossing is
    enclosed; then it is bisected. Where none is met on the way, both are the last count tried.
    """
    near = min(max(start, least), most)
    if math.isclose(offered(near), load):
        return near, near
    enough = offered(near) >= load
    step = max(1, near // 64)
    while True:
        far = max(near - step, least) if enough else min(near + step, most)
        if (offered(far) >= load) != enough:
            break
        if far in (least, most):
            return far, far
        near, step = far, 2 * step
    low, high = min(near, far), max(near, far)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if offered(middle) >= load else (middle, high)
    return low, high


def _load_before(workload: Workload, num_gpus: int, load: float) -> float:
    """The load that is to be changed; InputError when it or the one wanted is none."""
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
    return now


def _told(scaled: Workload, num_gpus: int, load: float, before: float, by: str, later: str) -> Workload:
    """The workload with what was done to its load."""
    achieved = offered_load(scaled, num_gpus)
    missed = abs(achieved - load) > NOTED_MISS * load
    info = {
        "load": load,
        "load_by": by,
        "load_later": later,
        "load_before": before,
        "load_achieved": achieved,
        "load_note": f"{achieved:.4g} is offered, {load:g} was asked for" if missed else None,
    }
    return scaled.replace(info=info)


def _cannot_raise(now: float, load: float) -> InputError:
    problem = f"thinning cannot raise the load from {now:.4g} to {load:g}"
    return InputError(problem, field="load-by", expected="a lower load, or 'stretch'")


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
    if not workload.counted.all():
        raise InputError(
            "a thinned window counts fewer jobs", field="load-by", expected="a whole log, or thin_window for a window"
        )
    if load > now:
        raise _cannot_raise(now, load)
    jobs = len(workload)
    # The first and the last stay, so that the span does.
    inner = 1 + stream(seed, "load thinning").permutation(jobs - 2)
    work = workload.gpu_seconds
    fixed = work[0] + work[-1]
    reached = np.concatenate(([fixed], fixed + np.cumsum(work[inner])))
    count = int(np.argmin(np.abs(reached - work.sum() * load / now)))
    return workload.select(np.sort(np.concatenate(([0, jobs - 1], inner[:count]))))
