"""Lines of ``Key=Value`` pairs, as all configuration files of Slurm have them (``man slurm.conf``)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from attn_sched.cluster.hostlist import expand
from attn_sched.cluster.textfiles import read_text
from attn_sched.errors import InputError

_PAIR = re.compile(r'\s*([A-Za-z][A-Za-z0-9_.]*)\s*[-+*/]?=\s*(?:"([^"]*)"|(\S+))(?=\s|$)')
_COMMENT = re.compile(r"(?<!\\)#.*")


@dataclass(frozen=True)
class Entry:
    """One line, continuations included."""

    file: Path
    line: int  # where it begins
    values: dict[str, str]  # key in lower case -> value
    rest: str  # what is no pair

    def error(self, problem: str, expected: str | None = None, *, field: str | None = None) -> InputError:
        """The error that this line causes."""
        return InputError(problem, file=self.file, row=self.line, field=field, expected=expected)

    def hosts(self, key: str) -> list[str]:
        """The names of a hostlist; none where the key is not given.

        Raises:
            InputError: the value is no hostlist, or names something twice.
        """
        if key not in self.values:
            return []
        try:
            names = expand(self.values[key])
        except ValueError as error:
            raise self.error(str(error), "a hostlist such as tux[0-7,12]", field=key) from None
        seen: set[str] = set()
        for name in names:
            if name in seen:
                raise self.error(f"names {name!r} twice", "each name once", field=key)
            seen.add(name)
        return names


def read_entries(file: Path, expected: str) -> list[Entry]:
    """All lines of a file that say something; ``expected`` is what it should be, for messages.

    Raises:
        InputError: the file cannot be read, or a line gives a key twice.
    """
    entries = []
    text, begin = "", 0
    lines = read_text(file, expected).split("\n")
    for number, raw in enumerate(lines, 1):
        begin = begin if text else number
        text += _COMMENT.sub("", raw).rstrip()
        if text.endswith("\\") and number < len(lines):
            text = text[:-1] + " "
            continue
        if text.strip():
            entries.append(_entry(file, begin, text))
        text = ""
    return entries


def _entry(file: Path, line: int, text: str) -> Entry:
    values: dict[str, str] = {}
    rest, at = "", 0
    for match in _PAIR.finditer(text):
        key = match.group(1).lower()
        if key in values:
            raise InputError("is given twice", file=file, row=line, field=key, expected="each key once in a line")
        values[key] = match.group(2) if match.group(2) is not None else match.group(3)
        rest += text[at : match.start()]
        at = match.end()
    return Entry(file, line, values, (rest + text[at:]).strip())
