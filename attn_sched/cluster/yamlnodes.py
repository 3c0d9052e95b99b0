"""YAML read as marked nodes, so that whatever is wrong can be told with its line."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable
from pathlib import Path

import yaml

from attn_sched.cluster.textfiles import read_text
from attn_sched.errors import InputError


class Value:
    """One node of a document and where it stands; every getter raises InputError with file and line."""

    def __init__(self, node: yaml.Node, file: Path, label: str) -> None:
        self.node = node
        self.file = file
        self.label = label  # how messages call it
        self.line = node.start_mark.line + 1

    def error(self, problem: str, expected: str | None = None) -> InputError:
        """The error that this value causes."""
        return InputError(problem, file=self.file, row=self.line, expected=expected)

    def describe(self) -> str:
        """The value as a message shows it."""
        if isinstance(self.node, yaml.MappingNode):
            return "a mapping"
        if isinstance(self.node, yaml.SequenceNode):
            return "a list" if self.node.value else "an empty list"
        text = str(self.node.value)
        return (repr(text) if len(text) <= 40 else repr(text[:37] + "...")) if text else "nothing"

    def wrong(self, expected: str) -> InputError:
        """This value is not what it should be."""
        return self.error(f"{self.label} is {self.describe()}", expected)

    def _tag(self) -> str:
        return self.node.tag.removeprefix("tag:yaml.org,2002:") if isinstance(self.node, yaml.ScalarNode) else ""

    def text(self, expected: str = "text") -> str:
        """A string; a bare number will not do."""
        if self._tag() != "str" or not self.node.value.strip():
            raise self.wrong(expected)
        return str(self.node.value)

    def count(self) -> int:
        """A whole number of at least 1."""
        expected = "a whole number of at least 1"
        if self._tag() != "int" or not re.fullmatch(r"[+-]?\d{1,12}", self.node.value):
            raise self.wrong(expected)
        number = int(self.node.value)
        if number < 1:
            raise self.wrong(expected)
        return number

    def number(
        self, expected: str, *, lowest: float = 0.0, above: bool = False, words: dict[str, float] | None = None
    ) -> float:
        """A finite number, at least ``lowest`` (or above it), or one of ``words``."""
        if self._tag() in ("int", "float", "str"):
            text = self.node.value.strip()
            if words and text in words:
                return words[text]
            try:
                number = float(text)
            except ValueError:
                raise self.wrong(expected) from None
            if math.isfinite(number) and (number > lowest if above else number >= lowest):
                return number
        raise self.wrong(expected)

    def items(self, expected: str = "a list") -> list[Value]:
        """The entries of a list of at least one."""
        if not isinstance(self.node, yaml.SequenceNode) or not self.node.value:
            raise self.wrong(expected)
        return [Value(node, self.file, f"entry {i + 1} of {self.label}") for i, node in enumerate(self.node.value)]

    def mapping(self, allowed: Iterable[str], expected: str) -> dict[str, Value]:
        """The entries of a mapping whose keys are among ``allowed``, each at most once."""
        if not isinstance(self.node, yaml.MappingNode):
            raise self.wrong(expected)
        known = list(allowed)
        found: dict[str, Value] = {}
        for key_node, value_node in self.node.value:
            key = Value(key_node, self.file, "a key")
            if not isinstance(key_node, yaml.ScalarNode):
                raise key.wrong("text")
            name = str(key_node.value)
            if name in found:
                raise key.error(f"key {name!r} appears twice in {self.label}", "each key once")
            if name not in known:
                close = difflib.get_close_matches(name, known, n=1)
                hint = f"; did you mean {close[0]!r}?" if close else ""
                raise key.error(f"unknown key {name!r} in {self.label}{hint}", f"one of {', '.join(known)}")
            found[name] = Value(value_node, self.file, repr(name))
        return found


def read_document(file: Path) -> Value:
    """The one document of a YAML file.

    Raises:
        InputError: no such file, a directory, no permission, not text, not YAML, empty, more than one document.
    """
    expected = "a YAML file that describes a cluster"
    text = read_text(file, expected)
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = ", ".join(part for part in (error.context, error.problem) if part)
        row = None if mark is None else mark.line + 1
        raise InputError(f"is not valid YAML: {problem}", file=file, row=row, expected=expected) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise InputError(f"is not valid YAML: {error.reason}", file=file, row=line, expected=expected) from None
    except RecursionError:
        raise InputError("is nested too deep", file=file, expected=expected) from None
    if node is None:
        raise InputError("is empty", file=file, expected=expected)
    return Value(node, file, "the file")
