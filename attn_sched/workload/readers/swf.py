"""The Standard Workload Format of the Parallel Workloads Archive: 18 fields, blanks between, -1 = unknown.

A processor counts as a GPU. Times asked by users become ``requested_time``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from attn_sched.workload.readers.alibaba import is_number
from attn_sched.workload.readers.base import Reader, ReadOptions
from attn_sched.workload.readers.csvtable import Block, read_csv
from attn_sched.workload.readers.simple import csv_builder
from attn_sched.workload.readers.source import Head, Source
from attn_sched.workload.trace import Trace

FIELDS = (
    "job", "submit", "wait", "run", "processors", "cpu", "memory", "processors_asked", "time_asked", "memory_asked",
    "status", "user", "group", "executable", "queue", "partition", "preceding", "think",
)  # fmt: skip
USED = ("job", "submit", "run", "processors", "processors_asked", "time_asked", "status", "user", "group")
STATUS = {
    "0": "failed",
    "1": "completed",
    "2": "partial",
    "3": "partial, last",
    "4": "partial, failed",
    "5": "cancelled",
}
_START = re.compile(r"^;\s*UnixStartTime:\s*(\d{1,11})\s*$", re.MULTILINE)
_EDGES = re.compile(rb"(?m)^[ \t]+|[ \t\r]+$")
_GAPS = re.compile(rb"[ \t]+")


def _as_csv(source: Source) -> Iterator[bytes]:
    for block in source.blocks():
        yield _GAPS.sub(b",", _EDGES.sub(b"", block.replace(b",", b"?")))


def _known(values: np.ndarray) -> np.ndarray:
    return np.where(values == -1, np.nan, values)


def _known_text(block: Block, name: str) -> pa.Array:
    return pa.array([None if cell == "-1" else cell for cell in block.text(name).to_pylist()], pa.string())


def _read(source: Source, options: ReadOptions) -> Trace:
    builder = csv_builder(source, "swf", header=False)
    for block in read_csv(source, names=FIELDS, only=USED, blocks=_as_csv(source)):
        used = block.number("processors")
        asked = block.number("processors_asked")
        run = _known(block.number("run"))
        status = _known_text(block, "status")
        builder.add(
            block.first,
            job_id=block.text("job"),
            submit_s=_known(block.number("submit")),
            duration_s=run,
            num_gpus=np.where(used > 0, used, np.where(asked > 0, asked, 0)),
            drops=[(np.isnan(run), "no run time")],
            requested_time=np.where(block.number("time_asked") > 0, block.number("time_asked"), np.nan),
            user=_known_text(block, "user"),
            group=_known_text(block, "group"),
            status=pa.array([None if s is None else STATUS.get(s, s) for s in status.to_pylist()], pa.string()),
            fields=("job", "submit", "run", "processors"),
        )
    start = _START.search(source.head().text)
    return builder.finish(epoch_s=None if start is None else float(start.group(1)), zoned=True)


def _sniff(head: Head) -> bool:
    rows = [line.split() for line in head.text.splitlines() if line.strip() and not line.startswith(";")][:20]
    if len(head.data) > 1024 and len(rows) > 1:
        rows = rows[:-1]  # the last one may be cut off

    def fits(row: list[str]) -> bool:
        return len(row) == len(FIELDS) and all(map(is_number, row))

    if not rows:
        return head.text.startswith(";") and "MaxProcs:" in head.text
    return fits(rows[0]) or sum(map(fits, rows)) * 2 > len(rows)


SWF_READER = Reader("swf", "Standard Workload Format (processors count as GPUs)", _sniff, _read, comment=b";")
