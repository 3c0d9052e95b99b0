"""The non-preemptive scheduler: queueing disciplines, hold, starvation guard."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

from tests.reference.comm import Comm
from tests.reference.job import Job
from tests.reference.machine import Machine, Result
from tests.reference.orders import EXACT, make_key
from tests.reference.tree import Placement, Tree

QUEUEINGS = ("strict", "skip", "commit", "easy")


class Scheduler:
    """One replay. ``strict`` and ``skip`` take all events of a time together, ``commit`` and ``easy`` one by one."""

    def __init__(
        self,
        cluster: Any,
        workload: Any,
        *,
        order: str,
        queueing: str,
        placement: str,
        hold: tuple[float, float] | None,
        comm: Comm,
        tree: Tree,
        max_wait: float | None,
        seed: int,
    ) -> None:
        if queueing not in QUEUEINGS:
            raise ValueError(f"unknown queueing {queueing!r}")
        self.m = Machine(cluster, workload, placement, comm, tree, seed)
        self.order, self.queueing, self.hold, self.max_wait = order, queueing, hold, max_wait
        self.key = make_key(order, self.m.usage, lambda: [(r.job, r.started) for r in self.m.running.values()], seed)
        self.pick: int | None = None
        self.pick_shadow = math.inf
        self.guard_shadow: float | None = None  # of this epoch, once computed

    # -- time ---------------------------------------------------------------------------------------------------------

    def run(self) -> Result:
        """Let time run until nothing more can happen."""
        while times := self.m.event_times() + self.timers():
            time = min(times)
            self.m.watch(time, times)
            self.m.now = time
            self.guard_shadow = None
            if self.queueing in ("strict", "skip"):
                self.all_events()
                self.m.note_users()
                self.decide_together()
            else:
                self.one_event()
                self.m.note_users()
                self.decide_committed()
        return self.m.result()

    def timers(self) -> list[float]:
        """Times to come at which the patience or the guard of a waiting job expires."""
        ends = []
        for job in self.m.waiting.values():
            if self.hold is not None:
                ends.append(self.patience_end(job))
            if self.max_wait is not None:
                ends.append(job.submit + self.max_wait)
        return [t for t in ends if self.m.now < t < math.inf]

    def all_events(self) -> None:
        """Everything that happens now: completions, arrivals, cancellations."""
        m = self.m
        for j in sorted(j for j, run in m.running.items() if run.finish <= m.now):
            m.complete(j)
        while m.next_arrival < len(m.jobs) and m.jobs[m.next_arrival].submit <= m.now:
            m.arrive()
        m.cancel_due()

    def one_event(self) -> None:
        """The first of what happens now: an arrival, else a completion, else a cancellation, else a timer."""
        m = self.m
        if m.next_arrival < len(m.jobs) and m.jobs[m.next_arrival].submit <= m.now:
            m.arrive()
            return
        done = [j for j, run in m.running.items() if run.finish <= m.now]
        if done:
            m.complete(min(done))
            return
        m.cancel_due(alone=True)

    # -- what may start -----------------------------------------------------------------------------------------------

    def place(self, job: Job) -> Placement:
        """Where the placement rule puts a job that fits."""
        return self.m.placer.place(job, self.m.free, self.m.running, self.m.now)

    def start(self, job: Job) -> None:
        """Start ``job``; one of no duration ends at once where all events of a time are taken together."""
        self.m.start(job, self.place(job), job.duration, job.estimate)
        if self.queueing in ("strict", "skip") and self.m.running[job.index].finish <= self.m.now:
            self.m.complete(job.index)
            self.m.note_users()
            self.guard_shadow = None

    def patience_end(self, job: Job) -> float:
        """Until when ``job`` may be held."""
        assert self.hold is not None
        return job.submit + self.hold[1] * job.d

    def held(self, job: Job) -> bool:
        """Whether hold forbids to start ``job`` now: even its best placement is too slow and it can still wait."""
        m = self.m
        if self.hold is None or m.now >= self.patience_end(job):
            return False
        placement = m.best_placement(job, m.free)
        assert placement is not None, "only asked for jobs that fit"
        slowdown = m.slowdown_if_started(job, placement)
        m.calls.note(slowdown, self.hold[0], exact=slowdown == 1.0)
        return slowdown > self.hold[0]

    def ends_before(self, job: Job, shadow: float) -> bool:
        """Whether ``job``, started now where the rule puts it, is expected to end strictly before ``shadow``."""
        slowdown = self.m.slowdown_if_started(job, self.place(job))
        end = self.m.now + job.estimate * slowdown
        self.m.calls.note(end, shadow, exact=slowdown == 1.0)
        return end < shadow

    def eligible(self, job: Job) -> bool:
        """Fits, is not held, and does not endanger the reservation of a guarded job."""
        if not self.m.placer.fits(job, self.m.free) or self.held(job):
            return False
        return self.guard_shadow is None or self.ends_before(job, self.guard_shadow)

    def shadow_of_pick(self, job: Job) -> float:
        """What backfilling must respect: when the job picked will fit, or until when it is held though it fits."""
        if self.m.placer.fits(job, self.m.free) and self.held(job):
            return self.patience_end(job)
        return self.shadow(job)

    def shadow(self, job: Job) -> float:
        """When ``job`` will fit, as running jobs are expected to end; inf if never."""
        m = self.m
        free = list(m.free)
        time = m.now
        ends = sorted((run.expected_end(m.now), j) for j, run in m.running.items())
        for (a, _), (b, _) in pairwise(ends):
            m.calls.note(a, b)
        for end, j in ends:
            if m.placer.fits(job, free):
                return time
            time = end
            for i, count in m.running[j].placement.items():
                free[i] += count
        return time if m.placer.fits(job, free) else math.inf

    def best_keyed(self, jobs: list[Job]) -> Job:
        """The job with the smallest key; the lowest index among equals."""
        keys = {job.index: self.key(job, self.m.now) for job in jobs}
        least = min(jobs, key=lambda job: (keys[job.index], job.index))
        for job in jobs:
            if self.order == "user-fair":
                same = job.user == least.user
            else:
                same = (job.submit, job.d, job.gpus) == (least.submit, least.d, least.gpus)
            exact = same or self.order in EXACT or keys[job.index] == 0
            self.m.calls.note(keys[job.index], keys[least.index], exact=exact)
        return least

    # -- decisions ----------------------------------------------------------------------------------------------------

    def guard(self) -> None:
        """Start guarded jobs that fit; where the oldest does not, set the shadow that others must respect."""
        m = self.m
        while self.max_wait is not None and m.waiting:
            oldest = m.waiting[min(m.waiting)]
            if m.now < oldest.submit + self.max_wait:
                return
            if not m.placer.fits(oldest, m.free):
                if self.guard_shadow is None:
                    self.guard_shadow = self.shadow(oldest)
                return
            self.start(oldest)
            self.guard_shadow = None

    def decide_together(self) -> None:
        """``strict`` and ``skip``: start one job after another until the policy has none that may start."""
        m = self.m
        while True:
            self.guard()
            if self.queueing == "strict":
                head = self.best_keyed(list(m.waiting.values())) if m.waiting else None
                job = head if head is not None and self.eligible(head) else None
            else:
                able = [job for job in m.waiting.values() if self.eligible(job)]
                job = self.best_keyed(able) if able else None
            if job is None:
                return
            self.start(job)

    def decide_committed(self) -> None:
        """``commit`` and ``easy``: the job once picked is the next to start; ``easy`` backfills before its shadow."""
        m = self.m
        while True:
            self.guard()
            if self.pick not in m.waiting:
                self.pick = None
            if self.pick is None:
                if not m.waiting:
                    return
                self.pick = self.best_keyed(list(m.waiting.values())).index
                self.pick_shadow = self.shadow_of_pick(m.waiting[self.pick]) if self.queueing == "easy" else math.inf
            if self.eligible(m.waiting[self.pick]):
                self.start(m.waiting[self.pick])
                continue
            if self.queueing != "easy":
                return
            # One start a decision: a start may change how slow the others would be, and so whether they are held.
            for job in [m.waiting[j] for j in sorted(m.waiting) if j != self.pick]:
                if self.eligible(job) and self.ends_before(job, self.pick_shadow):
                    self.start(job)
                    break
            else:
                return
