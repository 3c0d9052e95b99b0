"""Headroom: who decides on whose behalf, and what is counted."""

from __future__ import annotations

import numpy as np
import pytest

from attn_sched.policies.linear import sjf_rule
from attn_sched.simulator import layout as at
from attn_sched.training.lookahead import Lookahead
from benchmarks.headroom import (
    Looked,
    by_agents,
    by_rollouts,
    by_rule,
    clustered,
    decisions_table,
    episodes_table,
    look,
    play,
)
from tests.agents.tiny import tiny_pair
from tests.training.test_lookahead import batch

RULE = sjf_rule(1.5)


def nobody(position: float) -> None:
    """Is told how far it is."""


def test_the_rule_plays_as_lookahead_foretells() -> None:
    clusters = batch(at.PLACE_AGENT)
    clusters.ask()
    foretold = [Lookahead(clusters, RULE).costs(row, np.flatnonzero(clusters.job_mask[row])) for row in range(3)]
    found = play(batch(at.PLACE_AGENT), range(3), by_rule(RULE), nobody)
    assert found.shape == (3, 3)
    for cost, told in zip(found, foretold, strict=True):
        assert np.isclose(told, cost).all(axis=1).any()


def test_rollouts_and_agents_decide_for_themselves() -> None:
    rule = play(batch(at.PLACE_AGENT), range(3), by_rule(RULE), nobody)
    rollouts = play(batch(at.PLACE_AGENT), range(3), by_rollouts(RULE, 4), nobody)
    assert (rollouts != rule).any() and rollouts.mean() < rule.mean() + 0.1
    pair = tiny_pair(("job", "gpu"), 1, spread=0.5)
    pair.card = {"agents": ["job", "gpu"]}
    assert (play(batch(at.PLACE_AGENT), range(3), by_agents(pair, RULE), nobody) != rule).any()


@pytest.mark.parametrize("states", [20, 300])
def test_looking_into_decisions(states: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.headroom.SHARE", 1.0)
    monkeypatch.setattr("benchmarks.headroom.WARM", 5)
    both = look(batch(at.PLACE_AGENT), RULE, states, 4, nobody)
    # The placement rule seldom errs: it takes many decisions to find one that could be better.
    for found in both.values() if states == 300 else [both["job"]]:
        assert len(found) >= states and all(one.hindsight <= 0 for one in found)
        assert any(one.hindsight < 0 for one in found) and any(one.knowable != 0 for one in found)


def test_tables_say_what_differs_by_how_much() -> None:
    looked = [Looked(0, -0.01, -0.002), Looked(1, -0.03, 0.0)]
    table = decisions_table({"job": looked, "gpu": looked[:1]}, 8)
    assert "| which job, or none | 2 of 2 episodes | -0.0200 ± 0.0071 | -0.0010 ± 0.0007 |" in table
    assert "| which unit of GPUs next | 1 of 1 episodes | -0.0100 ± 0.0000 |" in table
    rule = np.array([[1.0, 2.0, 0.0], [9.0, 9.0, 9.0], [0.5, 1.0, 0.0], [9.0, 9.0, 9.0]])
    table = episodes_table(rule, {"somebody": rule[::2] - [[0.1, 1.0, 0.0], [0.3, 1.0, 0.0]]}, 8)
    assert "| somebody | 2 | 0.550 | 0.750 | -0.200 ± 0.100 | -1.000 ± 0.000 |" in table


def test_an_error_is_larger_where_values_hang_together() -> None:
    values = np.array([1.0, 1.0, -1.0, -1.0])
    assert clustered(values, np.array([0, 1, 2, 3])) == (0.0, 0.5)
    assert clustered(values, np.array([0, 0, 1, 1]))[1] == pytest.approx(np.sqrt(8) / 4)
