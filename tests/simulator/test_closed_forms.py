"""Small replays whose schedules can be worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attn_sched.errors import InputError
from attn_sched.policies import simulate
from attn_sched.simulator import NodeChange, Schedule, SimOptions
from tests.reference.shapes import Group, Island, count_cluster, make_cluster, make_jobs, node_cluster

CAPACITY = 1e9  # of the one link that two jobs share
OFF = SimOptions(comm=False)


def exact(got: np.ndarray, expected: list[float]) -> None:
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)


def two_jobs(contention: str, second_bytes: float = CAPACITY) -> Schedule:
    """Two gangs of 2, one GPU on each of two nodes: both cross both uplinks. tau = 1 s, 10 s of ideal work each.

    The first job sends S = 1e9 bytes an iteration (2(n-1)/n S = S for n = 2), so its iteration takes 1 + S/share s,
    against 1 s in one node. The second arrives at 4 s.
    """
    cluster = node_cluster(2, 2, capacity=CAPACITY)
    jobs = make_jobs([0, 4], [10, 10], [2, 2], grad_bytes=[CAPACITY, second_bytes])
    return simulate(jobs, cluster, "fifo+load-balance", SimOptions(contention=contention))


def test_one_link_without_contention() -> None:
    """Both run at half speed throughout: 20 s each."""
    exact(two_jobs("none").finish_s, [20, 24])


@pytest.mark.parametrize("contention", ["equal", "maxmin"])
def test_one_link_shared_by_equals(contention: str) -> None:
    """At half speed until 4 s (8 s of work left), at a third until 28 s; then the second does its last 2 s alone.

    Under max-min fairness both could use the whole link (demand S / tau = C), so they get half each.
    """
    schedule = two_jobs(contention)
    exact(schedule.finish_s, [28, 32])
    exact(schedule.held_s, [28, 28])
    assert schedule.level.tolist() == [1, 1]


def test_one_link_shared_by_unequals() -> None:
    """The second sends a quarter. Equal shares: iterations of 1 + 2 and 1 + 1/2 s, then 1 + 1 s alone."""
    exact(two_jobs("equal", CAPACITY / 4).finish_s, [19 + 3 * 2, 4 + 10 * 1.5])


def test_one_link_shared_by_unequals_max_min() -> None:
    """The second wants C/4 and gets it.

    The first the other 3C/4: iterations of 1 + 4/3 and 1 + 1 s, then 1 + 1/4 s alone.
    """
    first = 4 + 8 * 7 / 3
    left = 10 - (first - 4) / 2
    exact(two_jobs("maxmin", CAPACITY / 4).finish_s, [first, first + left * 1.25])


def test_latency_of_a_ring() -> None:
    """3 GPUs on 3 nodes: 2(n-1) alpha + 2(n-1)/n S/C = 0.04 + 4/3 s, of which phi tau = 0.5 s are hidden."""
    cluster = node_cluster(3, 3, capacity=CAPACITY, latency=0.01, gpu_capacity=1e12, gpu_latency=0.001)
    jobs = make_jobs([0], [30], [3], grad_bytes=CAPACITY, overlap=0.5)
    best = 1.0  # inside one node: 0.004 + 4/3000 s, all hidden
    exact(simulate(jobs, cluster, "fifo+load-balance").finish_s, [30 * (1 + 0.04 + 4 / 3 - 0.5) / best])
    exact(simulate(jobs, cluster, "fifo+topo-best-fit").finish_s, [30])


# -- hold -------------------------------------------------------------------------------------------------------------


def held(theta: float, patience: float, **options: Any) -> float:
    """When a gang of 2 starts that finds one free GPU on each of two nodes from 1 s, and a whole node from 100 s."""
    cluster = node_cluster(2, 3, capacity=CAPACITY)
    jobs = make_jobs([0, 0, 1], [100, 100, 10], [2, 2, 2], grad_bytes=CAPACITY)
    schedule = simulate(jobs, cluster, f"fifo-skip+topo-best-fit+hold({theta},{patience})", SimOptions(**options))
    assert schedule.start_s[:2].tolist() == [0, 0]
    return float(schedule.start_s[2])


def test_hold_ends_with_patience() -> None:
    """Spread, the gang runs at half speed.

    It is held above theta, for patience x 10 s; the end of patience is an event.
    """
    assert held(1.5, 2) == 1 + 20
    assert held(1.5, 0.25) == 1 + 2.5
    assert held(1.5, 0) == 1
    assert held(1.5, 50) == 100  # a whole node before that
    assert held(2.0, 50) == 1  # a slowdown of 2 does not exceed 2
    assert held(1.5, 50, comm=False) == 1


def test_hold_gives_way_to_the_guard() -> None:
    """Whoever has waited for ``max_wait`` starts as soon as it fits, held or not."""
    assert held(1.5, 50, max_wait_s=7) == 8


def test_a_strict_queue_is_held_whole() -> None:
    """Under ``strict`` the held head blocks the rest; under ``skip`` it does not."""
    cluster = node_cluster(2, 3, capacity=CAPACITY)
    jobs = make_jobs([0, 0, 1, 2], [100, 100, 10, 10], [2, 2, 2, 1], grad_bytes=CAPACITY)
    assert simulate(jobs, cluster, "fifo+topo-best-fit+hold(1.5,2)").start_s[2:].tolist() == [21, 41]
    assert simulate(jobs, cluster, "fifo-skip+topo-best-fit+hold(1.5,2)").start_s[3] == 2


# -- starvation guard --------------------------------------------------------------------------------------------------


def stream(policy: str, max_wait: float | None) -> Schedule:
    """A gang of 4 arrives at 5 s in a stream of small jobs that leaves 1 to 3 of 4 GPUs free for 2,000 s."""
    submit = np.arange(0, 2000, 4).tolist()
    jobs = make_jobs([0, 4, 5, *submit[2:]], [10, 10, 10, *[10] * len(submit[2:])], [1, 1, 4, *[1] * len(submit[2:])])
    return simulate(jobs, count_cluster(4), policy, SimOptions(comm=False, max_wait_s=max_wait))


@pytest.mark.parametrize("order", ["fifo", "sjf", "saf", "smallest", "hrrn", "unicep", "random"])
def test_nobody_starves_behind_a_guard(order: str) -> None:
    """Small jobs keep the gang waiting for ever; with a guard of 20 s it starts when those running at 25 s have ended.

    Jobs arrive every 4 s and run for 10 s, so at 25 s the last one to run started at 24 s and ends at 34 s.
    """
    assert stream(f"{order}:skip", None).start_s[2] > 1990
    assert stream(f"{order}:skip", 20).start_s[2] == 34


def test_guard_lets_short_jobs_through() -> None:
    """While GPUs are kept for a guarded job, a job that ends before the reservation may start, a longer one not."""
    jobs = make_jobs([0, 1, 2, 3], [20, 5, 12, 8], [3, 4, 1, 1])
    schedule = simulate(jobs, count_cluster(4), "fifo-skip", SimOptions(comm=False, max_wait_s=0))
    exact(
        schedule.start_s, [0, 20, 2, 25]
    )  # the third ends at 14 < 20; the fourth would end at 22 after waiting till 14


def test_guard_at_once_is_first_come_first_served() -> None:
    """With ``max_wait`` 0 every job is guarded.

    Whatever the order, starts are those of EASY-like first come first served.
    """
    rng = np.random.default_rng(5)
    submit = np.sort(rng.integers(0, 200, 60)).astype(float).tolist()
    jobs = make_jobs(submit, rng.integers(1, 40, 60).astype(float).tolist(), rng.integers(1, 8, 60).tolist())
    options = SimOptions(comm=False, max_wait_s=0)
    sjf = simulate(jobs, count_cluster(8), "ljf:strict", options)
    fifo = simulate(jobs, count_cluster(8), "fifo:strict", OFF)
    assert sjf.finish_s.max() <= fifo.finish_s.max() + 40
    first_come = simulate(jobs, count_cluster(8), "fifo:strict", options)
    np.testing.assert_array_equal(first_come.start_s, fifo.start_s)


# -- corners -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["fifo", "sjf", "easy", "fifo:commit", "hrrn", "srtf", "tiresias", "srsf"])
def test_jobs_of_no_duration(policy: str) -> None:
    """Such jobs complete where they start and free their GPUs for the next decision at the same time."""
    jobs = make_jobs([0, 0, 0, 2, 2], [0, 0, 3, 0, 1], [2, 2, 2, 1, 1])
    schedule = simulate(jobs, count_cluster(2), policy, OFF)
    assert schedule.finish_s[0] == schedule.finish_s[1] == 0
    np.testing.assert_array_equal(schedule.held_s, jobs.duration_s)
    assert schedule.finish_s.max() == 4


@pytest.mark.parametrize(
    "policy", ["fifo", "sjf", "ljf:strict", "easy", "saf:commit", "wfp3", "user-fair", "ftf", "srsf"]
)
def test_one_gpu(policy: str) -> None:
    """On one GPU nothing overlaps and nothing is left idle: the makespan is the sum of durations."""
    jobs = make_jobs([0, 0, 0, 0, 1], [5, 3, 4, 0, 2], [1] * 5)
    schedule = simulate(jobs, node_cluster(1, 1), policy)
    assert schedule.finish_s.max() == 14
    assert schedule.fragmented_gpu_s == 0


def test_all_at_once() -> None:
    """Jobs submitted at the same time start in the order of their keys, ties in the order of the log."""
    jobs = make_jobs([7] * 6, [3, 2, 2, 1, 3, 1], [2] * 6)
    schedule = simulate(jobs, count_cluster(2), "sjf", OFF)
    assert np.argsort(schedule.start_s).tolist() == [3, 5, 1, 2, 0, 4]
    assert schedule.start_s.min() == 7


def test_fragmentation() -> None:
    """Free GPUs that the oldest waiting job cannot use: 2 of 8 for the 10 s in which a gang of 4 waits."""
    jobs = make_jobs([0, 0], [10, 1], [6, 4])
    assert simulate(jobs, count_cluster(8), "fifo", OFF).fragmented_gpu_s == 20


# -- failures and cancellations ----------------------------------------------------------------------------------------


def failing(changes: list[tuple[float, str, bool]], checkpoint: float | None = None, cost: float = 0.0) -> Schedule:
    """One job of 100 s on one of two nodes; node ``v0`` is where it starts."""
    options = SimOptions(
        comm=False,
        changes=tuple(NodeChange(*change) for change in changes),
        checkpoint_s=checkpoint,
        restart_cost_s=cost,
    )
    return simulate(make_jobs([0], [100], [2]), node_cluster(2, 2), "fifo", options)


def test_a_failure_restarts_the_job() -> None:
    """From zero, or from the last checkpoint, at once on the other node."""
    assert failing([(30, "v0", False)]).finish_s[0] == 130
    assert failing([(37, "v0", False)], checkpoint=10).finish_s[0] == 37 + 70
    assert failing([(37, "v0", False)], checkpoint=10, cost=5).finish_s[0] == 37 + 75
    schedule = failing([(37, "v0", False)], checkpoint=10)
    assert (schedule.restarts[0], schedule.preemptions[0], schedule.held_s[0]) == (1, 0, 107)


def test_a_checkpoint_is_never_lost() -> None:
    """A second failure while the restart cost is being paid goes back to the same checkpoint, not to an earlier one."""
    twice = [(37.0, "v0", False), (38.0, "v0", True), (41.0, "v1", False)]
    assert failing(twice, checkpoint=10, cost=5).finish_s[0] == 41 + 75


def test_nodes_inside_one_another() -> None:
    """A node is down while it or anything above it is; a return without a failure changes nothing."""
    both = [(10.0, "small", False), (20.0, "v0", False), (30.0, "small", True), (50.0, "v0", True)]
    schedule = failing(both)
    assert schedule.finish_s[0] == 130  # restarts at 30, on v1
    assert schedule.seg_island.tolist() == [0, 1]
    redundant = [(5.0, "v0", True), (10.0, "v0", False), (11.0, "v1", False), (40.0, "v0", True)]
    assert failing(redundant).finish_s[0] == 140


def test_a_cluster_that_never_returns() -> None:
    """The replay ends where nothing can happen any more; the job is left waiting."""
    schedule = failing([(10, "small", False)])
    assert np.isnan(schedule.finish_s[0]) and schedule.start_s[0] == 0 and schedule.restarts[0] == 1


def test_unknown_vertex() -> None:
    with pytest.raises(InputError, match="no 'rack9'"):
        failing([(1, "rack9", False)])


def test_a_cancellation_that_comes_too_late_is_no_event() -> None:
    """Were it one, a preemptive rule would decide anew: the gang that has paid its restart cost would be suspended."""
    jobs = make_jobs([0, 0, 1], [2, 2.5, 0], [4, 4, 1], cancel=[np.inf, np.inf, 2])
    options = SimOptions(comm=False, restart_cost_s=7)
    late = simulate(jobs, count_cluster(4), "srtf", options)
    never = simulate(jobs.replace(cancel_s=np.full(3, np.inf)), count_cluster(4), "srtf", options)
    np.testing.assert_array_equal(late.finish_s, never.finish_s)
    assert late.events == never.events


def test_cancelled_before_it_arrives() -> None:
    """Such a job never joins the queue, though it is counted as ended."""
    jobs = make_jobs([0, 5, 6], [2, 2, 2], [1, 1, 1], cancel=[np.inf, 3, np.inf])
    schedule = simulate(jobs, count_cluster(1), "fifo", OFF)
    assert schedule.cancelled.tolist() == [False, True, False]
    assert schedule.start_s[2] == 6 and np.isnan(schedule.start_s[1]) and schedule.wait_s[1] == 0


# -- what cannot be replayed -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("duration_s", -1.0, "job 1 has -1"),
        ("duration_s", np.nan, "job 1 has no duration"),
        ("submit_s", np.nan, "job 1 has no finite value"),
        ("submit_s", -1.0, "not in order"),
        ("estimate_s", np.inf, "job 1 has no finite value"),
        ("grad_bytes", -1.0, "job 1 has -1"),
        ("compute_s", 0.0, "computes for 0 s"),
        ("overlap", -0.5, "job 1 has -0.5"),
        ("num_gpus", 9, "asks for 9 GPUs"),
        ("num_gpus", 0, "asks for 0 GPUs"),
    ],
)
def test_bad_workloads(field: str, value: float, problem: str) -> None:
    jobs = make_jobs([0, 1], [2, 2], [1, 1])
    column = getattr(jobs, field).copy()
    column[1] = value
    with pytest.raises(InputError, match=problem) as error:
        simulate(jobs.replace(**{field: column}), count_cluster(8), "fifo")
    assert "\n" not in str(error.value)


def test_no_jobs() -> None:
    jobs = make_jobs([0], [2], [1]).select(np.array([], dtype=int))
    with pytest.raises(InputError, match="has no jobs"):
        simulate(jobs, count_cluster(8), "fifo")


@pytest.mark.parametrize("sizes", [(3, 1, 1), (8, 3, 2), (2, 2, 8), (5, 4, 3, 2, 1), (4, 4, 4)])
def test_best_fit_places_all_that_an_empty_cluster_can_hold(sizes: tuple[int, ...]) -> None:
    """Smaller nodes are taken whole where there are too few larger ones, so no gang waits for ever."""
    cluster = make_cluster(Group(tuple(Island(size) for size in sizes)))
    for need in range(1, sum(sizes) + 1):
        schedule = simulate(make_jobs([0], [1], [need]), cluster, "fifo+best-fit", OFF)
        assert schedule.start_s.tolist() == [0]
        assert schedule.seg_count.sum() == need


@pytest.mark.parametrize(
    "options",
    [
        {"contention": "fair"},
        {"allreduce": "tree"},
        {"restart_cost_s": -1.0},
        {"max_wait_s": float("nan")},
        {"checkpoint_s": 0.0},
        {"seed": -1},
    ],
)
def test_bad_options(options: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        SimOptions(**options)
