"""What a reader is. A new format is one module with a Reader, added to ``ALL`` in the package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from attn_sched.workload.readers.source import Head, Progress, Source
from attn_sched.workload.trace import Trace


@dataclass(frozen=True)
class ReadOptions:
    """How to read a file whose content does not say it all."""

    format: str | None = None  # name of a reader; None = recognised by content
    column_map: Mapping[str, str] | None = None  # trace field -> "column" or "column:unit", for plain CSV
    throughputs: Path | None = None  # Gavel: steps per second; None = look beside the trace
    progress: Progress | None = None  # called with the share read


@dataclass(frozen=True)
class Reader:
    """One log format."""

    name: str
    summary: str  # one line for people
    sniff: Callable[[Head], bool]  # from content alone
    read: Callable[[Source, ReadOptions], Trace]
    comment: bytes = b"#"  # lines that begin so are skipped
