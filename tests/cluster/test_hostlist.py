"""Slurm's hostlist expressions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attn_sched.cluster.hostlist import compress, expand


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("tux1", ["tux1"]),
        ("tux[0-2,12]", ["tux0", "tux1", "tux2", "tux12"]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
        ("n[098-101]", ["n098", "n099", "n100", "n101"]),
        ("r[1-2]n[01-02]", ["r1n01", "r1n02", "r2n01", "r2n02"]),
        ("a[1-2],b3,c[4]-ib", ["a1", "a2", "b3", "c4-ib"]),
        ("[1-2]", ["1", "2"]),
        (" a1 , a[ 2 , 3-4 ] ", ["a1", "a2", "a3", "a4"]),
        ("a1,a1", ["a1", "a1"]),
    ],
)
def test_expand(text: str, names: list[str]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("tux[0-7", "brackets"),
        ("tux0-7]", "brackets"),
        ("tux[[0-7]]", "brackets"),
        ("tux[7-0]", "runs backwards"),
        ("tux[a-b]", "not a number or a range"),
        ("tux[]", "not a number or a range"),
        ("tux[1,]", "not a number or a range"),
        ("tux[²]", "not a number or a range"),
        ("", "empty"),
        ("a,,b", "empty"),
        ("tux[0-999999999]", "more than"),
        ("a[0-999]b[0-999]", "more than"),
        ("x[0-99999],y[0-99999],z", "more than"),
    ],
)
def test_what_is_no_hostlist(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        expand(text)


NAMES = st.builds(
    lambda prefix, number, width, suffix: f"{prefix}{number:0{width}d}{suffix}",
    st.sampled_from(["", "a", "n-", "rack1-n", "n0"]),
    st.integers(0, 120),
    st.integers(1, 3),
    st.sampled_from(["", "", "", "-ib"]),
)


@given(st.lists(NAMES, min_size=1, max_size=40))
def test_round_trip(names: list[str]) -> None:
    assert expand(compress(names)) == names


@given(st.integers(0, 1200), st.integers(1, 300), st.integers(1, 4))
def test_a_run_is_one_range(first: int, count: int, width: int) -> None:
    names = [f"tux{number:0{width}d}" for number in range(first, first + count)]
    short = compress(names)
    assert expand(short) == names
    # Without leading zeros, or with as many digits throughout, one range says it.
    if len(names[0]) == len(names[-1]) or not names[0][3:].startswith("0"):
        assert short.count(",") == 0


def test_compress() -> None:
    assert compress(["tux0", "tux1", "tux2", "tux12", "cpu1", "login"]) == "tux[0-2,12],cpu1,login"
    assert compress([]) == ""
