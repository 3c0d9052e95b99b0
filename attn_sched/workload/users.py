"""Whose jobs they are: the log's users, one user a job, or skewed synthetic ones."""

from __future__ import annotations

import math

import numpy as np

from attn_sched.choices import USERS, check_choice
from attn_sched.seeding import stream
from attn_sched.workload.workload import Workload

UNKNOWN = "(unknown)"
TOP_USERS = 0.05
# Helios' top 5 % of users take 45 to 60 % of the GPU time (Hu et al., SC '21, user characterisation).
TOP_SHARE = 0.5
MAX_USERS = 400


def with_users(workload: Workload, spec: str, seed: int = 0) -> Workload:
    """Set ``user``; ``info["users"]`` says whose they are.

    ``trace``: the log's; jobs without one share the user "(unknown)"; a log that names none gets ``synthetic`` ones,
    labelled so.
    ``per-job``: each job its own. ``synthetic``: seeded, skewed as published: the top 5 % hold half of the GPU time.

    Estimates from ``history`` are per user and are not recomputed.

    Raises:
        InputError: the specification is unknown.
    """
    check_choice(spec, USERS, "users", "users")
    label = spec
    jobs = len(workload)
    if spec == "trace" and not (workload.trace_user >= 0).any():
        spec, label = "synthetic", "synthetic (the trace names no users)"
    if spec == "trace":
        names = workload.trace_user_names
        user = workload.trace_user
        if (user < 0).any():
            user = np.where(user < 0, len(names), user).astype(np.int32)
            names = (*names, UNKNOWN)
    elif spec == "per-job":
        user = np.arange(jobs, dtype=np.int32)
        names = tuple(workload.job_id.tolist())
    else:
        user = synthetic_users(workload.gpu_seconds, seed)
        names = tuple(f"user{i:03d}" for i in range(int(user.max()) + 1)) if jobs else ()
    return workload.replace(user=user, user_names=names, info={"users": label})


def shares(count: int) -> np.ndarray:
    """Shares of ``count`` users, largest first: a power law in the rank whose top 5 % hold half."""
    ranks = np.arange(1, count + 1, dtype=np.float64)
    top = math.ceil(TOP_USERS * count)

    def held(exponent: float) -> float:
        weights = ranks**-exponent
        return float(weights[:top].sum() / weights.sum())

    low, high = 0.0, 20.0
    if held(low) >= TOP_SHARE:  # one or two users
        return np.full(count, 1.0 / count)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if held(middle) < TOP_SHARE else (low, middle)
    weights = ranks**-high
    return np.asarray(weights / weights.sum())


def user_count(jobs: int, most: int = MAX_USERS) -> int:
    """How many synthetic users: about the square root of the jobs."""
    return min(most, max(1, round(math.sqrt(jobs))))


def synthetic_users(gpu_seconds: np.ndarray, seed: int) -> np.ndarray:
    """i4[J]: seeded users 0, 1, ... in falling order of their share of the GPU time."""
    return deal_jobs(gpu_seconds, shares(user_count(len(gpu_seconds))), stream(seed, "synthetic users"))


def deal_jobs(gpu_seconds: np.ndarray, size: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Give every job (i4[J]) one of ``len(size)`` users so that user i gets about the share ``size[i]`` of the GPU
    time.

    The jobs, shuffled, are laid end to end by their GPU time, and each user gets a stretch as long as its share: the
    skew holds to within one job, however heavy the tail of the durations.
    """
    jobs, count = len(gpu_seconds), len(size)
    order = rng.permutation(jobs)
    seats = rng.permutation(count)
    weights = np.asarray(gpu_seconds, dtype=np.float64)[order]
    if not weights.sum() > 0:
        weights = np.ones(jobs)
    middle = (np.cumsum(weights) - weights / 2) / weights.sum() if jobs else weights
    borders = np.cumsum(size[seats])
    slot = np.minimum(np.searchsorted(borders, middle, side="right"), count - 1)
    user = np.empty(jobs, np.int32)
    user[order] = seats[slot]
    return user
