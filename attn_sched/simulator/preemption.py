"""Preemptive baselines: at every event all live jobs are ranked anew, and what no longer fits is suspended.

The set that runs is chosen greedily with skipping by GPU counts per type (golden.md, case E). Running jobs of the set
keep their GPUs, the others are suspended, then the new ones are placed in rank order. ``th`` holds the live jobs in the
order of the last event, which breaks ties (the sort is stable).
"""

from __future__ import annotations

import numpy as np

from attn_sched.jit import njit
from attn_sched.simulator import layout as at
from attn_sched.simulator.allocation import start, stop
from attn_sched.simulator.placement import fits, remaining_estimate
from attn_sched.simulator.placing import place_by
from attn_sched.simulator.selection import estimate, fair_duration
from attn_sched.simulator.state import World
from attn_sched.simulator.waiting import enqueue


@njit
def attained_service(w: World, job: int) -> float:
    """GPU-seconds a job has held so far."""
    held = w.jf[job, at.HELD]
    if w.ji[job, at.STATUS] == at.RUNNING:
        held += w.sf[at.NOW] - w.jf[job, at.RAN_AT]
    return held * w.ji[job, at.GPUS]


@njit
def preemptive_key(w: World, job: int) -> float:
    """Rank of a live job; smallest runs first."""
    rule = w.ci[at.PREEMPT]
    if rule == at.SRTF:
        return max(0.0, remaining_estimate(w, job))
    if rule == at.SRSF:
        return max(0.0, remaining_estimate(w, job)) * w.ji[job, at.GPUS]
    if rule == at.TIRESIAS:  # queue number by attained service, first come first served inside a queue
        served = attained_service(w, job)
        queue = 0 if served < w.cf[at.THRESHOLD_1] else 1 if served < w.cf[at.THRESHOLD_2] else 2
        return float(queue * w.si[at.N_JOBS] + job)
    # Themis: the projected finish-time ratio, worst first; a running job keeps its GPUs until its lease ends.
    now = w.sf[at.NOW]
    if w.ji[job, at.STATUS] == at.RUNNING and now < w.jf[job, at.RAN_AT] + w.cf[at.LEASE]:
        return -np.inf
    left = max(0.0, remaining_estimate(w, job))
    return -(now - w.jf[job, at.SUBMIT] + left) / fair_duration(w, job, estimate(w, job))


@njit
def _next_timer(w: World) -> float:
    """When a running job's rank changes by itself: it drops to a lower queue (Tiresias) or its lease ends (Themis)."""
    rule = w.ci[at.PREEMPT]
    timer = np.inf
    if rule != at.TIRESIAS and rule != at.THEMIS:
        return timer
    now = w.sf[at.NOW]
    for i in range(w.si[at.N_FINISH]):
        job = w.fh[i]
        if rule == at.TIRESIAS:
            n = w.ji[job, at.GPUS]
            served = attained_service(w, job)
            if served < w.cf[at.THRESHOLD_1]:
                t = now + (w.cf[at.THRESHOLD_1] - served) / n
            elif served < w.cf[at.THRESHOLD_2]:
                t = now + (w.cf[at.THRESHOLD_2] - served) / n
            else:
                continue
            # Rounding must not leave the job a hair below the threshold for ever.
            t = max(t, np.nextafter(now, np.inf))
        else:
            t = w.jf[job, at.RAN_AT] + w.cf[at.LEASE]
            if t <= now:
                continue
        timer = min(timer, t)
    return timer


@njit
def _collect(w: World) -> int:
    """Live jobs in ``th``: those of the last event that are still live, then the new ones by job number."""
    kept = 0
    stamp = w.si[at.EVENTS] + 1
    for i in range(w.si[at.N_LIVE]):
        job = w.th[i]
        status = w.ji[job, at.STATUS]
        if status == at.WAITING or status == at.RUNNING:
            w.th[kept] = job
            w.ji[job, at.LIVE] = stamp
            kept += 1
    # New arrivals stand at the tail of the arrival-ordered list, unless a restarted job went back to its place.
    job = w.si[at.Q_TAIL]
    fresh = 0
    while job >= 0 and w.ji[job, at.LIVE] == 0:
        fresh += 1
        job = w.ji[job, at.PREV]
    job = w.si[at.Q_TAIL]
    for i in range(fresh - 1, -1, -1):
        w.th[kept + i] = job
        w.ji[job, at.LIVE] = stamp
        job = w.ji[job, at.PREV]
    w.si[at.N_LIVE] = kept + fresh
    return kept + fresh


@njit
def _sort(w: World, live: int) -> None:
    """Stable insertion sort by key: the order of the last event is nearly right."""
    for i in range(live):
        job = w.th[i]
        key = preemptive_key(w, job)
        w.jf[job, at.KEY] = key
        k = i
        while k > 0 and w.jf[w.th[k - 1], at.KEY] > key:
            w.th[k] = w.th[k - 1]
            k -= 1
        w.th[k] = job


@njit
def _pool(w: World, room: at.I8, types: int, need: int) -> int:
    """The first allowed type with room enough; -1 if there is none."""
    for t in range(room.shape[0]):
        if (types >> t) & 1 and room[t] >= need:
            return t
    return -1


@njit
def reschedule(w: World) -> None:
    """Rank all live jobs, suspend what no longer fits, start what now does."""
    live = _collect(w)
    _sort(w, live)
    w.si[at.DECISIONS] += 1
    types = w.free.shape[0]
    root = w.free.shape[1] - 1
    room = np.empty(types, dtype=np.int64)
    for t in range(types):
        room[t] = w.free[t, root]
    for i in range(w.si[at.N_FINISH]):
        job = w.fh[i]
        room[w.ji[job, at.PLACED]] += w.ji[job, at.GPUS]
    chosen = np.full(live, -1, dtype=np.int64)  # the GPU type, -1: does not run
    for i in range(live):
        job = w.th[i]
        need = w.ji[job, at.GPUS]
        if w.ji[job, at.STATUS] == at.RUNNING:
            t = w.ji[job, at.PLACED]
            if room[t] < need:
                t = -1
        else:
            t = _pool(w, room, w.ji[job, at.TYPES], need)
        if t >= 0:
            room[t] -= need
            chosen[i] = t
    for i in range(live):
        job = w.th[i]
        if chosen[i] < 0 and w.ji[job, at.STATUS] == at.RUNNING:
            stop(w, job)
            w.ji[job, at.PREEMPTIONS] += 1
            enqueue(w, job)
    for i in range(live):
        job = w.th[i]
        if chosen[i] >= 0 and w.ji[job, at.STATUS] == at.WAITING:
            t = chosen[i]
            if fits(w, w.free[t], t, w.ji[job, at.GPUS]):  # best-fit may refuse what the counts allow
                start(w, job, t, place_by(w, w.ci[at.PLACEMENT], t, job))
    w.sf[at.TIMER] = _next_timer(w)
