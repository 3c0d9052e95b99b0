"""The picks that imitate topo-best-fit: following them gives its placements, and there is one in every state."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attn_sched.agents.teaching import picks_of_rule
from attn_sched.cluster import Cluster, load_cluster
from attn_sched.simulator import Ask, Engine, EngineRule, SimOptions, fit_to_cluster
from attn_sched.simulator import layout as at
from attn_sched.simulator.placement import choose_type, topo_best_fit
from attn_sched.workload import Workload, build_workload, scale_load, synth
from tests.reference.instances import clusters, workloads
from tests.reference.shapes import Group, Island, make_cluster, make_jobs
from tests.simulator.agents import legal

BOTH = EngineRule(order=at.AGENT, placement=at.PLACE_AGENT)
Plan = list[tuple[int, int]]


def planned(engine: Engine, b: int) -> Plan:
    """(island, GPUs) that the rule gives the gang about to be placed."""
    w = engine.view(b)
    job = int(w.si[at.PICK_JOB])
    kind = choose_type(w, int(w.ji[job, at.TYPES]), int(w.ji[job, at.GPUS]))
    size = topo_best_fit(w, w.free[kind], int(w.ji[job, at.GPUS]))
    return sorted((int(island), int(count)) for island, count in w.pk[:size])


def placed(engine: Engine, b: int, job: int) -> Plan:
    """(island, GPUs) that a job got when it started."""
    schedule = engine.schedule(b)
    mine = schedule.seg_job == job
    return sorted(zip(schedule.seg_island[mine].tolist(), schedule.seg_count[mine].tolist(), strict=True))


def no_worse(engine: Engine, free: np.ndarray, one: Plan, rule: Plan) -> bool:
    """Whether a placement is the rule's, or where units are islands no worse to it: fewest vertices of the highest
    level, then of the next, ..., then fewest GPUs left over. Where units are larger, the same GPUs of each: the islands
    below them are the engine's choice, not the agent's.

    ``free`` i8[V] are the free counts before either.
    """
    cluster = engine.cluster
    if cluster.unit_level == 0:
        return one == rule

    def quality(plan: Plan) -> list[int]:
        islands, counts = np.array(plan).T
        levels = range(cluster.num_levels, 0, -1)
        touched = [len(np.unique(cluster.ancestor(level)[islands])) for level in levels]
        assert counts.sum() == sum(count for _, count in rule)
        return [*touched, int((free[islands] - counts).sum())]

    def of_units(plan: Plan) -> list[int]:
        islands, counts = np.array(plan).T
        return np.bincount(cluster.ancestor(cluster.unit_level)[islands], counts, cluster.num_vertices).tolist()

    return quality(one) <= quality(rule) if cluster.unit_level == 1 else of_units(one) == of_units(rule)


def follow(engine: Engine, generator: np.random.Generator, deviate: float) -> tuple[int, int, int]:
    """Random jobs, and picks that the rule would make but for a share ``deviate`` of random ones.

    Returns how many gangs were placed without deviation, in how many islands at most, and how many decisions had no
    pick marked. Those gangs have the rule's placement or one that is no worse.
    """
    followed = most = unmarked = 0
    plans: dict[int, Plan] = {}
    free: dict[int, np.ndarray] = {}
    while not (ask := engine.ask()).done:
        marked = picks_of_rule(engine, ask)
        answers = np.zeros(len(ask.phases), dtype=np.int64)
        for b, phase in enumerate(ask.phases):
            if phase == at.DONE_PHASE:
                continue
            allowed = legal(engine, b, ask)
            if phase == at.JOB_PHASE:
                assert not marked[b].any()
                jobs = [a for a in allowed if a < engine.window]
                answers[b] = generator.choice(jobs)
                continue
            w = engine.view(b)
            if w.si[at.N_PICKS] == 0:
                plans[b] = planned(engine, b)
                free[b] = w.free.sum(axis=0)
            good = np.flatnonzero(marked[b])
            assert set(good) <= set(allowed)
            unmarked += len(good) == 0
            if len(good) == 0 or generator.random() < deviate:
                plans.pop(b, None)
                answers[b] = generator.choice(allowed)
            else:
                answers[b] = generator.choice(good)
        pending = {b: (int(engine.view(b).si[at.PICK_JOB]), plan) for b, plan in plans.items()}
        engine.apply(answers)
        for b, (job, plan) in pending.items():
            if ask.phases[b] == at.UNIT_PHASE and engine.view(b).ji[job, at.STATUS] == at.RUNNING:
                assert no_worse(engine, free[b], placed(engine, b, job), plan)
                followed += 1
                most = max(most, len(plan))
                plans.pop(b)
    return followed, most, unmarked


def busy(cluster: Cluster, seed: int, jobs: int = 120) -> Workload:
    """More work than there is room for; gangs of odd sizes too."""
    log = fit_to_cluster(build_workload(synth("helios", jobs, seed=seed)), cluster)
    sizes = np.random.default_rng(seed).integers(1, min(20, cluster.num_gpus) + 1, len(log))
    log = log.replace(num_gpus=np.where(sizes % 3 == 0, sizes, log.num_gpus).astype(np.int32))
    return scale_load(log, cluster.num_gpus, 1.5)


@pytest.mark.parametrize("unit", ["node", "gpu", "rack"])
@pytest.mark.parametrize("name", ["dgx64", "eth64"])
def test_following_the_picks_gives_the_rules_placement(name: str, unit: str) -> None:
    cluster = load_cluster(name).with_unit(unit)
    engine = Engine(cluster, [busy(cluster, seed) for seed in range(3)], BOTH, SimOptions(), window=16)
    followed, most, unmarked = follow(engine, np.random.default_rng(0), deviate=0.0)
    assert unmarked == 0
    assert followed == sum(len(log) for log in engine.workloads)
    assert most > 2


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_on_any_cluster(data: st.DataObject) -> None:
    cluster = data.draw(clusters(types=1))
    cluster = cluster.with_unit(data.draw(st.sampled_from(cluster.level_names)))
    jobs = data.draw(workloads(cluster, cancels=False))
    engine = Engine(cluster, [jobs], BOTH, SimOptions(), window=8)
    deviate = data.draw(st.sampled_from([0.0, 0.5]))
    followed, _, unmarked = follow(engine, np.random.default_rng(data.draw(st.integers(0, 99))), deviate)
    assert unmarked == 0  # after picks of the agent's own, too
    assert deviate or followed == len(jobs)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_on_clusters_of_several_types(data: st.DataObject) -> None:
    cluster = data.draw(clusters(types=3))
    engine = Engine(cluster, [data.draw(workloads(cluster, cancels=False))], BOTH, SimOptions(), window=8)
    follow(engine, np.random.default_rng(data.draw(st.integers(0, 99))), 0.0)


def test_what_is_left_is_placed_near_the_picks_made() -> None:
    cluster = load_cluster("dgx64")
    jobs = build_workload(synth("helios", 4, seed=0)).replace(
        num_gpus=np.array([4, 12, 1, 1], np.int32), submit_s=np.zeros(4), duration_s=np.full(4, 1e5)
    )
    engine = Engine(cluster, [jobs], BOTH, SimOptions(), window=4)
    assert engine.ask().phases[0] == at.JOB_PHASE
    engine.apply(np.array([0]))
    engine.ask()
    engine.apply(np.array([0]))  # four GPUs of the first node
    engine.ask()
    engine.apply(np.array([0]))  # the gang of twelve
    ask: Ask = engine.ask()
    # The rule takes a whole node of the same rack, any of them, and the rest of node 0 for the four that are left over.
    assert np.flatnonzero(picks_of_rule(engine, ask)[0]).tolist() == [0, 1, 2, 3]
    engine.apply(np.array([6]))  # a node of the other rack: the rest belongs there too
    ask = engine.ask()
    assert np.flatnonzero(picks_of_rule(engine, ask)[0]).tolist() == [4, 5, 7]


def test_all_that_completes_an_equal_is_marked() -> None:
    """Islands 4 and 6 begin an equal of the rule's placement, 5 + 1 + 1 + 2 + 3 GPUs in as many islands."""
    nodes = [(1, 1), (2, 3), (5, 1), (1,)]
    first, second, third, fourth = (Group(tuple(Island(gpus) for gpus in node)) for node in nodes)
    cluster = make_cluster(Group((Group((first, second)), Group((third, fourth)))))
    engine = Engine(
        cluster.with_unit(cluster.level_names[1]), [make_jobs([0], [9], [12])], BOTH, SimOptions(), window=4
    )
    engine.ask()
    engine.apply(np.array([0]))
    for pick, marked in ((4, None), (6, None), (2, [2, 3, 5]), (5, [3, 5]), (3, [3])):
        found = np.flatnonzero(picks_of_rule(engine, engine.ask())[0]).tolist()
        assert pick in found if marked is None else found == marked
        engine.apply(np.array([pick]))
