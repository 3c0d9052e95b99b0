"""Fairness between users: Jain, Gini and the finish-time ratio."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attn_sched.simulator.layout import MIN_ESTIMATE

Floats = NDArray[np.float64]


def jain(x: Floats) -> float:
    """Jain's index ``(sum x)^2 / (m sum x^2)`` in (0, 1]; 1 when all are equal, NaN for no values.

    Source: Jain, Chiu, Hawe, "A quantitative measure of fairness and discrimination", 1984.
    """
    if x.size == 0:
        return float("nan")
    top = float(np.max(np.abs(x)))
    if top == 0.0:
        return 1.0
    scaled = x / top  # squares of large values must not overflow
    return min(1.0, float(scaled.sum() ** 2 / (x.size * np.square(scaled).sum())))


def gini(x: Floats) -> float:
    """Gini coefficient of non-negative values in [0, 1); 0 when all are equal, NaN for no values.

    ``sum_i sum_j |x_i - x_j| / (2 m^2 mean)``, computed from the sorted values.
    """
    if x.size == 0:
        return float("nan")
    total = float(x.sum())
    if total == 0.0:
        return 0.0
    ranked = np.sort(x)
    rank = np.arange(1, x.size + 1, dtype=np.float64)
    return max(0.0, float(2.0 * (rank @ ranked) / (x.size * total) - (x.size + 1) / x.size))


def mean_by_user(values: Floats, user: NDArray[np.integer]) -> Floats:
    """Mean of ``values`` for each user that occurs, in order of user number."""
    if values.size == 0:
        return np.empty(0)
    counts = np.bincount(user)
    sums = np.bincount(user, weights=values)
    present = counts > 0
    return sums[present] / counts[present]


def active_user_steps(user: NDArray[np.integer], arrive_s: Floats, leave_s: Floats) -> tuple[Floats, Floats]:
    """Number of active users as a step function: change times (s, sorted) and the count from each of them on.

    A user is active while any of its jobs is in the system, [arrive, leave). ``leave_s`` must be finite.
    """
    times = np.concatenate([arrive_s, leave_s])
    change = np.concatenate([np.ones(arrive_s.size, np.int64), np.full(leave_s.size, -1, np.int64)])
    who = np.concatenate([user, user])
    # Arrivals before departures at one instant, so that back-to-back jobs keep their user active.
    order = np.lexsort((-change, times, who))
    times, change = times[order], change[order]
    # Every user's changes sum to zero, so one running sum over all users is each user's number of jobs.
    jobs = np.cumsum(change)
    starts = (jobs == 1) & (change == 1)
    stops = jobs == 0
    at = np.concatenate([times[starts], times[stops]])
    step = np.concatenate([np.ones(int(starts.sum()), np.int64), np.full(int(stops.sum()), -1, np.int64)])
    order = np.argsort(at, kind="stable")
    return at[order], np.cumsum(step[order]).astype(np.float64)


def mean_active_users(
    user: NDArray[np.integer], arrive_s: Floats, leave_s: Floats, start_s: Floats, end_s: Floats
) -> Floats:
    """Time average of the number of active users over each [start_s, end_s]; 1 where the interval is empty.

    The first three describe all jobs of the replay; ``start_s`` and ``end_s`` are the intervals asked about.
    """
    at, count = active_user_steps(user, arrive_s, leave_s)
    span = end_s - start_s
    if at.size == 0:
        return np.ones_like(span)
    prefix = np.concatenate([[0.0], np.cumsum(np.diff(at) * count[:-1])])

    def integral(t: Floats) -> Floats:
        before = np.searchsorted(at, t, side="right") - 1
        inside = np.maximum(before, 0)
        return np.where(before >= 0, prefix[inside] + (t - at[inside]) * count[inside], 0.0)

    area = integral(end_s) - integral(start_s)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = area / span
    # A job's own user is active all along: below 1 is rounding of the prefix sums.
    return np.where(span > 0, np.maximum(mean, 1.0), 1.0)


def finish_time_ratio(
    jct_s: Floats, duration_s: Floats, num_gpus: NDArray[np.integer], active: Floats, cluster_gpus: int
) -> Floats:
    """``JCT / (max(d, 1 s) * max(1, n A / N))``: completion against an even split among active users.

    Source: Mahajan et al., "Themis: Fair and efficient GPU cluster scheduling", NSDI 2020 (its rho), with the
    time-average number of active users ``A`` for the number of sharers.
    """
    share = np.maximum(1.0, num_gpus * active / cluster_gpus)
    return jct_s / (np.maximum(duration_s, MIN_ESTIMATE) * share)
