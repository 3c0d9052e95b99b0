"""Our own Parquet."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from attn_sched.errors import InputError
from attn_sched.workload.readers.base import Reader, ReadOptions
from attn_sched.workload.readers.builder import TraceBuilder
from attn_sched.workload.readers.source import Source, reading
from attn_sched.workload.trace import METADATA_KEY, SCHEMA, Provenance, Trace, later_epoch

REQUIRED = ("job_id", "submit_time", "num_gpus")


def _load(source: Source) -> pa.Table:
    with reading(source.path):
        try:
            with source.open() as stream:
                table = pq.read_table(pa.BufferReader(stream.read()), use_threads=False)
            table.validate(full=True)
            names = table.column_names
        except PermissionError:
            raise
        except (pa.ArrowException, OSError, MemoryError, ValueError, TypeError, KeyError, OverflowError) as error:
            # All of these were seen, or are documented, for files with flipped bytes.
            reason = " ".join(str(error).split())[:160]
            raise InputError(f"is a truncated or damaged Parquet file ({reason})", file=source.path) from error
    if len(set(names)) != len(names):
        raise InputError("two columns share a name", file=source.path)
    return table


def _read(source: Source, options: ReadOptions) -> Trace:
    table = _load(source)
    for name in REQUIRED:
        if name not in table.column_names:
            expected = "a trace written by this program: " + ", ".join(SCHEMA.names)
            raise InputError("the column is missing", file=source.path, field=name, expected=expected)
    columns: dict[str, pa.Array] = {}
    for item in SCHEMA:
        if item.name not in table.column_names:
            continue
        try:
            # Text from numbers is fine (job ids), numbers from text are not.
            column = table[item.name].combine_chunks()
            columns[item.name] = column.cast(pa.float64() if item.type == pa.int32() else item.type)
        except (pa.ArrowException, OverflowError) as error:
            raise InputError(f"is no {item.type}", file=source.path, field=item.name) from error
    numbers = {}
    for name in ("submit_time", "duration", "num_gpus", "requested_time"):
        if name not in columns:
            continue
        values = np.array(columns[name].to_numpy(zero_copy_only=False), dtype=np.float64)
        known = ~columns[name].is_null().to_numpy(zero_copy_only=False)
        required = name in REQUIRED
        bad = np.flatnonzero(~np.isfinite(values) & (known | required))
        if len(bad):
            problem = "is not a finite number" if known[bad[0]] else "is missing"
            raise InputError(problem, file=source.path, row=int(bad[0]) + 1, field=name, expected="a number")
        numbers[name] = values
    for name in ("duration", "requested_time"):
        if name in columns and columns[name].null_count == table.num_rows:
            numbers.pop(name)
    builder = TraceBuilder(source.path, "parquet", lambda record: record + 1, needs_duration=False)
    text: dict[str, Any] = {name: columns.get(name) for name in ("user", "group", "gpu_type", "model", "status")}
    builder.add(
        0,
        job_id=columns["job_id"],
        submit_s=numbers["submit_time"],
        duration_s=numbers.get("duration"),
        num_gpus=numbers["num_gpus"],
        requested_time=numbers.get("requested_time"),
        negative_duration="error",
        **text,
    )
    trace = builder.finish()
    stored = (table.schema.metadata or {}).get(METADATA_KEY)
    if stored is None:
        return trace
    try:
        provenance = Provenance.from_json(stored)
    except (ValueError, RecursionError) as error:
        raise InputError(f"its provenance metadata is damaged ({error})", file=source.path) from error
    first = float(numbers["submit_time"].min())
    if first > 0 and provenance.epoch is not None:
        # Somebody took jobs out of it: time zero is now a later job.
        provenance = replace(provenance, epoch=later_epoch(provenance.epoch, first))
    return Trace(trace.table, provenance)


PARQUET_READER = Reader("parquet", "a trace written by this program", lambda h: h.data[:4] == b"PAR1", _read)
