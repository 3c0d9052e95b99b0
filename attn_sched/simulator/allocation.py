"""Giving GPUs to a gang and taking them back: free counts, links, users' shares, the record of segments."""

from __future__ import annotations

import numpy as np

from attn_sched.jit import njit
from attn_sched.simulator import contention, links
from attn_sched.simulator import layout as at
from attn_sched.simulator.heaps import heap_push, heap_remove
from attn_sched.simulator.layout import I8
from attn_sched.simulator.state import World
from attn_sched.simulator.waiting import dequeue


@njit
def sync_user(w: World, user: int) -> None:
    """Bring a user's GPU time up to now."""
    now = w.sf[at.NOW]
    w.uf[user, at.U_GPU_TIME] += w.ui[user, at.U_GPUS] * (now - w.uf[user, at.U_SYNCED])
    w.uf[user, at.U_SYNCED] = now


@njit
def _take(w: World, gpu_type: int, island: int, count: int) -> None:
    v = island
    while v >= 0:
        w.free[gpu_type, v] -= count
        v = w.ti[v, at.PARENT]


@njit
def add_released(w: World, row: I8, job: int) -> None:
    """Add the GPUs a running ``job`` holds to ``row``, a copy of the free counts of its type, as if it had ended."""
    e = w.ji[job, at.ENTRY]
    while e >= 0:
        v = w.en[e, at.E_VERTEX]
        if w.ti[v, at.LEVEL] == 1:
            while v >= 0:
                row[v] += w.en[e, at.E_COUNT]
                v = w.ti[v, at.PARENT]
        e = w.en[e, at.E_NEXT]


@njit
def _new_entry(w: World, job: int, vertex: int, count: int) -> int:
    e = w.si[at.E_FREE]
    w.si[at.E_FREE] = w.en[e, at.E_NEXT]
    w.en[e, at.E_JOB] = job
    w.en[e, at.E_VERTEX] = vertex
    w.en[e, at.E_COUNT] = count
    w.en[e, at.E_SEG] = -1
    w.en[e, at.E_NEXT] = w.ji[job, at.ENTRY]
    w.ji[job, at.ENTRY] = e
    return e


@njit
def _record(w: World, job: int, e: int) -> None:
    s = w.si[at.N_SEGMENTS]
    w.si[at.N_SEGMENTS] = s + 1
    w.sgi[s, 0] = job
    w.sgi[s, 1] = w.en[e, at.E_VERTEX]
    w.sgi[s, 2] = w.en[e, at.E_COUNT]
    w.sgf[s, 0] = w.sf[at.NOW]
    w.sgf[s, 1] = np.nan
    w.en[e, at.E_SEG] = s


@njit
def _link(w: World, e: int) -> None:
    v = w.en[e, at.E_VERTEX]
    head = w.lk[v, at.L_HEAD]
    w.en[e, at.E_LPREV] = -1
    w.en[e, at.E_LNEXT] = head
    if head >= 0:
        w.en[head, at.E_LPREV] = e
    w.lk[v, at.L_HEAD] = e
    w.lk[v, at.L_JOBS] += 1


@njit
def _unlink(w: World, e: int) -> None:
    v = w.en[e, at.E_VERTEX]
    before = w.en[e, at.E_LPREV]
    after = w.en[e, at.E_LNEXT]
    if before < 0:
        w.lk[v, at.L_HEAD] = after
    else:
        w.en[before, at.E_LNEXT] = after
    if after >= 0:
        w.en[after, at.E_LPREV] = before
    w.lk[v, at.L_JOBS] -= 1


@njit
def start(w: World, job: int, gpu_type: int, size: int) -> None:
    """Start the waiting ``job`` on the ``size`` picks in ``pk``, all of type ``gpu_type`` and all free."""
    now = w.sf[at.NOW]
    jf = w.jf
    ji = w.ji
    need = ji[job, at.GPUS]
    dequeue(w, job)
    ji[job, at.STATUS] = at.RUNNING
    ji[job, at.PLACED] = gpu_type
    w.si[at.N_RUNNING] += 1
    w.si[at.RUNNING_GPUS] += need
    user = ji[job, at.USER]
    sync_user(w, user)
    w.ui[user, at.U_RUNNING] += 1
    w.ui[user, at.U_GPUS] += need
    ji[job, at.ENTRY] = -1
    comm = w.ci[at.COMM] != 0
    single = size == 1 and (need == 1 or not comm)
    if single:
        island = w.pk[0, 0]
        _take(w, gpu_type, island, need)
        e = _new_entry(w, job, island, need)
        if w.ci[at.RECORD]:
            _record(w, job, e)
        ji[job, at.CROSSED] = 0
        ji[job, at.ISLANDS] = 1
        jf[job, at.SHARE] = np.inf
        jf[job, at.RATE] = 1.0
    else:
        _start_gang(w, job, gpu_type, size)
    if np.isnan(jf[job, at.START]):
        jf[job, at.START] = now
    else:
        jf[job, at.LEFT] += w.cf[at.RESTART_COST]
    jf[job, at.RAN_AT] = now
    jf[job, at.SYNCED] = now
    jf[job, at.FINISH] = now + jf[job, at.LEFT] / jf[job, at.RATE]
    heap_push(w.fh, jf, ji, at.FINISH, at.RPOS, at.FIRST, w.si[at.N_FINISH], job)
    w.si[at.N_FINISH] += 1
    if comm and ji[job, at.CROSSED] > 0:
        contention.after_start(w, job)
    w.si[at.VERSION] += 1


@njit
def _start_gang(w: World, job: int, gpu_type: int, size: int) -> None:
    need = w.ji[job, at.GPUS]
    for i in range(size):
        _take(w, gpu_type, w.pk[i, 0], w.pk[i, 1])
    touched = links.touch(w, size)
    links.path(w, touched, need, 1, w.pf)
    comm = w.ci[at.COMM] != 0
    islands = 0
    for i in range(touched):
        v = w.sv[i, 1]
        e = _new_entry(w, job, v, w.sv[v, 0])
        if w.ti[v, at.LEVEL] == 1:
            islands += 1
            if w.ci[at.RECORD]:
                _record(w, job, e)
        if comm and w.sv[v, 0] < need:
            _link(w, e)
    w.ji[job, at.ISLANDS] = islands
    w.ji[job, at.CROSSED] = int(w.pf[at.P_CROSSED])
    share = w.pf[at.P_SHARE]
    if w.ci[at.ALLREDUCE] != at.HIERARCHICAL:
        share = min(share, w.pf[at.P_GPU_SHARE])
    w.jf[job, at.SHARE] = share
    w.jf[job, at.ALPHA] = w.pf[at.P_ALPHA]
    w.jf[job, at.INTRA] = links.intra_seconds(w, job, w.pf)
    rate = 1.0
    if comm and need > 1:
        rate = min(1.0, w.jf[job, at.BEST_ITER] / links.running_iteration(w, job, share))
    w.jf[job, at.RATE] = rate
    links.untouch(w)


@njit
def stop(w: World, job: int) -> None:
    """Take the GPUs of a running ``job`` back: it ended, was suspended or lost a node.

    Its work is brought up to now.
    """
    now = w.sf[at.NOW]
    jf = w.jf
    ji = w.ji
    need = ji[job, at.GPUS]
    heap_remove(w.fh, jf, ji, at.FINISH, at.RPOS, at.FIRST, w.si[at.N_FINISH], job)
    w.si[at.N_FINISH] -= 1
    jf[job, at.LEFT] = max(0.0, jf[job, at.LEFT] - (now - jf[job, at.SYNCED]) * jf[job, at.RATE])
    jf[job, at.SYNCED] = now
    jf[job, at.HELD] += now - jf[job, at.RAN_AT]
    w.si[at.N_RUNNING] -= 1
    w.si[at.RUNNING_GPUS] -= need
    user = ji[job, at.USER]
    sync_user(w, user)
    w.ui[user, at.U_RUNNING] -= 1
    w.ui[user, at.U_GPUS] -= need
    gpu_type = ji[job, at.PLACED]
    comm = w.ci[at.COMM] != 0
    changed = 0
    e = ji[job, at.ENTRY]
    while e >= 0:
        v = w.en[e, at.E_VERTEX]
        count = w.en[e, at.E_COUNT]
        if w.ti[v, at.LEVEL] == 1:
            _take(w, gpu_type, v, -count)
            s = w.en[e, at.E_SEG]
            if s >= 0:
                w.sgf[s, 1] = now
        if comm and count < need:
            _unlink(w, e)
            w.sv[changed, 1] = v
            changed += 1
        after = w.en[e, at.E_NEXT]
        w.en[e, at.E_NEXT] = w.si[at.E_FREE]
        w.si[at.E_FREE] = e
        e = after
    ji[job, at.ENTRY] = -1
    if changed > 0:
        contention.after_end(w, changed)
    w.si[at.VERSION] += 1
