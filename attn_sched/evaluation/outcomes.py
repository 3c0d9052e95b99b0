"""What happened to each counted job: the arrays every metric is computed from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from attn_sched.evaluation.fairness import Floats, finish_time_ratio, mean_active_users
from attn_sched.simulator.layout import SLOWDOWN_FLOOR

if TYPE_CHECKING:
    from attn_sched.simulator.schedule import Schedule


@dataclass(frozen=True, eq=False)
class JobOutcomes:
    """Counted jobs that finished, in order of submission; all arrays have length K and times are seconds."""

    schedule: Schedule
    index: NDArray[np.int64]  # position in the workload

    def _take(self, values: NDArray[np.float64]) -> Floats:
        return np.asarray(values, dtype=np.float64)[self.index]

    @cached_property
    def submit_s(self) -> Floats:
        return self._take(self.schedule.workload.submit_s)

    @cached_property
    def finish_s(self) -> Floats:
        return self._take(self.schedule.finish_s)

    @cached_property
    def duration_s(self) -> Floats:
        """Ideal duration: as observed in the trace, taken as placed best and alone."""
        return self._take(self.schedule.workload.duration_s)

    @cached_property
    def jct_s(self) -> Floats:
        return self.finish_s - self.submit_s

    @cached_property
    def wait_s(self) -> Floats:
        return self._take(self.schedule.wait_s)

    @cached_property
    def held_s(self) -> Floats:
        return self._take(self.schedule.held_s)

    @cached_property
    def num_gpus(self) -> NDArray[np.int64]:
        return np.asarray(self.schedule.workload.num_gpus)[self.index].astype(np.int64)

    @cached_property
    def user(self) -> NDArray[np.int64]:
        return np.asarray(self.schedule.workload.user)[self.index].astype(np.int64)

    @cached_property
    def bounded_slowdown(self) -> Floats:
        """``max(1, JCT / max(d, 10 s))``."""
        return np.maximum(1.0, self.jct_s / np.maximum(self.duration_s, SLOWDOWN_FLOOR))

    @cached_property
    def active_users(self) -> Floats:
        """Mean number of active users, of the whole replay, while the job was in the system."""
        schedule = self.schedule
        workload = schedule.workload
        if self.index.size == 0:
            return np.empty(0)
        arrive = np.asarray(workload.submit_s, dtype=np.float64)
        leave = departure_s(schedule, float(self.finish_s.max()))
        there = arrive < leave
        user = np.asarray(workload.user)
        return mean_active_users(user[there], arrive[there], leave[there], self.submit_s, self.finish_s)

    @cached_property
    def rho(self) -> Floats:
        """Finish-time ratio."""
        gpus = self.schedule.cluster.num_gpus
        return finish_time_ratio(self.jct_s, self.duration_s, self.num_gpus, self.active_users, gpus)

    @cached_property
    def gang(self) -> NDArray[np.bool_]:
        return self.num_gpus > 1

    @cached_property
    def across_racks(self) -> NDArray[np.bool_] | None:
        """Whether the last placement crossed a rack's uplink; None when the cluster has no level named ``rack``."""
        names = tuple(self.schedule.cluster.level_names)
        if "rack" not in names:
            return None
        return np.asarray(self.schedule.level)[self.index] >= names.index("rack")


def departure_s(schedule: Schedule, until_s: float) -> Floats:
    """When each job left the system: its finish, its cancellation, else ``until_s`` (it never left)."""
    leave = np.array(schedule.finish_s, dtype=np.float64)
    gone = np.isnan(leave) & np.asarray(schedule.cancelled, dtype=bool)
    leave[gone] = np.asarray(schedule.workload.cancel_s, dtype=np.float64)[gone]
    leave[~np.isfinite(leave)] = until_s
    return np.minimum(leave, until_s)


def counted_outcomes(schedule: Schedule) -> JobOutcomes:
    """The counted jobs that finished (cancelled ones have no completion time worth averaging)."""
    done = np.isfinite(np.asarray(schedule.finish_s)) & ~np.asarray(schedule.cancelled, dtype=bool)
    return JobOutcomes(schedule, np.flatnonzero(done & np.asarray(schedule.workload.counted, dtype=bool)))
