"""The engine as Python sees it: a batch of clusters that is asked, answered and read."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from attn_sched.cluster import Cluster
from attn_sched.errors import InputError
from attn_sched.simulator import layout as at
from attn_sched.simulator.fitting import set_ideal
from attn_sched.simulator.layout import I8
from attn_sched.simulator.loop import apply_all, ask_all, run
from attn_sched.simulator.options import SimOptions
from attn_sched.simulator.rule import EngineRule
from attn_sched.simulator.schedule import Schedule
from attn_sched.simulator.state import World
from attn_sched.simulator.world import make_world
from attn_sched.workload import Workload

Progress = Callable[[float], None]
CHUNK_EVENTS = 20_000  # events between two looks at the progress bar and at Ctrl-C
WHOLE_RUN = 1 << 62


@dataclass(frozen=True)
class Ask:
    """What a batch of B clusters waits for."""

    # [B] of layout: DONE_PHASE, JOB_PHASE (pick a window index, or K to hold), UNIT_PHASE (pick a unit), or what a rule
    # in Python must answer: KEYS_PHASE, PLACE_PHASE
    phases: I8
    windows: I8  # [B, K] waiting jobs shown to a job agent, in arrival order; -1 pads

    @property
    def done(self) -> bool:
        """Whether every cluster has nothing left to decide."""
        return bool(np.all(self.phases == at.DONE_PHASE))


class Engine:
    """Many clusters of one shape under one rule, advanced together: ask, decide, apply.

    ``ask`` runs every cluster to its next decision; ``apply`` gives one answer per cluster; ``schedule`` reads the
    result. A rule without agents is never asked: the first ``ask`` runs it to its end.

    Raises:
        InputError: a workload cannot be replayed on the cluster.
    """

    def __init__(
        self,
        cluster: Cluster,
        workloads: Sequence[Workload],
        rule: EngineRule,
        options: SimOptions | None = None,
        *,
        window: int = 32,
    ) -> None:
        if window < 1:
            raise InputError(f"{window} shows no job", field="window", expected="at least 1")
        self.window = window
        self.cluster = cluster
        self.workloads = list(workloads)
        self.rule = rule
        self.options = options or SimOptions()
        self.batch = make_world(cluster, self.workloads, rule, self.options, window=window)
        for b in range(len(self.workloads)):
            set_ideal(self.view(b))
        level = max(1, cluster.unit_level)
        lo, hi = int(cluster.level_off[level]), int(cluster.level_off[level + 1])
        self.units: I8 = np.arange(lo, hi, dtype=np.int64)  # vertices a GPU agent chooses among
        if cluster.unit_level == 0:
            self.units = np.repeat(np.arange(cluster.num_islands, dtype=np.int64), cluster.gpus[: cluster.num_islands])
        self._phases: I8 = np.zeros(len(self.workloads), dtype=np.int64)
        self._windows: I8 = np.full((len(self.workloads), window), -1, dtype=np.int64)
        self.engine_s = 0.0

    def restart(self, b: int, workload: Workload) -> None:
        """Start cluster ``b`` anew with another workload; the others run on. Handles made before must be made again.

        Raises:
            InputError: the cluster cannot replay it.
            ValueError: a rule with keys, and a longer workload than any the engine was made with, or one whose keys
            alone (or alone not) follow the order of submission.
        """
        one = make_world(self.cluster, [workload], self.rule, self.options, window=self.window)
        if not np.array_equal(one.arrays["ci"], self.batch.arrays["ci"]):
            raise ValueError("the keys of the workloads differ in whether they follow the order of submission")
        self.batch.put(b, one)
        self.workloads[b] = workload
        set_ideal(self.view(b))

    def view(self, b: int) -> World:
        """The arrays of cluster ``b``, writable."""
        return self.batch.world(b)

    def ask(self) -> Ask:
        """Run every cluster to its next decision."""
        began = time.perf_counter()
        ask_all(self.batch.address, self._phases, self._windows, WHOLE_RUN)
        while np.any(self._phases == at.NEED_SPACE):
            self.grow()
            ask_all(self.batch.address, self._phases, self._windows, WHOLE_RUN)
        self.engine_s += time.perf_counter() - began
        return Ask(self._phases.copy(), self._windows.copy())

    def apply(self, actions: I8) -> None:
        """Answer: i8[B] window indices (K to hold) or units; ignored where a cluster is done.

        Raises:
            InputError: an answer is not among the legal ones, or was given already; earlier clusters of the batch have
            moved on.
        """
        actions = np.asarray(actions)
        if actions.shape != self._phases.shape or not np.issubdtype(actions.dtype, np.integer):
            raise InputError(
                f"the actions are {actions.dtype}{list(actions.shape)}",
                expected=f"whole numbers, one for each of {len(self._phases)} clusters",
            )
        began = time.perf_counter()
        bad = apply_all(
            self.batch.address, self._phases, self._windows, np.ascontiguousarray(actions, dtype=np.int64), self.units
        )
        self.engine_s += time.perf_counter() - began
        if bad >= 0:
            kind = "job" if self._phases[bad] == at.JOB_PHASE else "unit"
            raise InputError(
                f"{kind} action {actions[bad]} of cluster {bad} is not legal now", expected="an action its mask allows"
            )

    def run(self, b: int = 0, progress: Progress | None = None) -> int:
        """Run one cluster until an answer is needed or nothing is left.

        Reports the share of counted jobs that have ended.
        """
        w = self.view(b)
        total = max(1, int(w.si[at.COUNTED_LEFT]))
        while True:
            began = time.perf_counter()
            phase = run(w, CHUNK_EVENTS)
            self.engine_s += time.perf_counter() - began
            if phase == at.NEED_SPACE:
                self.grow()
                w = self.view(b)
            elif phase >= 0:
                return int(phase)
            if progress is not None:
                progress(1.0 - int(w.si[at.COUNTED_LEFT]) / total)

    def grow(self) -> None:
        """Double the segment record."""
        for name in ("sgi", "sgf"):
            old = self.batch.arrays[name]
            more = max(1024, old.shape[1], 8 * self.cluster.num_gpus)
            self.batch.set(name, np.concatenate([old, np.zeros((old.shape[0], more, old.shape[2]), old.dtype)], axis=1))

    def schedule(self, b: int = 0, policy: str = "", options: dict[str, object] | None = None) -> Schedule:
        """The schedule of cluster ``b`` so far."""
        w = self.view(b)
        count = int(w.si[at.N_JOBS])
        jf, ji = w.jf[:count], w.ji[:count]
        now = float(w.sf[at.NOW])
        status = ji[:, at.STATUS]
        finished = (status == at.DONE) | (status == at.CANCELLED)
        waiting = status == at.WAITING
        running = status == at.RUNNING
        segments = int(w.si[at.N_SEGMENTS])
        return Schedule(
            workload=self.workloads[b],
            cluster=self.cluster,
            policy=policy,
            options=self.options.as_dict() if options is None else options,
            start_s=jf[:, at.START].copy(),
            finish_s=np.where(finished & ~np.isnan(jf[:, at.START]), jf[:, at.FINISH], np.nan),
            wait_s=jf[:, at.WAITED] + np.where(waiting, now - jf[:, at.QUEUED_AT], 0.0),
            held_s=jf[:, at.HELD] + np.where(running, now - jf[:, at.RAN_AT], 0.0),
            preemptions=ji[:, at.PREEMPTIONS].astype(np.int32),
            restarts=ji[:, at.RESTARTS].astype(np.int32),
            level=ji[:, at.CROSSED].astype(np.int32),
            cancelled=status == at.CANCELLED,
            useful_fraction=jf[:, at.COMPUTE] / jf[:, at.BEST_ITER] if self.options.comm else np.ones(count),
            seg_job=w.sgi[:segments, 0].astype(np.int32),
            seg_island=w.sgi[:segments, 1].astype(np.int32),
            seg_count=w.sgi[:segments, 2].astype(np.int32),
            seg_start=w.sgf[:segments, 0].copy(),
            seg_end=w.sgf[:segments, 1].copy(),
            decisions=int(w.si[at.DECISIONS]),
            events=int(w.si[at.EVENTS]),
            engine_s=self.engine_s,
            fragmented_gpu_s=float(w.sf[at.FRAGMENTED]),
            fragmented_from_s=float(w.sf[at.COUNT_FROM]),
        )
