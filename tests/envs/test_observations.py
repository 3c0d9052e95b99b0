"""What the environment shows is what the batched path shows, lies in its spaces, and never allows what is not legal."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from attn_sched.agents.observations import Observations
from attn_sched.agents.schema import AGENTS
from attn_sched.cluster import load_cluster
from attn_sched.errors import InputError
from attn_sched.policies import parse_policy
from attn_sched.simulator import Engine, EngineRule, SimOptions
from attn_sched.simulator import layout as at
from attn_sched.workload import Workload
from envs.episodes import SyntheticEpisodes
from envs.session import BOTH_AGENTS, Session
from envs.settings import make_settings
from envs.spaces import Observation, observation
from tests.envs.play import FACES, Record, make, play
from tests.reference.shapes import make_jobs
from tests.simulator.agents import legal
from tests.simulator.drawn import Replay, replays

JOB_AGENT = EngineRule(order=at.AGENT, placement=at.TOPO_BEST_FIT)


def equal(one: Observation, other: Observation) -> None:
    assert set(one) == set(other)
    for name, array in one.items():
        assert array.dtype == other[name].dtype
        np.testing.assert_array_equal(array, other[name], err_msg=name)


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize(
    ("cluster", "options"),
    [("dgx64", {}), ("eth64", {"contention": "maxmin"}), ("nodes:2x4", {"max_wait_s": 900.0}), ("count:8", {})],
)
def test_equal_to_the_batched_path(cluster: str, options: dict[str, Any], face: str) -> None:
    """The decisions of an episode, played again as the middle one of a batch whose others go their own ways."""
    episodes = {"families": ["helios", "pai"], "jobs": 30, "loads": (1.2, 1.8), "estimate": "lognormal(0.4)"}
    environment = make(
        face, cluster=cluster, episodes=episodes, window=5, options=options, weights="random", max_decisions=400
    )
    play(face, environment, seed=2)
    record = play(face, environment, seed=None, choices=9)  # a second episode: nothing is left of the first
    shape = load_cluster(cluster)
    draw, generator = SyntheticEpisodes(shape, ("philly",), jobs=45), np.random.default_rng(4)
    rule = JOB_AGENT if face == "single" else BOTH_AGENTS
    jobs = [draw(generator), record.workload, draw(generator)]
    engine = Engine(shape, jobs, rule, SimOptions(**options), window=5)
    batched = Observations(engine)
    batched.weights[1] = record.session.weights
    for agent, seen, action in record.decisions:
        ask = engine.ask()
        batched.update(ask)
        assert ask.phases[1] == (at.JOB_PHASE if agent == "job" else at.UNIT_PHASE)
        equal(seen, observation(batched, 1, agent))
        actions = np.zeros(3, dtype=np.int64)
        for b in (0, 2):
            if ask.phases[b] != at.DONE_PHASE:
                mask = batched.job_mask[b] if ask.phases[b] == at.JOB_PHASE else batched.unit_mask[b]
                actions[b] = generator.choice(np.flatnonzero(mask))
        actions[1] = action
        engine.apply(actions)
    batched.update(engine.ask())
    assert len(record.decisions) > 30
    for agent, seen in record.last.items():
        equal(seen, observation(batched, 1, agent))


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("unit", ["gpu", "node"])
def test_lies_in_its_space(unit: str, face: str) -> None:
    cluster = load_cluster("dgx64").with_unit(unit)
    environment = make(face, cluster=cluster, episodes={"jobs": 40}, window=5)
    record = play(face, environment)
    spaces, actions = record.session.observation_spaces, record.session.action_spaces
    assert actions["job"].n == 6 and actions["gpu"].n == (64 if unit == "gpu" else 8)
    seen_by = [(agent, seen) for agent, seen, _ in record.decisions] + list(record.last.items())
    for agent, seen in seen_by:
        assert spaces[agent].contains(seen)
    for agent, seen in record.last.items():
        assert not any(array.any() for name, array in seen.items() if name != "unit_groups"), agent
    # Features are of order 1, far from the bounds that hold for whatever the engine takes.
    for name in ("jobs", "units", "globals"):
        assert max(np.abs(seen[name]).max() for _, seen in seen_by) < 2


def drawn_session(replay: Replay, kind: str, window: int) -> Session:
    """A session that plays a drawn workload for agents instead of the drawn policy."""
    rule = parse_policy(replay.policy).engine_rule()
    if kind == "single":
        rule = EngineRule(order=at.AGENT, placement=rule.placement)
    else:
        rule = BOTH_AGENTS
    checked = make_settings(
        cluster=replay.cluster, episodes=lambda generator: replay.jobs, options=replay.options, window=window, seed=0
    )
    return Session(checked, rule)


@settings(max_examples=60, deadline=None)
@given(
    replays(hold=False),
    st.sampled_from(("single", "both")),
    st.sampled_from((1, 2, 5)),
    st.integers(0, 2**32),
)
def test_masks_and_spaces_hold_in_random_states(replay: Replay, kind: str, window: int, seed: int) -> None:
    """Of drawn clusters, jobs, options (failures, cancellations, guard): what is offered is what the engine takes."""
    rule = parse_policy(replay.policy).engine_rule()
    if kind == "single" and rule.placement == at.BEST_FIT:
        kind = "both"  # the rule may be unable to place what others can
    session = drawn_session(replay, kind, window)
    try:
        session.begin()
    except InputError:
        assume(False)
    generator = np.random.default_rng(seed)
    while not session.ended:
        for agent in AGENTS:
            seen = session.observe(agent)
            assert session.observation_spaces[agent].contains(seen)
            np.testing.assert_array_equal(seen["action_mask"], session.mask(agent))
            assert seen["action_mask"].any() == (agent == session.agent)
        allowed = np.flatnonzero(session.mask(session.agent))
        assert allowed.tolist() == sorted(legal(session._engine, 0, session._ask))
        wrong = sorted(set(range(-2, len(session.mask(session.agent)) + 2)) - set(allowed.tolist()))
        refused(session, wrong[generator.integers(len(wrong))])
        session.step(int(generator.choice(allowed)))
    assert session.terminated


def refused(session: Session, action: Any) -> None:
    """The action is refused in a line that says what is legal, and changes nothing."""
    agent, mask = session.agent, session.mask(session.agent)
    seen, decisions = session.observe(agent), session.decisions
    with pytest.raises(InputError) as error:
        session.step(action)
    text = str(error.value)
    assert f"{agent} action" in text and "expected one of" in text and "\n" not in text
    assert str(np.flatnonzero(mask)[0]) in text
    equal(session.observe(agent), seen)
    assert (session.agent, session.decisions) == (agent, decisions)


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("action", [1, 3, -1, 4, 99, 1.0, None, "0", [0], np.array([0])])
def test_illegal_actions_are_refused(face: str, action: Any) -> None:
    environment = make(face, cluster="nodes:2x4", episodes={"jobs": 6}, window=4)
    environment.reset(seed=0)
    session = environment.unwrapped.session
    assert session.mask("job").tolist() == [1, 0, 0, 0, 1], "one job waits"
    if action == 4:
        assert session.step(action) is not None
        return
    refused(session, action)
    with pytest.raises(InputError, match=r"expected one of 4 to hold, 0$"):
        environment.step({"job": action} if face == "multi" else action)
    environment.step({"job": np.int64(0)} if face == "multi" else np.int64(0))


def test_an_illegal_unit_is_refused() -> None:
    environment = make("multi", cluster="nodes:2x4", episodes={"jobs": 6}, window=4)
    environment.reset(seed=0)
    environment.step({"job": 0})
    for action in (2, -1):
        with pytest.raises(InputError, match=r"gpu action .* is not legal now; expected one of 0, 1$"):
            environment.step({"gpu": action})
    for actions in ({}, {"job": 0}, {"job": 0, "gpu": 0}):
        with pytest.raises(InputError, match="'gpu' alone"):
            environment.step(actions)
    assert environment.session.decisions == 1


def absurd(**changes: Any) -> Workload:
    jobs = make_jobs(
        [0.0, 1.0, 1.0, 2.0], [5.0, 5.0, 5.0, 5.0], [3, 2, 4, 1], user=[0, 1, 0, 1], grad_bytes=1e9, compute=0.1
    )
    return jobs.replace(**changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"duration_s": np.array([1e15, 1e-300, 0.0, 1e14])},
        {"estimate_s": np.array([1e15, 0.0, -1e15, 1e-300])},
        {"submit_s": np.array([0.0, 1e14, 1e15, 1e15])},
        {"grad_bytes": np.array([1e18, 0.0, 1.0, 1e18]), "duration_s": np.full(4, 1e15)},
        {"compute_s": np.array([1e-9, 1e9, 1.0, 1.0])},
    ],
)
def test_bounds_hold_for_absurd_numbers(changes: dict[str, Any]) -> None:
    for seed in range(3):
        checked = make_settings("nodes:2x4", lambda generator: absurd(**changes), window=2, seed=seed)
        session = Session(checked, BOTH_AGENTS)
        session.begin()
        generator = np.random.default_rng(seed)
        while not session.ended:
            for agent in AGENTS:
                assert session.observation_spaces[agent].contains(session.observe(agent))
            session.step(int(generator.choice(np.flatnonzero(session.mask(session.agent)))))


@pytest.mark.parametrize(
    ("field", "value"), [("duration_s", 1e16), ("submit_s", 1e200), ("grad_bytes", 1e19), ("compute_s", 1e-10)]
)
def test_numbers_beyond_the_bounds_are_refused(field: str, value: float) -> None:
    jobs = absurd(**{field: np.array([1.0, 1.0, 1.0, value])})
    session = Session(make_settings("nodes:2x4", lambda generator: jobs), BOTH_AGENTS)
    with pytest.raises(InputError, match=rf"{field}.*job 3 has {re.escape(f'{value:g}')}"):
        session.begin()


def test_truncated_episodes_show_where_they_stand() -> None:
    """The last observation of a truncated episode is a true one, for both agents, so that it can be valued."""
    arguments: dict[str, Any] = {"cluster": "nodes:2x4", "episodes": {"jobs": 12, "loads": (2.0, 2.0)}, "window": 4}
    cut: Record = play("multi", make("multi", max_decisions=9, **arguments), seed=3)
    whole: Record = play("multi", make("multi", **arguments), seed=3)
    assert cut.truncated and not cut.terminated and len(cut.decisions) == 9
    agent, seen, _ = whole.decisions[9]
    equal(cut.last[agent], seen)
    other = "gpu" if agent == "job" else "job"
    np.testing.assert_array_equal(cut.last[other]["globals"], seen["globals"])
    assert not cut.last[other]["action_mask"].any()


def test_options_reach_the_engine() -> None:
    checked = make_settings("nodes:2x4", options={"contention": "none", "seed": 3})
    assert checked.options == replace(SimOptions(), contention="none", seed=3, record_segments=False)
