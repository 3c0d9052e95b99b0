"""Small text files that people write, read whole; whatever is wrong with one is told in a line."""

from __future__ import annotations

from pathlib import Path

from attn_sched.errors import InputError

MAX_BYTES = 8 * 1024 * 1024  # no description of a cluster is longer; a trace given by mistake may be


def read_text(file: Path, expected: str) -> str:
    """The content of a UTF-8 file, without a byte order mark.

    Args:
        file: The file.
        expected: What it should be, for messages.

    Raises:
        InputError: no such file, a directory, no permission, too long, not text.
    """
    try:
        with file.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise InputError("does not exist", file=file, expected=expected) from None
    except IsADirectoryError:
        raise InputError("is a directory", file=file, expected=expected) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(f"cannot be read: {reason}", file=file, expected=expected) from None
    if len(raw) > MAX_BYTES:
        raise InputError(f"is longer than {MAX_BYTES // 2**20} MiB", file=file, expected=expected)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise InputError("is not UTF-8 text", file=file, row=line, expected=expected) from None
