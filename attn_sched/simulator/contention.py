"""Who slows whom down: running times of the jobs that share links, kept right as jobs start and end.

Contention ``equal`` divides a link evenly among the jobs that cross it. ``maxmin`` fills progressively (Bertsekas and
Gallager, "Data Networks", section 6.5.2): all rates rise together; a job stops at its demand (bytes per iteration /
compute seconds) or when a link of it is full. Jobs send in bursts, so a job then sees, on each link, what the others'
rates leave of it; a job alone sees the whole link.
"""

from __future__ import annotations

import numpy as np

from attn_sched.cluster.communication import ring_bytes
from attn_sched.jit import njit
from attn_sched.simulator import layout as at
from attn_sched.simulator.heaps import heap_moved
from attn_sched.simulator.links import equal_share, running_iteration, running_share
from attn_sched.simulator.state import World


@njit
def set_share(w: World, job: int, share: float) -> None:
    """Give a running job another share: bring its work up to date, change its rate, move its finish time."""
    w.jf[job, at.SHARE] = share
    rate = min(1.0, w.jf[job, at.BEST_ITER] / running_iteration(w, job, share))
    if rate == w.jf[job, at.RATE]:
        return
    now = w.sf[at.NOW]
    w.jf[job, at.LEFT] = max(0.0, w.jf[job, at.LEFT] - (now - w.jf[job, at.SYNCED]) * w.jf[job, at.RATE])
    w.jf[job, at.SYNCED] = now
    w.jf[job, at.RATE] = rate
    w.jf[job, at.FINISH] = now + w.jf[job, at.LEFT] / rate
    heap_moved(w.fh, w.jf, w.ji, at.FINISH, at.RPOS, at.FIRST, w.si[at.N_FINISH], job)


@njit
def after_start(w: World, job: int) -> None:
    """Slow down the jobs that share a link with ``job``, which has just been linked in."""
    if w.ci[at.CONTENTION] == at.MAXMIN:
        fill(w, at.NOBODY, at.APPLY)
        return
    if w.ci[at.CONTENTION] == at.NONE:
        return
    need = w.ji[job, at.GPUS]
    e = w.ji[job, at.ENTRY]
    while e >= 0:
        v = w.en[e, at.E_VERTEX]
        if w.en[e, at.E_COUNT] < need:
            share = equal_share(w, v, w.lk[v, at.L_JOBS])
            o = w.lk[v, at.L_HEAD]
            while o >= 0:
                other = w.en[o, at.E_JOB]
                if share < w.jf[other, at.SHARE]:
                    set_share(w, other, share)
                o = w.en[o, at.E_LNEXT]
        e = w.en[e, at.E_NEXT]


@njit
def after_end(w: World, vertices: int) -> None:
    """Speed up the jobs on the links ``sv[:vertices, 1]``, from which a job has just been unlinked."""
    if w.ci[at.CONTENTION] == at.MAXMIN:
        fill(w, at.NOBODY, at.APPLY)
        return
    if w.ci[at.CONTENTION] == at.NONE:
        return
    for i in range(vertices):
        v = w.sv[i, 1]
        before = equal_share(w, v, w.lk[v, at.L_JOBS] + 1)
        o = w.lk[v, at.L_HEAD]
        while o >= 0:
            other = w.en[o, at.E_JOB]
            if w.jf[other, at.SHARE] == before:
                set_share(w, other, running_share(w, other, at.NOBODY))
            o = w.en[o, at.E_LNEXT]


@njit
def _demand(w: World, job: int, span: int) -> float:
    members = span if w.ci[at.ALLREDUCE] == at.HIERARCHICAL else w.ji[job, at.GPUS]
    return ring_bytes(members, w.jf[job, at.GRAD]) / w.jf[job, at.COMPUTE]


@njit
def _gpu_limit(w: World, job: int) -> float:
    limit = np.inf
    if w.ci[at.ALLREDUCE] != at.HIERARCHICAL:
        e = w.ji[job, at.ENTRY]
        while e >= 0:
            v = w.en[e, at.E_VERTEX]
            if w.ti[v, at.LEVEL] == 1:
                limit = min(limit, w.tf[v, at.GPU_CAPACITY])
            e = w.en[e, at.E_NEXT]
    return limit


@njit
def fill(w: World, newcomer: int, apply: int) -> float:
    """Progressive filling over all jobs that cross links; sets their shares if ``apply``.

    ``newcomer`` (or -1) is a waiting job whose path is in ``pf`` and whose touched vertices are in ``sv``; its share is
    returned.
    """
    jobs = 0
    for i in range(w.si[at.N_FINISH]):
        job = w.fh[i]
        if w.ji[job, at.CROSSED] > 0:
            w.sj[jobs] = job
            jobs += 1
    running = jobs
    if newcomer >= 0 and w.pf[at.P_CROSSED] > 0:
        w.sj[jobs] = newcomer
        jobs += 1
    vertices = w.ti.shape[0]
    for v in range(vertices):
        w.vf[v] = 0.0  # rate of the jobs that have stopped
        w.sv[v, 3] = 0  # jobs still rising
    for i in range(jobs):
        w.sjf[i, 0] = -1.0  # the job's rate, once it has stopped
        job = w.sj[i]
        if i < running:
            w.sjf[i, 1] = min(_demand(w, job, w.ji[job, at.ISLANDS]), _gpu_limit(w, job))
            e = w.ji[job, at.ENTRY]
            while e >= 0:
                if w.en[e, at.E_COUNT] < w.ji[job, at.GPUS]:
                    w.sv[w.en[e, at.E_VERTEX], 3] += 1
                e = w.en[e, at.E_NEXT]
        else:
            limit = np.inf if w.ci[at.ALLREDUCE] == at.HIERARCHICAL else w.pf[at.P_GPU_SHARE]
            w.sjf[i, 1] = min(_demand(w, job, int(w.pf[at.P_SPAN])), limit)
            for k in range(w.si[at.N_TOUCHED]):
                if w.sv[w.sv[k, 1], 0] < w.ji[job, at.GPUS]:
                    w.sv[w.sv[k, 1], 3] += 1
    rising = jobs
    while rising > 0:
        level = np.inf
        full = -1
        for v in range(vertices):
            if w.sv[v, 3] > 0:
                at_v = max(0.0, (w.tf[v, at.CAPACITY] - w.vf[v]) / w.sv[v, 3])
                if at_v < level:
                    level = at_v
                    full = v
        for i in range(jobs):
            if w.sjf[i, 0] < 0.0 and w.sjf[i, 1] <= level:
                level = w.sjf[i, 1]
                full = -1
        if level == np.inf:  # neither a demand nor a link limits the rest
            break
        for i in range(jobs):
            if w.sjf[i, 0] >= 0.0:
                continue
            stops = w.sjf[i, 1] <= level if full < 0 else _crosses(w, w.sj[i], full, i >= running)
            if stops:
                w.sjf[i, 0] = level
                rising -= 1
                _load(w, w.sj[i], level, i >= running)
    for i in range(jobs):
        if w.sjf[i, 0] < 0.0:
            w.sjf[i, 0] = 0.0
    share = w.pf[at.P_SHARE] if newcomer >= 0 else np.inf
    if newcomer >= 0 and w.pf[at.P_CROSSED] > 0:
        share = np.inf
        for k in range(w.si[at.N_TOUCHED]):
            v = w.sv[k, 1]
            if w.sv[v, 0] < w.ji[newcomer, at.GPUS]:
                share = min(share, w.tf[v, at.CAPACITY] - (w.vf[v] - w.sjf[running, 0]))
    if apply == at.APPLY:
        for i in range(running):
            set_share(w, w.sj[i], _seen(w, w.sj[i], w.sjf[i, 0]))
    return share


@njit
def growth(w: World, newcomer: int) -> float:
    """What the running jobs' iterations would grow by, in seconds, after ``fill(newcomer, WEIGH)``."""
    added = 0.0
    jobs = 0
    for i in range(w.si[at.N_FINISH]):
        job = w.fh[i]
        if w.ji[job, at.CROSSED] > 0:
            share = _seen(w, job, w.sjf[jobs, 0])
            added += running_iteration(w, job, share) - running_iteration(w, job, w.jf[job, at.SHARE])
            jobs += 1
    return added


@njit
def _crosses(w: World, job: int, vertex: int, newcomer: bool) -> bool:
    need = w.ji[job, at.GPUS]
    if newcomer:
        return 0 < w.sv[vertex, 0] < need
    e = w.ji[job, at.ENTRY]
    while e >= 0:
        if w.en[e, at.E_VERTEX] == vertex:
            return w.en[e, at.E_COUNT] < need
        e = w.en[e, at.E_NEXT]
    return False


@njit
def _load(w: World, job: int, rate: float, newcomer: bool) -> None:
    """A job has stopped rising at ``rate``: count it on its links."""
    need = w.ji[job, at.GPUS]
    if newcomer:
        for k in range(w.si[at.N_TOUCHED]):
            v = w.sv[k, 1]
            if w.sv[v, 0] < need:
                w.vf[v] += rate
                w.sv[v, 3] -= 1
        return
    e = w.ji[job, at.ENTRY]
    while e >= 0:
        v = w.en[e, at.E_VERTEX]
        if w.en[e, at.E_COUNT] < need:
            w.vf[v] += rate
            w.sv[v, 3] -= 1
        e = w.en[e, at.E_NEXT]


@njit
def _seen(w: World, job: int, rate: float) -> float:
    """The share a running job sees: least over its links of the capacity less the others' rates."""
    share = _gpu_limit(w, job)
    need = w.ji[job, at.GPUS]
    e = w.ji[job, at.ENTRY]
    while e >= 0:
        v = w.en[e, at.E_VERTEX]
        if w.en[e, at.E_COUNT] < need:
            share = min(share, w.tf[v, at.CAPACITY] - (w.vf[v] - rate))
        e = w.en[e, at.E_NEXT]
    return share
