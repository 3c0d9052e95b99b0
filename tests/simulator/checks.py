"""What must hold of one replay, whoever decided: each check fails with an assertion."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import Any

import numpy as np

from attn_sched.simulator import Schedule
from attn_sched.simulator import layout as at
from attn_sched.simulator.state import World
from tests.reference.comm import Comm
from tests.reference.job import Job
from tests.reference.machine import Machine
from tests.reference.tree import Placement, Tree
from tests.simulator.drawn import Replay, Run, down_times, runs_of

CLOSE: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-8}


def ended(w: World) -> np.ndarray:
    """When each job left the system, cancelled while it waited or not."""
    return np.array(w.jf[:, at.FINISH])


def check_gpus(schedule: Schedule) -> None:
    """No GPU is in two jobs at once, and every GPU id belongs to its segment's island."""
    ids, offsets = schedule.gpu_segments()
    cluster = schedule.cluster
    by_gpu: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for s, (lo, hi) in enumerate(pairwise(offsets)):
        island = schedule.seg_island[s]
        mine = ids[lo:hi]
        assert len(set(mine.tolist())) == schedule.seg_count[s]
        assert (mine >= cluster.gpu_off[island]).all() and (mine < cluster.gpu_off[island + 1]).all()
        for gpu in mine:
            by_gpu[int(gpu)].append((schedule.seg_start[s], schedule.seg_end[s]))
    for spans in by_gpu.values():
        for (_, end), (start, _) in pairwise(spans):
            assert end <= start


def check_times(schedule: Schedule, runs: list[Run], w: World) -> None:
    """Starts, waits and running times agree with the runs; nothing runs faster than its ideal duration."""
    jobs = schedule.workload
    of: dict[int, list[Run]] = defaultdict(list)
    for run in runs:
        of[run.job].append(run)
    left = ended(w)
    for j in range(len(jobs)):
        mine = of[j]
        held = sum(run.end - run.start for run in mine)
        np.testing.assert_allclose(schedule.held_s[j], held, **CLOSE)
        np.testing.assert_allclose(schedule.wait_s[j], left[j] - jobs.submit_s[j] - held, **CLOSE)
        assert len(mine) <= 1 + schedule.preemptions[j] + schedule.restarts[j]
        for a, b in pairwise(mine):
            assert a.end <= b.start
        if not mine:
            assert schedule.cancelled[j] and np.isnan(schedule.start_s[j]) and np.isnan(schedule.finish_s[j])
            continue
        assert schedule.start_s[j] == mine[0].start >= jobs.submit_s[j]
        assert schedule.finish_s[j] == left[j] >= mine[-1].end
        if schedule.cancelled[j]:
            assert schedule.finish_s[j] == jobs.cancel_s[j]
        else:
            assert schedule.finish_s[j] == mine[-1].end
            assert held >= jobs.duration_s[j] - 1e-8


def check_end(replay: Replay, w: World) -> None:
    """Everything is given back.

    Queues, counters, GPUs (but for those that are down), links, heaps, the pool of entries.
    """
    status = w.ji[:, at.STATUS]
    assert np.isin(status, (at.DONE, at.CANCELLED)).all()
    for counter in (at.N_WAITING, at.N_RUNNING, at.RUNNING_GPUS, at.N_FINISH, at.ACTIVE, at.COUNTED_LEFT):
        assert w.si[counter] == 0
    assert w.si[at.Q_HEAD] == w.si[at.Q_TAIL] == -1
    if not w.ci[at.PREEMPT]:
        assert w.si[at.N_TIMERS] == 0
    up = replay.cluster.gpus[: replay.cluster.num_islands] * (w.down == 0)
    for level in range(1, replay.cluster.num_levels + 1):
        expected = np.zeros_like(w.free)
        np.add.at(expected, (replay.cluster.island_type, replay.cluster.ancestor(level)), up)
        lo, hi = replay.cluster.level_off[level : level + 2]
        np.testing.assert_array_equal(w.free[:, lo:hi], expected[:, lo:hi])
    now = w.sf[at.NOW]
    downs = down_times(replay.cluster, replay.options)
    down = set(np.flatnonzero(w.down).tolist())
    assert down >= {i for i, since, until in downs if since < now < until}
    assert down <= {
        i for i, since, until in downs if since <= now <= until
    }  # the replay may stop between events of one time
    np.testing.assert_array_equal(w.lk[:, at.L_JOBS], 0)
    np.testing.assert_array_equal(w.lk[:, at.L_HEAD], -1)
    np.testing.assert_array_equal(w.cl[:, [at.C_FRESH, at.C_RIPE]], 0)
    np.testing.assert_array_equal(w.ui[:, [at.U_GPUS, at.U_WAITING, at.U_RUNNING]], 0)
    seen = set()
    entry = int(w.si[at.E_FREE])
    while entry < len(w.en):
        assert entry not in seen
        seen.add(entry)
        entry = int(w.en[entry, at.E_NEXT])
    assert len(seen) == len(w.en)


def check_integrals(schedule: Schedule, w: World) -> None:
    """Little's law and its kin: integrals kept by the engine equal sums over jobs."""
    jobs = schedule.workload
    inside = ended(w) - jobs.submit_s
    np.testing.assert_allclose(w.sf[at.SYSTEM_INTEGRAL], inside.sum(), **CLOSE)
    np.testing.assert_allclose(w.sf[at.ALLOCATED], (schedule.held_s * jobs.num_gpus).sum(), **CLOSE)
    used = np.bincount(jobs.user, schedule.held_s * jobs.num_gpus, len(jobs.user_names))
    np.testing.assert_allclose(w.uf[:, at.U_GPU_TIME], used, **CLOSE)
    if not (schedule.preemptions.any() or schedule.restarts.any()):
        np.testing.assert_allclose(w.sf[at.WAIT_INTEGRAL], 0.5 * (schedule.wait_s**2).sum(), **CLOSE)
    active = 0.0
    for user in set(jobs.user.tolist()):
        reach = -np.inf
        for j in np.flatnonzero(jobs.user == user):  # by submission
            active += max(0.0, ended(w)[j] - max(reach, jobs.submit_s[j]))
            reach = max(reach, ended(w)[j])
    np.testing.assert_allclose(w.sf[at.ACTIVE_INTEGRAL], active, **CLOSE)
    done = w.ji[:, at.STATUS] == at.DONE
    slow = np.maximum(1.0, inside / np.maximum(jobs.duration_s, 10.0))
    means = [slow[done & (jobs.user == u)].mean() for u in sorted(set(jobs.user[done].tolist()))]
    np.testing.assert_allclose(w.sf[at.JAIN_SUM], sum(means), **CLOSE)
    np.testing.assert_allclose(w.sf[at.JAIN_SQUARES], sum(m * m for m in means), **CLOSE)
    assert w.si[at.JAIN_USERS] == len(means)


def rates_over_time(replay: Replay, runs: list[Run]) -> dict[int, float]:
    """Ideal seconds of work done in each run (by its place in ``runs``), from plain formulas over who ran when."""
    options = replay.options
    tree = Tree(replay.cluster)
    comm = Comm(tree, options.comm, options.contention, options.allreduce)
    machine = Machine(replay.cluster, replay.jobs, "topo-best-fit", comm, tree, 0)
    jobs: list[Job] = machine.jobs
    done = dict.fromkeys(range(len(runs)), 0.0)
    times = sorted({run.start for run in runs} | {run.end for run in runs})
    for begin, end in pairwise(times):
        placed: dict[int, tuple[Job, Placement]] = {}
        here = [r for r, run in enumerate(runs) if run.start <= begin and run.end >= end]
        for r in here:
            placed[runs[r].job] = (jobs[runs[r].job], runs[r].gang)
        slow = comm.slowdowns(placed, machine.best)
        for r in here:
            done[r] += (end - begin) / slow[runs[r].job]
    return done


def check_work(replay: Replay, schedule: Schedule, runs: list[Run]) -> None:
    """Work is conserved across rate changes, suspensions and failures: a job ends when what it had to do is done."""
    done = rates_over_time(replay, runs)
    options = replay.options
    failed = {(island, since) for island, since, _ in down_times(replay.cluster, options)}
    duration = replay.jobs.duration_s
    left = duration.copy()
    kept = np.zeros(len(left))
    unsure: set[int] = set()  # the work at a failure stood so near a checkpoint that rounding decides
    last = {run.job: r for r, run in enumerate(runs)}
    started: set[int] = set()
    for r, run in enumerate(runs):
        j = run.job
        if j in started:
            left[j] += options.restart_cost_s
        started.add(j)
        left[j] -= done[r]
        if last[j] == r and not schedule.cancelled[j] and j not in unsure:
            np.testing.assert_allclose(left[j], 0.0, atol=1e-6 * max(1.0, duration[j]))
        elif any((island, run.end) in failed for island in run.gang):
            if options.checkpoint_s is not None:
                steps = max(0.0, duration[j] - left[j]) / options.checkpoint_s
                if abs(steps - round(steps)) < 1e-6:
                    unsure.add(j)
                kept[j] = max(kept[j], np.floor(steps) * options.checkpoint_s)
            left[j] = duration[j] - kept[j]


def check_down(replay: Replay, runs: list[Run]) -> None:
    """Nothing runs on a node that is down."""
    for island, since, until in down_times(replay.cluster, replay.options):
        for run in runs:
            if island in run.gang:
                assert run.end <= since or run.start >= until or run.start == run.end


def check_all(replay: Replay, schedule: Schedule, w: World) -> None:
    """Every invariant of a replay that has ended."""
    runs = runs_of(schedule)
    check_gpus(schedule)
    check_times(schedule, runs, w)
    check_end(replay, w)
    check_integrals(schedule, w)
    check_work(replay, schedule, runs)
    check_down(replay, runs)
