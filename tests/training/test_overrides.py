"""Settings by dotted keys."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from attn_sched.errors import InputError
from attn_sched.training.overrides import difference, exchange, flatten, from_json, parse_assignment


@dataclass(frozen=True)
class Inner:
    flag: bool = True
    names: tuple[str, ...] = ("a",)
    span: tuple[float, float] = (0.5, 2.0)
    secret: int = 7

    def __post_init__(self) -> None:
        if self.span[0] > self.span[1]:
            raise InputError("falls", field="span", expected="rising numbers")


@dataclass(frozen=True)
class Outer:
    count: int = 3
    rate: float = 0.1
    limit: int | None = None
    inner: Inner = field(default_factory=Inner)


HIDDEN = frozenset({"inner.secret"})


def test_flatten_lists_all_but_the_hidden() -> None:
    assert flatten(Outer(), HIDDEN) == {
        "count": 3,
        "rate": 0.1,
        "limit": None,
        "inner.flag": True,
        "inner.names": ("a",),
        "inner.span": (0.5, 2.0),
    }


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("count=12", "count", 12),
        ("count=2e6", "count", 2_000_000),
        ("rate = 3", "rate", 3.0),
        ("limit=none", "limit", None),
        ("limit=4", "limit", 4),
        ("inner.flag=False", "inner.flag", False),
        ("inner.names=x,hold(1.5,0.5),y=z", "inner.names", ("x", "hold(1.5,0.5)", "y=z")),
        ("inner.names=", "inner.names", ()),
        ("inner.span=1,2", "inner.span", (1.0, 2.0)),
    ],
)
def test_values_get_the_type_of_their_field(text: str, key: str, value: object) -> None:
    found = parse_assignment(Outer(), text, HIDDEN)
    assert found == (key, value)
    assert type(found[1]) is type(value)
    assert flatten(exchange(Outer(), dict([found])))[key] == value


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("count", "KEY=VALUE"),
        ("count=1.5", "'count': '1.5' is no number; expected a whole number"),
        ("rate=fast", "'rate': 'fast' is no number"),
        ("inner.flag=maybe", "true or false"),
        ("inner.span=1", "'1' has 1 values; expected 2"),
        ("inner.names=a,,b", "lacks a value"),
        ("inner.secret=1", "there is no key 'inner.secret'; expected one of inner.flag, inner.names, inner.span"),
        ("inner.nothing=1", "one of inner.flag, inner.names, inner.span"),
        ("other=1", "one of count, rate, limit, inner.flag, inner.names, inner.span"),
    ],
)
def test_what_cannot_be_assigned_is_told(text: str, said: str) -> None:
    with pytest.raises(InputError) as told:
        parse_assignment(Outer(), text, HIDDEN)
    assert said in str(told.value)


def test_an_invalid_value_is_told_with_its_whole_key() -> None:
    with pytest.raises(InputError) as told:
        exchange(Outer(), {"inner.span": (2.0, 1.0)})
    assert told.value.field == "inner.span"


def test_differences_are_named_in_order() -> None:
    changed = exchange(Outer(), {"inner.flag": False, "count": 4})
    assert difference(flatten(Outer()), flatten(changed)) == ["count", "inner.flag"]


def test_json_gives_the_same_values_again() -> None:
    assert from_json([1, 2.5], tuple[float, ...], "key") == (1.0, 2.5)
    assert from_json(None, int | None, "key") is None
    for value, kind in ((True, int), ("1", int), (1, bool), ([1], tuple[float, float]), (1, tuple[str, ...])):
        with pytest.raises(InputError):
            from_json(value, kind, "key")
