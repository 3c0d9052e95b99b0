"""Orderings and placements in Python: what they are shown, and their answers handed to the engine."""

from __future__ import annotations

import numpy as np

from attn_sched.errors import InputError
from attn_sched.policies.names import Policy
from attn_sched.policies.registry import check_keys
from attn_sched.policies.views import PlacementView, QueueView
from attn_sched.simulator import layout as at
from attn_sched.simulator.engine import Engine
from attn_sched.simulator.fitting import best_slowdown
from attn_sched.simulator.layout import I8
from attn_sched.simulator.loop import apply_counts, choose_called_type
from attn_sched.simulator.state import World
from attn_sched.workload import Workload


def answer_called(engine: Engine, policy: Policy, phase: int, b: int = 0) -> None:
    """Let a user's own ordering or placement decide for cluster ``b``; other phases are left alone.

    Raises:
        InputError: it returned something unusable.
    """
    w = engine.view(b)
    if phase == at.KEYS_PHASE:
        view = _queue_view(engine, w, engine.workloads[b])
        assert policy.ordering.called is not None
        jobs = view.job.copy()  # the rule may write to what it is given
        w.jf[jobs, at.KEY] = check_keys(policy.ordering.called(view), len(jobs), policy.ordering.name)
        w.si[at.ASKED] = 1
    elif phase == at.PLACE_PHASE:
        _place(engine, w, engine.workloads[b], policy)


def _waiting(w: World) -> np.ndarray:
    return np.flatnonzero(w.ji[: int(w.si[at.N_JOBS]), at.STATUS] == at.WAITING).astype(np.int64)


def _group_gpus(w: World, workload: Workload) -> I8:
    """GPUs that running jobs of each group hold."""
    held = np.flatnonzero((w.ji[: len(workload), at.STATUS] == at.RUNNING) & (workload.group >= 0))
    counts = np.bincount(workload.group[held], weights=w.ji[held, at.GPUS], minlength=len(workload.group_names))
    return counts.astype(np.int64)


def _queue_view(engine: Engine, w: World, workload: Workload) -> QueueView:
    jobs = _waiting(w)
    now = float(w.sf[at.NOW])
    slowdown = np.array([best_slowdown(w, int(job)) for job in jobs])
    own = len(workload.user_names)  # rows past these belong to other clusters of a batch
    users = w.uf[:own, at.U_GPU_TIME] + w.ui[:own, at.U_GPUS] * (now - w.uf[:own, at.U_SYNCED])
    return QueueView(
        now_s=now,
        job=jobs,
        submit_s=w.jf[jobs, at.SUBMIT],
        wait_s=now - w.jf[jobs, at.SUBMIT],
        estimate_s=w.jf[jobs, at.ESTIMATE],
        num_gpus=w.ji[jobs, at.GPUS],
        user=w.ji[jobs, at.USER],
        group=workload.group[jobs].astype(np.int64),
        priority=workload.priority[jobs].astype(np.int64),
        fits=np.isfinite(slowdown).astype(np.int64),
        best_slowdown=slowdown,
        user_gpu_s=users,
        group_gpus=_group_gpus(w, workload),
        group_quota=np.array(workload.group_quota or [np.inf] * len(workload.group_names)),
        free_gpus=int(w.free[:, -1].sum()),
        workload=workload,
        cluster=engine.cluster,
    )


def _place(engine: Engine, w: World, workload: Workload, policy: Policy) -> None:
    gpu_type = choose_called_type(w)
    cluster = engine.cluster
    lo, hi = int(cluster.level_off[cluster.node_level]), int(cluster.level_off[cluster.node_level + 1])
    job = int(w.si[at.PICK_JOB])
    need = int(w.ji[job, at.GPUS])
    free = w.free[gpu_type, lo:hi].copy()
    rack = cluster.parent[lo:hi] if cluster.node_level < cluster.num_levels else np.zeros(hi - lo, dtype=np.int32)
    view = PlacementView(
        now_s=float(w.sf[at.NOW]),
        job=job,
        num_gpus=need,
        priority=int(workload.priority[job]),
        free=free.copy(),
        size=w.cap[gpu_type, lo:hi].copy(),
        rack=rack - rack.min(),
        workload=workload,
        cluster=cluster,
    )
    assert policy.placement.called is not None
    given = policy.placement.called(view)
    name = policy.placement.name
    try:
        counts = np.asarray(given)
    except ValueError:  # rows of different lengths
        counts = np.empty(0, dtype=np.int64)
    if counts.shape != free.shape or not np.issubdtype(counts.dtype, np.integer):
        raise InputError(
            f"the placement {name!r} returned {counts.dtype}{list(counts.shape)}",
            field="policy",
            expected=f"whole numbers, one for each of {len(free)} nodes",
        )
    if (counts < 0).any() or (counts > free).any() or counts.sum() != need:
        raise InputError(
            f"the placement {name!r} took {int(counts.sum())} GPUs for a gang of {need}, or some that are not free",
            field="policy",
            expected="free GPUs that add up to the gang",
        )
    apply_counts(w, counts.astype(np.int64))
