"""Rewards: three costs of a cluster that only grow by what decisions and time bring about.

Costs are cumulative, so the rewards of an episode telescope: their undiscounted sums are the objectives themselves.
Each is divided by its value under a reference rule on the same jobs, so that every episode weighs the same.

* completion: the time jobs spend beyond their ideal durations, sum of (JCT - duration) over jobs. A waiting job has
  cost its wait so far; a running one is charged at once what it will cost at its present rate, so that a placement is
  charged when it is made, and so is what it does to its neighbours. By Little's law the sum is that of the integral of
  the number of jobs in the system, less the durations, which no schedule can change.
* fairness: ``wait``, the integral of the sum of current waits, which is half the sum of squared waits for jobs that
  start once; ``jain``, 1 - the Jain index over users' mean bounded slowdowns; ``worst-user``, the logarithm of the
  worst user's mean bounded slowdown.
* communication: the penalty of each gang's placement, 0 on the best of the placements feasible then and the gang's GPU
  time on the most scattered one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from attn_sched.choices import FAIRNESS, check_choice
from attn_sched.cluster import Cluster
from attn_sched.jit import njit
from attn_sched.simulator import layout as at
from attn_sched.simulator.engine import Engine
from attn_sched.simulator.options import SimOptions
from attn_sched.simulator.rule import EngineRule
from attn_sched.simulator.state import World, world_at
from attn_sched.workload import Workload

F8 = npt.NDArray[np.float64]

TERMS = ("completion", "fairness", "communication")
DEFAULT_WEIGHTS = (1.0, 0.5, 0.25)
# The reference rule, and the least it is taken to cost, as shares of the mean duration: where next to nobody waits, a
# ratio to what the rule costs would make much of seconds.
REFERENCE = "sjf+topo-best-fit+hold(1.5,0.5)"
LEAST_EXCESS = 0.05
LEAST_WAIT = 0.1
LEAST_DURATION_S = 60.0  # of the mean
_WAIT, _JAIN, _WORST = range(3)


@njit
def raw_costs(w: World, fairness: int, out: F8) -> None:
    """Cumulative raw costs of one cluster: out f8[3]; see the module. ``fairness`` counts as in ``FAIRNESS``."""
    excess = w.sf[at.DONE_EXCESS] + w.sf[at.WAIT_SUM]
    for i in range(w.si[at.N_FINISH]):
        job = w.fh[i]
        excess += w.jf[job, at.FINISH] - w.jf[job, at.SUBMIT] - w.jf[job, at.DURATION]
    out[0] = excess
    out[1] = w.sf[at.WAIT_INTEGRAL]
    if fairness == _JAIN:
        out[1] = 0.0
        if w.si[at.JAIN_USERS] > 0:
            out[1] = 1.0 - w.sf[at.JAIN_SUM] ** 2 / (w.si[at.JAIN_USERS] * w.sf[at.JAIN_SQUARES])
    elif fairness == _WORST:
        worst = 1.0
        for user in range(w.ui.shape[0]):
            if w.ui[user, at.U_FINISHED] > 0:
                worst = max(worst, w.uf[user, at.U_SLOWDOWNS] / w.ui[user, at.U_FINISHED])
        out[1] = np.log(worst)
    out[2] = w.sf[at.COMM_PENALTY]


@njit
def _costs_all(address: int, fairness: int, scales: F8, out: F8) -> None:
    for b in range(out.shape[0]):
        raw_costs(world_at(address, b), fairness, out[b])
        for k in range(out.shape[1]):
            out[b, k] /= scales[b, k]


class Rewards:
    """The costs of an engine's B clusters.

    Args:
        engine: The clusters, under a rule with at least one agent.
        scales: f8[B, 3] what each raw cost is divided by, above 0; see ``reference_scales``.
        fairness: ``wait``, ``jain`` or ``worst-user``.

    Raises:
        InputError: an unknown fairness term.
    """

    def __init__(self, engine: Engine, scales: F8, fairness: str = "wait") -> None:
        self.engine = engine
        self.scales: F8 = np.array(scales, dtype=np.float64).reshape(len(engine.workloads), len(TERMS))
        self._fairness = FAIRNESS.index(check_choice(fairness, FAIRNESS, "fairness", "term"))
        self._costs: F8 = np.zeros_like(self.scales)

    def costs(self) -> F8:
        """f8[B, 3]: what every cluster has cost so far, by term; the rewards between two moments are minus its growth.

        The array is filled anew by each call.
        """
        _costs_all(self.engine.batch.address, self._fairness, self.scales, self._costs)
        return self._costs

    def reset(self, b: int, scale: F8) -> None:
        """Cluster ``b`` has started anew with another workload."""
        self.scales[b] = scale


def reference_scales(
    cluster: Cluster, workloads: Sequence[Workload], options: SimOptions | None = None, fairness: str = "wait"
) -> F8:
    """What to divide the costs of each workload by, f8[B, 3].

    Completion and waiting: their values under ``REFERENCE``, at least those of ``LEAST_EXCESS`` and ``LEAST_WAIT`` mean
    durations a job. Communication: the GPU time of all gangs, since a rule's own penalty may be none. Jain index and
    worst user: 1.
    """
    options = options or SimOptions(record_segments=False)
    rule = EngineRule(keys=lambda workload, generator: workload.estimate_s, theta=1.5, patience=0.5)
    engine = Engine(cluster, workloads, rule, options)
    engine.ask()
    scales = np.ones((len(workloads), len(TERMS)))
    raw = np.zeros(len(TERMS))
    for b, workload in enumerate(workloads):
        raw_costs(engine.view(b), _WAIT, raw)
        jobs = len(workload)
        mean_s = max(float(workload.duration_s.mean()), LEAST_DURATION_S)
        scales[b, 0] = max(raw[0], LEAST_EXCESS * mean_s * jobs)
        if fairness == "wait":
            scales[b, 1] = max(raw[1], 0.5 * (LEAST_WAIT * mean_s) ** 2 * jobs)
        gangs = workload.num_gpus > 1
        scales[b, 2] = max(float(workload.gpu_seconds[gangs].sum()), 1.0)
    return scales
