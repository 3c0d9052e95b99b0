"""Explanations: probabilities, the choice, features and attention mean what they say; padding gets nothing."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from attn_sched.agents import GLOBAL_FEATURES, JOB_FEATURES, UNIT_FEATURES, Observations
from attn_sched.agents.explain import Explanation, explain
from attn_sched.agents.greedy import DOUBT, TIE, greedy
from attn_sched.agents.pair import AgentPair, tensors
from attn_sched.errors import InputError
from attn_sched.simulator import layout as at
from tests.agents.test_greedy import walked
from tests.agents.tiny import tiny_pair

LAYERS, HEADS, WINDOW = 2, 4, 8


@pytest.fixture(scope="module")
def states() -> list[tuple[Observations, Any]]:
    """Batches of clusters in the midst of it: observations and phases."""
    made = []
    for steps in (5, 20, 45, 70):
        engine, seen = walked(6, steps)
        made.append((seen, engine.ask().phases))
    return made


def explained(
    pair: AgentPair, states: list[tuple[Observations, Any]]
) -> list[tuple[Explanation, Observations, int, int]]:
    """Every decision of the states, explained."""
    return [
        (explain(pair, seen, b, int(phase)), seen, b, int(phase))
        for seen, phases in states
        for b, phase in enumerate(phases)
        if phase != at.DONE_PHASE
    ]


def test_every_decision(states: list[tuple[Observations, Any]]) -> None:
    pair = tiny_pair(layers=LAYERS)
    agents = set()
    for shown, seen, b, phase in explained(pair, states):
        agents.add(shown.agent)
        assert sum(c.probability for c in shown.candidates) == pytest.approx(1)
        assert all((c.probability > 0) == c.legal == (c.score is not None) for c in shown.candidates)
        best = max(c.score for c in shown.candidates if c.score is not None)
        assert shown.chosen.legal and shown.chosen.score is not None and shown.chosen.score >= best - TIE - DOUBT
        phases = np.where(np.arange(6) == b, phase, at.DONE_PHASE)
        assert shown.choice == greedy(pair, seen, phases)[b]
        assert list(shown.state) == list(GLOBAL_FEATURES)
        np.testing.assert_allclose(list(shown.state.values()), seen.glob[b])
        if shown.agent == "job":
            check_job(shown, seen, b)
        else:
            check_unit(shown, seen, b)
        for one in shown.attention:
            assert one.weights.shape == (HEADS, len(one.queries), len(one.keys))
            assert (one.weights >= 0).all()
            np.testing.assert_allclose(one.weights.sum(-1), 1, atol=1e-5)
        assert json.loads(json.dumps(shown.as_dict(), allow_nan=False))["choice"] == shown.choice
    assert agents == {"job", "gpu"}


def check_job(shown: Explanation, seen: Observations, b: int) -> None:
    waiting = int((seen.jobs[b].any(axis=1)).sum())
    assert [c.kind for c in shown.candidates] == ["job"] * waiting + ["hold"]
    assert [c.action for c in shown.candidates] == [*range(waiting), WINDOW]
    assert [c.legal for c in shown.candidates] == [bool(seen.job_mask[b, c.action]) for c in shown.candidates]
    for c in shown.candidates[:-1]:
        assert list(c.features) == list(JOB_FEATURES)
        np.testing.assert_allclose(list(c.features.values()), seen.jobs[b, c.action])
    assert [unit.name for unit in shown.units] == [f"unit {u}" for u in range(8)]
    np.testing.assert_allclose(list(shown.units[3].features.values()), seen.units[b, 3])
    tokens = ("queue", "HOLD", *(f"job {k}" for k in range(waiting)))
    kinds = [(one.layer, one.kind) for one in shown.attention]
    assert sorted(kinds) == [(layer, kind) for layer in range(LAYERS) for kind in ("cross", "self")]
    for one in shown.attention:
        assert one.queries == tokens and len(one.keys) == (8 if one.kind == "cross" else len(tokens))
    assert sum(shown.attention_on("cross").values()) == pytest.approx(1, abs=1e-5)
    assert list(shown.attention_on("self")) == list(tokens)
    assert shown.placing is None


def check_unit(shown: Explanation, seen: Observations, b: int) -> None:
    assert [(c.kind, c.action) for c in shown.candidates] == [("unit", u) for u in range(8)]
    assert [c.legal for c in shown.candidates] == seen.unit_mask[b].astype(bool).tolist()
    for c in shown.candidates:
        assert list(c.features) == list(UNIT_FEATURES)
        np.testing.assert_allclose(list(c.features.values()), seen.units[b, c.action])
    assert [(one.layer, one.kind) for one in shown.attention] == [(layer, "self") for layer in range(LAYERS)]
    assert all(one.queries == one.keys == ("gang", *(f"unit {u}" for u in range(8))) for one in shown.attention)
    assert shown.placing is not None and shown.placing_features is not None and not shown.units
    np.testing.assert_allclose(list(shown.placing_features.values()), seen.chosen[b])


def test_attention_is_what_the_network_used(states: list[tuple[Observations, Any]]) -> None:
    """Scores with the attention shown are those without: what is shown is not another network."""
    pair = tiny_pair(layers=LAYERS)
    for shown, seen, b, _ in explained(pair, states):
        with torch.no_grad():
            logits: Any = pair.net(shown.agent)(tensors(seen, np.array([b]), shown.agent))
        for c in shown.candidates:
            if c.score is not None:
                assert c.score == pytest.approx(float(logits[0, c.action]), abs=1e-3)


def padded(seen: Observations, more: int) -> SimpleNamespace:
    """The same observations with units that pad."""
    wide = {name: getattr(seen, name) for name in ("jobs", "job_mask", "glob", "chosen")}
    groups = np.broadcast_to(seen.groups, (len(seen.jobs), *seen.groups.shape))
    return SimpleNamespace(
        **wide,
        units=np.pad(seen.units, ((0, 0), (0, more), (0, 0))),
        unit_mask=np.pad(seen.unit_mask, ((0, 0), (0, more))),
        groups=np.pad(groups, ((0, 0), (0, more), (0, 0)), constant_values=-1),
    )


def test_padding_is_left_out_and_gets_nothing(states: list[tuple[Observations, Any]]) -> None:
    pair = tiny_pair(layers=LAYERS)
    for shown, seen, b, phase in explained(pair, states):
        wide = padded(seen, 3)
        again = explain(pair, wide, b, phase)
        assert again.choice == shown.choice and len(again.candidates) == len(shown.candidates)
        assert len(again.units) == len(shown.units)
        for one, other in zip(shown.attention, again.attention, strict=True):
            assert one.keys == other.keys and one.queries == other.queries
            np.testing.assert_allclose(one.weights, other.weights, atol=1e-5)
            np.testing.assert_allclose(other.weights.sum(-1), 1, atol=1e-5)  # so nothing went to what was cut off


def test_networks_without_attention_show_none(states: list[tuple[Observations, Any]]) -> None:
    for shown, *_ in explained(tiny_pair(attention=False), states):
        assert shown.attention == () and shown.attention_on("self") == {}
        assert sum(c.probability for c in shown.candidates) == pytest.approx(1)


def test_an_agent_that_may_not_hold(states: list[tuple[Observations, Any]]) -> None:
    """Its HOLD has no score, and is not called legal, while a job can start."""
    for shown, seen, b, _ in explained(tiny_pair(hold=False), states):
        if shown.agent == "job" and seen.job_mask[b, :-1].any():
            hold = shown.candidates[-1]
            assert hold.score is None and hold.probability == 0 and not hold.legal


def test_names_are_used(states: list[tuple[Observations, Any]]) -> None:
    seen, phases = states[2]
    b = int(np.flatnonzero(phases == at.UNIT_PHASE)[0])
    units = [f"node{u}" for u in range(8)]
    shown = explain(tiny_pair(), seen, b, at.UNIT_PHASE, units=units, placing="mine", decision=7, time_s=3.5)
    assert [c.name for c in shown.candidates] == units
    assert shown.attention[0].keys == ("gang", *units)
    assert (shown.placing, shown.decision, shown.time_s) == ("mine", 7, 3.5)
    with pytest.raises(InputError, match="3 names of units; expected 8"):
        explain(tiny_pair(), seen, b, at.UNIT_PHASE, units=units[:3])


def test_what_is_refused(states: list[tuple[Observations, Any]]) -> None:
    seen, phases = states[2]
    b = int(np.flatnonzero(phases == at.UNIT_PHASE)[0])
    with pytest.raises(InputError, match="waits for no agent"):
        explain(tiny_pair(), seen, b, at.DONE_PHASE)
    with pytest.raises(InputError, match="no gpu agent"):
        explain(tiny_pair(("job",)), seen, b, at.UNIT_PHASE)
    with pytest.raises(InputError, match="field 'window': 8 jobs are shown; expected 4, as in training"):
        explain(tiny_pair(window=4), seen, b, at.UNIT_PHASE)
    before = seen.glob[b, 0]
    seen.glob[b, 0] = np.nan
    with pytest.raises(InputError, match="not finite"):
        explain(tiny_pair(), seen, b, at.UNIT_PHASE)
    seen.glob[b, 0] = before
