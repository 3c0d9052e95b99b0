"""The reference itself: cases worked out by hand, and laws that hold for every replay."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.reference import Result, simulate_reference
from tests.reference.comm import Comm
from tests.reference.instances import MARGIN, Instance, instances
from tests.reference.job import read_jobs
from tests.reference.shapes import Group, Island, count_cluster, make_cluster, make_jobs, node_cluster
from tests.reference.tree import Tree, topo_best_fit

RACKS = make_cluster(Group((Group((Island(4),) * 3), Group((Island(4),) * 3))))


@pytest.mark.parametrize(
    ("free", "need", "expected"),
    [
        ([4, 2, 1, 3, 3, 0], 3, {3: 3}),  # the fullest node with room
        ([2, 2, 2, 4, 4, 0], 6, {3: 4, 4: 2}),  # fewest nodes decide before the fullest rack
        ([4, 2, 0, 3, 3, 0], 6, {0: 4, 1: 2}),  # all equal: lowest index
        ([4, 3, 2, 3, 3, 0], 6, {3: 3, 4: 3}),  # two nodes in either rack: the fuller rack
        (
            [4, 4, 0, 4, 3, 2],
            10,
            {3: 4, 4: 3, 5: 2, 0: 1},
        ),  # no rack has room: the emptier whole, the rest in the other
    ],
)
def test_topo_best_fit(free: list[int], need: int, expected: dict[int, int]) -> None:
    assert topo_best_fit(Tree(RACKS), free, 0, need) == expected


def test_two_jobs_share_one_link() -> None:
    cluster = node_cluster(2, 2, capacity=1e9)
    jobs = make_jobs([0, 20], [30, 10], [2, 2], grad_bytes=1e9)
    result = simulate_reference(cluster, jobs, placement="load-balance")
    # alone 1 + 1 s an iteration (slowdown 2); together 1 + 2 s (3): 10 of 30 s of work by 20, 10 more by 50
    np.testing.assert_allclose(result.finish, [70, 50])
    np.testing.assert_allclose(simulate_reference(cluster, jobs, placement="load-balance", comm=False).finish, [30, 30])
    free = simulate_reference(cluster, jobs, placement="load-balance", contention="none")
    np.testing.assert_allclose(free.finish, [60, 40])


def test_max_min_shares() -> None:
    tree = Tree(node_cluster(2, 2, capacity=10.0))
    jobs = read_jobs(make_jobs([0, 0], [1, 1], [2, 2], grad_bytes=[2.0, 100.0]), tree)
    placed = {j: (job, {0: 1, 1: 1}) for j, job in enumerate(jobs)}
    comm = Comm(tree, contention="maxmin")
    assert comm.shares(placed) == {0: {0: 2.0, 1: 2.0}, 1: {0: 8.0, 1: 8.0}}
    assert comm.iteration_times(placed) == {0: 1 + 2 / 2, 1: 1 + 100 / 8}


def test_ring_and_hierarchical_times() -> None:
    tree = Tree(node_cluster(2, 2, capacity=4.0, latency=0.5, gpu_capacity=8.0, gpu_latency=0.25))
    (job,) = read_jobs(make_jobs([0], [1], [4], grad_bytes=16.0, compute=2.0, overlap=0.5), tree)
    placed = {0: (job, {0: 2, 1: 2})}
    assert Comm(tree).iteration_times(placed)[0] == 2 + (6 * 0.5 + 1.5 * 16 / 4) - 1
    hierarchical = 2 * 0.25 + 16 / 8 + 2 * 0.5 + 16 / 4
    assert Comm(tree, allreduce="hierarchical").iteration_times(placed)[0] == 2 + hierarchical - 1


def test_hold_waits_for_a_whole_node_or_the_end_of_patience() -> None:
    cluster = node_cluster(2, 2, capacity=1e9)
    jobs = make_jobs([0, 0, 1], [8, 40, 10], [1, 1, 2], grad_bytes=1e9)
    spread: dict[str, Any] = {"order": "fifo", "queueing": "skip", "placement": "load-balance"}
    np.testing.assert_allclose(simulate_reference(cluster, jobs, **spread).start, [0, 0, 1])
    np.testing.assert_allclose(simulate_reference(cluster, jobs, hold=(1.5, 1.0), **spread).start, [0, 0, 8])
    np.testing.assert_allclose(simulate_reference(cluster, jobs, hold=(1.5, 0.5), **spread).start, [0, 0, 6])
    np.testing.assert_allclose(simulate_reference(cluster, jobs, hold=(2.0, 9.0), **spread).start, [0, 0, 1])


def test_guard_keeps_a_large_job_from_starving() -> None:
    jobs = make_jobs([0, 1, *range(2, 12)], [4, 5] + [4] * 10, [1, 2] + [1] * 10)
    free = simulate_reference(count_cluster(2), jobs, order="sjf", queueing="skip")
    guarded = simulate_reference(count_cluster(2), jobs, order="sjf", queueing="skip", max_wait=6.0)
    assert free.start[1] == 24
    assert guarded.start[1] == 10  # reserved at 7, when jobs end at 8 and 10; the GPU free at 8 is kept for it


def test_a_job_of_no_duration_ends_where_it_starts() -> None:
    jobs = make_jobs([0, 0, 0], [0, 5, 5], [1, 2, 1])
    np.testing.assert_array_equal(simulate_reference(count_cluster(2), jobs, queueing="skip").start, [0, 0, 5])


def test_cancelled_jobs_leave() -> None:
    jobs = make_jobs([0, 1, 2], [10, 10, 10], [1, 1, 1], cancel=[5, 4, math.inf])
    result = simulate_reference(count_cluster(1), jobs)
    np.testing.assert_array_equal(result.finish, [5, math.nan, 15])
    np.testing.assert_array_equal(result.wait, [0, 3, 3])
    assert result.cancelled.tolist() == [True, True, False]


def test_restart_cost_is_held_time() -> None:
    jobs = make_jobs([0, 2], [10, 3], [1, 1])
    result = simulate_reference(count_cluster(1), jobs, order="srtf", restart_cost=2.0)
    np.testing.assert_array_equal(result.finish, [15, 5])
    np.testing.assert_array_equal(result.held, [12, 3])
    assert result.preemptions.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("jobs", "options"),
    [
        # at 3 the first has 3 - (3 - 1) left
        (([1, 3], [20, 9], [3, 1]), {"order": "srtf"}),
        # suspended at 4 with 10 - 4 left, which the last one, of 5, needs too
        (([0, 4, 5], [20, 4, 9], [10, 2, 6]), {"order": "srtf"}),
        # at 3 the nodes have 6 - 3 and 4 - (3 - 2) left
        (([0, 2, 3], [9, 20, 9], [6, 4, 1]), {"placement": "lwf"}),
    ],
)
def test_ties_of_work_left_count_unless_all_is_whole(jobs: tuple[list[float], ...], options: dict[str, Any]) -> None:
    cluster = count_cluster(1) if "order" in options else node_cluster(2, 2)

    def margin(unit: float) -> float:
        submit, duration, estimate = ([seconds * unit for seconds in column] for column in jobs)
        scaled = make_jobs(submit, duration, [1] * len(submit), estimate=estimate)
        return simulate_reference(cluster, scaled, comm=False, **options).margin

    assert margin(1.0) > MARGIN
    for unit in (math.pi, math.e, 0.1, 1 / 3):  # some come out equal, some do not: it is chance either way
        assert margin(unit) < MARGIN


def check_laws(instance: Instance, result: Result) -> None:
    """No GPU in two jobs, whole gangs, one GPU type, time adds up, Little's law."""
    cluster, jobs = instance.cluster, instance.jobs
    edges = sorted({s.start for s in result.segments} | {s.end for s in result.segments})
    for now in edges:
        for i in range(cluster.num_islands):
            assert sum(s.placement.get(i, 0) for s in result.segments if s.start <= now < s.end) <= cluster.gpus[i]
    for s in result.segments:
        assert sum(s.placement.values()) == jobs.num_gpus[s.job]
        assert len({int(cluster.island_type[i]) for i in s.placement}) == 1
        assert s.start >= jobs.submit_s[s.job]
    ended = ~result.cancelled
    assert np.isfinite(result.finish[ended]).all()
    assert (result.held[ended] >= jobs.duration_s[ended] - 1e-9).all()
    ran = np.isfinite(result.finish)
    np.testing.assert_allclose((result.finish - jobs.submit_s)[ran], (result.wait + result.held)[ran], atol=1e-9)
    if not instance.options["comm"] and not instance.options.get("restart_cost"):
        np.testing.assert_allclose(result.held[ended], jobs.duration_s[ended], atol=1e-9)
    leave = np.where(ran, result.finish, jobs.cancel_s)
    times = np.unique(np.concatenate([jobs.submit_s, leave]))
    inside = [int(((jobs.submit_s <= t) & (leave > t)).sum()) for t in times[:-1]]
    assert np.isclose(np.dot(inside, np.diff(times)), (leave - jobs.submit_s).sum())


@settings(max_examples=150, deadline=None)
@given(instances())
def test_laws(instance: Instance) -> None:
    check_laws(instance, simulate_reference(instance.cluster, instance.jobs, **instance.options))


@settings(max_examples=60, deadline=None)
@given(instances(preemptive=True))
def test_laws_with_preemption(instance: Instance) -> None:
    result = simulate_reference(instance.cluster, instance.jobs, **instance.options)
    if instance.options["placement"] != "best-fit":
        check_laws(instance, result)


@settings(max_examples=60, deadline=None)
@given(instances(comm=True), st.sampled_from(("equal", "maxmin")))
def test_communication_only_lengthens_runs(instance: Instance, contention: str) -> None:
    options: dict[str, Any] = {"order": "fifo", "queueing": "strict", "placement": "topo-best-fit"}
    first = simulate_reference(instance.cluster, instance.jobs, contention=contention, **options)
    alone = simulate_reference(instance.cluster, instance.jobs, comm=False, **options)
    running = [j for j in range(len(first.start)) if not first.cancelled[j]]
    assert (first.held[running] >= alone.held[running] - 1e-9).all()
