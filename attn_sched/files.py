"""Whole files or none: write beside the target, then rename."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attn_sched.errors import InputError


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path in the folder of ``path``; rename it to ``path`` when the block ends without an error.

    Raises:
        InputError: the folder does not exist or cannot be written to.
    """
    target = Path(path)
    if target.is_dir():
        raise InputError("is a directory", file=target, expected="the name of a file to write")
    if not target.parent.is_dir():
        raise InputError("its folder does not exist", file=target, expected="a file name in an existing folder")
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", file=target) from error
    os.close(handle)
    part = Path(name)
    try:
        yield part
        # mkstemp makes private files; a result should have the permissions any new file gets.
        umask = os.umask(0)
        os.umask(umask)
        part.chmod(0o666 & ~umask)
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)
