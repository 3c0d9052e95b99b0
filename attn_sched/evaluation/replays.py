"""The replays of a comparison: one by one, side by side where that is quicker, and in several processes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from attn_sched.evaluation.comparison import Bounds, ComparisonPlan, WindowResult, reduce
from attn_sched.evaluation.setup import cut

if TYPE_CHECKING:
    from attn_sched.cluster import Cluster
    from attn_sched.simulator.options import SimOptions
    from attn_sched.simulator.schedule import Schedule
    from attn_sched.workload import Workload


@dataclass(frozen=True)
class Task:
    """One replay: a policy in a window at a load."""

    load: float | None
    bounds: Bounds
    policy: str
    draw: bool


@dataclass(eq=False)
class Runner:
    """Replays tasks over one kept workload; remembers the last cut, since a window's rules follow one another."""

    kept: Workload
    cluster: Cluster
    plan: ComparisonPlan
    options: SimOptions
    _cut: tuple[tuple[Bounds, float | None], Workload] | None = None

    def run(self, tasks: Sequence[Task], progress: Callable[[float], None] | None = None) -> list[WindowResult]:
        """Replay tasks of one policy side by side; ``progress`` is told the number done, fractions included."""
        from attn_sched.policies.replay import simulate_sources

        sources = [partial(self._workload, task) for task in tasks]
        schedules = simulate_sources(sources, self.cluster, tasks[0].policy, self.options, progress)
        return [self._reduce(task, schedule) for task, schedule in zip(tasks, schedules, strict=True)]

    def _workload(self, task: Task) -> Workload:
        key = (task.bounds, task.load)
        if self._cut is None or self._cut[0] != key:
            spec, warmup = self.plan.workload, self.plan.warmup
            self._cut = key, cut(self.kept, self.cluster, spec, bounds=task.bounds, warmup=warmup, load=task.load)
        return self._cut[1]

    def _reduce(self, task: Task, schedule: Schedule) -> WindowResult:
        # A thinned window counts jobs of a longer stretch than the plan's.
        place = None if task.bounds is None else schedule.workload.info["window"]
        bounds = None if place is None else (place["first"], place["last"])
        return reduce(schedule, bounds, starved_after_s=self.plan.starved_after_s, draw=task.draw)


_worker: Runner | None = None


def _start_worker(runner: Runner) -> None:
    global _worker  # one runner a process, so that the workload travels once and not with every task
    _worker = runner


def _work(tasks: Sequence[Task]) -> list[WindowResult]:
    assert _worker is not None
    return _worker.run(tasks)


def groups_of(tasks: Sequence[Task], processes: int) -> list[list[int]]:
    """Numbers of the tasks to be replayed at once: those of a learned policy side by side, all others one by one.

    Learned ones come first, being the longest, in as many equal groups as there are processes to share them.
    """
    from attn_sched.policies import parse_policy
    from attn_sched.policies.learned import BATCH

    by_policy: dict[str, list[int]] = {}
    for number, task in enumerate(tasks):
        by_policy.setdefault(task.policy, []).append(number)
    learned = [numbers for policy, numbers in by_policy.items() if parse_policy(policy).learned]
    groups = []
    for numbers in learned:
        parts = max(min(processes, len(numbers)), math.ceil(len(numbers) / BATCH))
        groups += [part.tolist() for part in np.array_split(np.array(numbers), parts)]
    together = {number for numbers in learned for number in numbers}
    return groups + [[number] for number in range(len(tasks)) if number not in together]


def run_all(
    runner: Runner, tasks: Sequence[Task], processes: int, progress: Callable[[float], None] | None
) -> list[WindowResult]:
    """The result of every task, in their order."""
    tell = progress or (lambda done: None)
    found: dict[int, WindowResult] = {}
    groups = groups_of(tasks, processes)
    work = [[tasks[number] for number in group] for group in groups]
    if processes <= 1 or len(groups) == 1:
        for group, its in zip(groups, work, strict=True):
            share = partial(_tell_share, tell, len(found), len(group))
            found.update(zip(group, runner.run(its, share), strict=True))
            tell(len(found))
    else:
        from concurrent.futures import ProcessPoolExecutor

        with ProcessPoolExecutor(min(processes, len(groups)), initializer=_start_worker, initargs=(runner,)) as pool:
            for group, results in zip(groups, pool.map(_work, work), strict=True):
                found.update(zip(group, results, strict=True))
                tell(len(found))
    return [found[number] for number in range(len(tasks))]


def _tell_share(tell: Callable[[float], None], done: int, size: int, part: float) -> None:
    tell(done + min(max(part, 0.0), size))
