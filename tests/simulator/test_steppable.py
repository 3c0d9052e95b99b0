"""The engine one decision at a time.

What is legal is accepted, what is not changes nothing, and rules can be imitated.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attn_sched.cluster import Cluster, load_cluster
from attn_sched.errors import InputError
from attn_sched.policies import parse_policy
from attn_sched.simulator import Ask, Engine, EngineRule, Schedule, SimOptions
from attn_sched.simulator import layout as at
from attn_sched.simulator.fitting import best_slowdown, job_fits
from attn_sched.simulator.loop import job_legal
from attn_sched.simulator.state import World
from attn_sched.workload import Workload
from tests.reference.shapes import count_cluster, make_jobs, node_cluster
from tests.simulator.agents import Imitator, legal, play
from tests.simulator.checks import check_all
from tests.simulator.drawn import Replay, replays, runs_of

JOB_AGENT = EngineRule(order=at.AGENT)
BOTH_AGENTS = EngineRule(order=at.AGENT, placement=at.PLACE_AGENT)
OFF = SimOptions(comm=False)

STATE = ("jf", "ji", "free", "lk", "en", "hp", "cl", "fh", "th", "uf", "ui", "sf", "sgi", "sgf", "gp", "rng", "down")
# Scalars that only remember what has been looked at.
LOOKED_AT = {at.STAMP, at.N_TOUCHED, at.GUARD_NEXT, at.N_CANCELS, at.SCANNED, at.SCANNED_TAIL}


def state(w: World) -> list[bytes]:
    """Everything that moves, but for scratch and caches."""
    kept = [column for column in range(at.SI_COLUMNS) if column not in LOOKED_AT]
    return [getattr(w, name).tobytes() for name in STATE] + [w.si[kept].tobytes()]


def units_of(cluster: Cluster) -> list[Cluster]:
    """The cluster under every placement unit it has."""
    return [cluster.with_unit(name) for name in cluster.level_names]


def expect_refused(engine: Engine, actions: np.ndarray) -> None:
    """``apply`` raises InputError and leaves the first cluster as it was."""
    before = state(engine.view(0))
    with pytest.raises(InputError) as error:
        engine.apply(actions)
    assert "\n" not in str(error.value)
    assert state(engine.view(0)) == before


def same(agent: Schedule, rule: Schedule) -> None:
    """Two schedules agree in times and in gangs."""
    for name in ("start_s", "finish_s", "wait_s", "held_s"):
        np.testing.assert_allclose(getattr(agent, name), getattr(rule, name), rtol=1e-12, atol=1e-12)
    assert [(run.job, run.gang) for run in runs_of(agent)] == [(run.job, run.gang) for run in runs_of(rule)]
    assert agent.events == rule.events


# -- random answers ----------------------------------------------------------------------------------------------------


@st.composite
def episodes(draw: st.DrawFn) -> tuple[Replay, EngineRule, int, np.random.Generator]:
    """A replay whose rule is exchanged for agents, with any placement unit; window size; source of answers."""
    replay = draw(replays(hold=False))
    cluster = draw(st.sampled_from(units_of(replay.cluster)))
    kind = draw(st.sampled_from(("jobs", "units", "both")))
    rule = parse_policy(replay.policy).engine_rule()
    if rule.placement == at.BEST_FIT and kind != "units":
        rule = replace(rule, placement=at.TOPO_BEST_FIT)
    if kind != "units":
        rule = replace(rule, order=at.AGENT, keys=None, queueing=at.SKIP)
    if kind != "jobs":
        rule = replace(rule, placement=at.PLACE_AGENT)
    return (
        replace(replay, cluster=cluster),
        rule,
        draw(st.sampled_from((1, 2, 5, 32))),
        np.random.default_rng(draw(st.integers(0, 2**32))),
    )


@settings(max_examples=250, deadline=None)
@given(episodes())
def test_random_agents(episode: tuple[Replay, EngineRule, int, np.random.Generator]) -> None:
    """Legal answers are accepted, all others refused without a trace; episodes end; every invariant holds."""
    replay, rule, window, rng = episode
    engine = Engine(replay.cluster, [replay.jobs], rule, replay.options, window=window)

    def choose(engine: Engine, b: int, ask: Ask) -> int:
        allowed = legal(engine, b, ask)
        assert allowed, "an agent is asked only when it has an answer"
        size = window + 1 if ask.phases[b] == at.JOB_PHASE else len(engine.units)
        if rng.random() < 0.3:
            wrong = sorted(set(range(-2, size + 2)) - set(allowed))
            expect_refused(engine, rng.choice(wrong, 1))
            assert legal(engine, b, ask) == allowed
        return int(rng.choice(allowed))

    play(engine, choose)
    check_all(replay, engine.schedule(), engine.view(0))
    again = engine.ask()
    assert again.done
    engine.apply(np.array([99]))  # ignored where nothing is left to decide


@settings(max_examples=60, deadline=None)
@given(episodes())
def test_looking_changes_nothing(episode: tuple[Replay, EngineRule, int, np.random.Generator]) -> None:
    """Asking again, working out the masks and weighing jobs, also between GPU picks, leave the state as it is."""
    replay, rule, window, rng = episode
    engine = Engine(replay.cluster, [replay.jobs], rule, replay.options, window=window)
    blind = Engine(replay.cluster, [replay.jobs], rule, replay.options, window=window)
    answers = []

    def choose(engine: Engine, b: int, ask: Ask) -> int:
        w = engine.view(b)
        before = state(w)
        for job in np.flatnonzero(w.ji[:, at.STATUS] == at.WAITING):
            job_legal(w, int(job))
            best_slowdown(w, int(job))
        phases, windows = ask.phases.copy(), ask.windows.copy()
        allowed = legal(engine, b, ask)
        again = engine.ask()
        np.testing.assert_array_equal(again.phases, phases)
        np.testing.assert_array_equal(again.windows, windows)
        assert legal(engine, b, ask) == allowed
        assert state(w) == before
        answers.append(int(rng.choice(allowed)))
        return answers[-1]

    play(engine, choose)
    replies = iter(answers)
    play(blind, lambda engine, b, ask: next(replies))
    same(blind.schedule(), engine.schedule())


@settings(max_examples=60, deadline=None)
@given(episodes())
def test_window(episode: tuple[Replay, EngineRule, int, np.random.Generator]) -> None:
    """The window shows waiting jobs in order of arrival: all of them, or half the oldest and half the shortest of
    the others, those that fit before those that do not."""
    replay, rule, window, rng = episode
    engine = Engine(replay.cluster, [replay.jobs], rule, replay.options, window=window)

    def choose(engine: Engine, b: int, ask: Ask) -> int:
        waiting = np.flatnonzero(engine.view(b).ji[:, at.STATUS] == at.WAITING)
        shown = ask.windows[b][ask.windows[b] >= 0]
        oldest = window - window // 2
        expected = waiting
        if len(waiting) > window:
            if ask.phases[b] == at.UNIT_PHASE and engine.view(b).si[at.N_PICKS] > 0:
                return int(rng.choice(legal(engine, b, ask)))  # shown as before the first pick
            others = waiting[oldest:]
            unfit = np.array([not job_fits(engine.view(b), int(job)) for job in others], dtype=bool)
            best = np.lexsort((others, engine.view(b).jf[others, at.ESTIMATE], unfit))[: window // 2]
            expected = np.concatenate([waiting[:oldest], np.sort(others[best])])
        np.testing.assert_array_equal(shown, expected)
        np.testing.assert_array_equal(ask.windows[b][len(shown) :], -1)
        return int(rng.choice(legal(engine, b, ask)))

    play(engine, choose)


# -- imitation ---------------------------------------------------------------------------------------------------------

KEYS = {"fifo": "submit_s", "sjf": "estimate_s", "smallest": "num_gpus"}
IMITATED = ("topo-best-fit", "best-fit", "first-fit", "load-balance", "tiresias-skew", "lwf", "contention")


def keys_of(jobs: Workload, order: str) -> np.ndarray:
    values = getattr(jobs, KEYS[order]).astype(float)
    return np.maximum(values, 1.0) if order == "sjf" else values


@settings(max_examples=150, deadline=None)
@given(replays(orders=tuple(KEYS), queueings=("skip",), placements=IMITATED, hold=False))
def test_job_agent_imitates_a_rule(replay: Replay) -> None:
    """An agent that answers the best fitting job of a window that shows the whole queue gives the rule's schedule."""
    rule = parse_policy(replay.policy).engine_rule()
    expected, _ = replay.run()
    engine = Engine(
        replay.cluster, [replay.jobs], EngineRule(order=at.AGENT, placement=rule.placement), replay.options, window=32
    )
    play(engine, Imitator([keys_of(replay.jobs, replay.policy.split(":")[0])]))
    same(engine.schedule(), expected)


@settings(max_examples=150, deadline=None)
@given(replays(placements=("topo-best-fit",), hold=False, guard=False, types=1), st.integers(0, 1))
def test_gpu_agent_imitates_topo_best_fit(replay: Replay, unit: int) -> None:
    """Under any ordering and queueing, a GPU agent that picks what topo-best-fit picks gives its schedule.

    Units are GPUs or islands: inside a larger unit the engine fills best what was picked, which may break ties
    otherwise.
    """
    expected, _ = replay.run()
    cluster = units_of(replay.cluster)[min(unit, replay.cluster.num_levels - 1)]
    rule = replace(parse_policy(replay.policy).engine_rule(), placement=at.PLACE_AGENT)
    engine = Engine(cluster, [replay.jobs], rule, replay.options)
    play(engine, Imitator([]))
    same(engine.schedule(), expected)


@pytest.mark.parametrize("unit", ["gpu", "node"])
def test_both_agents_imitate_on_a_preset(unit: str) -> None:
    """On dgx64 with contention: both agents together, at every placement unit."""
    rng = np.random.default_rng(3)
    count = 150
    jobs = make_jobs(
        np.sort(rng.uniform(0, 2000, count)).tolist(),
        rng.lognormal(4, 1, count).tolist(),
        rng.choice([1, 2, 4, 8, 12, 16, 24], count).tolist(),
        grad_bytes=rng.choice([1e8, 1e9, 5e9], count).tolist(),
        compute=0.1,
    )
    cluster = load_cluster("dgx64")
    rule = Engine(cluster, [jobs], parse_policy("sjf+topo-best-fit").engine_rule())
    rule.run()
    engine = Engine(cluster.with_unit(unit), [jobs], BOTH_AGENTS, window=count)
    play(engine, Imitator([keys_of(jobs, "sjf")]))
    same(engine.schedule(), rule.schedule())


def test_batch_of_different_workloads() -> None:
    """Clusters of a batch, with workloads of different lengths, go their own ways: each as if it were alone."""
    rng = np.random.default_rng(11)
    cluster = load_cluster("testbed32")
    workloads = [
        make_jobs(
            np.sort(rng.uniform(0, 50, count)).tolist(),
            rng.uniform(0, 30, count).tolist(),
            rng.integers(1, 12, count).tolist(),
            user=rng.integers(0, 1 + count % 3, count).tolist(),
            grad_bytes=1e9,
        )
        for count in (1, 40, 7, 25)
    ]
    batch = Engine(cluster, workloads, BOTH_AGENTS, window=64)
    play(batch, Imitator([keys_of(jobs, "sjf") for jobs in workloads]))
    for b, jobs in enumerate(workloads):
        alone = Engine(cluster, [jobs], BOTH_AGENTS, window=64)
        play(alone, Imitator([keys_of(jobs, "sjf")]))
        same(batch.schedule(b), alone.schedule())
        assert len(batch.schedule(b).finish_s) == len(jobs)


def test_record_grows_under_agents() -> None:
    """A record of segments that runs full between decisions grows without losing anything."""
    jobs = make_jobs(list(range(40)), [25] * 40, [3] * 40)
    plain = Engine(node_cluster(3, 4), [jobs] * 2, BOTH_AGENTS, OFF, window=40)
    tight = Engine(node_cluster(3, 4), [jobs] * 2, BOTH_AGENTS, OFF, window=40)
    for name in ("sgi", "sgf"):
        tight.batch.set(name, tight.batch.arrays[name][:, :2].copy())
    for engine in (plain, tight):
        play(engine, Imitator([jobs.submit_s] * 2))
    same(tight.schedule(1), plain.schedule(1))


# -- hold and guard ----------------------------------------------------------------------------------------------------


def test_hold() -> None:
    """HOLD lets time run to the next event, and is legal only while there is one."""
    engine = Engine(count_cluster(4), [make_jobs([0, 3], [10, 5], [2, 2])], JOB_AGENT, OFF, window=3)
    now = engine.view(0).sf
    ask = engine.ask()
    assert (ask.phases[0], now[at.NOW], ask.windows[0].tolist()) == (at.JOB_PHASE, 0, [0, -1, -1])
    engine.apply(np.array([3]))  # the other job will arrive
    ask = engine.ask()
    assert (now[at.NOW], ask.windows[0].tolist()) == (3, [0, 1, -1])
    assert 3 not in legal(engine, 0, ask)  # nothing runs and nothing will arrive
    expect_refused(engine, np.array([3]))
    engine.apply(np.array([1]))
    ask = engine.ask()
    assert now[at.NOW] == 3 and ask.windows[0].tolist() == [0, -1, -1]
    engine.apply(np.array([3]))  # the second job runs
    engine.ask()
    assert now[at.NOW] == 8
    engine.apply(np.array([0]))
    assert engine.ask().done
    assert engine.schedule().finish_s.tolist() == [18, 8]
    assert engine.schedule().decisions == 4


def test_guard_decides_for_the_agent() -> None:
    """A guarded job that fits starts unasked.

    While it does not fit, jobs that would outlast its reservation are illegal.
    """
    jobs = make_jobs([0, 1, 2, 2], [20, 5, 30, 10], [3, 4, 1, 1])
    engine = Engine(count_cluster(4), [jobs], JOB_AGENT, SimOptions(comm=False, max_wait_s=0), window=4)
    asked = []

    def choose(engine: Engine, b: int, ask: Ask) -> int:
        asked.append((float(engine.view(b).sf[at.NOW]), legal(engine, b, ask)))
        return legal(engine, b, ask)[0]

    play(engine, choose)
    # At 2 s the gang of 4 waits for 20 s; of the two small jobs only the one that ends at 12 s may start.
    assert asked == [(2.0, [2, 4])]
    assert engine.schedule().start_s.tolist() == [0, 20, 25, 2]


# -- answers that are none ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "actions", [np.array([0]), np.array([0, 0, 0]), np.array([[0, 0]]), np.array([0.0, 1.0]), np.array(0), []]
)
def test_answers_of_the_wrong_shape(actions: Any) -> None:
    engine = Engine(count_cluster(4), [make_jobs([0], [1], [1])] * 2, JOB_AGENT, OFF)
    engine.ask()
    expect_refused(engine, actions)
    engine.apply(np.array([0, 0]))
    assert engine.ask().done


def test_an_answer_is_given_once() -> None:
    """A second answer before the next question is refused: the job it names may be running already."""
    jobs = make_jobs([0, 0], [5, 5], [1, 1])
    engine = Engine(count_cluster(4), [jobs], JOB_AGENT, OFF)
    engine.ask()
    engine.apply(np.array([0]))
    expect_refused(engine, np.array([0]))
    expect_refused(engine, np.array([1]))
    engine.ask()
    engine.apply(np.array([0]))
    assert engine.ask().done
    assert engine.schedule().finish_s.tolist() == [5, 5]


def test_single_gpus_are_picked_one_by_one() -> None:
    """At unit level ``gpu`` a gang of 3 takes 3 picks; the busy GPUs of an island stand before its free ones."""
    cluster = node_cluster(2, 4, capacity=1e9).with_unit("gpu")
    engine = Engine(cluster, [make_jobs([0, 0], [5, 5], [3, 2])], EngineRule(keys=lambda jobs, rng: jobs.submit_s,
                    queueing=at.STRICT, placement=at.PLACE_AGENT))  # fmt: skip
    assert engine.units.tolist() == [0] * 4 + [1] * 4
    seen = []

    def choose(engine: Engine, b: int, ask: Ask) -> int:
        seen.append(legal(engine, b, ask))
        return (1, 5, 6, 7, 3)[len(seen) - 1]

    play(engine, choose)
    assert seen == [
        [0, 1, 2, 3, 4, 5, 6, 7],
        [1, 2, 3, 4, 5, 6, 7],
        [1, 2, 3, 5, 6, 7],
        [1, 2, 3, 6, 7],
        [1, 2, 3, 7],
    ]
    assert [run.gang for run in runs_of(engine.schedule())] == [{0: 1, 1: 2}, {0: 1, 1: 1}]


def test_a_gang_stays_on_one_type() -> None:
    """After the first pick only GPUs of its type are legal, and a type too small for the gang is never offered."""
    cluster = replace(node_cluster(3, 2), island_type=np.array([0, 1, 1], dtype=np.int32), gpu_types=("V100", "A100"))
    jobs = make_jobs([0], [1], [3], gpu_type_names=("V100", "A100"))
    engine = Engine(cluster, [jobs], BOTH_AGENTS, OFF)
    ask = engine.ask()
    engine.apply(np.array([0]))
    ask = engine.ask()
    assert legal(engine, 0, ask) == [1, 2]
    engine.apply(np.array([2]))
    assert legal(engine, 0, engine.ask()) == [1]
    engine.apply(np.array([1]))
    assert engine.ask().done
    assert [run.gang for run in runs_of(engine.schedule())] == [{2: 2, 1: 1}]


def test_window_of_no_jobs() -> None:
    with pytest.raises(InputError, match="shows no job"):
        Engine(count_cluster(1), [make_jobs([0], [1], [1])], JOB_AGENT, window=0)
