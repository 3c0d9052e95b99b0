"""Fixtures of the workload tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from attn_sched.workload import Trace, read_trace

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write text or bytes to a file of a name that says nothing about its format."""

    def inner(content: str | bytes, name: str = "log") -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return inner


@pytest.fixture
def load(write: Write) -> Callable[..., Trace]:
    return lambda content, options=None: read_trace(write(content), options)
