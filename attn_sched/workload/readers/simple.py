"""Tables that already say submit time, duration and GPUs, under fixed headers."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from attn_sched.workload.readers.base import Reader, ReadOptions
from attn_sched.workload.readers.builder import TraceBuilder
from attn_sched.workload.readers.csvtable import Block, read_csv
from attn_sched.workload.readers.source import Head, Source
from attn_sched.workload.trace import Trace

GOLDEN = ("job_id", "submit_time", "num_gpus", "duration")
MIRROR = ("job_id", "arrival_s", "service_sec", "gpu_count")
TIMESTAMP = ("timestamp", "duration", "num_gpus", "gpu_time", "cluster")
CLAMP_S = 172_800.0  # both public mirrors cut durations at 48 h
MILLISECOND = 1e-3
# Columns that the Muri authors added to the Tiresias format; their times are milliseconds.
MURI_ONLY = frozenset({"resource_time_0", "resource_time_1", "resource_time_2", "priority"})


def csv_builder(source: Source, format: str, *, header: bool = True, needs_duration: bool = True) -> TraceBuilder:
    """A builder that names lines of ``source``."""
    shift = 1 if header else 0
    return TraceBuilder(source.path, format, lambda n: source.line_of(n + shift), needs_duration=needs_duration)


def row_ids(block: Block) -> pa.Array:
    """Names for jobs that have none: the row's number, from 0."""
    return pa.array(np.arange(block.first, block.first + len(block))).cast(pa.string())


def _read_golden(source: Source, options: ReadOptions) -> Trace:
    builder = csv_builder(source, "golden")
    for block in read_csv(source, only=GOLDEN):
        builder.add(
            block.first,
            job_id=block.text("job_id"),
            submit_s=block.number("submit_time"),
            duration_s=block.number("duration"),
            num_gpus=block.number("num_gpus"),
            negative_duration="error",
        )
    return builder.finish()


def _read_mirror(source: Source, options: ReadOptions) -> Trace:
    builder = csv_builder(source, "mirror")
    for block in read_csv(source, only=MIRROR):
        duration = block.number("service_sec")
        builder.note("duration exactly 172,800 s: probably clamped by the mirror", int((duration == CLAMP_S).sum()))
        builder.add(
            block.first,
            job_id=block.text("job_id"),
            submit_s=block.number("arrival_s"),
            duration_s=duration,
            num_gpus=block.number("gpu_count"),
            negative_duration="error",
            fields=MIRROR,
        )
    return builder.finish()


def _read_timestamp(source: Source, options: ReadOptions) -> Trace:
    builder = csv_builder(source, "timestamp")
    zoned = False
    for block in read_csv(source, only=TIMESTAMP):
        submit, zoned = block.time("timestamp")
        builder.add(
            block.first,
            job_id=row_ids(block),
            submit_s=submit,
            duration_s=block.number("duration"),
            num_gpus=block.number("num_gpus"),
            negative_duration="error",
            negative_submit=True,
            group=block.text("cluster"),
            fields=("row", "timestamp", "duration", "num_gpus"),
        )
    return builder.finish(calendar=True, zoned=zoned)


def _is_tiresias(head: Head) -> bool:
    return {"job_id", "num_gpu", "submit_time", "duration"} <= set(head.header)


def _read_tiresias(source: Source, options: ReadOptions) -> Trace:
    builder = csv_builder(source, "tiresias")
    for block in read_csv(source, only=("job_id", "num_gpu", "submit_time", "duration", "model_name")):
        builder.add(
            block.first,
            job_id=block.text("job_id"),
            submit_s=block.number("submit_time"),
            duration_s=block.number("duration"),
            num_gpus=block.number("num_gpu"),
            negative_duration="error",
            model=block.optional("model_name"),
            fields=("job_id", "submit_time", "duration", "num_gpu"),
        )
    return builder.finish()


def _read_muri(source: Source, options: ReadOptions) -> Trace:
    builder = csv_builder(source, "muri")
    for block in read_csv(source, only=("job_id", "num_gpu", "submit_time", "duration")):
        builder.note("model and iteration columns ignored: the Muri authors made them up", len(block))
        builder.add(
            block.first,
            job_id=block.text("job_id"),
            submit_s=block.number("submit_time", unit=MILLISECOND),
            duration_s=block.number("duration", unit=MILLISECOND),
            num_gpus=block.number("num_gpu"),
            negative_duration="error",
            fields=("job_id", "submit_time", "duration", "num_gpu"),
        )
    return builder.finish()


GOLDEN_READER = Reader(
    "golden",
    "job_id,submit_time,num_gpus,duration in seconds",
    lambda h: sorted(h.header) == sorted(GOLDEN),
    _read_golden,
)
MIRROR_READER = Reader(
    "mirror",
    "four-column mirrors of Helios and PAI: job_id,arrival_s,service_sec,gpu_count",
    lambda h: h.header == MIRROR,
    _read_mirror,
)
TIMESTAMP_READER = Reader(
    "timestamp",
    "timestamp,duration,num_gpus,gpu_time,cluster (Philly in the Pollux, Sia and ElasticFlow artifacts)",
    lambda h: set(TIMESTAMP) <= set(h.header),
    _read_timestamp,
)
TIRESIAS_READER = Reader(
    "tiresias",
    "Tiresias simulator CSV, seconds",
    lambda h: _is_tiresias(h) and not MURI_ONLY & set(h.header),
    _read_tiresias,
)
MURI_READER = Reader(
    "muri",
    "Muri CSV: Tiresias with resource_time and priority columns, milliseconds",
    lambda h: _is_tiresias(h) and bool(MURI_ONLY & set(h.header)),
    _read_muri,
)
