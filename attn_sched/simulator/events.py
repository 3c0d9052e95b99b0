"""Time: the next event, the clock, and what completions, arrivals, failures, cancellations and timers do.

At equal times: completions, nodes that fail or return, arrivals (by job number), cancellations, timers; decisions come
last. With ``SINGLE_EVENTS`` (queueing ``commit`` and ``easy``) every event is handled alone, arrivals before
completions.
"""

from __future__ import annotations

import numpy as np

from attn_sched.jit import njit
from attn_sched.simulator import layout as at
from attn_sched.simulator.allocation import stop
from attn_sched.simulator.fitting import job_fits
from attn_sched.simulator.heaps import heap_remove
from attn_sched.simulator.splitting import islands_below
from attn_sched.simulator.state import World
from attn_sched.simulator.waiting import class_push, class_remove, dequeue, enqueue


@njit
def guard_time(w: World) -> float:
    """When the next waiting job's wait reaches the starvation guard; inf without a guard or a queue."""
    if not w.ci[at.GUARD] or w.si[at.N_WAITING] == 0:
        return np.inf
    now = w.sf[at.NOW]
    head = w.jf[w.si[at.Q_HEAD], at.SUBMIT] + w.cf[at.MAX_WAIT]
    if head > now:
        return head
    # Deadlines rise with the job number: go past the jobs whose deadline is over or that wait no more.
    job = w.si[at.GUARD_NEXT]
    while job < w.si[at.NEXT_ARRIVAL] and (
        w.ji[job, at.STATUS] != at.WAITING or w.jf[job, at.SUBMIT] + w.cf[at.MAX_WAIT] <= now
    ):
        job += 1
    w.si[at.GUARD_NEXT] = job
    return w.jf[job, at.SUBMIT] + w.cf[at.MAX_WAIT] if job < w.si[at.NEXT_ARRIVAL] else np.inf


@njit
def _cancel_time(w: World) -> float:
    """When the next job that has not ended by then is cancelled; a cancellation that comes too late is no event."""
    while w.si[at.N_CANCELS] < w.cq.shape[0]:
        job = w.cq[w.si[at.N_CANCELS]]
        if job < 0:
            break
        if w.ji[job, at.STATUS] != at.DONE:
            return w.jf[job, at.CANCEL]
        w.si[at.N_CANCELS] += 1
    return np.inf


@njit
def _arrival_time(w: World) -> float:
    if w.si[at.NEXT_ARRIVAL] < w.si[at.N_JOBS]:
        return w.jf[w.si[at.NEXT_ARRIVAL], at.SUBMIT]
    return np.inf


@njit
def _change_time(w: World) -> float:
    if w.si[at.NEXT_CHANGE] < w.changes.shape[0]:
        return w.changes[w.si[at.NEXT_CHANGE], 0]
    return np.inf


@njit
def next_time(w: World) -> float:
    """Time of the next event; inf if nothing runs, arrives, changes or is timed."""
    t = np.inf
    if w.si[at.N_FINISH] > 0:
        t = w.jf[w.fh[0], at.FINISH]
    t = min(t, _arrival_time(w))
    if w.si[at.N_TIMERS] > 0:
        t = min(t, w.jf[w.th[0], at.DEADLINE])
    t = min(t, guard_time(w))
    if w.ci[at.PREEMPT]:
        t = min(t, w.sf[at.TIMER])
    return min(t, _change_time(w), _cancel_time(w))


@njit
def _move_clock(w: World, t: float) -> None:
    now = w.sf[at.NOW]
    dt = t - now
    if dt > 0.0:
        waiting = w.si[at.N_WAITING]
        w.sf[at.ACTIVE_INTEGRAL] += w.si[at.ACTIVE] * dt
        w.sf[at.SYSTEM_INTEGRAL] += (waiting + w.si[at.N_RUNNING]) * dt
        w.sf[at.ALLOCATED] += w.si[at.RUNNING_GPUS] * dt
        if waiting > 0:
            w.sf[at.WAIT_INTEGRAL] += (w.sf[at.WAIT_SUM] + 0.5 * waiting * dt) * dt
            w.sf[at.WAIT_SUM] += waiting * dt
            if not job_fits(w, w.si[at.Q_HEAD]):
                free = 0
                root = w.free.shape[1] - 1
                for k in range(w.free.shape[0]):
                    free += w.free[k, root]
                w.sf[at.FRAGMENTED] += free * max(0.0, t - max(now, w.sf[at.COUNT_FROM]))
        w.sf[at.NOW] = t


@njit
def _left_system(w: World, job: int) -> None:
    user = w.ji[job, at.USER]
    if w.ui[user, at.U_WAITING] + w.ui[user, at.U_RUNNING] == 0:
        w.si[at.ACTIVE] -= 1
    if w.ji[job, at.COUNTED]:
        w.si[at.COUNTED_LEFT] -= 1


@njit
def _complete(w: World, job: int) -> None:
    stop(w, job)
    w.ji[job, at.STATUS] = at.DONE
    w.jf[job, at.LEFT] = 0.0
    user = w.ji[job, at.USER]
    jct = w.jf[job, at.FINISH] - w.jf[job, at.SUBMIT]
    slowdown = max(1.0, jct / max(w.jf[job, at.DURATION], at.SLOWDOWN_FLOOR))
    w.sf[at.DONE_EXCESS] += jct - w.jf[job, at.DURATION]
    w.uf[user, at.U_HELD] += w.jf[job, at.HELD]
    w.sf[at.ALL_HELD] += w.jf[job, at.HELD]
    w.si[at.ALL_FINISHED] += 1
    done = w.ui[user, at.U_FINISHED]
    total = w.uf[user, at.U_SLOWDOWNS]
    old = total / done if done > 0 else 0.0
    new = (total + slowdown) / (done + 1)
    w.uf[user, at.U_SLOWDOWNS] = total + slowdown
    w.ui[user, at.U_FINISHED] = done + 1
    w.sf[at.JAIN_SUM] += new - old
    w.sf[at.JAIN_SQUARES] += new * new - old * old
    if done == 0:
        w.si[at.JAIN_USERS] += 1
    _left_system(w, job)


@njit
def _predicted(w: World, user: int) -> float:
    """Mean running time of the user's jobs that have ended, else of all that have, else one hour."""
    if w.ui[user, at.U_FINISHED] > 0:
        return w.uf[user, at.U_HELD] / w.ui[user, at.U_FINISHED]
    if w.si[at.ALL_FINISHED] > 0:
        return w.sf[at.ALL_HELD] / w.si[at.ALL_FINISHED]
    return at.FIRST_GUESS


@njit
def _arrive(w: World, job: int) -> None:
    if w.ji[job, at.STATUS] == at.CANCELLED:
        return
    user = w.ji[job, at.USER]
    if w.ui[user, at.U_WAITING] + w.ui[user, at.U_RUNNING] == 0:
        w.si[at.ACTIVE] += 1
    w.jf[job, at.ACTIVE_0] = w.sf[at.ACTIVE_INTEGRAL]
    if w.ci[at.ORDER] == at.QSSF:
        w.jf[job, at.KEY] = w.ji[job, at.GPUS] * max(_predicted(w, user), at.MIN_ESTIMATE)
    enqueue(w, job)


@njit
def _cancel(w: World, job: int) -> None:
    status = w.ji[job, at.STATUS]
    w.si[at.SCANNED] = 0
    if status == at.FUTURE:
        w.jf[job, at.FINISH] = w.sf[at.NOW]
        w.ji[job, at.STATUS] = at.CANCELLED
        if w.ji[job, at.COUNTED]:
            w.si[at.COUNTED_LEFT] -= 1
        return
    if status == at.WAITING:
        dequeue(w, job)
        if w.si[at.PICKED] == job:
            w.si[at.PICKED] = -1
    elif status == at.RUNNING:
        stop(w, job)
    else:
        return
    w.ji[job, at.STATUS] = at.CANCELLED
    w.jf[job, at.FINISH] = w.sf[at.NOW]
    done = max(0.0, w.jf[job, at.DURATION] - w.jf[job, at.LEFT])
    w.sf[at.DONE_EXCESS] += w.sf[at.NOW] - w.jf[job, at.SUBMIT] - done
    _left_system(w, job)


@njit
def _lose_jobs(w: World, island: int) -> None:
    """Jobs on a failed island wait again, with the work since their last checkpoint lost."""
    i = 0
    while i < w.si[at.N_FINISH]:
        job = w.fh[i]
        hit = False
        e = w.ji[job, at.ENTRY]
        while e >= 0:
            if w.en[e, at.E_VERTEX] == island:
                hit = True
            e = w.en[e, at.E_NEXT]
        if not hit:
            i += 1
            continue
        stop(w, job)
        total = w.jf[job, at.DURATION]
        done = max(0.0, total - w.jf[job, at.LEFT])
        step = w.cf[at.CHECKPOINT]
        kept = 0.0
        if step > 0.0:
            # A job that fails again while it pays its restart cost has not lost the checkpoint it restarted from.
            w.ji[job, at.CHECKPOINTS] = max(w.ji[job, at.CHECKPOINTS], int(np.floor(done / step)))
            kept = w.ji[job, at.CHECKPOINTS] * step
        w.jf[job, at.LEFT] = total - kept
        w.ji[job, at.RESTARTS] += 1
        enqueue(w, job)
        w.si[at.GUARD_NEXT] = min(w.si[at.GUARD_NEXT], job)  # it waits again: its deadline may be to come
        i = 0  # the heap has changed: look again from its top


@njit
def _change(w: World, vertex: int, up: bool) -> None:
    lo, hi = islands_below(w, vertex)
    for island in range(lo, hi):
        if up:
            if w.down[island] == 0:  # it was not down
                continue
            w.down[island] -= 1
            if w.down[island] == 0:
                _offer(w, island, 1)
        else:
            w.down[island] += 1
            if w.down[island] == 1:
                _lose_jobs(w, island)
                _offer(w, island, -1)
    w.si[at.VERSION] += 1


@njit
def _offer(w: World, island: int, sign: int) -> None:
    for t in range(w.cap.shape[0]):
        v = island
        while v >= 0:
            w.free[t, v] += sign * w.cap[t, island]
            v = w.ti[v, at.PARENT]


@njit
def _ripen(w: World) -> None:
    """The patience of the first job in the timer heap is over: a hold no longer applies to it."""
    job = w.th[0]
    heap_remove(w.th, w.jf, w.ji, at.DEADLINE, at.TPOS, at.FIRST, w.si[at.N_TIMERS], job)
    w.si[at.N_TIMERS] -= 1
    if w.ci[at.CLASSED]:
        class_remove(w, job)
        class_push(w, job, True)


@njit
def _next_arrival(w: World) -> None:
    job = w.si[at.NEXT_ARRIVAL]
    w.si[at.NEXT_ARRIVAL] = job + 1
    _arrive(w, job)


@njit
def _next_change(w: World) -> None:
    x = w.si[at.NEXT_CHANGE]
    w.si[at.NEXT_CHANGE] = x + 1
    _change(w, int(w.changes[x, 1]), w.changes[x, 2] > 0.0)


@njit
def _next_cancel(w: World) -> None:
    job = w.cq[w.si[at.N_CANCELS]]
    w.si[at.N_CANCELS] += 1
    _cancel(w, job)


@njit
def settle(w: World) -> None:
    """Complete jobs of no duration where they start: their GPUs are free for the next decision."""
    while w.si[at.N_FINISH] > 0 and w.jf[w.fh[0], at.FINISH] <= w.sf[at.NOW]:
        _complete(w, w.fh[0])
        w.si[at.GUARD_EPOCH] = 0  # the reservation is worked out anew


@njit
def advance(w: World) -> bool:
    """Go to the next event time and handle what happens then; False if nothing is left to happen."""
    si = w.si
    t = next_time(w)
    if t == np.inf:
        return False
    _move_clock(w, t)
    si[at.EVENTS] += 1
    if w.ci[at.SINGLE_EVENTS]:
        _one_event(w, t)
        return True
    settle(w)
    while _change_time(w) <= t:
        _next_change(w)
    while _arrival_time(w) <= t:
        _next_arrival(w)
    while _cancel_time(w) <= t:
        _next_cancel(w)
    while si[at.N_TIMERS] > 0 and w.jf[w.th[0], at.DEADLINE] <= t:
        _ripen(w)
    return True


@njit
def _one_event(w: World, t: float) -> None:
    """Handle a single event of time ``t``: an arrival before a completion (golden.md, case F)."""
    si = w.si
    if _arrival_time(w) <= t:
        _next_arrival(w)
    elif si[at.N_FINISH] > 0 and w.jf[w.fh[0], at.FINISH] <= t:
        _complete(w, w.fh[0])
    elif _change_time(w) <= t:
        _next_change(w)
    elif _cancel_time(w) <= t:
        _next_cancel(w)
    elif si[at.N_TIMERS] > 0 and w.jf[w.th[0], at.DEADLINE] <= t:
        _ripen(w)
