"""Comparisons of hand-made schedules, for the report and the tables."""

from __future__ import annotations

from typing import Any

import numpy as np

from attn_sched.evaluation.comparison import Cell, Comparison, ComparisonPlan, reduce
from attn_sched.evaluation.setup import WorkloadSpec
from tests.evaluation.hand import Job, fifo, pool


def jobs(count: int, seed: int = 0, gap_s: float = 60.0) -> list[Job]:
    """Random jobs on at most 4 GPUs, four users."""
    draw = np.random.default_rng(seed)
    submit = np.cumsum(draw.exponential(gap_s, count))
    return [
        (float(submit[k]), float(draw.exponential(200)), int(draw.choice([1, 1, 2, 4])), int(draw.integers(4)))
        for k in range(count)
    ]


def comparison(
    policies: tuple[str, ...] = ("fifo", "slower"),
    loads: tuple[float | None, ...] = (None,),
    windows: int | None = 6,
    *,
    cluster: Any = None,
    trace: str = "hand",
    info: dict[str, object] | None = None,
    size: int = 40,
) -> Comparison:
    """Strict FIFO under every name, the k-th policy stretching its jobs by 5 k %."""
    cluster = cluster or pool(islands=2, gpus=4)
    plan = ComparisonPlan(policies, loads, windows, window_jobs=size, workload=WorkloadSpec(seed=3))
    cells = []
    for place, load in enumerate(loads):
        for k, policy in enumerate(policies):
            results = []
            for number in range(windows or 1):
                of_window = jobs(size, seed=number, gap_s=60.0 / (1 + place))
                schedule = fifo(of_window, cluster=cluster, slowdown=1 + 0.05 * k, policy=policy)
                bounds = None if windows is None else (number * size, (number + 1) * size)
                results.append(reduce(schedule, bounds, draw=number == 0 and place == 0 and k < 2))
            cells.append(Cell(policy, load, tuple(results), 3))
    known = {"users": "trace", "estimates": "oracle", "dropped": {}, **(info or {})}
    return Comparison(plan, trace, cluster, {"comm": True}, known, size * (windows or 1), tuple(cells))
