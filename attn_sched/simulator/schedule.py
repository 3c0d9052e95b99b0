"""What a replay leaves: when every job started and finished, and which GPUs it held."""

from __future__ import annotations

import heapq
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from attn_sched.cluster import Cluster
from attn_sched.simulator.layout import F8, I4
from attn_sched.workload import Workload

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(eq=False)
class Schedule:
    """One replay.

    Arrays are per job (J) in the workload's order, or per placement segment (S): one island of one running interval.
    """

    workload: Workload
    cluster: Cluster
    policy: str
    options: dict[str, object]  # JSON-able
    start_s: F8  # [J] first start; nan if it never started
    finish_s: F8  # [J] nan if it had not finished when the replay stopped
    wait_s: F8  # [J] sum of queued intervals, s
    held_s: F8  # [J] sum of running intervals, restart costs included, s
    preemptions: I4  # [J]
    restarts: I4  # [J] after failures
    level: I4  # [J] highest level crossed by the last placement; 0: none above the island's GPUs
    cancelled: np.ndarray  # bool[J]
    useful_fraction: F8  # [J] compute share of the ideal running time: tau W / d, in (0, 1]
    seg_job: I4  # [S]
    seg_island: I4  # [S]
    seg_count: I4  # [S] GPUs
    seg_start: F8  # [S] s
    seg_end: F8  # [S] s; nan if still running when the replay stopped
    decisions: int
    events: int
    engine_s: float  # seconds spent in the engine alone
    fragmented_gpu_s: float  # integral of the free GPUs that the oldest waiting job cannot use ...
    fragmented_from_s: float  # ... from this time on: the first counted submission
    decision_latency_s: F8 = field(default_factory=lambda: np.empty(0))  # sampled

    def gpu_segments(self) -> tuple[I4, np.ndarray]:
        """Exact GPU ids of every segment: (ids i4[sum of seg_count], offsets i8[S + 1]).

        The engine counts GPUs per island, since those of an island are alike; here each segment gets the lowest ids
        free at its start. Segments of one island are replayed in order of start, ends before starts at equal times.
        """
        count = len(self.seg_job)
        offsets = np.concatenate([[0], np.cumsum(self.seg_count, dtype=np.int64)])
        ids = np.empty(int(offsets[-1]), dtype=np.int32)
        free = [
            list(range(self.cluster.gpu_off[i], self.cluster.gpu_off[i + 1])) for i in range(self.cluster.num_islands)
        ]
        busy: list[list[tuple[float, int]]] = [[] for _ in range(self.cluster.num_islands)]  # (end, segment) heaps
        ends = np.where(np.isnan(self.seg_end), np.inf, self.seg_end)
        # Segments stand in the order in which the engine made them, which is also right among equal start times.
        for s in range(count):
            island = int(self.seg_island[s])
            start = self.seg_start[s]
            while busy[island] and busy[island][0][0] <= start:
                _, done = heapq.heappop(busy[island])
                for gpu in ids[offsets[done] : offsets[done + 1]]:
                    heapq.heappush(free[island], int(gpu))
            for k in range(offsets[s], offsets[s + 1]):
                ids[k] = heapq.heappop(free[island])
            heapq.heappush(busy[island], (float(ends[s]), s))
        return ids, offsets

    def to_arrow(self) -> pa.Table:
        """One row a job: what the trace said, start, finish, waits, and the segments with their exact GPU ids."""
        import pyarrow as pa

        w = self.workload
        ids, offsets = self.gpu_segments()
        order = np.argsort(self.seg_job, kind="stable")
        lengths = np.diff(offsets)[order]
        # GPU ids regrouped so that each job's segments stand together.
        take = (
            np.repeat(offsets[:-1][order], lengths)
            + np.arange(int(lengths.sum()))
            - np.repeat(np.cumsum(lengths) - lengths, lengths)
        )
        gpus = pa.ListArray.from_arrays(
            pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32()), pa.array(ids[take])
        )
        segment = pa.StructArray.from_arrays(
            [pa.array(self.seg_start[order]), _nullable(self.seg_end[order]), gpus], names=["start_s", "end_s", "gpus"]
        )
        per_job = np.bincount(self.seg_job, minlength=len(w.submit_s))
        segments = pa.ListArray.from_arrays(pa.array(np.concatenate([[0], np.cumsum(per_job)]), pa.int32()), segment)
        columns = {
            "job_id": pa.array([str(job) for job in w.job_id]),
            "user": pa.DictionaryArray.from_arrays(pa.array(w.user), pa.array(list(w.user_names), pa.string())),
            "num_gpus": pa.array(w.num_gpus),
            "model": pa.DictionaryArray.from_arrays(pa.array(w.model), pa.array(list(w.model_names), pa.string())),
            "submit_s": pa.array(w.submit_s),
            "duration_s": pa.array(w.duration_s),
            "estimate_s": pa.array(w.estimate_s),
            "counted": pa.array(w.counted),
            "start_s": _nullable(self.start_s),
            "finish_s": _nullable(self.finish_s),
            "wait_s": pa.array(self.wait_s),
            "held_s": pa.array(self.held_s),
            "preemptions": pa.array(self.preemptions),
            "restarts": pa.array(self.restarts),
            "cancelled": pa.array(self.cancelled),
            "level": pa.array(self.level),
            "segments": segments,
        }
        about = {"policy": self.policy, "cluster": self.cluster.name, "options": self.options, "workload": w.info}
        return pa.table(columns).replace_schema_metadata({"attn_sched_schedule": json.dumps(about, default=str)})


def _nullable(values: F8) -> pa.Array:
    import pyarrow as pa

    return pa.array(values, mask=np.isnan(values))
