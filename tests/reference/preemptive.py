"""The preemptive scheduler of case E: at every arrival and completion the jobs that run are chosen anew."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

from tests.reference.comm import Comm
from tests.reference.job import Job, whole
from tests.reference.machine import Machine, Result
from tests.reference.tree import Tree

ORDERS = ("srtf", "srsf")


class PreemptiveScheduler:
    """One replay with suspension; a job that resumes does ``restart_cost`` seconds of work more."""

    def __init__(
        self,
        cluster: Any,
        workload: Any,
        *,
        order: str,
        placement: str,
        comm: Comm,
        tree: Tree,
        restart_cost: float,
        seed: int,
    ) -> None:
        if order not in ORDERS:
            raise ValueError(f"unknown preemptive order {order!r}")
        self.m = Machine(cluster, workload, placement, comm, tree, seed)
        self.order, self.restart_cost = order, restart_cost
        self.live: list[Job] = []  # in the order of the last sort
        self.left: dict[int, float] = {}  # work of the jobs not running, ideal seconds
        self.estimate_left: dict[int, float] = {}
        self.exact: dict[int, bool] = {}  # as of runs, for the jobs not running

    def run(self) -> Result:
        """Let time run until nothing more can happen."""
        m = self.m
        while times := m.event_times():
            m.now = min(times)
            m.watch(m.now, times)
            for j in sorted(j for j, run in m.running.items() if run.finish <= m.now):
                m.complete(j)
            while m.next_arrival < len(m.jobs) and m.jobs[m.next_arrival].submit <= m.now:
                job = m.jobs[m.next_arrival]
                m.arrive()
                self.live.append(job)
                self.left[job.index], self.estimate_left[job.index] = job.duration, job.estimate
                self.exact[job.index] = True
            m.cancel_due()
            self.live = [job for job in self.live if job.index in m.waiting or job.index in m.running]
            self.decide()
        return m.result()

    def key(self, job: Job) -> tuple[float, bool]:
        """Remaining estimated work, times the GPUs for ``srsf``, and whether any program computes the same."""
        run = self.m.running.get(job.index)
        left = self.estimate_left[job.index] if run is None else run.estimate_left_at(self.m.now)
        exact = self.exact[job.index] if run is None else run.exact_at(self.m.now)
        left, exact = self.m.calls.not_below_zero(left, exact=exact)
        return left * (1 if self.order == "srtf" else job.gpus), exact

    def decide(self) -> None:
        """Sort, choose greedily by GPU counts, place the newly chosen in order, suspending what is in their way."""
        m = self.m
        keys = {job.index: self.key(job) for job in self.live}
        self.live.sort(key=lambda job: keys[job.index][0])
        for a, b in pairwise(self.live):
            (left, exact), (right, too) = keys[a.index], keys[b.index]
            m.calls.note(left, right, exact=exact and too)
        budget = [m.tree.count(m.tree.root, m.tree.size, k) for k in range(len(m.tree.gpu_types))]
        chosen: dict[int, int] = {}  # job: GPU type, for the jobs that should run
        for job in self.live:
            kinds = list(job.kinds)
            if job.index in m.running:  # it stays where it is, if it can
                kinds.insert(0, self.kind_of(job.index))
            kind = next((k for k in kinds if budget[k] >= job.gpus), None)
            if kind is not None:
                budget[kind] -= job.gpus
                chosen[job.index] = kind
        for job in self.live:
            kind = chosen.get(job.index)
            if kind is None or (job.index in m.running and self.kind_of(job.index) == kind):
                continue
            if self.make_room(job, kind, chosen):
                if job.index in m.running:
                    self.suspend(job.index)
                self.resume(job, kind)
        for job in self.live:
            if job.index in m.waiting and (kinds := m.placer.feasible_kinds(job, m.free)):
                self.resume(job, kinds[0])
        m.refresh()

    def kind_of(self, j: int) -> int:
        """GPU type that running job ``j`` is on."""
        return int(self.m.tree.island_type[next(iter(self.m.running[j].placement))])

    def make_room(self, job: Job, kind: int, chosen: dict[int, int]) -> bool:
        """Suspend running jobs that should not run on this type, last ranked first; none if that would not do."""
        m = self.m
        victims = [j.index for j in reversed(self.live) if j.index in m.running and self.kind_of(j.index) == kind]
        victims = [j for j in victims if chosen.get(j) != kind]
        free = list(m.free)
        for j in victims:
            for island, count in m.running[j].placement.items():
                free[island] += count
        if kind not in m.placer.feasible_kinds(job, free):
            return False
        for j in victims:
            if kind in m.placer.feasible_kinds(job, m.free):
                break
            self.suspend(j)
        return True

    def suspend(self, j: int) -> None:
        """Job ``j`` goes back to the queue with what it has done."""
        m = self.m
        run = m.stop(j)
        self.left[j] = max(0.0, run.left - (m.now - run.since) / run.slowdown)
        self.estimate_left[j] = run.estimate_left_at(m.now)
        self.exact[j] = run.exact_at(m.now)
        m.waiting[j] = run.job
        m.queued_since[j] = m.now
        m.preemptions[j] += 1

    def resume(self, job: Job, kind: int) -> None:
        """``job`` starts, or goes on after some more work to restart."""
        m = self.m
        extra = 0.0 if math.isnan(m.first_start[job.index]) else self.restart_cost
        left, estimate_left = self.left[job.index], self.estimate_left[job.index]
        exact = self.exact[job.index] and (extra == 0.0 or whole(left, estimate_left, extra))
        placement = m.placer.place_kind(job, kind, m.free, m.running, m.now)
        m.start(job, placement, left + extra, estimate_left + extra, exact=exact)
