"""Links and running times: which uplinks a gang crosses, the share it gets of each, and how fast it runs.

A gang crosses the uplink of every vertex that holds some but not all of its GPUs. GPU uplinks are its own; the others
are shared with the jobs that cross them too. The formulas stand in ``cluster.communication``.
"""

from __future__ import annotations

import numpy as np

from attn_sched.cluster.communication import hierarchical_inter_time, hierarchical_intra_time, iteration_time, ring_time
from attn_sched.jit import njit
from attn_sched.simulator import layout as at
from attn_sched.simulator.layout import F8
from attn_sched.simulator.state import World


@njit
def touch(w: World, size: int) -> int:
    """Count the GPUs of the placement in ``pk`` per vertex below the root.

    Counts go to sv[:, 0], the vertices to sv[:N_TOUCHED, 1]. The root itself is counted only where it is an island.
    The caller clears with ``untouch``.
    """
    touched = 0
    for i in range(size):
        v = w.pk[i, 0]
        count = w.pk[i, 1]
        while True:
            if w.sv[v, 0] == 0:
                w.sv[touched, 1] = v
                touched += 1
            w.sv[v, 0] += count
            v = w.ti[v, at.PARENT]
            if v < 0 or w.ti[v, at.PARENT] < 0:
                break
    w.si[at.N_TOUCHED] = touched
    return touched


@njit
def untouch(w: World) -> None:
    """Clear the counts that ``touch`` made."""
    for i in range(w.si[at.N_TOUCHED]):
        w.sv[w.sv[i, 1], 0] = 0
    w.si[at.N_TOUCHED] = 0


@njit
def equal_share(w: World, vertex: int, jobs: int) -> float:
    """Bytes/s that each of ``jobs`` gets of an uplink, or the whole of it without contention."""
    if w.ci[at.CONTENTION] == at.NONE:
        return w.tf[vertex, at.CAPACITY]
    return w.tf[vertex, at.CAPACITY] / max(1, jobs)


@njit
def path(w: World, touched: int, need: int, extra: int, out: F8) -> None:
    """Write to ``out[P_COLUMNS]`` what the touched placement meets, if ``extra`` more jobs crossed each of its links.

    With ``extra = 1`` the job itself is the newcomer. The share is that of equal contention (or none); GPU uplinks are
    told apart.
    """
    share = np.inf
    alpha = 0.0
    crossed = 0
    span = 0
    most = np.int64(0)
    gpu_share = np.inf
    gpu_alpha = 0.0
    for i in range(touched):
        v = w.sv[i, 1]
        level = w.ti[v, at.LEVEL]
        count = w.sv[v, 0]
        if level == 1:
            span += 1
            most = max(most, count)
            gpu_share = min(gpu_share, w.tf[v, at.GPU_CAPACITY])
            gpu_alpha = max(gpu_alpha, w.tf[v, at.GPU_LATENCY])
        if count < need:
            share = min(share, equal_share(w, v, w.lk[v, at.L_JOBS] + extra))
            if level > crossed:
                crossed = level
                alpha = w.tf[v, at.LATENCY]
            elif level == crossed:
                alpha = max(alpha, w.tf[v, at.LATENCY])
    out[at.P_SHARE] = share
    out[at.P_ALPHA] = alpha if crossed > 0 else gpu_alpha
    out[at.P_GPU_SHARE] = gpu_share
    out[at.P_GPU_ALPHA] = gpu_alpha
    out[at.P_SPAN] = span
    out[at.P_MOST] = most
    out[at.P_CROSSED] = crossed


@njit
def intra_seconds(w: World, job: int, p: F8) -> float:
    """Seconds per iteration that a hierarchical all-reduce spends inside islands on the path ``p``; 0 for a ring."""
    if w.ci[at.ALLREDUCE] != at.HIERARCHICAL:
        return 0.0
    return hierarchical_intra_time(int(p[at.P_MOST]), p[at.P_GPU_ALPHA], p[at.P_GPU_SHARE], w.jf[job, at.GRAD])


@njit
def iteration_seconds(w: World, job: int, n: int, share: float, alpha: float, intra: float, span: int) -> float:
    """Seconds per iteration of a gang of ``n`` GPUs of ``job``.

    ``share`` is the least share over all links (ring) or over those above islands (hierarchical).
    """
    comm = 0.0
    if n > 1:
        if w.ci[at.ALLREDUCE] == at.HIERARCHICAL:
            comm = intra + hierarchical_inter_time(span, alpha, share, w.jf[job, at.GRAD])
        else:
            comm = ring_time(n, alpha, share, w.jf[job, at.GRAD])
    return iteration_time(w.jf[job, at.COMPUTE], w.jf[job, at.OVERLAP], comm)


@njit
def _gang_iteration(w: World, job: int, n: int, p: F8, share: float) -> float:
    if w.ci[at.ALLREDUCE] != at.HIERARCHICAL:
        share = min(share, p[at.P_GPU_SHARE])
    return iteration_seconds(w, job, n, share, p[at.P_ALPHA], intra_seconds(w, job, p), int(p[at.P_SPAN]))


@njit
def path_iteration(w: World, job: int, p: F8, share: float) -> float:
    """Seconds per iteration of ``job`` on the path ``p`` if its least share above islands is ``share``."""
    return _gang_iteration(w, job, w.ji[job, at.GPUS], p, share)


@njit
def gang_slowdown(w: World, job: int, n: int, p: F8) -> float:
    """Slowdown (>= 1) of ``n`` of the GPUs of ``job`` on the path ``p``, against the whole gang ideally placed."""
    return max(1.0, _gang_iteration(w, job, n, p, p[at.P_SHARE]) / w.jf[job, at.BEST_ITER])


@njit
def path_slowdown(w: World, job: int, p: F8, share: float) -> float:
    """Slowdown (>= 1) of ``job`` on the path ``p`` against its ideal placement."""
    if not w.ci[at.COMM] or w.ji[job, at.GPUS] <= 1:
        return 1.0
    return max(1.0, path_iteration(w, job, p, share) / w.jf[job, at.BEST_ITER])


@njit
def running_iteration(w: World, job: int, share: float) -> float:
    """Seconds per iteration of a running job at the least share ``share``."""
    n = w.ji[job, at.GPUS]
    return iteration_seconds(w, job, n, share, w.jf[job, at.ALPHA], w.jf[job, at.INTRA], w.ji[job, at.ISLANDS])


@njit
def running_share(w: World, job: int, extra_stamp: int) -> float:
    """Least share of a running job under equal contention or none; links stamped ``extra_stamp`` carry one job more."""
    share = np.inf
    need = w.ji[job, at.GPUS]
    ring = w.ci[at.ALLREDUCE] != at.HIERARCHICAL
    e = w.ji[job, at.ENTRY]
    while e >= 0:
        v = w.en[e, at.E_VERTEX]
        if ring and w.ti[v, at.LEVEL] == 1:
            share = min(share, w.tf[v, at.GPU_CAPACITY])
        if w.en[e, at.E_COUNT] < need:
            jobs = w.lk[v, at.L_JOBS]
            if w.sv[v, 2] == extra_stamp:
                jobs += 1
            share = min(share, equal_share(w, v, jobs))
        e = w.en[e, at.E_NEXT]
    return share
