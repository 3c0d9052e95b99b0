"""Headroom: who decides on whose behalf, and what is counted."""

from __future__ import annotations

import numpy as np
import pytest

from attn_sched.policies.linear import sjf_rule
from attn_sched.simulator import layout as at
from attn_sched.training.lookahead import Lookahead
from benchmarks.headroom import by_agents, by_rollouts, by_rule, clustered, look, play
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
    for cost, told in zip(found, foretold, strict=True):
        assert np.isclose(told[:, 0], cost).any()


def test_rollouts_and_agents_decide_for_themselves() -> None:
    rule = play(batch(at.PLACE_AGENT), range(3), by_rule(RULE), nobody)
    rollouts = play(batch(at.PLACE_AGENT), range(3), by_rollouts(RULE, 4), nobody)
    assert (rollouts != rule).any() and rollouts.mean() < rule.mean() + 0.1
    pair = tiny_pair(("job", "gpu"), 1, spread=0.5)
    pair.card = {"agents": ["job", "gpu"]}
    assert (play(batch(at.PLACE_AGENT), range(3), by_agents(pair, RULE), nobody) != rule).any()


def test_looking_into_decisions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.headroom.SHARE", 1.0)
    monkeypatch.setattr("benchmarks.headroom.WARM", 5)
    found = look(batch(at.PLACE_AGENT), RULE, 20, 4, nobody)
    assert len(found) >= 20 and all(one.hindsight <= 0 for one in found)
    assert any(one.hindsight < 0 for one in found) and any(one.knowable != 0 for one in found)


def test_an_error_is_larger_where_values_hang_together() -> None:
    values = np.array([1.0, 1.0, -1.0, -1.0])
    assert clustered(values, np.array([0, 1, 2, 3])) == (0.0, 0.5)
    assert clustered(values, np.array([0, 0, 1, 1]))[1] == pytest.approx(np.sqrt(8) / 4)
