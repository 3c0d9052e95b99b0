"""Gavel .trace files (Narayanan et al., OSDI '20): tab-separated, no header.

A job is given as a number of training steps, not a duration. With a table of throughputs (columns ``gpu_type``,
``job_type``, ``scale_factor``, ``steps_per_second``; given, or found by content in the trace's folder) the duration is
steps / (steps per second on the reference GPU type). Jobs whose configuration was measured on fewer workers only are
scaled linearly, counted. Without a table the duration is null and the trace cannot be replayed. Shockwave's longer rows
state a duration, which is taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from attn_sched.errors import InputError
from attn_sched.workload.readers.alibaba import is_number
from attn_sched.workload.readers.base import Reader, ReadOptions
from attn_sched.workload.readers.csvtable import Block, read_csv
from attn_sched.workload.readers.simple import csv_builder, row_ids
from attn_sched.workload.readers.source import Head, Source
from attn_sched.workload.trace import Trace

REFERENCE_GPU = "v100"
TABLE = ("gpu_type", "job_type", "scale_factor", "steps_per_second")
MAX_TABLE_BYTES = 4 << 20
USED = ("job_type", "total_steps", "arrival_time", "scale_factor", "duration")
Throughputs = Mapping[tuple[str, int], float]  # (job type, workers) -> steps per second of all workers


def read_throughputs(path: Path, gpu_type: str = REFERENCE_GPU) -> dict[tuple[str, int], float]:
    """Steps per second by job type and workers on ``gpu_type``.

    Raises:
        InputError: the file is no such table or has a broken row.
    """
    source = Source(path)
    if not set(TABLE) <= set(source.head().header):
        raise InputError("is no throughput table", file=path, expected="the columns " + ", ".join(TABLE))
    result: dict[tuple[str, int], float] = {}
    for block in read_csv(source, only=TABLE):
        speeds = block.number("steps_per_second")
        workers = block.number("scale_factor")
        kinds = block.text("gpu_type").to_pylist()
        for kind, job_type, n, speed in zip(kinds, block.text("job_type").to_pylist(), workers, speeds, strict=True):
            if kind == gpu_type and job_type is not None and n >= 1 and speed > 0:
                result[job_type, int(n)] = float(speed)
    if not result:
        raise InputError(f"names no speed on {gpu_type}", file=path, field="gpu_type", expected=f"rows of {gpu_type}")
    return result


def _beside(path: Path) -> Path | None:
    """A throughput table in the same folder, recognised by its columns."""
    try:
        candidates = sorted(path.parent.iterdir())
    except OSError:
        return None
    for candidate in candidates:
        try:
            if candidate == path or not candidate.is_file() or candidate.stat().st_size > MAX_TABLE_BYTES:
                continue
            if set(TABLE) <= set(Source(candidate).head().header):
                return candidate
        except (InputError, OSError):
            continue  # unreadable neighbours are none of this trace's business
    return None


def _durations(block: Block, steps: np.ndarray, workers: np.ndarray, table: Throughputs) -> tuple[np.ndarray, int, int]:
    """Seconds (NaN = configuration unknown), how many were scaled from fewer workers, how many are unknown."""
    result = np.full(len(steps), np.nan)
    scaled = unknown = 0
    for i, job_type in enumerate(block.text("job_type").to_pylist()):
        n = int(workers[i])
        speed = table.get((job_type or "", n))
        if speed is None:
            known = [m for kind, m in table if kind == job_type and m < n]
            if not known:
                unknown += 1
                continue
            speed = table[job_type or "", max(known)] * n / max(known)
            scaled += 1
        result[i] = steps[i] / speed
    return result, scaled, unknown


def layout(rows: list[list[str]]) -> tuple[str, ...] | None:
    """Column names for rows of one width; None when they are no Gavel rows.

    All versions begin with the job type, the command, perhaps a folder, the name of the steps argument (``-n``), a flag
    0 or 1 and the total steps. The first version goes on with arrival time and scale factor; later ones with scale
    factor, then mode, weight, SLO (and in Shockwave the duration), with the arrival time last.
    """
    for row in rows:
        flag = next(
            (i for i in range(3, len(row)) if row[i].strip() in ("0", "1") and row[i - 1].startswith("-")), None
        )
        if flag is None or len(row) < flag + 4 or not is_number(row[flag + 1]):
            continue
        tail = len(row) - flag - 2
        later = tail > 2 and all(len(r) != len(row) or _is_scale(r[flag + 2]) for r in rows)
        names = [f"field{i}" for i in range(len(row))]
        names[0], names[flag + 1] = "job_type", "total_steps"
        if later:
            names[flag + 2], names[-1] = "scale_factor", "arrival_time"
            if tail >= 6:
                names[-2] = "duration"
        else:
            names[flag + 2], names[flag + 3] = "arrival_time", "scale_factor"
        return tuple(names)
    return None


def _is_scale(cell: str) -> bool:
    return is_number(cell) and "." not in cell and float(cell) >= 1


def _rows(head: Head) -> list[list[str]]:
    return [line.split("\t") for line in head.lines[:50]]


def _read(source: Source, options: ReadOptions) -> Trace:
    names = layout(_rows(source.head()))
    if names is None:
        raise InputError("is no Gavel trace", file=source.path, expected="7 or more tab-separated fields")
    stated = "duration" in names
    found = options.throughputs or (None if stated else _beside(source.path))
    table = None if found is None else read_throughputs(found)
    builder = csv_builder(source, "gavel", header=False, needs_duration=False)
    for block in read_csv(source, names=names, only=USED, delimiter="\t"):
        steps = block.number("total_steps")
        workers = block.number("scale_factor")
        duration = block.number("duration", required=False) if stated else np.full(len(steps), np.nan)
        if table is not None and found is not None:
            duration, scaled, unknown = _durations(block, steps, workers, table)
            builder.note(
                f"duration is steps / throughput on {REFERENCE_GPU} from {found.name}: rough", len(steps) - unknown
            )
            builder.note("throughput scaled linearly from fewer workers", scaled)
        builder.note("duration unknown: no throughput of this configuration", int(np.isnan(duration).sum()))
        builder.add(
            block.first,
            job_id=row_ids(block),
            submit_s=block.number("arrival_time"),
            duration_s=duration,
            num_gpus=workers,
            model=block.text("job_type"),
            fields=("row", "arrival_time", "total_steps", "scale_factor"),
        )
    return builder.finish()


def _sniff(head: Head) -> bool:
    rows = _rows(head)
    return bool(rows) and len(rows[0]) >= 7 and layout(rows) is not None


GAVEL_READER = Reader("gavel", "Gavel .trace (steps; durations need a throughput table)", _sniff, _read)
