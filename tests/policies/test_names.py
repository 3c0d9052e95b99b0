"""Policy names: every form, the defaults, and errors that say what would be right."""

from __future__ import annotations

from typing import Any

import pytest

from attn_sched.errors import InputError
from attn_sched.policies import (
    PlacementView,
    list_policies,
    parse_policy,
    register_ordering,
    register_placement,
    split_policy_list,
)
from attn_sched.simulator import layout as at

# The names of the design, but for those of searchers, of what is tuned, and of what is learned.
PLAIN = ("fifo", "sjf", "ljf", "smallest", "largest", "saf", "hrrn", "wfp3", "unicep", "f1", "user-fair", "ftf", "qssf",
         "random")  # fmt: skip
PREEMPTIVE = ("srtf", "srsf", "tiresias", "themis-like")
QUEUEINGS = ("strict", "skip", "commit", "easy")
PLACEMENT_NAMES = ("random", "first-fit", "load-balance", "best-fit", "topo-best-fit", "tiresias-skew", "lwf",
                   "contention")  # fmt: skip
ALIASES = {"fifo-skip": "fifo:skip+topo-best-fit", "easy": "fifo:easy+topo-best-fit"}


def refused(name: str) -> str:
    """The one line that refuses a name."""
    with pytest.raises(InputError) as error:
        parse_policy(name)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("order", PLAIN)
def test_every_ordering(order: str) -> None:
    """Every ordering stands alone, and with every queueing, placement and hold."""
    default = "strict" if order == "fifo" else "skip"
    assert parse_policy(order).full_name == f"{order}:{default}+topo-best-fit"
    for queueing in QUEUEINGS:
        assert parse_policy(f"{order}:{queueing}").full_name == f"{order}:{queueing}+topo-best-fit"
        for placement in PLACEMENT_NAMES:
            name = f"{order}:{queueing}+{placement}+hold(1.5,0.5)"
            parsed = parse_policy(name)
            assert parsed.full_name == name
            rule = parsed.engine_rule()
            assert (rule.theta, rule.patience, rule.preempt) == (1.5, 0.5, at.NO_PREEMPTION)


@pytest.mark.parametrize("order", PREEMPTIVE)
def test_every_preemptive_ordering(order: str) -> None:
    """These rank all live jobs: they take a placement, but neither a queueing nor a hold."""
    assert parse_policy(order).full_name == f"{order}+topo-best-fit"
    assert parse_policy(f"{order}+best-fit").full_name == f"{order}+best-fit"
    assert parse_policy(order).engine_rule().preempt != at.NO_PREEMPTION
    assert "preemptive" in refused(f"{order}:skip")
    assert "cannot hold" in refused(f"{order}+hold(2,1)")


@pytest.mark.parametrize("alias", ALIASES)
def test_aliases(alias: str) -> None:
    assert parse_policy(alias).full_name == ALIASES[alias]
    assert parse_policy(alias).name == alias
    assert parse_policy(f"{alias}+lwf").full_name == ALIASES[alias].replace("topo-best-fit", "lwf")


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("sjf+hold(2,1)", "sjf:skip+topo-best-fit+hold(2,1)"),
        (" sjf + best-fit + hold( 1.5 , 0.5 ) ", "sjf:skip+best-fit+hold(1.5,0.5)"),
        ("sjf+hold(1,0)", "sjf:skip+topo-best-fit+hold(1,0)"),
        ("sjf+hold(1e+3,2.5e-1)", "sjf:skip+topo-best-fit+hold(1000,0.25)"),
        ("sjf+hold(1e9,0)", "sjf:skip+topo-best-fit+hold(1e+09,0)"),
    ],
)
def test_forms(name: str, full: str) -> None:
    """What is left out is filled in, and the full name can be read again."""
    assert parse_policy(name).full_name == full
    assert parse_policy(full).full_name == full


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("", "empty part"),
        ("+best-fit", "empty part"),
        ("sjf++best-fit", "empty part"),
        ("sjf+", "empty part"),
        ("sjff", "no ordering 'sjff'; expected one of f1, fifo,"),
        ("SJF", "no ordering 'SJF'"),
        ("sjf:", "no queueing ''; expected one of commit, easy, skip, strict"),
        ("sjf:fast", "no queueing 'fast'"),
        ("sjf:skip:strict", "no queueing 'skip:strict'"),
        ("easy:strict", "no ordering 'easy'"),
        ("sjf+worst-fit", "no placement 'worst-fit'; expected one of best-fit, contention,"),
        ("best-fit+sjf", "no ordering 'best-fit'"),
        ("sjf+best-fit+lwf", "'lwf' stands where nothing can follow"),
        ("sjf+hold(2,1)+best-fit", "'best-fit' stands where nothing can follow"),
        ("sjf+hold(2,1)+hold(2,1)", "holds twice"),
        ("sjf+hold(0.99,1)", "0.99 is below 1"),
        ("sjf+hold(nan,1)", "nan"),
        ("sjf+hold(inf,1)", "inf"),
        ("sjf+hold(1.5,-1)", "-1 is not a patience"),
        ("sjf+hold(1.5,inf)", "inf is not a patience"),
        ("sjf+hold(1.5)", "cannot be read"),
        ("sjf+hold(1.5,2,3)", "cannot be read"),
        ("sjf+hold(a,b)", "cannot be read"),
        ("sjf+hold()", "cannot be read"),
        ("sjf+hold(1.5,1", "no placement"),
    ],
)
def test_refused(name: str, says: str) -> None:
    assert says in refused(name)


def test_lists() -> None:
    """Commas separate policies, but not inside brackets."""
    text = "fifo, sjf+best-fit+hold(1.5,0.5) ,saf:strict+hold(2,1),,easy"
    assert split_policy_list(text) == ["fifo", "sjf+best-fit+hold(1.5,0.5)", "saf:strict+hold(2,1)", "easy"]
    assert split_policy_list("fifo") == ["fifo"]
    for bad, says in (
        ("", "names no policy"),
        (" , ", "names no policy"),
        ("sjf+hold(1,2", "brackets"),
        ("sjf)", "brackets"),
        ("sjf)(,fifo", "brackets"),
        ("fifo,sjf,fifo", "'fifo' stands twice"),
    ):
        with pytest.raises(InputError, match=says):
            split_policy_list(bad)


def test_list_is_complete() -> None:
    """``list_policies`` tells every name of the design, with a line and a source, and nothing twice."""
    rows = list_policies()
    names = [name for name, _, _, _ in rows]
    kinds = {kind.split(" for ")[0]: {name for name, k, _, _ in rows if k == kind} for _, kind, _, _ in rows}
    assert kinds["ordering"] == set(PLAIN)
    assert kinds["ordering, preemptive"] == set(PREEMPTIVE)
    assert kinds["queueing"] == set(QUEUEINGS)
    assert kinds["placement"] == set(PLACEMENT_NAMES)
    assert {name for name, kind, _, _ in rows if kind.startswith("short for ")} == set(ALIASES)
    assert "hold(theta,patience)" in names
    assert all(line and source and "\n" not in line for _, _, line, source in rows)
    assert all(line.startswith("preemptive:") for _, kind, line, _ in rows if kind == "ordering, preemptive")
    assert all(names.count(name) == (2 if name in ("random", "easy") else 1) for name in names)


@pytest.mark.usefixtures("clean")
def test_own_rules_have_names_like_any_other() -> None:
    """They are listed, parsed with every other part, and a name is given once."""

    @register_ordering("mine", "the jobs I like", "me")
    def order(view: object) -> None: ...

    @register_placement("here")
    def place(view: PlacementView) -> Any:
        """Right here.

        And nowhere else.
        """

    assert ("mine", "ordering", "the jobs I like", "me") in list_policies()
    assert ("here", "placement", "Right here.", "user's own") in list_policies()
    assert parse_policy("mine").full_name == "mine:skip+topo-best-fit"
    assert parse_policy("mine:easy+here+hold(2,1)").full_name == "mine:easy+here+hold(2,1)"
    with pytest.raises(InputError, match="ordering 'mine' already"):
        register_ordering("mine")(order)
    with pytest.raises(InputError, match="a placement 'here' already"):
        register_placement("here")(place)
    with pytest.raises(InputError, match="ordering 'sjf' already"):
        register_ordering("sjf", static=True)(order)
    with pytest.raises(InputError, match="'easy' is short for 'fifo:easy'"):
        register_ordering("easy")(order)
    assert "a built-in placement" in refused("srtf+here")


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize("name", ["", "a+b", "a:b", "a,b", "a(b", "a b", "a\tb", "a\nb"])
def test_names_that_could_not_be_read(name: str) -> None:
    with pytest.raises(InputError, match="cannot name"):
        register_ordering(name)(lambda view: view.estimate_s)
    with pytest.raises(InputError, match="cannot name"):
        register_placement(name)(lambda view: view.free)
