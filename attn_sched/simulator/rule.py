"""A policy in the engine's own terms: codes for the compiled loop and the keys of a static ordering."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from attn_sched.errors import InputError
from attn_sched.simulator import layout as at
from attn_sched.simulator.layout import F8
from attn_sched.workload import Workload

StaticKeys = Callable[[Workload, np.random.Generator], F8]

TIRESIAS_THRESHOLDS = (3250.0, 7200.0)  # GPU-seconds; the queue limits of the Tiresias simulator
THEMIS_LEASE_S = 1200.0  # the 20-minute lease of Themis (NSDI 2020, section 8.1)


@dataclass(frozen=True)
class EngineRule:
    """What the loop needs to know of a policy.

    ``keys`` gives the keys of a static ordering, f8[J], smallest first, once per replay. Without it ``order`` is a
    code of ``layout``: a dynamic ordering, ``CALLED`` (Python keys at each event) or ``AGENT`` (answered from
    outside).
    """

    order: int = at.STATIC
    queueing: int = at.SKIP
    placement: int = at.TOPO_BEST_FIT
    keys: StaticKeys | None = None
    theta: float | None = None  # hold while the best slowdown now exceeds theta ...
    patience: float = 0.0  # ... and the wait is below patience * estimated duration
    preempt: int = at.NO_PREEMPTION

    def __post_init__(self) -> None:
        if self.theta is not None:
            if not (math.isfinite(self.theta) and self.theta >= 1):
                raise InputError(
                    f"{self.theta:g} is below 1",
                    field="theta",
                    expected="a slowdown of at least 1, as in hold(1.5,0.5)",
                )
            if not (math.isfinite(self.patience) and self.patience >= 0):
                raise InputError(
                    f"{self.patience:g} is not a patience",
                    field="patience",
                    expected="a number of at least 0, as in hold(1.5,0.5)",
                )
        if self.preempt != at.NO_PREEMPTION and self.theta is not None:
            raise InputError(
                "a preemptive policy starts what ranks first and cannot hold", field="policy", expected="no hold(...)"
            )

    @property
    def classed(self) -> bool:
        """Whether waiting jobs lie in heaps: keys fixed when a job arrives."""
        return self.order in (at.STATIC, at.QSSF) and self.preempt == at.NO_PREEMPTION
