"""Whole files or none: write beside the target, then rename."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attn_sched.errors import InputError


def check_target(path: str | os.PathLike[str] | None, field: str | None = None) -> None:
    """Find out before the long work, not after it, that a file could not be written; leaves nothing behind.

    Args:
        path: the file; None is a file that nobody wants.
        field: the option that named it, for the message.

    Raises:
        InputError: it is a directory, its folder does not exist or cannot be written to, or the name is impossible.
    """
    if path is not None:
        _new_part(Path(path), field).unlink(missing_ok=True)


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path in the folder of ``path``; rename it to ``path`` when the block ends without an error.

    Raises:
        InputError: as :func:`check_target`.
    """
    target = Path(path)
    part = _new_part(target)
    try:
        yield part
        # mkstemp makes private files; a result should have the permissions any new file gets.
        umask = os.umask(0)
        os.umask(umask)
        part.chmod(0o666 & ~umask)
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)


def _new_part(target: Path, field: str | None = None) -> Path:
    """An empty file beside the target, under a name of its own."""
    try:
        if target.is_dir():
            raise InputError("is a directory", file=target, field=field, expected="the name of a file to write")
        if not target.parent.is_dir():
            raise InputError(
                "its folder does not exist", file=target, field=field, expected="a file name in an existing folder"
            )
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", file=target, field=field) from error
    os.close(handle)
    return Path(name)
