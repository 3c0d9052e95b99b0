"""The cluster in time: who runs where since when, and what each job has seen so far."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.reference.comm import Comm
from tests.reference.job import CloseCalls, Job, Run, read_jobs
from tests.reference.orders import Usage
from tests.reference.placement import Placer, choose_kind, countable_kinds
from tests.reference.tree import Free, Placement, Tree, topo_best_fit


@dataclass(frozen=True)
class Segment:
    """A stretch of time in which a job held its GPUs."""

    job: int
    start: float
    end: float
    placement: Placement


@dataclass(frozen=True, eq=False)
class Result:
    """What the reference computed; arrays by job index, seconds, nan where it never happened."""

    start: np.ndarray  # first start
    finish: np.ndarray
    wait: np.ndarray  # sum of queued intervals
    held: np.ndarray  # sum of running intervals
    preemptions: np.ndarray
    placement: list[Placement]  # of the last run; empty if none
    cancelled: np.ndarray
    segments: list[Segment]
    margin: float
    """See ``CloseCalls``: below 1e-9 another correct program may decide differently."""


class Machine:
    """State and mechanics; the decisions are made by the schedulers that own one."""

    def __init__(self, cluster: Any, workload: Any, placement: str, comm: Comm, tree: Tree, seed: int) -> None:
        self.tree, self.comm = tree, comm
        self.calls = CloseCalls()
        self.placer = Placer(tree, placement, comm, self.calls, seed)
        self.jobs = read_jobs(workload, tree)
        self.now = -math.inf
        self.free: Free = list(tree.size)
        self.waiting: dict[int, Job] = {}
        self.running: dict[int, Run] = {}
        self.next_arrival = 0
        self.usage = Usage(gpus=tree.num_gpus)
        self.best = {job.index: self.best_time(job) for job in self.jobs}
        count = len(self.jobs)
        self.first_start = np.full(count, np.nan)
        self.finish = np.full(count, np.nan)
        self.wait = np.zeros(count)
        self.held = np.zeros(count)
        self.preemptions = np.zeros(count, dtype=np.int64)
        self.cancelled = np.zeros(count, dtype=bool)
        self.last_placement: list[Placement] = [{} for _ in range(count)]
        self.queued_since = np.full(count, np.nan)
        self.segments: list[Segment] = []

    # -- slowdowns ----------------------------------------------------------------------------------------------------

    def best_time(self, job: Job) -> float:
        """Iteration time on the ``topo-best-fit`` placement on the empty cluster, alone; 0 if it never fits."""
        placement = self.best_placement(job, self.tree.size)
        if placement is None:
            return 0.0
        return self.comm.iteration_times({job.index: (job, placement)})[job.index]

    def best_placement(self, job: Job, free: Free) -> Placement | None:
        """What ``topo-best-fit`` would choose among ``free``, on the GPU type it prefers."""
        kinds = countable_kinds(self.tree, job, free)
        if not kinds:
            return None
        return topo_best_fit(self.tree, free, choose_kind(self.tree, kinds, free, job.gpus), job.gpus)

    def placed(self) -> dict[int, tuple[Job, Placement]]:
        """The running jobs with their placements."""
        return {j: (run.job, run.placement) for j, run in sorted(self.running.items())}

    def slowdown_if_started(self, job: Job, placement: Placement) -> float:
        """The slowdown that ``job`` would see there now, with the others running."""
        if not self.comm.enabled:
            return 1.0
        return self.comm.slowdowns({**self.placed(), job.index: (job, placement)}, self.best)[job.index]

    def refresh(self) -> None:
        """Recompute every slowdown; to be called after any start or end."""
        slowdowns = self.comm.slowdowns(self.placed(), self.best)
        for j, run in self.running.items():
            run.change_rate(self.now, slowdowns[j])

    # -- what happens to jobs -----------------------------------------------------------------------------------------

    def arrive(self) -> None:
        """The next job joins the queue."""
        job = self.jobs[self.next_arrival]
        self.next_arrival += 1
        self.waiting[job.index] = job
        self.queued_since[job.index] = self.now

    def start(self, job: Job, placement: Placement, left: float, estimate_left: float, *, exact: bool = True) -> None:
        """``job`` leaves the queue and holds its GPUs from now."""
        j = job.index
        del self.waiting[j]
        for i, count in placement.items():
            self.free[i] -= count
            assert self.free[i] >= 0, "a GPU in two jobs"
        self.running[j] = Run(job, placement, self.now, self.now, left, estimate_left, exact=exact)
        self.wait[j] += self.now - self.queued_since[j]
        self.last_placement[j] = placement
        if math.isnan(self.first_start[j]):
            self.first_start[j] = self.now
        self.refresh()

    def stop(self, j: int) -> Run:
        """Job ``j`` gives its GPUs back now."""
        run = self.running.pop(j)
        for i, count in run.placement.items():
            self.free[i] += count
        span = self.now - run.started
        self.held[j] += span
        self.usage.spent[run.job.user] = self.usage.spent.get(run.job.user, 0.0) + run.job.gpus * span
        self.segments.append(Segment(j, run.started, self.now, run.placement))
        return run

    def complete(self, j: int) -> None:
        """Job ``j`` has done its work."""
        self.stop(j)
        self.finish[j] = self.now
        self.refresh()

    def cancel_due(self, *, alone: bool = False) -> bool:
        """Jobs whose owner gives up by now leave the queue or end where they run; ``alone`` handles the first only."""
        due = sorted(j for j in [*self.waiting, *self.running] if self.jobs[j].cancel <= self.now)
        if alone:
            due = due[:1]
        for j in due:
            self.cancelled[j] = True
            if j in self.waiting:
                del self.waiting[j]
                self.wait[j] += self.now - self.queued_since[j]
            else:
                self.stop(j)
                self.finish[j] = self.now
        if due:
            self.refresh()
        return bool(due)

    def note_users(self) -> None:
        """Write down how many users have a job in the system."""
        users = {job.user for job in self.waiting.values()} | {run.job.user for run in self.running.values()}
        self.usage.active.append((self.now, len(users)))

    # -- time ---------------------------------------------------------------------------------------------------------

    def end_of(self, run: Run) -> float:
        """When ``run`` ends if nothing changes; never before now (rounding)."""
        return max(self.now, run.finish)

    def event_times(self) -> list[float]:
        """When jobs arrive (the next one), complete and are cancelled, as far as is known now."""
        times = [self.end_of(run) for run in self.running.values()]
        if self.next_arrival < len(self.jobs):
            times.append(max(self.now, self.jobs[self.next_arrival].submit))
        live = [*self.waiting.values(), *(run.job for run in self.running.values())]
        times.extend(max(self.now, job.cancel) for job in live if job.cancel < math.inf)
        return times

    def watch(self, time: float, times: list[float]) -> None:
        """Note how close the next event at ``time`` is to the other ones."""
        for other in times:
            self.calls.note(time, other)
        ending = [r for r in self.running.values() if r.finish == time]
        rounded = {(r.since, r.left, r.slowdown) for r in ending if not r.exact}
        alike = len(rounded) == 1 and not any(r.exact for r in ending) and times.count(time) == len(ending)
        self.calls.note(time, time, exact=not rounded or alike)

    def result(self) -> Result:
        """Everything, once time has run out of events."""
        return Result(
            start=self.first_start,
            finish=self.finish,
            wait=self.wait,
            held=self.held,
            preemptions=self.preemptions,
            placement=self.last_placement,
            cancelled=self.cancelled,
            segments=self.segments,
            margin=self.calls.margin,
        )
