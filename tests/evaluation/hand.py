"""Schedules made by hand: a strict FIFO over one pool, so that metrics are tested without the engine."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

if TYPE_CHECKING:
    from attn_sched.simulator.schedule import Schedule

Job = tuple[float, float, int, int]  # submit_s, duration_s, num_gpus, user


def pool(islands: int = 1, gpus: int = 4, levels: tuple[str, ...] = ("gpu",)) -> Any:
    """As much of a cluster as the metrics look at: ``islands`` of ``gpus`` each."""
    return SimpleNamespace(
        name="pool",
        num_gpus=islands * gpus,
        num_islands=islands,
        level_names=levels,
        gpu_off=np.arange(0, islands * gpus + 1, gpus, dtype=np.int32),
    )


def workload(jobs: Sequence[Job], counted: Sequence[bool] | None = None, name: str = "hand", **info: object) -> Any:
    """As much of a workload as the metrics look at; jobs in order of submission."""
    submit, duration, gpus, user = (np.array(column) for column in zip(*jobs, strict=True))
    size = len(jobs)
    return SimpleNamespace(
        name=name,
        job_id=np.array([f"j{k}" for k in range(size)], dtype=object),
        submit_s=submit.astype(float),
        duration_s=duration.astype(float),
        num_gpus=gpus.astype(np.int32),
        user=user.astype(np.int32),
        user_names=tuple(f"u{k}" for k in range(int(user.max()) + 1)),
        cancel_s=np.full(size, np.inf),
        counted=np.ones(size, bool) if counted is None else np.array(counted, dtype=bool),
        info={"users": "trace", "estimate": "oracle", "dropped": {}, **info},
    )


def fifo(
    jobs: Sequence[Job],
    *,
    cluster: Any = None,
    counted: Sequence[bool] | None = None,
    segments: bool = True,
    slowdown: float = 1.0,
    policy: str = "fifo",
    **changes: Any,
) -> Schedule:
    """Strict FIFO: each job starts once it is at the head and its GPUs are free. GPUs fill island by island."""
    cluster = cluster or pool()
    load = workload(jobs, counted)
    free = np.diff(cluster.gpu_off).astype(int)
    running: list[tuple[float, int, list[tuple[int, int]]]] = []
    start, seg = np.empty(len(jobs)), []
    now = 0.0
    for k in range(len(jobs)):
        now = max(now, float(load.submit_s[k]))
        need = int(load.num_gpus[k])
        while running and (running[0][0] <= now or free.sum() < need):
            end, _, held = heapq.heappop(running)
            now = max(now, end)
            for island, count in held:
                free[island] += count
        start[k] = now
        held = []
        for island in range(free.size):
            take = min(int(free[island]), need - sum(count for _, count in held))
            if take:
                free[island] -= take
                held.append((island, take))
                seg.append((k, island, take, now, now + load.duration_s[k] * slowdown))
        heapq.heappush(running, (now + float(load.duration_s[k]) * slowdown, k, held))
    columns = list(zip(*seg, strict=True)) if segments else [(), (), (), (), ()]
    schedule = SimpleNamespace(
        workload=load,
        cluster=cluster,
        policy=policy,
        options={},
        start_s=start,
        finish_s=start + load.duration_s * slowdown,
        wait_s=start - load.submit_s,
        held_s=load.duration_s * slowdown,
        preemptions=np.zeros(len(jobs), np.int32),
        restarts=np.zeros(len(jobs), np.int32),
        level=np.zeros(len(jobs), np.int32),
        cancelled=np.zeros(len(jobs), bool),
        useful_fraction=np.ones(len(jobs)),
        seg_job=np.array(columns[0], np.int32),
        seg_island=np.array(columns[1], np.int32),
        seg_count=np.array(columns[2], np.int32),
        seg_start=np.array(columns[3], float),
        seg_end=np.array(columns[4], float),
        decisions=len(jobs),
        events=2 * len(jobs),
        engine_s=0.5,
        fragmented_gpu_s=0.0,
        fragmented_from_s=float(load.submit_s[load.counted].min(initial=np.inf)),
        decision_latency_s=np.empty(0),
    )
    for name, value in changes.items():
        setattr(schedule, name, value)
    return cast("Schedule", schedule)
