"""What critics are told of an episode that agents cannot know: how much is still to come, and how rewards are scaled.

The features are listed in ``agents.schema.OUTLOOK_FEATURES``.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from attn_sched.jit import njit
from attn_sched.simulator import layout as at
from attn_sched.simulator.engine import Engine
from attn_sched.simulator.state import World, world_at

F4 = npt.NDArray[np.float32]
F8 = npt.NDArray[np.float64]

_NEXT_JOBS = 16
_LOG_WEEK = float(np.log1p(7 * 86_400.0))


@njit
def _look(w: World, jobs: int, work: F8, costs: F8, scales: F8, gpus: int, out: F4) -> None:
    """Features of one cluster; ``work`` f8[J + 1] is the GPU time of the jobs before each."""
    now = w.sf[at.NOW]
    first = w.si[at.NEXT_ARRIVAL]
    left = max(0.0, w.jf[jobs - 1, at.SUBMIT] - now)
    out[0] = (jobs - first) / jobs
    out[1] = np.log1p(left) / _LOG_WEEK
    out[2] = 0.0
    out[3] = 0.0
    if first < jobs:
        out[2] = np.log1p((work[jobs] - work[first]) / (gpus * max(left, 1.0)))
        last = min(jobs, first + _NEXT_JOBS)
        span = max(1.0, w.jf[last - 1, at.SUBMIT] - now)
        out[3] = np.log1p((work[last] - work[first]) / (gpus * span))
    running = 0.0
    for i in range(w.si[at.N_FINISH]):
        job = w.fh[i]
        running += w.ji[job, at.GPUS] * max(0.0, w.jf[job, at.FINISH] - now)
    out[4] = np.log1p(running / gpus) / _LOG_WEEK
    out[5] = np.log1p(scales[0] / jobs) / _LOG_WEEK
    out[6] = 0.5 * np.log1p(scales[1] / jobs) / _LOG_WEEK
    out[7] = np.log1p(scales[2] / jobs) / _LOG_WEEK
    out[8] = min(costs[0], 4.0) / 2.0
    out[9] = min(costs[1], 4.0) / 2.0


@njit
def _look_all(address: int, jobs: at.I8, work: F8, costs: F8, scales: F8, gpus: int, out: F4) -> None:
    for b in range(jobs.shape[0]):
        _look(world_at(address, b), jobs[b], work[b], costs[b], scales[b], gpus, out[b])


class Outlook:
    """The outlooks of an engine's B clusters."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        count = len(engine.workloads)
        self._jobs = np.zeros(count, np.int64)
        self._work: F8 = np.zeros((count, 1))
        for b in range(count):
            self.reset(b)

    def reset(self, b: int) -> None:
        """Cluster ``b`` has started anew with another workload."""
        workload = self.engine.workloads[b]
        jobs = len(workload)
        if jobs + 1 > self._work.shape[1]:
            self._work = np.pad(self._work, ((0, 0), (0, jobs + 1 - self._work.shape[1])))
        self._jobs[b] = jobs
        self._work[b, 1 : jobs + 1] = np.cumsum(workload.gpu_seconds)

    def fill(self, costs: F8, scales: F8, out: F4) -> None:
        """Features f4[B, O], for costs f8[B, 3] so far in units of scales f8[B, 3]."""
        gpus = self.engine.cluster.num_gpus
        _look_all(self.engine.batch.address, self._jobs, self._work, costs, scales, gpus, out)
