"""What policies are told about a job's duration."""

from __future__ import annotations

import math
import re

import numpy as np

from attn_sched.errors import InputError
from attn_sched.seeding import stream
from attn_sched.workload.workload import Workload

KINDS = ("oracle", "requested", "history")  # beside lognormal(SIGMA)
FIRST_GUESS_S = 3600.0  # before any job has ended there is no history: one hour
MAX_SIGMA = 20.0
_LOGNORMAL = re.compile(r"lognormal\(\s*([0-9.eE+-]+)\s*\)")


def check_estimate(spec: str) -> tuple[str, float]:
    """A specification as its kind ("oracle", "lognormal", "requested" or "history") and sigma (0 but for "lognormal").

    Raises:
        InputError: the kind is unknown, or sigma no number from 0 to 20.
    """
    spec = spec.strip()
    lognormal = _LOGNORMAL.fullmatch(spec)
    if not lognormal:
        if spec not in KINDS:
            raise InputError(
                f"unknown estimate {spec!r}",
                field="estimate",
                expected="oracle, lognormal(SIGMA), requested or history",
            )
        return spec, 0.0
    try:
        sigma = float(lognormal.group(1))
    except ValueError:
        sigma = math.nan
    if not 0 <= sigma <= MAX_SIGMA:
        raise InputError(
            f"{spec!r} has no valid sigma", field="estimate", expected=f"0 to {MAX_SIGMA:g}, such as lognormal(1)"
        )
    return "lognormal", sigma


def with_estimates(workload: Workload, spec: str, seed: int = 0) -> Workload:
    """Set ``estimate_s``; ``info["estimates"]`` records the choice.

    ``oracle``: the true duration. ``lognormal(sigma)``: the true one times exp(sigma z), z standard normal, so that
    half of the estimates are too low. ``requested``: the time the user asked for; where a job names none, its
    ``history`` estimate, counted. ``history``: the mean duration of the user's earlier jobs that had ended by the
    submission (``submit + duration <= submit of this one``, on the log's own clock); where there are none, the mean
    over all users; before any has ended, one hour.

    Raises:
        InputError: the specification is unknown, or no job names a requested time.
    """
    kind, sigma = check_estimate(spec)
    notes: dict[str, int] = {}
    if kind == "oracle":
        estimate = workload.duration_s.copy()
    elif kind == "lognormal":
        noise = stream(seed, "estimates").standard_normal(len(workload))
        estimate = workload.duration_s * np.exp(sigma * noise)
    elif kind == "requested":
        known = np.isfinite(workload.requested_s)
        if not known.any():
            problem = "names no requested times"
            raise InputError(
                problem, file=workload.name, field="estimate", expected="oracle, lognormal(SIGMA) or history"
            )
        estimate = workload.requested_s
        if not known.all():
            estimate = np.where(known, estimate, history(workload))
            notes["no requested time: history used"] = int((~known).sum())
    else:
        estimate = history(workload)
    return workload.replace(estimate_s=estimate, info={"estimates": spec.strip(), "estimate_notes": notes})


def history(workload: Workload) -> np.ndarray:
    """The ``history`` estimates. Vectorised: one sort of submissions and ends."""
    jobs = len(workload)
    mean, count = _running_mean(workload.submit_s, workload.duration_s, workload.user)
    everyone, any_count = _running_mean(workload.submit_s, workload.duration_s, np.zeros(jobs, np.int32))
    return np.where(count > 0, mean, np.where(any_count > 0, everyone, FIRST_GUESS_S))


def _running_mean(submit: np.ndarray, duration: np.ndarray, owner: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and number of the owner's durations that ended at or before each submission."""
    jobs = len(submit)
    index = np.arange(jobs)
    # An end at the moment of a submission is known to it. Jobs of duration 0 end when they are submitted: those come in
    # the order of the log, each one's question before its own end.
    after_asks = np.concatenate((duration == 0, np.ones(jobs, bool)))
    is_ask = np.repeat(np.array([False, True]), jobs)
    owners = np.concatenate((owner, owner))
    times = np.concatenate((submit + duration, submit))
    order = np.lexsort((~is_ask, np.concatenate((index, index)), after_asks, times, owners))
    is_end = order < jobs
    source = np.where(is_end, order, order - jobs)
    done = np.cumsum(is_end)
    total = np.cumsum(np.where(is_end, duration[source], 0.0))
    # Start every owner at zero.
    starts = np.flatnonzero(np.diff(owners[order], prepend=owners[order][:1] - 1)) if jobs else np.empty(0, np.int64)
    sizes = np.diff(np.append(starts, len(order)))
    base_done = np.repeat(np.where(starts > 0, done[starts - 1], 0), sizes)
    base_total = np.repeat(np.where(starts > 0, total[starts - 1], 0.0), sizes)
    asked = ~is_end
    count = np.empty(jobs, np.int64)
    summed = np.empty(jobs)
    count[source[asked]] = (done - base_done)[asked]
    summed[source[asked]] = (total - base_total)[asked]
    # Differences of long sums may fall a hair below zero.
    return np.maximum(summed, 0.0) / np.maximum(count, 1), count
