"""From a job to its GPUs: type, then the placement rule in force.

Here too: the rule that weighs several placements by contention.
"""

from __future__ import annotations

import numpy as np

from attn_sched.jit import njit
from attn_sched.simulator import contention, links
from attn_sched.simulator import layout as at
from attn_sched.simulator.placement import (
    best_fit,
    best_fit_fits,
    choose_type,
    first_fit,
    fullest_first,
    least_workload,
    load_balance,
    random_free,
    topo_best_fit,
)
from attn_sched.simulator.state import World


@njit
def _place_plainly(w: World, rule: int, gpu_type: int, job: int) -> int:
    """The rules that look at free GPUs alone."""
    need = w.ji[job, at.GPUS]
    fr = w.free[gpu_type]
    if rule == at.BEST_FIT:
        return best_fit(w, fr, gpu_type, need)
    if rule == at.FIRST_FIT:
        return first_fit(w, fr, need)
    if rule == at.LOAD_BALANCE:
        return load_balance(w, fr, need)
    if rule == at.FULLEST:
        return fullest_first(w, fr, need)
    return topo_best_fit(w, fr, need)


@njit
def place_by(w: World, rule: int, gpu_type: int, job: int) -> int:
    """Write the placement of ``job`` on free GPUs of ``gpu_type`` by ``rule`` to ``pk``.

    Returns its size, 0 if there is none. What an agent or a Python rule will choose is not known while a job is
    weighed: ``topo-best-fit`` stands for it.
    """
    if rule == at.RANDOM:
        return random_free(w, w.free[gpu_type], w.ji[job, at.GPUS])
    if rule == at.LEAST_WORKLOAD:
        return least_workload(w, w.free[gpu_type], w.ji[job, at.GPUS])
    if rule == at.LEAST_CONTENTION:
        return _least_contention(w, gpu_type, job)
    if rule == at.SKEW:
        rule = at.TOPO_BEST_FIT if w.ji[job, at.SKEWED] else at.FULLEST
    return _place_plainly(w, rule, gpu_type, job)


@njit
def place(w: World, job: int) -> tuple[int, int]:
    """Place ``job`` by the rule in force: (picks in ``pk``, GPU type); (0, -1) if it does not fit."""
    gpu_type = choose_type(w, w.ji[job, at.TYPES], w.ji[job, at.GPUS])
    if gpu_type < 0:
        return 0, -1
    return place_by(w, w.ci[at.PLACEMENT], gpu_type, job), gpu_type


@njit
def merge_picks(w: World, size: int) -> int:
    """Join picks of the same island (several picks of a GPU agent may fall on one); returns the new size."""
    kept = 0
    for i in range(size):
        for k in range(kept):
            if w.pk[k, 0] == w.pk[i, 0]:
                w.pk[k, 1] += w.pk[i, 1]
                break
        else:
            w.pk[kept, 0] = w.pk[i, 0]
            w.pk[kept, 1] = w.pk[i, 1]
            kept += 1
    return kept


@njit
def _least_contention(w: World, gpu_type: int, job: int) -> int:
    """Of the other rules' placements, the one that adds least iteration time over all running jobs and the new one."""
    rules = (at.TOPO_BEST_FIT, at.FIRST_FIT, at.LOAD_BALANCE, at.BEST_FIT, at.FULLEST)
    if not w.ci[at.COMM] or w.ji[job, at.GPUS] <= 1:
        return _place_plainly(w, at.TOPO_BEST_FIT, gpu_type, job)
    best = -1
    best_cost = np.inf
    for rule in rules:
        if rule == at.BEST_FIT and not best_fit_fits(w, w.free[gpu_type], gpu_type, w.ji[job, at.GPUS]):
            continue
        cost = _added_iteration_time(w, job, _place_plainly(w, rule, gpu_type, job))
        # Sums in another order differ in their last bits: that is no reason to prefer a placement.
        if best < 0 or cost < best_cost - 1e-9 * abs(best_cost):
            best = rule
            best_cost = cost
    return _place_plainly(w, best, gpu_type, job)


@njit
def _added_iteration_time(w: World, job: int, size: int) -> float:
    """Iteration time of ``job`` on the picks, plus what its running neighbours' iterations grow by."""
    need = w.ji[job, at.GPUS]
    touched = links.touch(w, size)
    links.path(w, touched, need, 1, w.pf)
    share = w.pf[at.P_SHARE]
    added = 0.0
    if w.ci[at.CONTENTION] == at.MAXMIN and w.pf[at.P_CROSSED] > 0:
        share = contention.fill(w, job, at.WEIGH)
        added = contention.growth(w, job)
    elif w.ci[at.CONTENTION] == at.EQUAL:
        w.si[at.STAMP] += 1
        stamp = w.si[at.STAMP]
        for i in range(touched):
            v = w.sv[i, 1]
            if w.sv[v, 0] < need:
                w.sv[v, 2] = stamp
        for i in range(w.si[at.N_FINISH]):
            other = w.fh[i]
            if w.ji[other, at.CROSSED] > 0:
                now_share = w.jf[other, at.SHARE]
                new_share = links.running_share(w, other, stamp)
                if new_share < now_share:
                    added += links.running_iteration(w, other, new_share) - links.running_iteration(w, other, now_share)
    own = links.path_iteration(w, job, w.pf, share)
    links.untouch(w)
    return own + added
