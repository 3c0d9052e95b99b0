"""What must hold of every replay, over random clusters, workloads, policies, failures and cancellations."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings

from attn_sched.policies import replay as policies_replay
from attn_sched.policies import simulate
from attn_sched.simulator import layout as at
from tests.reference.comm import Comm
from tests.reference.job import CloseCalls, read_jobs
from tests.reference.placement import Placer
from tests.reference.shapes import count_cluster
from tests.reference.tree import Tree
from tests.simulator.checks import check_all, check_gpus, ended
from tests.simulator.drawn import Replay, down_times, replays, runs_of


def check(replay: Replay) -> None:
    """Every invariant of one replay."""
    check_all(replay, *replay.run())


@settings(max_examples=300, deadline=None)
@given(replays(failures=False))
def test_rules(replay: Replay) -> None:
    check(replay)


@settings(max_examples=250, deadline=None)
@given(replays(failures=True))
def test_rules_with_failures(replay: Replay) -> None:
    check(replay)


@settings(max_examples=200, deadline=None)
@given(replays(preemptive=True))
def test_preemptive(replay: Replay) -> None:
    check(replay)


@pytest.mark.slow
@settings(max_examples=3000, deadline=None)
@given(replays(max_jobs=20) | replays(preemptive=True, max_jobs=20))
def test_at_length(replay: Replay) -> None:
    check(replay)


@settings(max_examples=60, deadline=None)
@given(replays(failures=None))
def test_same_call_same_schedule(replay: Replay) -> None:
    """Same arguments, same schedule to the last bit, alone or in a batch (random rules draw by place in the batch)."""
    first, _ = replay.run()
    batch = replay.engine(3)
    assert batch.ask().done
    again = [replay.run()[0], batch.schedule(0)]
    if "random" not in replay.policy:
        again += [batch.schedule(1), batch.schedule(2)]
    for other in again:
        for name in ("start_s", "finish_s", "wait_s", "held_s", "level", "seg_job", "seg_island", "seg_count"):
            assert getattr(first, name).tobytes() == getattr(other, name).tobytes()
        assert first.seg_start.tobytes() == other.seg_start.tobytes()
        assert first.seg_end.tobytes() == other.seg_end.tobytes()
        assert (first.events, first.decisions) == (other.events, other.decisions)


@settings(max_examples=80, deadline=None)
@given(replays(failures=None) | replays(preemptive=True))
def test_small_record_of_segments(replay: Replay) -> None:
    """A record that has to grow again and again holds the same as a large one.

    Without a record all else is the same.
    """
    plain, _ = replay.run()
    for batch in (1, 2):
        engine = replay.engine(batch)
        for name in ("sgi", "sgf"):
            engine.batch.set(name, engine.batch.arrays[name][:, :1].copy())
        if batch == 1:
            engine.run()
        else:
            assert engine.ask().done
        grown = engine.schedule()
        for name in ("seg_job", "seg_island", "seg_count", "seg_start", "seg_end", "finish_s"):
            np.testing.assert_array_equal(getattr(plain, name), getattr(grown, name))


COUNTED = ("topo-best-fit", "first-fit", "load-balance", "random", "tiresias-skew", "lwf", "contention")


@settings(max_examples=100, deadline=None)
@given(replays(comm=False, failures=False, placements=COUNTED, types=1))
def test_relabelling(replay: Replay) -> None:
    """Without communication, which GPUs a gang gets changes nothing, but for best-fit, which needs whole nodes.

    The engine has no labels inside an island. Across islands any rearrangement is the same: here all GPUs of a cluster
    of one type stand in one pool. With communication on, ties go to the lowest index, so only symmetric trees stay
    alike.
    """
    schedule, _ = replay.run()
    pool = count_cluster(replay.cluster.num_gpus)
    pooled, _ = Replay(pool, replay.jobs, replay.policy, replay.options).run()
    np.testing.assert_array_equal(schedule.finish_s, pooled.finish_s)
    np.testing.assert_array_equal(schedule.start_s, pooled.start_s)


@settings(max_examples=150, deadline=None)
@given(replays(queueings=("skip",), guard=False) | replays(preemptive=True))
def test_no_job_waits_without_need(replay: Replay) -> None:
    """With ``skip`` and under preemptive rules, a job that waits while it fits is held, its patience not over."""
    tree = Tree(replay.cluster)
    rule = "best-fit" if "best-fit" in replay.policy.split("+") else "first-fit"
    placer = Placer(tree, rule, Comm(tree), CloseCalls())
    known = read_jobs(replay.jobs, tree)
    schedule, w = replay.run()
    cluster, jobs = replay.cluster, replay.jobs
    runs = runs_of(schedule)
    downs = down_times(cluster, replay.options)
    patience = float(replay.policy.rstrip(")").rsplit(",", 1)[1]) if "hold(" in replay.policy else 0.0
    over = jobs.submit_s + patience * np.maximum(jobs.estimate_s, 1.0)
    times = {*jobs.submit_s, *ended(w), *over, *(x for run in runs for x in (run.start, run.end))}
    times |= {x for _, since, until in downs for x in (since, until)}
    islands = cluster.gpus[: cluster.num_islands]
    for begin, end in pairwise(sorted(t for t in times if t < np.inf)):
        free = islands.astype(int)
        for run in runs:
            if run.start <= begin and run.end >= end:
                for island, count in run.gang.items():
                    free[island] -= count
        for island in {i for i, since, until in downs if since <= begin and until >= end}:
            free[island] = 0
        assert (free >= 0).all()
        running = {run.job for run in runs if run.start <= begin and run.end >= end}
        for j in range(len(jobs)):
            if j in running or not (jobs.submit_s[j] <= begin and ended(w)[j] >= end and over[j] <= begin):
                continue
            assert not placer.fits(known[j], free.tolist()), (
                f"job {j} waits from {begin} to {end} with {free} GPUs free"
            )


@settings(max_examples=200, deadline=None)
@given(
    replays(
        comm=False,
        failures=False,
        guard=True,
        hold=False,
        oracle=True,
        queueings=("strict", "skip"),
        placements=COUNTED,
        max_jobs=20,
    )
)
def test_guard_keeps_its_reservation(replay: Replay) -> None:
    """A guarded job starts no later than the time reserved when it became the oldest waiting job past ``max_wait``."""
    schedule, w = replay.run()
    cluster, jobs = replay.cluster, replay.jobs
    max_wait = replay.options.max_wait_s
    assert max_wait is not None
    start = np.where(np.isnan(schedule.start_s), np.inf, schedule.start_s)
    out = np.minimum(start, ended(w))  # when each job left the queue
    islands = cluster.gpus[: cluster.num_islands]
    total = np.bincount(cluster.island_type, islands, len(cluster.gpu_types))
    kind = {run.job: int(cluster.island_type[next(iter(run.gang))]) for run in runs_of(schedule)}
    for j in range(len(jobs)):
        if start[j] == np.inf:
            continue
        guarded = max(jobs.submit_s[j] + max_wait, out[:j].max(initial=-np.inf))
        if start[j] <= guarded:
            continue
        # Jobs that start at that very moment behind the guard end before the reservation and cannot move it.
        running = [o for o in range(len(jobs)) if start[o] <= guarded < ended(w)[o]]
        wish = int(jobs.gpu_type[j])
        named = jobs.gpu_type_names[wish].split("|") if cluster.typed and wish >= 0 else cluster.gpu_types
        mine = [t for t, name in enumerate(cluster.gpu_types) if name in named]
        free = total.astype(int)
        for o in running:
            free[kind[o]] -= jobs.num_gpus[o]
        reserved = guarded
        for o in sorted(running, key=lambda o: start[o] + jobs.duration_s[o]):
            if any(free[t] >= jobs.num_gpus[j] for t in mine):
                break
            free[kind[o]] += jobs.num_gpus[o]
            reserved = start[o] + jobs.duration_s[o]
        assert start[j] <= reserved + 1e-9, f"job {j}"


@settings(max_examples=80, deadline=None)
@given(replays(failures=None, cancels=True))
def test_windows(replay: Replay) -> None:
    """The replay stops when the last counted job has ended; what else there is then is left where it stands."""
    jobs = replay.jobs
    counted = np.arange(len(jobs)) % 3 == 1
    if not counted.any():
        return
    whole, _ = replay.run()
    schedule, w = Replay(replay.cluster, jobs.replace(counted=counted), replay.policy, replay.options).run()
    assert np.isin(w.ji[counted, at.STATUS], (at.DONE, at.CANCELLED)).all()
    np.testing.assert_array_equal(schedule.finish_s[counted], whole.finish_s[counted])
    np.testing.assert_array_equal(w.sf[at.NOW], ended(w)[counted].max())
    assert schedule.events <= whole.events
    running = np.isnan(schedule.finish_s) & ~np.isnan(schedule.start_s)
    later = ~np.isnan(schedule.start_s) & ~running
    np.testing.assert_array_equal(schedule.start_s[later], whole.start_s[later])
    check_gpus(schedule)
    runs_of(schedule)


@settings(max_examples=40, deadline=None)
@given(replays(failures=False, orders=("fifo", "sjf", "saf", "hrrn", "random"), max_jobs=20))
def test_windows_look_no_further_than_they_must(replay: Replay) -> None:
    """``simulate`` tries with few of the jobs after a window first; that changes nothing that is counted."""
    jobs = replay.jobs.replace(counted=np.arange(len(replay.jobs)) < max(1, len(replay.jobs) // 3))
    whole = simulate(jobs, replay.cluster, replay.policy, replay.options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(policies_replay, "LATER_JOBS", 1)
        few = simulate(jobs, replay.cluster, replay.policy, replay.options)
    kept = len(few.finish_s)
    counted = jobs.counted[:kept]
    assert counted.sum() == jobs.counted.sum()
    for name in ("start_s", "finish_s", "wait_s", "held_s", "level", "cancelled"):
        np.testing.assert_array_equal(getattr(whole, name)[:kept][counted], getattr(few, name)[counted])
