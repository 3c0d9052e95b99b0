"""Slurm's hostlist expressions: ``tux[0-7,12]``, ``r[1-2]n[01-16]``, ``a[1-2],b3`` (``scontrol show hostnames``)."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator

MAX_HOSTS = 200_000  # of one expression: a slip in a range should end in a message, not in swap
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")
_PIECES = re.compile(r"\[([^\[\]]*)\]|([^\[\]]+)")
_NUMBERED = re.compile(r"(.*?)(\d{1,9})", re.DOTALL)


def expand(text: str) -> list[str]:
    """The names of an expression, in its order, doubles included.

    The first number of a range says how many digits all its numbers have at least: ``[08-10]`` is 08, 09, 10.

    Raises:
        ValueError: it is no hostlist, or of more than ``MAX_HOSTS`` names.
    """
    names: list[str] = []
    for part in _split(text):
        names += _expand_one(part, MAX_HOSTS - len(names))
    return names


def _split(text: str) -> Iterator[str]:
    """The parts between the commas outside brackets."""
    depth = start = 0
    for at, letter in enumerate(text):
        if letter == "[":
            depth += 1
        elif letter == "]":
            depth -= 1
        elif letter == "," and depth == 0:
            yield text[start:at]
            start = at + 1
        if not 0 <= depth <= 1:
            raise ValueError(f"the brackets of {_shown(text)} do not match")
    if depth:
        raise ValueError(f"the brackets of {_shown(text)} do not match")
    yield text[start:]


def _expand_one(part: str, room: int) -> list[str]:
    if not part.strip():
        raise ValueError("a name is empty")
    pieces: list[list[str]] = []
    total = 1
    for match in _PIECES.finditer(part.strip()):
        ranges, literal = match.groups()
        values = [literal] if literal is not None else _numbers(ranges, room)
        total *= len(values)
        if total > room:
            raise ValueError(f"{_shown(part)} is more than {MAX_HOSTS:,} names")
        pieces.append(values)
    return ["".join(chosen) for chosen in itertools.product(*pieces)]


def _numbers(ranges: str, room: int) -> list[str]:
    values: list[str] = []
    for item in ranges.split(","):
        match = _RANGE.fullmatch(item.strip())
        if match is None:
            raise ValueError(f"{_shown(item)} in brackets is not a number or a range")
        first, last = match.group(1), match.group(2) or match.group(1)
        if int(last) < int(first):
            raise ValueError(f"the range {_shown(item)} runs backwards")
        if int(last) - int(first) >= room:
            raise ValueError(f"the range {_shown(item)} is of more than {MAX_HOSTS:,} names")
        values += [f"{number:0{len(first)}d}" for number in range(int(first), int(last) + 1)]
    return values


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")


def compress(names: Iterable[str]) -> str:
    """A short expression of the same names in the same order; names must hold no comma and no bracket."""
    runs: list[tuple[str, str, str]] = []  # what stands before the number, the first number, the last
    for name in names:
        match = _NUMBERED.fullmatch(name)
        prefix, digits = match.groups() if match is not None else (name, "")
        if runs and digits and runs[-1][0] == prefix and runs[-1][2]:
            _, first, last = runs[-1]
            if f"{int(last) + 1:0{len(first)}d}" == digits and len(digits) <= 9:
                runs[-1] = (prefix, first, digits)
                continue
        runs.append((prefix, digits, digits))
    parts = []
    for (prefix, numbered), group in itertools.groupby(runs, key=lambda run: (run[0], run[1] != "")):
        items = [first if first == last else f"{first}-{last}" for _, first, last in group]
        if not numbered:
            parts += [prefix] * len(items)
        elif len(items) == 1 and "-" not in items[0]:
            parts.append(prefix + items[0])
        else:
            parts.append(f"{prefix}[{','.join(items)}]")
    return ",".join(parts)
