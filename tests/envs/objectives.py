"""The objectives of an episode, worked out from its schedule alone: from times, and by the slow reference programs."""

from __future__ import annotations

import numpy as np

from attn_sched.simulator import Schedule, SimOptions
from tests.reference.comm import Comm
from tests.reference.job import Job, read_jobs
from tests.reference.placement import choose_kind, countable_kinds
from tests.reference.tree import Free, Placement, Tree, topo_best_fit
from tests.simulator.drawn import runs_of


def objectives(schedule: Schedule, options: SimOptions, fairness: str) -> np.ndarray:
    """Raw costs, f8[3], of a schedule with segments in which every job has ended and ran once."""
    assert np.isfinite(schedule.finish_s).all()
    jobs = schedule.workload
    excess = schedule.finish_s - jobs.submit_s - jobs.duration_s
    return np.array([excess.sum(), _unfairness(schedule, fairness), _communication(schedule, options)])


def _unfairness(schedule: Schedule, fairness: str) -> float:
    jobs = schedule.workload
    if fairness == "wait":
        return float(0.5 * ((schedule.start_s - jobs.submit_s) ** 2).sum())
    slowdown = np.maximum(1.0, (schedule.finish_s - jobs.submit_s) / np.maximum(jobs.duration_s, 10.0))
    users = np.array([slowdown[jobs.user == user].mean() for user in np.unique(jobs.user)])
    if fairness == "jain":
        return float(1 - users.sum() ** 2 / (len(users) * (users**2).sum()))
    return float(np.log(users.max()))


def _communication(schedule: Schedule, options: SimOptions) -> float:
    """Sum of n d (slowdown where placed - best) / (worst - best) over jobs, each at the moment it was placed."""
    tree = Tree(schedule.cluster)
    comm = Comm(tree, options.comm, options.contention, options.allreduce)
    jobs = read_jobs(schedule.workload, tree)
    ideal = {
        job.index: comm.iteration_times({job.index: (job, _best(tree, job, tree.size))})[job.index] for job in jobs
    }
    total = 0.0
    runs = runs_of(schedule)
    for number, run in enumerate(runs):
        job = jobs[run.job]
        beside = {other.job: (jobs[other.job], other.gang) for other in runs[:number] if other.end > run.start}
        free = list(tree.size)
        for _, gang in beside.values():
            for island, count in gang.items():
                free[island] -= count
        kind = tree.island_type[next(iter(run.gang))]
        placements = (run.gang, _best(tree, job, free), scattered(tree, free, kind, job.gpus))
        slow, best, worst = (
            comm.slowdowns({**beside, job.index: (job, placement)}, ideal)[job.index] for placement in placements
        )
        if worst > best:
            total += job.gpus * job.duration * min(1.0, max(0.0, (slow - best) / (worst - best)))
    return total


def _best(tree: Tree, job: Job, free: Free) -> Placement:
    placement = topo_best_fit(tree, free, choose_kind(tree, countable_kinds(tree, job, free), free, job.gpus), job.gpus)
    assert placement is not None
    return placement


def scattered(tree: Tree, free: Free, kind: int, need: int) -> Placement:
    """One GPU after another, round after round, from the islands that have one: first, last, second, .."""
    left = [count if tree.island_type[island] == kind else 0 for island, count in enumerate(free)]
    order = []
    for island in range((len(left) + 1) // 2):
        order += [island] if island == len(left) - 1 - island else [island, len(left) - 1 - island]
    placement: Placement = {}
    while need > 0:
        for island in [island for island in order if left[island] > 0][:need]:
            left[island] -= 1
            placement[island] = placement.get(island, 0) + 1
            need -= 1
    return placement
