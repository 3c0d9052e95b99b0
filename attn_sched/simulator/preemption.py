"""Preemptive baselines: at every event all live jobs are ranked anew, and what no longer fits is suspended.

The set that should run is chosen greedily with skipping by GPU counts per type (golden.md, case E). Its running jobs
keep their GPUs; its new ones are placed in rank order, and running jobs outside the set are suspended, last ranked
first, as far as that makes room for them: a placement rule that does not split gangs may refuse what the counts
allow, and then nothing is suspended in vain. Whatever still fits in the end starts too. ``th`` holds the live jobs in
the order of the last event, which breaks ties (the sort is stable).
"""

from __future__ import annotations

import numpy as np

from attn_sched.jit import njit
from attn_sched.simulator import layout as at
from attn_sched.simulator.allocation import add_released, start, stop
from attn_sched.simulator.fitting import job_fits
from attn_sched.simulator.placement import choose_type, fits, remaining_estimate
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
    if w.ji[job, at.STATUS] == at.RUNNING and now < w.jf[job, at.DEADLINE]:
        return -np.inf
    left = max(0.0, remaining_estimate(w, job))
    return -(now - w.jf[job, at.SUBMIT] + left) / fair_duration(w, job, estimate(w, job))


@njit
def _next_timer(w: World) -> float:
    """When a running job's rank changes by itself: it drops to a lower queue (Tiresias) or its lease ends (Themis)."""
    rule = w.ci[at.PREEMPT]
    timer = np.inf
    if (rule != at.TIRESIAS and rule != at.THEMIS) or w.si[at.N_WAITING] == 0:
        return timer  # with nobody waiting a new rank changes nothing
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
            if w.jf[job, at.DEADLINE] <= now:  # it bid again and keeps its GPUs
                w.jf[job, at.DEADLINE] = now + w.cf[at.LEASE]
            t = w.jf[job, at.DEADLINE]
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
def _choose(w: World, live: int) -> at.I8:
    """GPU type of each live job that should run, -1 for the others; a running job stays on its type if it can."""
    types = w.free.shape[0]
    root = w.free.shape[1] - 1
    room = np.empty(types, dtype=np.int64)
    for t in range(types):
        room[t] = w.free[t, root]
    for i in range(w.si[at.N_FINISH]):
        job = w.fh[i]
        room[w.ji[job, at.PLACED]] += w.ji[job, at.GPUS]
    chosen = np.full(live, -1, dtype=np.int64)
    for i in range(live):
        job = w.th[i]
        need = w.ji[job, at.GPUS]
        t = w.ji[job, at.PLACED] if w.ji[job, at.STATUS] == at.RUNNING else np.int64(-1)
        if t < 0 or room[t] < need:
            t = np.int64(_pool(w, room, w.ji[job, at.TYPES], need))
        if t >= 0:
            room[t] -= need
            chosen[i] = t
    return chosen


@njit
def _stays(w: World, job: int, chosen: int) -> bool:
    return w.ji[job, at.STATUS] == at.RUNNING and chosen == w.ji[job, at.PLACED]


@njit
def _suspend(w: World, job: int) -> None:
    stop(w, job)
    w.ji[job, at.PREEMPTIONS] += 1
    enqueue(w, job)


@njit
def _would_fit(w: World, live: int, chosen: at.I8, gpu_type: int, need: int) -> bool:
    """Whether a gang would fit on ``gpu_type`` if every running job outside the set were suspended."""
    free = w.free[gpu_type].copy()
    for i in range(live):
        job = w.th[i]
        if w.ji[job, at.STATUS] == at.RUNNING and w.ji[job, at.PLACED] == gpu_type and chosen[i] != gpu_type:
            add_released(w, free, job)
    return fits(w, free, gpu_type, need)


@njit
def _make_room(w: World, live: int, chosen: at.I8, gpu_type: int, need: int) -> bool:
    """Suspend running jobs outside the set, last ranked first, until a gang fits; nothing is done if it cannot."""
    if fits(w, w.free[gpu_type], gpu_type, need):
        return True
    if not _would_fit(w, live, chosen, gpu_type, need):
        return False
    for i in range(live - 1, -1, -1):
        job = w.th[i]
        if w.ji[job, at.STATUS] == at.RUNNING and w.ji[job, at.PLACED] == gpu_type and chosen[i] != gpu_type:
            _suspend(w, job)
            if fits(w, w.free[gpu_type], gpu_type, need):
                return True
    return False


@njit
def _start(w: World, job: int, gpu_type: int) -> None:
    start(w, job, gpu_type, place_by(w, w.ci[at.PLACEMENT], gpu_type, job))
    if w.ci[at.PREEMPT] == at.THEMIS:
        w.jf[job, at.DEADLINE] = w.sf[at.NOW] + w.cf[at.LEASE]


@njit
def reschedule(w: World) -> None:
    """Rank all live jobs, suspend what must make room for a better ranked one, start what now fits."""
    live = _collect(w)
    _sort(w, live)
    w.si[at.DECISIONS] += 1
    chosen = _choose(w, live)
    for i in range(live):
        job = w.th[i]
        t = chosen[i]
        if t < 0 or _stays(w, job, t):
            continue
        if _make_room(w, live, chosen, t, w.ji[job, at.GPUS]):
            if w.ji[job, at.STATUS] == at.RUNNING:  # it goes on on another type
                _suspend(w, job)
            _start(w, job, t)
    for i in range(live):
        job = w.th[i]
        if w.ji[job, at.STATUS] == at.WAITING and job_fits(w, job):
            _start(w, job, choose_type(w, w.ji[job, at.TYPES], w.ji[job, at.GPUS]))
    w.sf[at.TIMER] = _next_timer(w)
