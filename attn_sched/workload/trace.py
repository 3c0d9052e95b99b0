"""The Trace: a job log as an Arrow table, with the story of where it came from; stored as Parquet.

A row is a job. Unknown values are null, never invented. Rows are sorted by ``(submit_time, original row)``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from attn_sched.errors import InputError
from attn_sched.files import atomic_write

if TYPE_CHECKING:
    from attn_sched.workload.readers.base import ReadOptions

METADATA_KEY = b"attn_sched"

SCHEMA = pa.schema(
    [
        pa.field("job_id", pa.string(), nullable=False),  # unique
        pa.field("user", pa.string()),
        pa.field("group", pa.string()),  # virtual cluster, tenant, partition
        pa.field("submit_time", pa.float64(), nullable=False),  # seconds after the first job kept, >= 0
        pa.field("duration", pa.float64()),  # seconds of running, >= 0; null where the log does not say
        pa.field("num_gpus", pa.int32(), nullable=False),  # >= 1
        pa.field("gpu_type", pa.string()),  # alternatives joined by "|"
        pa.field("model", pa.string()),  # the network trained
        pa.field("status", pa.string()),  # as the log spells it
        pa.field("requested_time", pa.float64()),  # seconds the user asked for
    ]
)

_SUFFIXES = {".gz", ".zip", ".csv", ".json", ".trace", ".swf", ".txt", ".tsv", ".parquet", ".log"}


@dataclass(frozen=True)
class Provenance:
    """Where a trace came from and what reading it left out."""

    source: str  # file name without its folder, or a synthetic family's name
    format: str  # name of the reader
    rows_read: int  # jobs in the file, kept and dropped
    dropped: Mapping[str, int] = field(default_factory=dict)  # reason -> rows
    notes: Mapping[str, int] = field(default_factory=dict)  # what was adjusted -> rows
    epoch: str | None = None  # ISO time of the first job kept; None where the log has no calendar

    def to_json(self) -> str:
        """One JSON object with the fields above."""
        return json.dumps(asdict(self) | {"dropped": dict(self.dropped), "notes": dict(self.notes)}, sort_keys=True)

    @staticmethod
    def from_json(text: str | bytes) -> Provenance:
        """The inverse of :meth:`to_json`.

        Raises:
            ValueError: the text is no provenance record.
        """
        data = json.loads(text)
        if not isinstance(data, dict):
            raise ValueError("not an object")
        try:
            return Provenance(
                source=str(data["source"]),
                format=str(data["format"]),
                rows_read=int(data["rows_read"]),
                dropped={str(k): int(v) for k, v in dict(data.get("dropped", {})).items()},
                notes={str(k): int(v) for k, v in dict(data.get("notes", {})).items()},
                epoch=None if data.get("epoch") is None else str(data["epoch"]),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a provenance record: {error}") from error


@dataclass(frozen=True, eq=False)
class Trace:
    """A job log. ``table`` follows :data:`SCHEMA`."""

    table: pa.Table
    provenance: Provenance

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @property
    def name(self) -> str:
        """The source's name without folder and known endings: what seeded draws depend on."""
        path = PurePath(self.provenance.source)
        while path.suffix.lower() in _SUFFIXES:
            path = path.with_suffix("")
        return path.name or "trace"

    def numbers(self, column: str) -> np.ndarray:
        """A numeric column as a NumPy array; null durations and requested times become NaN."""
        array = self.table[column].combine_chunks()
        if array.null_count:
            array = array.cast(pa.float64())
        return np.asarray(array.to_numpy(zero_copy_only=False))

    def strings(self, column: str) -> np.ndarray:
        """A text column as an object array; nulls are None."""
        return np.asarray(self.table[column].to_numpy(), dtype=object)

    def has(self, column: str) -> bool:
        """Whether any job has a value in ``column``."""
        return bool(self.table[column].null_count < len(self))


def make_table(columns: Mapping[str, Any], rows: int) -> pa.Table:
    """A table of :data:`SCHEMA` from arrays; columns left out become null, NaN in nullable numbers becomes null."""
    arrays = []
    for item in SCHEMA:
        value = columns.get(item.name)
        if value is None:
            arrays.append(pa.nulls(rows, item.type))
        elif isinstance(value, pa.Array | pa.ChunkedArray):
            arrays.append(value.cast(item.type))
        else:
            arrays.append(pa.array(value, item.type, from_pandas=item.nullable))
    return pa.table(arrays, schema=SCHEMA)


def later_epoch(epoch: str, seconds: float) -> str | None:
    """The ISO time so many seconds after another; None where that is no time."""
    try:
        return (datetime.fromisoformat(epoch) + timedelta(seconds=seconds)).isoformat()
    except (ValueError, OverflowError):
        return None


def write_trace(trace: Trace, path: str | os.PathLike[str]) -> None:
    """Write Parquet with the provenance in the schema metadata; whole or not at all.

    Raises:
        InputError: the folder does not exist or cannot be written to.
    """
    metadata = {METADATA_KEY: trace.provenance.to_json().encode()}
    with atomic_write(path) as part:
        try:
            pq.write_table(trace.table.replace_schema_metadata(metadata), part, compression="zstd")
        except OSError as error:
            raise InputError(f"cannot be written: {error.strerror or error}", file=path) from error


def read_trace(path: str | os.PathLike[str], options: ReadOptions | None = None) -> Trace:
    """Read a job log of any known format, recognised by content; gzip and zip are unpacked on the way.

    Args:
        path: The file.
        options: A forced format, a column map, a throughput table, a progress callback; see
            ``readers.base.ReadOptions``.

    Raises:
        InputError: the file cannot be read, is no job log, or has a broken row (named with line and field).
    """
    # The readers build traces, so they are imported when called, not with this module.
    from attn_sched.workload.readers import read

    return read(Path(path), options)
