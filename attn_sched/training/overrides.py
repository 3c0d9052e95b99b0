"""Nested settings by dotted keys: listed, read from text, exchanged, and compared.

Settings are frozen dataclasses whose fields are numbers, texts, flags, tuples of them, or further settings.
``ppo.clip`` is the field ``clip`` of the settings in the field ``ppo``.
"""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from attn_sched.errors import InputError

T = TypeVar("T")

_FLAGS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
NONE = "none"


def flatten(settings: Any, hidden: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Dotted key -> value of every field, in order; without those in ``hidden``."""
    found: dict[str, Any] = {}

    def walk(value: Any, prefix: str) -> None:
        for field in dataclasses.fields(value):
            key, inner = prefix + field.name, getattr(value, field.name)
            if key in hidden:
                continue
            if dataclasses.is_dataclass(inner):
                walk(inner, f"{key}.")
            else:
                found[key] = inner

    walk(settings, "")
    return found


def exchange(settings: T, changes: Mapping[str, Any]) -> T:
    """``settings`` with the fields of some dotted keys exchanged; every part of it is validated anew.

    Raises:
        InputError: a value will not do; ``field`` is its dotted key.
    """
    return _exchange(settings, changes, "")


def _exchange(settings: T, changes: Mapping[str, Any], prefix: str) -> T:
    mine: dict[str, Any] = {}
    deeper: dict[str, dict[str, Any]] = {}
    for key, value in changes.items():
        head, dot, rest = key.partition(".")
        if dot:
            deeper.setdefault(head, {})[rest] = value
        else:
            mine[head] = value
    for head, inner in deeper.items():
        mine[head] = _exchange(getattr(settings, head), inner, f"{prefix}{head}.")
    try:
        return dataclasses.replace(settings, **mine)  # type: ignore[type-var]
    except InputError as error:
        field = error.field if error.field is None or "." in error.field else prefix + error.field
        raise InputError(error.problem, file=error.file, field=field, expected=error.expected) from None


def difference(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """The keys whose values differ or that only one has, in order."""
    absent = object()
    return [key for key in dict.fromkeys([*one, *other]) if one.get(key, absent) != other.get(key, absent)]


def parse_assignment(settings: Any, text: str, hidden: frozenset[str] = frozenset()) -> tuple[str, Any]:
    """``KEY=VALUE`` as a known key and a value of its type.

    Lists are separated by commas; commas inside parentheses do not separate.

    Raises:
        InputError: there is no "=", the key is unknown (lists those there are), or the value is of another type.
    """
    key, equals, value = text.partition("=")
    key = key.strip()
    if not equals or not key:
        raise InputError(f"{text!r} assigns nothing", field="set", expected="KEY=VALUE, as in ppo.clip=0.2")
    check_key(settings, key, hidden)
    return key, parse_value(value.strip(), kind_of(settings, key), key)


def check_key(settings: Any, key: str, hidden: frozenset[str] = frozenset()) -> None:
    """Raise InputError, with the keys there are, for one that is not among them."""
    known = flatten(settings, hidden)
    if key not in known:
        section = key.partition(".")[0] + "."
        near = [name for name in known if name.startswith(section)] or list(known)
        raise InputError(f"there is no key {key!r}", field="set", expected=f"one of {', '.join(near)}")


def kind_of(settings: Any, key: str) -> Any:
    """The declared type of a dotted key."""
    head, dot, rest = key.partition(".")
    if dot:
        return kind_of(getattr(settings, head), rest)
    return typing.get_type_hints(type(settings))[head]


def parse_value(text: str, kind: Any, key: str) -> Any:
    """``text`` as a value of a field's type. Raises InputError that says what is expected."""
    if _optional(kind) is not None:
        return None if text.lower() == NONE else parse_value(text, _optional(kind), key)
    if typing.get_origin(kind) is tuple:
        return _parse_tuple(text, kind, key)
    if kind is bool:
        if text.lower() not in _FLAGS:
            raise InputError(f"{text!r} is neither", field=key, expected="true or false")
        return _FLAGS[text.lower()]
    if kind is str:
        return text
    try:
        number = kind(text)
    except ValueError:
        number = _whole(text) if kind is int else None
    if number is None:
        raise InputError(
            f"{text!r} is no number", field=key, expected="a whole number" if kind is int else "a number"
        ) from None
    return number


def _whole(text: str) -> int | None:
    """``2e6`` as 2,000,000."""
    try:
        value = float(text)
    except ValueError:
        return None
    return int(value) if value.is_integer() else None


def _parse_tuple(text: str, kind: Any, key: str) -> tuple[Any, ...]:
    parts = [part.strip() for part in re.split(r",(?![^()]*\))", text)]
    if parts == [""]:
        parts = []
    if "" in parts:
        raise InputError(f"{text!r} lacks a value", field=key, expected="values with commas between them")
    kinds = typing.get_args(kind)
    if kinds[-1] is Ellipsis:
        kinds = (kinds[0],) * len(parts)
    if len(parts) != len(kinds):
        raise InputError(f"{text!r} has {len(parts)} values", field=key, expected=f"{len(kinds)}")
    return tuple(parse_value(part, one, key) for part, one in zip(parts, kinds, strict=True))


def from_json(value: Any, kind: Any, key: str) -> Any:
    """What JSON made of a field's value as that value again. Raises InputError where it cannot have been one."""
    if _optional(kind) is not None:
        return None if value is None else from_json(value, _optional(kind), key)
    if typing.get_origin(kind) is tuple:
        if not isinstance(value, list):
            raise InputError(f"{value!r} is no list", field=key, expected="a list")
        kinds = typing.get_args(kind)
        kinds = (kinds[0],) * len(value) if kinds[-1] is Ellipsis else kinds
        if len(kinds) != len(value):
            raise InputError(f"{value!r} has {len(value)} values", field=key, expected=f"{len(kinds)}")
        return tuple(from_json(inner, one, key) for inner, one in zip(value, kinds, strict=True))
    fits = isinstance(value, int | float) if kind is float else isinstance(value, kind)
    if not fits or (isinstance(value, bool) and kind is not bool):
        raise InputError(f"{value!r} will not do", field=key, expected=f"a value of type {kind.__name__}")
    return kind(value)


def _optional(kind: Any) -> Any:
    """T of ``T | None``; None for other types."""
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        inner = [one for one in typing.get_args(kind) if one is not type(None)]
        if len(inner) == 1:
            return inner[0]
    return None
