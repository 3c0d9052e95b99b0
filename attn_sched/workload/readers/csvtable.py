"""Streamed CSV tables whose every cell can be traced back to its line."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from attn_sched.errors import InputError
from attn_sched.workload.readers.source import Source, split_header

MISSING = ("", "None", "none", "null", "NULL")
_ZONE = re.compile(r"(?:Z|[+-]\d\d:?\d\d)$")


@dataclass(frozen=True, eq=False)
class Block:
    """Consecutive rows of a table, all cells still text."""

    source: Source
    table: pa.Table
    first: int  # number of its first row among the table's rows, from 0
    lines_before: int  # lines with content before the table's first row (0 without a header, else 1)
    missing: tuple[str, ...] = MISSING  # cells that say nothing
    numbers: np.ndarray | None = None  # of each row among the table's rows, where rows between them were left out

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __contains__(self, name: str) -> bool:
        return name in self.table.column_names

    @property
    def rows(self) -> np.ndarray:
        """The number of each row among the table's rows, from 0."""
        return np.arange(self.first, self.first + len(self)) if self.numbers is None else self.numbers

    def where(self, mask: np.ndarray) -> Block:
        """The rows that ``mask`` picks; they keep their numbers."""
        return replace(self, table=self.table.filter(pa.array(mask)), numbers=self.rows[mask])

    def text(self, name: str) -> pa.Array:
        """Trimmed cells; missing ones are null.

        Raises:
            InputError: the table lacks the column.
        """
        if name not in self:
            raise InputError("the column is missing", file=self.source.path, field=name)
        column = self.table[name].combine_chunks()
        cells = pc.utf8_trim_whitespace(column)
        missing = pc.is_in(cells, value_set=pa.array(self.missing))
        return pc.if_else(missing, pa.scalar(None, pa.string()), cells) if pc.any(missing).as_py() else cells

    def optional(self, name: str) -> pa.Array | None:
        """Like :meth:`text`, None where the table lacks the column."""
        return self.text(name) if name in self else None

    def number(self, name: str, *, required: bool = True, unit: float = 1.0) -> np.ndarray:
        """Cells as float64 times ``unit``; missing ones are NaN.

        Raises:
            InputError: a cell is no finite number, or empty though required.
        """
        cells = self.text(name)
        if required:
            self._require(cells, name)
        try:
            values = cells.cast(pa.float64())
        except pa.ArrowInvalid:
            values = pa.array([self._float(i, cell, name) for i, cell in enumerate(cells.to_pylist())], pa.float64())
        result = np.array(values.to_numpy(zero_copy_only=False), dtype=np.float64)
        bad = ~np.isfinite(result)
        if values.null_count:
            bad &= ~values.is_null().to_numpy(zero_copy_only=False)
        if bad.any():
            at = int(np.argmax(bad))
            raise self.fail(at, name, f"{cells[at].as_py()!r} is not a finite number", "a number")
        return result * unit

    def time(self, name: str, *, required: bool = True) -> tuple[np.ndarray, bool]:
        """Calendar cells (``2020-09-01 01:37:15``, zone optional) as Unix seconds, and whether they state a zone.

        A time without a zone counts as UTC. Missing ones are NaN.
        """
        cells = self.text(name)
        if required:
            self._require(cells, name)
        known = cells.drop_null()
        zoned = bool(len(known)) and _ZONE.search(known[0].as_py()[10:]) is not None
        try:
            stamps = cells.cast(pa.timestamp("us", "UTC") if zoned else pa.timestamp("us"))
            ticks = stamps.cast(pa.int64()).to_numpy(zero_copy_only=False)
            seconds = np.array(ticks, dtype=np.float64) / 1e6
        except pa.ArrowInvalid:
            seconds = np.array(
                [self._stamp(i, cell, name) for i, cell in enumerate(cells.to_pylist())], dtype=np.float64
            )
        return seconds, zoned

    def fail(self, index: int, field: str, problem: str, expected: str | None = None) -> InputError:
        """The error for one cell (to be raised by the caller)."""
        row = self.source.line_of(self.lines_before + int(self.rows[index]))
        return InputError(problem, file=self.source.path, row=row, field=field, expected=expected)

    def _require(self, cells: pa.Array, name: str) -> None:
        if cells.null_count:
            at = int(np.argmax(cells.is_null().to_numpy(zero_copy_only=False)))
            raise self.fail(at, name, "is empty", "a value")

    def _float(self, index: int, cell: str | None, name: str) -> float | None:
        if cell is None:
            return None
        try:
            if "_" in cell:  # Python would read 1_000
                raise ValueError(cell)
            return float(cell)
        except ValueError:
            raise self.fail(index, name, f"{_short(cell)} is not a number", "a number") from None

    def _stamp(self, index: int, cell: str | None, name: str) -> float:
        if cell is None:
            return np.nan
        try:
            moment = datetime.fromisoformat(cell)
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            raise self.fail(index, name, f"{_short(cell)} is not a time", "YYYY-MM-DD HH:MM:SS") from None


def _short(cell: str) -> str:
    return repr(cell if len(cell) <= 60 else cell[:57] + "...")


def read_csv(
    source: Source,
    *,
    names: Sequence[str] | None = None,
    only: Iterable[str] | None = None,
    delimiter: str = ",",
    blocks: Iterable[bytes] | None = None,
    quoted: bool = True,
    missing: tuple[str, ...] = MISSING,
) -> Iterator[Block]:
    """Yield the table in blocks.

    Args:
        source: The file.
        names: Column names of a table without a header; otherwise the first line with content gives them (lower case).
        only: Columns to keep; the others are checked for their number only. Names the table lacks are ignored.
        delimiter: One character.
        blocks: Text to parse instead of the source's own, of the same lines.
        quoted: Whether cells may stand in double quotes; otherwise a quote is a character like any other.
        missing: Cells that say nothing.

    Raises:
        InputError: a row has the wrong number of columns, or a column of ``only`` is there twice.
    """
    lines_before = 0 if names is not None else 1
    keep = None if only is None else frozenset(only)
    first = 0
    columns: list[str] = list(names) if names is not None else []
    for data in source.blocks() if blocks is None else blocks:
        if not columns:
            data = data.lstrip(b"\r\n \t")
            if not data:
                continue
            line, _, data = data.partition(b"\n")
            header = split_header(line.decode("utf-8"), delimiter)
            _check_once(source, header, keep)
            columns = _unique(header)
        if not data.strip():
            continue
        wanted = columns if keep is None else [name for name in columns if name in keep]
        if not wanted:
            expected = ", ".join(sorted(keep or ()))
            raise InputError("has none of the columns of this format", file=source.path, expected=expected)
        table = _parse(source, data, columns, wanted, delimiter, quoted, lines_before + first)
        if table.num_rows:
            yield Block(source, table, first, lines_before, missing)
            first += table.num_rows


def _check_once(source: Source, header: Sequence[str], needed: Iterable[str] | None) -> None:
    """Which of two columns of one name is meant, only the log's owner knows."""
    for name in needed or ():
        places = [f"{at}" for at, found in enumerate(header, 1) if found == name]
        if len(places) > 1:
            problem = f"columns {', '.join(places[:-1])} and {places[-1]} have this name"
            row = source.line_of(0)
            raise InputError(problem, file=source.path, row=row, field=name, expected="one column of each name")


def _unique(names: Sequence[str]) -> list[str]:
    """Columns that repeat a name get a number, so that the first one is the one found."""
    result: list[str] = []
    taken: set[str] = set()
    for name in names:
        fresh, count = name, 1
        while fresh in taken:
            count += 1
            fresh = f"{name}#{count}"
        taken.add(fresh)
        result.append(fresh)
    return result


def _parse(
    source: Source,
    data: bytes,
    columns: list[str],
    wanted: list[str],
    delimiter: str,
    quoted: bool,
    records_before: int,
) -> pa.Table:
    blank = 0

    def on_bad_row(row: pacsv.InvalidRow) -> str:
        nonlocal blank
        if not row.text.strip():
            blank += 1
            return "skip"
        return "error"

    try:
        return pacsv.read_csv(
            pa.BufferReader(data),
            pacsv.ReadOptions(use_threads=False, column_names=columns, block_size=len(data) + 1),
            pacsv.ParseOptions(
                delimiter=delimiter, quote_char='"' if quoted else False, invalid_row_handler=on_bad_row
            ),
            pacsv.ConvertOptions(
                column_types={name: pa.string() for name in columns},
                include_columns=wanted,
                strings_can_be_null=False,
                quoted_strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid as error:
        raise _bad_row(source, data, len(columns), delimiter, quoted, records_before, str(error)) from error


def _bad_row(
    source: Source, data: bytes, width: int, delimiter: str, quoted: bool, records_before: int, message: str
) -> InputError:
    dialect: dict[str, Any] = (
        {"delimiter": delimiter} if quoted else {"delimiter": delimiter, "quoting": csv.QUOTE_NONE}
    )
    record = records_before
    for line in data.decode("utf-8").split("\n"):
        if not line.strip():
            continue
        try:
            found = len(next(csv.reader([line.rstrip("\r")], **dialect)))
        except (csv.Error, StopIteration):
            found = -1
        if found != width:
            problem = f"the row has {found} columns" if found >= 0 else "the row cannot be split into columns"
            return InputError(problem, file=source.path, row=source.line_of(record), expected=f"{width} columns")
        record += 1
    return InputError(f"is not a well-formed table ({message[:120]})", file=source.path)
