"""Every ordering's keys, and the schedules that follow, worked out by hand for three jobs."""

from __future__ import annotations

import math

import numpy as np
import pytest

from attn_sched.policies import parse_policy, simulate
from attn_sched.seeding import stream
from attn_sched.simulator import Engine, Schedule, SimOptions
from attn_sched.simulator import layout as at
from attn_sched.simulator.loop import run
from attn_sched.simulator.preemption import preemptive_key
from attn_sched.simulator.selection import dynamic_key
from attn_sched.workload import Workload
from tests.reference.shapes import Group, Island, count_cluster, make_cluster, make_jobs, node_cluster

OFF = SimOptions(comm=False)

# Two jobs hold the 4 GPUs until 100 s; A, B and C wait behind them; the last one arrives at 9 s to make that a moment
# of decision. No two of A, B, C fit at once.
A, B, C = 2, 3, 4
JOBS = make_jobs(
    submit=[0, 0, 1, 2, 3, 9],
    duration=[100, 100, 20, 5, 8, 1000],
    gpus=[3, 1, 2, 4, 3, 4],
    user=[0, 1, 0, 1, 2, 2],
)


def at_nine_seconds(policy: str, jobs: Workload = JOBS) -> list[float]:
    """The keys of A, B and C at 9 s."""
    engine = Engine(count_cluster(4), [jobs], parse_policy(policy).engine_rule(), OFF)
    w = engine.view(0)
    assert run(w, 5) == -1
    assert w.sf[at.NOW] == 9
    return [dynamic_key(w, job) for job in (A, B, C)]


@pytest.mark.parametrize(
    ("order", "keys"),
    [
        ("fifo", [1, 2, 3]),
        ("sjf", [20, 5, 8]),
        ("ljf", [-20, -5, -8]),
        ("smallest", [2, 4, 3]),
        ("largest", [-2, -4, -3]),
        ("saf", [40, 20, 24]),
        ("f1", [math.log10(20) * 2, math.log10(5) * 4 + 870 * math.log10(2), math.log10(8) * 3 + 870 * math.log10(3)]),
    ],
)
def test_static_keys(order: str, keys: list[float]) -> None:
    """Orderings whose keys are known on arrival."""
    function = parse_policy(order).ordering.keys
    assert function is not None
    np.testing.assert_allclose(function(JOBS, stream(0, "x"))[[A, B, C]], keys, rtol=1e-14)


@pytest.mark.parametrize(
    ("order", "keys"),
    [
        ("hrrn", [-(8 + 20) / 20, -(7 + 5) / 5, -(6 + 8) / 8]),
        ("wfp3", [-((8 / 20) ** 3) * 2, -((7 / 5) ** 3) * 4, -((6 / 8) ** 3) * 3]),
        ("unicep", [-8 / (1 * 20), -7 / (2 * 5), -6 / (math.log2(3) * 8)]),
        # 3 GPUs of user 0 and 1 GPU of user 1 for 9 s; user 2 has had nothing
        ("user-fair", [27, 9, 0]),
        # Mean numbers of active users since submission: 2 until 3 s, then 3.
        (
            "ftf",
            [
                -(8 + 20) / (20 * 2 * (2 * 2 + 3 * 6) / 8 / 4),
                -(7 + 5) / (5 * 4 * (2 * 1 + 3 * 6) / 7 / 4),
                -(6 + 8) / (8 * 3 * 3 / 4),
            ],
        ),
    ],
)
def test_dynamic_keys(order: str, keys: list[float]) -> None:
    """Orderings whose keys change with time or with what has run."""
    np.testing.assert_allclose(at_nine_seconds(order), keys, rtol=1e-13)


def test_finish_time_ratio_of_a_small_share() -> None:
    """A job that wants no more than its share of the cluster is promised its own duration, not less."""
    jobs = JOBS.replace(num_gpus=np.array([3, 1, 1, 4, 3, 4], dtype=np.int32))
    assert at_nine_seconds("ftf", jobs)[0] == -(8 + 20) / 20


def test_short_jobs_count_as_one_second() -> None:
    """Rules and ratios use max(d, 1 s)."""
    short = JOBS.replace(estimate_s=np.array([100, 100, 0.5, 0.0, 1.0, 1000]))
    assert at_nine_seconds("hrrn", short) == [-9, -8, -7]
    function = parse_policy("sjf").ordering.keys
    assert function is not None
    assert function(short, stream(0, "x"))[[A, B, C]].tolist() == [1, 1, 1]
    function = parse_policy("saf").ordering.keys
    assert function is not None
    assert function(short, stream(0, "x"))[[A, B, C]].tolist() == [2, 4, 3]


def test_qssf_learns_from_jobs_that_have_ended() -> None:
    """Mean running time of the user's jobs that have ended, times GPUs; of all users' before there is one.

    The fourth job of user 0 is still running when the others arrive: what it will take is nobody's to know.
    """
    jobs = make_jobs([0, 5, 6, 20, 20, 20], [4, 8, 99, 1, 1, 1], [1, 1, 1, 2, 3, 1], user=[0, 1, 0, 0, 1, 2])
    engine = Engine(count_cluster(8), [jobs], parse_policy("qssf").engine_rule(), OFF)
    engine.run()
    assert engine.view(0).jf[:, at.KEY].tolist() == [3600, 4, 4, 2 * 4, 3 * 8, 6]


def test_random_is_seeded() -> None:
    """The same seed gives the same shuffle, another one another; over many seeds every job comes first."""
    jobs = make_jobs([0] * 4, [1] * 4, [4] * 4)
    first = [
        int(np.argmin(simulate(jobs, count_cluster(4), "random", SimOptions(comm=False, seed=s)).start_s))
        for s in range(40)
    ]
    assert set(first) == {0, 1, 2, 3}
    again = int(np.argmin(simulate(jobs, count_cluster(4), "random", SimOptions(comm=False, seed=7)).start_s))
    assert again == first[7]


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("fifo", [A, B, C]),
        ("sjf", [B, C, A]),
        ("ljf", [A, C, B]),
        ("smallest", [A, C, B]),
        ("largest", [B, C, A]),
        ("saf", [B, C, A]),
        ("f1", [A, B, C]),
        # At 100 s (waits 99, 98, 97): 5.95, 20.6, 13.1, so B runs until 105.
        ("hrrn", [B, C, A]),
        ("unicep", [B, C, A]),
        # At 100 s users 0, 1, 2 have had 300, 100 and 0 GPU-seconds; at 108 s C has cost user 2 no more than 24.
        ("user-fair", [C, B, A]),
        # (w + d) / (d max(1, n A / 4)) with A nearly 3: 5.95 / 1.49, 20.6 / 2.98, 13.1 / 2.25
        ("ftf", [B, C, A]),
    ],
)
@pytest.mark.parametrize("queueing", ["strict", "skip", "commit"])
def test_order_of_starts(order: str, expected: list[int], queueing: str) -> None:
    """The jobs start in the order of their keys, one after another."""
    jobs = JOBS.select(np.arange(5))
    schedule = simulate(jobs, count_cluster(4), f"{order}:{queueing}", OFF)
    if queueing == "commit" and order not in ("fifo", "f1", "smallest", "ljf"):
        # The first job to wait is picked as it arrives and stays picked; keys decide among the others.
        assert min(expected, key=lambda job: schedule.start_s[job]) == A
        expected = [A, *[job for job in expected if job != A]]
    assert sorted((A, B, C), key=lambda job: schedule.start_s[job]) == expected
    assert schedule.start_s[expected[0]] == 100


def test_easy_backfills_by_arrival() -> None:
    """A gang of 4 is picked and waits until 10 s; behind it only what ends before that may start, oldest first."""
    jobs = make_jobs([0, 1, 2, 3, 3], [10, 5, 8, 7, 6], [2, 4, 2, 2, 1])
    assert simulate(jobs, count_cluster(4), "easy", OFF).start_s.tolist() == [0, 10, 15, 15, 3]
    assert simulate(jobs, count_cluster(4), "fifo", OFF).start_s.tolist() == [0, 10, 15, 15, 22]


# -- preemptive --------------------------------------------------------------------------------------------------------


def gangs(policy: str, second_gpus: int = 4, restart_cost: float = 0.0) -> Schedule:
    """A job of 10 s (1 GPU or 4) at 0 s, one of 3 s on 4 GPUs at 2 s."""
    jobs = make_jobs([0, 2], [10, 3], [second_gpus, 4])
    return simulate(jobs, count_cluster(4), policy, SimOptions(comm=False, restart_cost_s=restart_cost))


def test_srtf() -> None:
    """3 s are less than the 8 s left: the first job waits, and pays to come back."""
    assert gangs("srtf").finish_s.tolist() == [13, 5]
    schedule = gangs("srtf", restart_cost=2)
    assert schedule.finish_s.tolist() == [15, 5]
    assert (schedule.wait_s.tolist(), schedule.held_s.tolist()) == ([3, 0], [12, 3])
    assert schedule.preemptions.tolist() == [1, 0]


def test_srsf() -> None:
    """8 s on 1 GPU are less than 3 s on 4: by GPU time the first job stays; on 4 GPUs it would not."""
    assert gangs("srsf", second_gpus=1).finish_s.tolist() == [10, 13]
    assert gangs("srtf", second_gpus=1).finish_s.tolist() == [13, 5]
    assert gangs("srsf").finish_s.tolist() == [13, 5]


def test_tiresias() -> None:
    """The first job leaves the top queue after 3,250 GPU-seconds, at 812.5 s; the second runs wholly inside it."""
    jobs = make_jobs([0, 100], [2000, 500], [4, 4])
    schedule = simulate(jobs, count_cluster(4), "tiresias", OFF)
    assert schedule.start_s.tolist() == [0, 812.5]
    assert schedule.finish_s.tolist() == [2500, 1312.5]
    assert schedule.preemptions.tolist() == [1, 0]


def test_tiresias_has_three_queues() -> None:
    """Attained service of 3,250 and 7,200 GPU-seconds: two equal long jobs swap when one drops below the other."""
    jobs = make_jobs([0, 0], [3000, 3000], [4, 4])
    schedule = simulate(jobs, count_cluster(4), "tiresias", OFF)
    # First to 3,250; second to 3,250; both in queue 2: the first again, to 7,200; the second to 7,200; first; second.
    swaps = np.sort(schedule.seg_start)
    np.testing.assert_allclose(swaps, [0, 812.5, 1625, 1625 + 987.5, 3600, 4800])
    np.testing.assert_allclose(schedule.finish_s, [4800, 6000])


def test_themis() -> None:
    """The second job's ratio is the worse from the start, but the first keeps its GPUs for a lease of 1,200 s."""
    jobs = make_jobs([0, 10], [5000, 100], [4, 4], user=[0, 1])
    schedule = simulate(jobs, count_cluster(4), "themis-like", OFF)
    assert schedule.start_s.tolist() == [0, 1200]
    assert schedule.finish_s.tolist() == [5100, 1300]
    assert schedule.preemptions.tolist() == [1, 0]


def test_themis_leases_are_renewed() -> None:
    """A lease that lapsed while nobody waited is bid for anew when somebody does, and again a lease later.

    At 1,300 s the newcomer's ratio is 100 / 200, the old job's about 1: it keeps its GPUs until 2,500 s.
    """
    jobs = make_jobs([0, 1300], [50_000, 100], [4, 4], user=[0, 1])
    schedule = simulate(jobs, count_cluster(4), "themis-like", OFF)
    assert schedule.start_s.tolist() == [0, 2500]
    assert schedule.finish_s.tolist() == [50_100, 2600]


def test_nothing_is_suspended_in_vain() -> None:
    """Two nodes of 2: by counts the gang of 2 should run in place of the first job, but that would not empty a node."""
    jobs = make_jobs([0, 1, 2, 5], [100, 80, 90, 10], [1, 1, 1, 2])
    schedule = simulate(jobs, node_cluster(2, 2), "srtf+best-fit", OFF)
    assert schedule.start_s.tolist() == [0, 1, 2, 92]
    assert schedule.preemptions.sum() == 0


def test_a_job_suspended_on_one_type_goes_on_on_another() -> None:
    """Two GPUs of each of two types; the better ranked job can only use the first, where the other is running."""
    cluster = make_cluster(Group((Island(2, 0, 1e9), Island(2, 1, 1e9))), ("A", "B"))
    jobs = make_jobs([0, 10], [100, 20], [2, 2], gpu_type=[-1, 0], gpu_type_names=("A",))
    schedule = simulate(jobs, cluster, "srtf", OFF)
    assert schedule.start_s.tolist() == [0, 10]
    assert schedule.finish_s.tolist() == [100, 30]
    assert schedule.preemptions.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("order", "keys"),
    [
        ("srtf", [91, 20, 5]),
        ("srsf", [91 * 3, 40, 20]),
        ("tiresias", [0, 2, 3]),  # all in the top queue, by submission
        # Inside its lease a running job comes first. A: mean active users since 1 s are 2, one of 4 GPUs is its share.
        ("themis-like", [-math.inf, -(8 + 20) / 20, -(7 + 5) / (5 * 4 * 2 / 4)]),
    ],
)
def test_preemptive_keys(order: str, keys: list[float]) -> None:
    """The keys at 9 s of the first job, of A and of B; those two wait behind blockers."""
    jobs = JOBS.select(np.array([0, 1, 2, 3, 5])).replace(user=np.array([0, 1, 0, 1, 0], dtype=np.int32))
    engine = Engine(count_cluster(4), [jobs], parse_policy(order).engine_rule(), OFF)
    w = engine.view(0)
    # Let A and B wait: rank the live jobs by hand, without rescheduling.
    w.ci[at.PREEMPT] = at.NO_PREEMPTION
    w.ci[at.QUEUEING] = at.STRICT
    w.ci[at.ORDER] = at.STATIC
    w.jf[:, at.KEY] = jobs.submit_s
    assert run(w, 4) == -1
    w.ci[at.PREEMPT] = parse_policy(order).engine_rule().preempt
    w.jf[0, at.DEADLINE] = 1200  # the end of its lease
    assert w.sf[at.NOW] == 9
    np.testing.assert_allclose([preemptive_key(w, job) for job in (0, 2, 3)], keys, rtol=1e-13)
