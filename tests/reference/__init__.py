"""A slow, plain simulator written from the specification alone: the oracle that tests hold the engine against.

It recomputes everything at every event and shares no code with ``attn_sched``; it is meant for workloads of tens of
jobs (thousands with communication off). See ``simulate_reference``.
"""

from __future__ import annotations

from typing import Any

from tests.reference.comm import Comm
from tests.reference.engine import Scheduler
from tests.reference.machine import Result, Segment
from tests.reference.preemptive import ORDERS as PREEMPTIVE_ORDERS
from tests.reference.preemptive import PreemptiveScheduler
from tests.reference.tree import Placement, Tree

__all__ = ["Placement", "Result", "Segment", "simulate_reference"]


def simulate_reference(
    cluster: Any,
    jobs: Any,
    *,
    order: str = "fifo",
    queueing: str = "strict",
    placement: str = "topo-best-fit",
    hold: tuple[float, float] | None = None,
    comm: bool = True,
    contention: str = "equal",
    allreduce: str = "ring",
    restart_cost: float = 0.0,
    max_wait: float | None = None,
    seed: int = 0,
) -> Result:
    """Replay ``jobs`` (the arrays of a ``Workload``, sorted by submission) on ``cluster`` (those of a ``Cluster``).

    ``order`` is one of the rules in ``orders.py``, or ``srtf``/``srsf``, which preempt and know neither queueing nor
    hold nor guard. ``hold`` is ``(theta, patience)``, ``max_wait`` the starvation guard in seconds. A job that can
    never be placed is not refused: it stays unfinished (nan). Raises ValueError for unknown names.
    """
    tree = Tree(cluster)
    model = Comm(tree, comm, contention, allreduce)
    if order in PREEMPTIVE_ORDERS:
        if hold is not None or max_wait is not None:
            raise ValueError("hold and the starvation guard do not apply to preemptive orders")
        return PreemptiveScheduler(
            cluster, jobs, order=order, placement=placement, comm=model, tree=tree, restart_cost=restart_cost, seed=seed
        ).run()
    return Scheduler(
        cluster,
        jobs,
        order=order,
        queueing=queueing,
        placement=placement,
        hold=hold,
        comm=model,
        tree=tree,
        max_wait=max_wait,
        seed=seed,
    ).run()
