"""Ordering rules: the key of a waiting job, smallest first. ``d`` is the estimate, at least one second."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tests.reference.job import Job

EXACT = frozenset({"fifo", "sjf", "ljf", "smallest", "largest", "saf", "random"})
"""Orders whose keys any program computes to the same last bit."""


@dataclass
class Usage:
    """What the orders over users know of the past."""

    gpus: int
    """GPUs of the cluster."""
    spent: dict[int, float] = field(default_factory=dict)
    """GPU-seconds of each user in runs that have ended."""
    active: list[tuple[float, int]] = field(default_factory=list)
    """(since when, number of users with a job waiting or running)."""

    def average_active(self, since: float, now: float) -> float:
        """Time-average of the number of active users over ``[since, now]``; the current number if they are equal."""
        if now <= since:
            return float(self.active[-1][1])
        total = 0.0
        for position, (begin, count) in enumerate(self.active):
            end = self.active[position + 1][0] if position + 1 < len(self.active) else now
            total += count * max(0.0, min(end, now) - max(begin, since))
        return total / (now - since)


def make_key(
    order: str, usage: Usage, runs: Callable[[], Iterable[tuple[Job, float]]], seed: int
) -> Callable[[Job, float], float]:
    """The key function ``(job, now)`` of ``order``; ``runs`` lists the running jobs with the start of their run."""
    draws: dict[int, float] = {}
    generator = random.Random(seed)

    def user_fair(job: Job, now: float) -> float:
        running = sum(other.gpus * (now - start) for other, start in runs() if other.user == job.user)
        return usage.spent.get(job.user, 0.0) + running

    def finish_time_fairness(job: Job, now: float) -> float:
        share = max(1.0, job.gpus * usage.average_active(job.submit, now) / usage.gpus)
        return -((now - job.submit) + job.d) / (job.d * share)

    def drawn(job: Job, now: float) -> float:
        return draws.setdefault(job.index, generator.random())

    keys: dict[str, Callable[[Job, float], float]] = {
        "fifo": lambda job, now: job.submit,
        "sjf": lambda job, now: job.d,
        "ljf": lambda job, now: -job.d,
        "smallest": lambda job, now: float(job.gpus),
        "largest": lambda job, now: -float(job.gpus),
        "saf": lambda job, now: job.gpus * job.d,
        "hrrn": lambda job, now: -((now - job.submit) + job.d) / job.d,
        "wfp3": lambda job, now: -(((now - job.submit) / job.d) ** 3) * job.gpus,
        "unicep": lambda job, now: -(now - job.submit) / (math.log2(max(job.gpus, 2)) * job.d),
        "f1": lambda job, now: math.log10(job.d) * job.gpus + 870 * math.log10(max(job.submit, 1.0)),
        "user-fair": user_fair,
        "ftf": finish_time_fairness,
        "random": drawn,
    }
    if order not in keys:
        raise ValueError(f"unknown order {order!r}")
    return keys[order]
