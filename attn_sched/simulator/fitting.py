"""Does a job fit now, and how slow would it be at best?

Cached per fit class (GPU count, allowed types) until something starts or ends.
"""

from __future__ import annotations

import numpy as np

from attn_sched.jit import njit
from attn_sched.simulator import contention, links
from attn_sched.simulator import layout as at
from attn_sched.simulator.placement import choose_type, fits, scattered, topo_best_fit
from attn_sched.simulator.state import World


@njit
def types_fit(w: World, types: int, need: int) -> bool:
    """Whether a gang fits now under the placement rule in force, on one of its allowed GPU types."""
    for t in range(w.free.shape[0]):
        if (types >> t) & 1 and fits(w, w.free[t], t, need):
            return True
    return False


@njit
def job_fits(w: World, job: int) -> bool:
    """Whether ``job`` fits now under the placement rule in force."""
    if w.ci[at.PLACEMENT] != at.BEST_FIT:
        return types_fit(w, w.ji[job, at.TYPES], w.ji[job, at.GPUS])
    f = w.ji[job, at.FIT]
    _refresh(w, f)
    return w.fi[f, at.F_FITS] != 0


@njit
def class_fits(w: World, f: int) -> bool:
    """As ``job_fits``, for all jobs of a fit class."""
    if w.ci[at.PLACEMENT] != at.BEST_FIT:
        return types_fit(w, w.fi[f, at.F_TYPES], w.fi[f, at.F_GPUS])
    _refresh(w, f)
    return w.fi[f, at.F_FITS] != 0


@njit
def _refresh(w: World, f: int) -> None:
    if w.fi[f, at.F_VERSION] != w.si[at.VERSION]:
        w.fi[f, at.F_VERSION] = w.si[at.VERSION]
        w.fi[f, at.F_FITS] = types_fit(w, w.fi[f, at.F_TYPES], w.fi[f, at.F_GPUS])
        w.fi[f, at.F_CROSSED] = -1  # the path is worked out when it is asked for


@njit
def best_path(w: World, f: int) -> int:
    """Work out the path of the topo-best-fit placement of a fit class among what is free now; ff[f] holds it.

    Returns the highest level crossed, or -2 where the class does not fit.
    """
    _refresh(w, f)
    if w.fi[f, at.F_CROSSED] == -1:
        need = w.fi[f, at.F_GPUS]
        gpu_type = choose_type(w, w.fi[f, at.F_TYPES], need)
        if gpu_type < 0:
            w.fi[f, at.F_CROSSED] = -2
        else:
            size = topo_best_fit(w, w.free[gpu_type], need)
            touched = links.touch(w, size)
            links.path(w, touched, need, 1, w.ff[f])
            links.untouch(w)
            w.fi[f, at.F_CROSSED] = int(w.ff[f, at.P_CROSSED])
    return w.fi[f, at.F_CROSSED]


@njit
def best_slowdown(w: World, job: int) -> float:
    """Slowdown of ``job`` now under topo-best-fit, with contention (>= 1); inf where it does not fit."""
    f = w.ji[job, at.FIT]
    if best_path(w, f) == -2:
        return np.inf
    if not w.ci[at.COMM] or w.ji[job, at.GPUS] <= 1:
        return 1.0
    p = w.ff[f]
    if w.ci[at.CONTENTION] != at.MAXMIN or p[at.P_CROSSED] == 0:
        return links.path_slowdown(w, job, p, p[at.P_SHARE])
    # What a newcomer gets of max-min shares depends on its own demand: fill with it among the others.
    need = w.ji[job, at.GPUS]
    gpu_type = choose_type(w, w.ji[job, at.TYPES], need)
    return placed_slowdown(w, job, topo_best_fit(w, w.free[gpu_type], need))


@njit
def placed_slowdown(w: World, job: int, size: int) -> float:
    """Slowdown of ``job`` if it started now on the ``size`` picks in ``pk``, with contention (>= 1)."""
    if not w.ci[at.COMM] or w.ji[job, at.GPUS] <= 1:
        return 1.0
    touched = links.touch(w, size)
    links.path(w, touched, w.ji[job, at.GPUS], 1, w.pf)
    share = w.pf[at.P_SHARE]
    if w.ci[at.CONTENTION] == at.MAXMIN and w.pf[at.P_CROSSED] > 0:
        share = contention.fill(w, job, at.WEIGH)
    slowdown = links.path_slowdown(w, job, w.pf, share)
    links.untouch(w)
    return slowdown


@njit
def scattered_slowdown(w: World, job: int) -> float:
    """Slowdown of ``job`` now with its gang scattered, GPU by GPU over the islands from both ends (>= 1).

    That crosses the highest level that free GPUs can cross: the worst of the feasible placements, but for what other
    jobs do to single links.
    """
    need = w.ji[job, at.GPUS]
    if not w.ci[at.COMM] or need <= 1:
        return 1.0
    gpu_type = choose_type(w, w.ji[job, at.TYPES], need)
    if gpu_type < 0:
        return np.inf
    return placed_slowdown(w, job, scattered(w, w.free[gpu_type], need))


@njit
def set_ideal(w: World) -> None:
    """Fill BEST_ITER: seconds per iteration of every job under topo-best-fit on the empty cluster, alone.

    Call before any event.
    """
    rule = w.ci[at.PLACEMENT]
    w.ci[at.PLACEMENT] = at.TOPO_BEST_FIT
    for job in range(w.si[at.N_JOBS]):
        f = w.ji[job, at.FIT]
        best_path(w, f)
        p = w.ff[f]
        w.jf[job, at.BEST_ITER] = links.path_iteration(w, job, p, p[at.P_SHARE])
    w.ci[at.PLACEMENT] = rule
    for f in range(w.fi.shape[0]):
        w.fi[f, at.F_VERSION] = -1
