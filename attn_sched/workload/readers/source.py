"""Bytes of a log file, whatever it is packed in: plain, gzip or zip, streamed in blocks of whole lines."""

from __future__ import annotations

import gzip
import lzma
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import IO, BinaryIO, cast

from attn_sched.errors import InputError

BLOCK_BYTES = 8 << 20
HEAD_BYTES = 1 << 16
MAX_LINE_BYTES = 32 << 20
BOM = b"\xef\xbb\xbf"
_UNSUPPORTED = {
    b"BZh": "a bzip2 file",
    b"\xfd7zXZ": "an xz file",
    b"\x28\xb5\x2f\xfd": "a Zstandard file",
    b"7z\xbc\xaf": "a 7-Zip archive",
}

Progress = Callable[[float], None]  # called with the share of the file read, 0..1


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn every way in which reading bytes can fail into an InputError that names the file."""
    try:
        yield
    except InputError:
        raise
    except FileNotFoundError as error:
        raise InputError("no such file", file=path) from error
    except PermissionError as error:
        raise InputError("no permission to read it", file=path) from error
    except IsADirectoryError as error:
        raise InputError("is a directory", file=path, expected="a log file") from error
    except EOFError as error:
        raise InputError("the compressed file is truncated", file=path) from error
    except (
        zlib.error,
        lzma.LZMAError,
        struct.error,
        gzip.BadGzipFile,
        zipfile.BadZipFile,
        NotImplementedError,
    ) as error:
        raise InputError(f"the compressed file is damaged ({error})", file=path) from error
    except RuntimeError as error:  # what zipfile raises for encrypted members
        raise InputError(f"cannot be unpacked ({error})", file=path) from error
    except (OSError, ValueError, OverflowError) as error:  # ValueError: NUL in a path, impossible zip offsets
        raise InputError(f"cannot be read ({getattr(error, 'strerror', None) or error})", file=path) from error


@dataclass(frozen=True)
class Head:
    """The beginning of a file, for sniffing."""

    data: bytes

    @cached_property
    def text(self) -> str:
        """Decoded, with a byte order mark removed."""
        return self.data.removeprefix(BOM).decode("utf-8", errors="replace")

    @cached_property
    def lines(self) -> list[str]:
        """Whole lines with content, comments (``#``) left out; the cut-off last line only where it is the only one."""
        lines = [line.rstrip("\r") for line in self.text.split("\n")]
        if len(self.data) >= HEAD_BYTES and len(lines) > 1:
            lines = lines[:-1]
        return [line for line in lines if line.strip() and not line.startswith("#")]

    @cached_property
    def header(self) -> tuple[str, ...]:
        """The comma-separated names of the first line, lower case."""
        return split_header(self.lines[0]) if self.lines else ()


def split_header(line: str, delimiter: str = ",") -> tuple[str, ...]:
    """Column names of a header line: split, unquoted, trimmed, lower case."""
    return tuple(name.strip().strip('"').strip().lower() for name in line.split(delimiter))


@dataclass(eq=False)
class Source:
    """One log inside one file."""

    path: Path
    member: str | None = None  # inside a zip
    progress: Progress | None = None
    skip_prefix: bytes = b"#"  # lines that begin so are comments
    _packing: str = field(init=False, default="")

    def __post_init__(self) -> None:
        with reading(self.path):
            if self.path.is_dir():
                raise InputError("is a directory", file=self.path, expected="a log file")
            if not self.path.exists():
                raise InputError("no such file", file=self.path)
            if not self.path.is_file():
                raise InputError("is not a regular file", file=self.path, expected="a log file")
            with self.path.open("rb") as file:
                magic = file.read(8)
        if not magic:
            raise InputError("the file is empty", file=self.path, expected="a job log")
        for start, what in _UNSUPPORTED.items():
            if magic.startswith(start):
                raise InputError(f"is {what}", file=self.path, expected="a plain, gzip or zip file: unpack it first")
        self._packing = "gzip" if magic[:2] == b"\x1f\x8b" else "zip" if magic[:4] == b"PK\x03\x04" else "plain"

    @property
    def name(self) -> str:
        """The file's own name, without its folder."""
        return self.path.name

    @property
    def is_zip(self) -> bool:
        """Whether the file is a zip archive."""
        return self._packing == "zip"

    def members(self) -> list[str]:
        """Names of the files in a zip; empty for anything else."""
        if self._packing != "zip":
            return []
        with reading(self.path), zipfile.ZipFile(self.path) as archive:
            return [i.filename for i in archive.infolist() if not i.is_dir() and "__MACOSX" not in i.filename]

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """The unpacked bytes."""
        with reading(self.path), self.path.open("rb") as raw:
            if self._packing == "gzip":
                with gzip.GzipFile(fileobj=raw) as unpacked:
                    yield self._watched(cast(BinaryIO, unpacked), raw)
            elif self._packing == "zip" and self.member is not None:
                with zipfile.ZipFile(raw) as archive, archive.open(self.member) as inside:
                    yield self._watched(cast(BinaryIO, inside), raw)
            else:
                yield self._watched(raw, raw)

    def _watched(self, stream: BinaryIO, raw: IO[bytes]) -> BinaryIO:
        if self.progress is None:
            return stream
        return cast(BinaryIO, _Watched(stream, raw, os.fstat(raw.fileno()).st_size, self.progress))

    def head(self) -> Head:
        """The first bytes, unpacked."""
        with self.open() as stream:
            return Head(stream.read(HEAD_BYTES))

    def blocks(self) -> Iterator[bytes]:
        """The content in blocks of whole lines: valid UTF-8, no comments, no byte order mark; blank lines remain.

        Raises:
            InputError: bad UTF-8 or a NUL byte (with its line), an endless line, or a failure to read or unpack.
        """
        line = 1
        rest = b""
        first = True
        with self.open() as stream:
            while True:
                data = stream.read(BLOCK_BYTES)
                if first and data:
                    data, first = data.removeprefix(BOM), False
                if data:
                    cut = data.rfind(b"\n") + 1
                    if not cut:
                        rest += data
                        if len(rest) > MAX_LINE_BYTES:
                            raise InputError("the line does not end: not a text file", file=self.path, row=line)
                        continue
                    block, rest = rest + data[:cut], data[cut:]
                else:
                    block, rest = rest, b""
                if block:
                    self._check_text(block, line)
                    line += block.count(b"\n")
                    yield self._without_comments(block)
                if not data:
                    return

    def _check_text(self, block: bytes, line: int) -> None:
        nul = block.find(b"\0")
        if nul >= 0:
            raise InputError(
                "holds binary data", file=self.path, row=line + block.count(b"\n", 0, nul), expected="text"
            )
        try:
            block.decode("utf-8")
        except UnicodeDecodeError as error:
            row = line + block.count(b"\n", 0, error.start)
            raise InputError("is not valid UTF-8", file=self.path, row=row, expected="UTF-8 text") from error

    def _without_comments(self, block: bytes) -> bytes:
        if not block.startswith(self.skip_prefix) and b"\n" + self.skip_prefix not in block:
            return block
        return b"".join(part for part in block.splitlines(keepends=True) if not part.startswith(self.skip_prefix))

    def line_of(self, record: int) -> int:
        """Line number (1 = the file's first line) of the ``record``-th line with content, counted from 0.

        Reads the file again: for error messages only.
        """
        line = 0
        with self.open() as stream:
            for line, text in enumerate(stream, start=1):
                text = text.removeprefix(BOM) if line == 1 else text
                if text.strip() and not text.startswith(self.skip_prefix):
                    if record == 0:
                        return line
                    record -= 1
        return line


class _Watched:
    """A stream that reports the position in the packed file after every read."""

    def __init__(self, stream: BinaryIO, raw: IO[bytes], size: int, progress: Progress) -> None:
        self._stream, self._raw, self._size, self._progress = stream, raw, max(size, 1), progress

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        self._progress(min(1.0, self._raw.tell() / self._size))
        return data

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._stream)
