"""Readers of job logs, one module per family, one registry; a format is recognised by content, not by file name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from attn_sched.errors import InputError
from attn_sched.workload.readers import (
    acme,
    alibaba,
    gavel,
    helios,
    others,
    parquet,
    philly,
    plain,
    pollux,
    sacct,
    simple,
    swf,
)
from attn_sched.workload.readers.base import Reader, ReadOptions
from attn_sched.workload.readers.source import Head, Source
from attn_sched.workload.trace import Trace

# In the order of sniffing: the narrow before the wide, plain CSV last.
ALL: tuple[Reader, ...] = (
    parquet.PARQUET_READER,
    philly.PHILLY_READER,
    helios.HELIOS_READER,
    helios.SLICE_READER,
    acme.KALOS_READER,
    acme.SEREN_READER,
    alibaba.OPENB_READER,
    simple.MIRROR_READER,
    simple.TIMESTAMP_READER,
    simple.MURI_READER,
    simple.TIRESIAS_READER,
    pollux.POLLUX_READER,
    simple.GOLDEN_READER,
    gavel.GAVEL_READER,
    alibaba.PAI_READER,
    swf.SWF_READER,
    sacct.SACCT_READER,
    plain.PLAIN_READER,
)
READERS: dict[str, Reader] = {reader.name: reader for reader in ALL}

__all__ = ["ALL", "READERS", "Head", "ReadOptions", "Reader", "Source", "detect", "read"]


def detect(head: Head) -> Reader | None:
    """The reader for a file that begins so, or None."""
    return next((reader for reader in ALL if reader.sniff(head)), None)


def read(path: Path, options: ReadOptions | None = None) -> Trace:
    """Read a log; see :func:`attn_sched.workload.trace.read_trace`."""
    options = options or ReadOptions()
    forced = options.format if options.column_map is None else (options.format or plain.PLAIN_READER.name)
    if forced is not None and forced not in READERS:
        known = ", ".join(sorted(READERS))
        raise InputError(f"unknown trace format {forced!r}", field="format", expected=f"one of {known}")
    if options.column_map is not None and forced != plain.PLAIN_READER.name:
        raise InputError(f"a column map does not go with format {forced!r}", field="map", expected="format 'csv'")
    source = Source(path, progress=options.progress)
    members = source.members()
    if members:
        source = _pick_member(source, members, forced)
    elif source.is_zip:
        raise InputError("the zip holds no file", file=path)
    head = source.head()
    if not head.data:
        raise InputError("the file is empty", file=path, expected="a job log")
    reader = READERS[forced] if forced is not None else detect(head)
    if reader is None:
        raise _unrecognised(path, head)
    if reader.comment != source.skip_prefix:
        source = replace(source, skip_prefix=reader.comment)
    try:
        return reader.read(source, options)
    except (pa.ArrowException, UnicodeError, MemoryError, OverflowError) as error:
        # Nothing is known to get here; whatever does is still the file's fault, not a crash.
        reason = " ".join(str(error).split())[:160]
        raise InputError(f"cannot be read as {reader.name} ({reason})", file=path) from error


def _pick_member(source: Source, members: list[str], forced: str | None) -> Source:
    if len(members) == 1:
        return replace(source, member=members[0])
    known = []
    for member in members:
        candidate = replace(source, member=member)
        head = candidate.head()
        if READERS[forced].sniff(head) if forced is not None else detect(head) is not None:
            known.append(candidate)
    if len(known) == 1:
        return known[0]
    names = ", ".join(members[:6]) + (", ..." if len(members) > 6 else "")
    problem = f"the zip holds {len(known) or 'no'} job logs among {len(members)} files ({names})"
    raise InputError(problem, file=source.path, expected="one job log: unpack it first")


def _unrecognised(path: Path, head: Head) -> InputError:
    what = others.describe(head)
    if what is not None:
        return InputError(f"is {what}, not a job log", file=path, expected="a log with one job a row")
    if b"\0" in head.data:
        return InputError("is binary data of no known format", file=path, expected="a job log")
    if not head.lines:
        return InputError("holds no line of data", file=path, expected="a job log")
    if plain.looks_like_table(head):
        first = ", ".join(head.header[:12])
        problem = f"its columns ({first}) are not recognised as a job log"
        return InputError(problem, file=path, expected="a known format, or a column map: " + plain.MAP_EXAMPLE)
    return InputError("is of no known format", file=path, expected=f"one of {', '.join(READERS)}")
