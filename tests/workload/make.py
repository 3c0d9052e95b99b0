"""Traces and workloads by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from attn_sched.workload import Trace, Workload, build_workload
from attn_sched.workload.trace import Provenance, make_table


def make_trace(
    submit: Sequence[float], duration: Sequence[float], gpus: Sequence[int] | None = None, **columns: Any
) -> Trace:
    """A trace by hand; job ids 0, 1, ..."""
    jobs = len(submit)
    table = make_table(
        {
            "job_id": np.arange(jobs).astype(str),
            "submit_time": np.asarray(submit, dtype=float),
            "duration": np.asarray(duration, dtype=float),
            "num_gpus": np.ones(jobs, np.int32) if gpus is None else np.asarray(gpus, np.int32),
            **columns,
        },
        jobs,
    )
    return Trace(table, Provenance("hand.csv", "golden", jobs))


def make_workload(
    submit: Sequence[float], duration: Sequence[float], gpus: Sequence[int] | None = None, **columns: Any
) -> Workload:
    return build_workload(make_trace(submit, duration, gpus, **columns))
