"""Pollux workloads (Qiao et al., OSDI '21): arrivals and sizes; the duration depends on the application's profile."""

from __future__ import annotations

from attn_sched.workload.readers.base import Reader, ReadOptions
from attn_sched.workload.readers.csvtable import read_csv
from attn_sched.workload.readers.simple import csv_builder
from attn_sched.workload.readers.source import Source
from attn_sched.workload.trace import Trace

COLUMNS = ("name", "time", "application", "num_replicas")


def _read(source: Source, options: ReadOptions) -> Trace:
    builder = csv_builder(source, "pollux", needs_duration=False)
    for block in read_csv(source, only=COLUMNS):
        builder.note("duration unknown: the format has none", len(block))
        builder.add(
            block.first,
            job_id=block.text("name"),
            submit_s=block.number("time"),
            num_gpus=block.number("num_replicas"),
            model=block.text("application"),
            fields=("name", "time", "duration", "num_replicas"),
        )
    return builder.finish()


POLLUX_READER = Reader(
    "pollux", "Pollux workload: no durations, so it cannot be replayed", lambda h: set(COLUMNS) <= set(h.header), _read
)
