"""Which GPU ran what over a stretch of time: bars for a small cluster, occupancy of groups of GPUs for a large one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from attn_sched.simulator.schedule import Schedule
    from attn_sched.workload import Workload

ROWS = 128  # GPUs drawn one by one; above, neighbours share a row
BARS = 3_000  # more bars than this in one picture are noise: occupancy instead
BINS = 240  # time steps of an occupancy picture
RANGE_JOBS = 256  # jobs whose submissions set the stretch of a whole-trace replay on a small cluster
RANGE_S = 86_400.0  # how long it is on a large one


@dataclass(frozen=True)
class Bar:
    """A job on adjacent rows."""

    row: int
    rows: int
    start_s: float
    end_s: float
    job: int  # index in the workload
    job_id: str
    gpus: int  # of the job, on these rows or not


@dataclass(frozen=True, eq=False)
class Gantt:
    """One picture. ``bars`` when every row is a GPU, else ``occupancy`` f8[rows, BINS] in 0..1."""

    from_s: float
    to_s: float
    rows: int
    gpus_per_row: int
    dividers: tuple[int, ...]  # rows at which a new node begins
    bars: tuple[Bar, ...] = ()
    occupancy: NDArray[np.float64] | None = None


def draw_range(workload: Workload, num_gpus: int) -> tuple[float, float]:
    """A stretch worth drawing, the same under every policy: while the counted jobs are submitted.

    Of many counted jobs, the middle 256 where every GPU has its row; on a larger cluster, where so few would be over in
    minutes, the day in which most are submitted.
    """
    counted = np.flatnonzero(np.asarray(workload.counted, dtype=bool))
    submit = np.asarray(workload.submit_s, dtype=np.float64)
    if counted.size > 2 * RANGE_JOBS and num_gpus > ROWS:
        times = np.sort(submit[counted])
        within = np.searchsorted(times, times + RANGE_S) - np.arange(times.size)
        begin = max(float(times[0]), min(float(times[np.argmax(within)]), float(times[-1]) - RANGE_S))
        return begin, begin + RANGE_S
    if counted.size > 2 * RANGE_JOBS:
        middle = counted.size // 2
        counted = counted[middle - RANGE_JOBS // 2 : middle + RANGE_JOBS // 2]
    first, last = float(submit[counted[0]]), float(submit[counted[-1]])
    # A burst of submissions is over before anything happens: give the typical job time to end.
    least = 3.0 * float(np.median(np.asarray(workload.duration_s, dtype=np.float64)[counted]))
    return first, first + max(1.1 * (last - first), least, 1.0)


def gantt_of(schedule: Schedule, from_s: float, to_s: float) -> Gantt | None:
    """The placement of every GPU between two times; None when the engine recorded no segments.

    GPUs of one island are alike, so which of them a job had is drawn as the lowest free numbers.
    """
    job = np.asarray(schedule.seg_job)
    if job.size == 0:
        return None
    start = np.asarray(schedule.seg_start, dtype=np.float64)
    end = np.asarray(schedule.seg_end, dtype=np.float64)
    end = np.where(np.isnan(end), np.inf, end)
    seen = np.flatnonzero((start < to_s) & (end > from_s) & (end > start))
    seen = seen[np.argsort(start[seen], kind="stable")]
    island = np.asarray(schedule.seg_island)[seen]
    lanes = _lanes(
        np.asarray(schedule.cluster.gpu_off), island, np.asarray(schedule.seg_count)[seen], start[seen], end[seen]
    )
    per_row = -(-schedule.cluster.num_gpus // ROWS)
    rows = -(-schedule.cluster.num_gpus // per_row)
    runs = [
        (k, int(run[0]), len(run))
        for k, of in enumerate(lanes)
        for run in np.split(of, np.flatnonzero(np.diff(of) > 1) + 1)
    ]
    begins, ends = np.maximum(start[seen], from_s), np.minimum(end[seen], to_s)
    dividers = tuple(int(gpu) for gpu in np.asarray(schedule.cluster.gpu_off)[1:-1]) if per_row == 1 else ()
    if per_row == 1 and len(runs) <= BARS:
        workload = schedule.workload
        bars = tuple(
            Bar(
                row,
                height,
                float(begins[k]),
                float(ends[k]),
                int(job[seen[k]]),
                str(workload.job_id[job[seen[k]]]),
                int(workload.num_gpus[job[seen[k]]]),
            )
            for k, row, height in runs
        )
        return Gantt(from_s, to_s, rows, per_row, dividers, bars=bars)
    row = np.array([gpu // per_row for of in lanes for gpu in of], dtype=np.int64)
    owner = np.repeat(np.arange(seen.size), [len(of) for of in lanes])
    return Gantt(
        from_s,
        to_s,
        rows,
        per_row,
        dividers,
        occupancy=_occupancy(schedule.cluster.num_gpus, per_row, row, begins[owner], ends[owner], from_s, to_s),
    )


def _lanes(
    gpu_off: NDArray[np.int32],
    island: NDArray[np.int32],
    count: NDArray[np.int32],
    start: NDArray[np.float64],
    end: NDArray[np.float64],
) -> list[NDArray[np.int64]]:
    """GPU ids of each segment (sorted by start): the lowest of its island that are free then."""
    free_at = np.full(int(gpu_off[-1]), -np.inf)
    lanes = []
    for k in range(island.size):
        lo, hi = gpu_off[island[k]], gpu_off[island[k] + 1]
        free = np.flatnonzero(free_at[lo:hi] <= start[k])[: count[k]] + lo
        free_at[free] = end[k]
        lanes.append(free.astype(np.int64))
    return lanes


def _occupancy(
    gpus: int,
    per_row: int,
    row: NDArray[np.int64],
    start: NDArray[np.float64],
    end: NDArray[np.float64],
    from_s: float,
    to_s: float,
) -> NDArray[np.float64]:
    """Share of each row's GPU time that is held in each of ``BINS`` equal steps."""
    rows = -(-gpus // per_row)
    edges = np.linspace(from_s, to_s, BINS + 1)
    held = np.empty((BINS + 1, rows))
    for k, edge in enumerate(edges):
        held[k] = np.bincount(row, weights=np.clip(np.minimum(end, edge) - start, 0.0, None), minlength=rows)
    size = np.minimum(per_row, gpus - per_row * np.arange(rows))
    return np.clip(np.diff(held, axis=0).T / (size[:, None] * (to_s - from_s) / BINS), 0.0, 1.0)
