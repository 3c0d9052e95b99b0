"""Whole files or none: write beside the target, then rename."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from attn_sched.errors import InputError


def check_target(path: str | os.PathLike[str] | None, field: str | None = None) -> None:
    """Find out before the long work, not after it, that a file could not be written; leaves nothing behind.

    Args:
        path: the file; None is a file that nobody wants.
        field: the option that named it, for the message.

    Raises:
        InputError: it is a directory or another thing that is no regular file (a device, a pipe), its folder does not
            exist or cannot be written to, or the name is impossible.
    """
    if path is not None:
        _new_part(Path(path), field).unlink(missing_ok=True)


def check_outputs(
    outputs: Mapping[str, str | os.PathLike[str] | None],
    inputs: Mapping[str, str | os.PathLike[str] | None],
) -> None:
    """Check all files a command is to write, before any work: each can be written, and none replaces another or an
    input.

    Args:
        outputs: option -> file.
        inputs: what a file is to the command -> file; those that do not exist cannot be lost.

    Raises:
        InputError: as :func:`check_target`, or two names of one file.
    """
    given = [(field, Path(path)) for field, path in outputs.items() if path is not None]
    for field, path in given:
        check_target(path, field)
    for at, (field, path) in enumerate(given):
        for what, read in inputs.items():
            if read is not None and os.path.exists(read) and same_file(path, read):
                raise InputError(f"is {what}, which it would replace", file=path, field=field, expected="another file")
        for other, earlier in given[:at]:
            if same_file(path, earlier):
                raise InputError(f"is the file of {other!r} too", file=path, field=field, expected="another file")


def same_file(one: str | os.PathLike[str], other: str | os.PathLike[str]) -> bool:
    """Whether two names are of one file, existing or not; links are followed."""
    try:
        return os.path.realpath(one) == os.path.realpath(other) or os.path.samefile(one, other)
    except (OSError, ValueError):  # one of them does not exist, or cannot
        return False


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
        if not target.name:
            raise InputError("no file is named", field=field, expected="the name of a file to write")
        if target.is_dir():
            raise InputError("is a directory", file=target, field=field, expected="the name of a file to write")
        if target.exists() and not target.is_file():
            raise InputError(
                "is no regular file, and would be replaced", file=target, field=field, expected="the name of a file"
            )
        if not target.parent.is_dir():
            raise InputError(
                "its folder does not exist", file=target, field=field, expected="a file name in an existing folder"
            )
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", file=target, field=field) from error
    os.close(handle)
    return Path(name)
