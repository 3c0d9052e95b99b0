"""The event loop: rules run wholly inside ``run``; learned and called policies stop it at each of their decisions.

``run`` returns a phase: ``DONE_PHASE`` when nothing is left to happen (or every counted job has ended), ``NEED_SPACE``
when the segment record must grow, ``JOB_PHASE`` / ``UNIT_PHASE`` when an agent must answer, ``KEYS_PHASE`` /
``PLACE_PHASE`` when a Python ordering or placement must.
"""

from __future__ import annotations

import numpy as np

from attn_sched.jit import njit
from attn_sched.simulator import layout as at
from attn_sched.simulator.allocation import start
from attn_sched.simulator.events import advance, next_time, settle
from attn_sched.simulator.fitting import best_path, best_slowdown, job_fits, placed_slowdown, scattered_slowdown
from attn_sched.simulator.layout import I8
from attn_sched.simulator.placement import choose_type, fits
from attn_sched.simulator.placing import merge_picks, place
from attn_sched.simulator.preemption import reschedule
from attn_sched.simulator.selection import guard_limit, next_start
from attn_sched.simulator.splitting import split
from attn_sched.simulator.state import World, world_at
from attn_sched.simulator.window import window_jobs


@njit
def run(w: World, max_events: int) -> int:
    """Run until an answer is needed, space runs out or nothing is left: a phase.

    Returns -1 when ``max_events`` events have passed before that.
    """
    si = w.si
    last = si[at.EVENTS] + max_events
    preempt = w.ci[at.PREEMPT] != at.NO_PREEMPTION
    agent = w.ci[at.ORDER] == at.AGENT
    while True:
        if si[at.PHASE] == at.UNIT_PHASE:
            return at.UNIT_PHASE
        if not preempt and not w.ci[at.SINGLE_EVENTS]:
            settle(w)
        if si[at.COUNTED_LEFT] <= 0:
            si[at.PHASE] = at.DONE_PHASE
            return at.DONE_PHASE
        if w.ci[at.RECORD] and si[at.N_SEGMENTS] + _most_segments(w) > w.sgi.shape[0]:
            return at.NEED_SPACE
        if si[at.EVENTS] >= last:
            return -1
        if preempt:
            if si[at.EVENTS] > si[at.ASKED]:
                si[at.ASKED] = si[at.EVENTS]
                reschedule(w)
                continue  # the record may need space before the next event
        elif agent:
            phase = _ask_agent(w)
            if phase != at.DONE_PHASE:
                return phase
            if si[at.PICK_JOB] >= 0:
                continue
        elif si[at.N_WAITING] > 0:
            if w.ci[at.ORDER] == at.CALLED and si[at.ASKED] == 0:
                return at.KEYS_PHASE
            si[at.ASKED] = 0
            job = next_start(w)
            if job >= 0:
                if _begin(w, job):
                    continue
                return si[at.PHASE]
        if not advance(w):
            si[at.PHASE] = at.DONE_PHASE
            return at.DONE_PHASE
        si[at.HELD_NOW] = 0


@njit
def _most_segments(w: World) -> int:
    """Segments that may be recorded before space is looked at again."""
    if w.ci[at.PREEMPT]:
        return w.ti.shape[0] * 2 + w.fh.shape[0]
    return w.pk.shape[0]


@njit
def _begin(w: World, job: int) -> bool:
    """Start ``job`` on the picks, or let the GPU agent (or a Python placement) pick first: then False."""
    rule = w.ci[at.PLACEMENT]
    if rule == at.PLACE_AGENT or rule == at.PLACE_CALLED:
        _weigh_pick(w, job)
        w.si[at.PICK_JOB] = job
        w.si[at.PICK_LEFT] = w.ji[job, at.GPUS]
        w.si[at.PICK_TYPE] = -1
        w.si[at.N_PICKS] = 0
        w.si[at.PHASE] = at.UNIT_PHASE if rule == at.PLACE_AGENT else at.PLACE_PHASE
        return False
    start(w, job, w.si[at.PICK_TYPE], w.si[at.N_PICKS])
    return True


@njit
def _weigh_pick(w: World, job: int) -> None:
    """Keep what the best and the most scattered placement of ``job`` look like before its picks take GPUs."""
    w.si[at.PICK_LEVEL] = best_path(w, w.ji[job, at.FIT])
    w.sf[at.PICK_SLOWDOWN] = best_slowdown(w, job)
    w.sf[at.PICK_WORST] = scattered_slowdown(w, job)


@njit
def _charge(w: World, job: int) -> None:
    """Add the penalty of the placement ``job`` has just started on: agents.md, "communication".

    It is 0 on the best of the placements that were feasible and the job's GPU time (n d) on the most scattered one.
    """
    best = w.sf[at.PICK_SLOWDOWN]
    worst = w.sf[at.PICK_WORST]
    if worst > best:
        share = (1.0 / w.jf[job, at.RATE] - best) / (worst - best)
        w.sf[at.COMM_PENALTY] += min(1.0, max(0.0, share)) * w.ji[job, at.GPUS] * w.jf[job, at.DURATION]


@njit
def _ask_agent(w: World) -> int:
    """JOB_PHASE if the job agent must answer, UNIT_PHASE if the GPU agent must.

    DONE_PHASE if time runs on or a job has started.
    """
    si = w.si
    si[at.PICK_JOB] = -1
    if si[at.N_WAITING] == 0 or si[at.HELD_NOW]:
        return at.DONE_PHASE
    must, limit = guard_limit(w)
    w.sf[at.SHADOW] = limit
    if must >= 0:
        _weigh_pick(w, must)
        size, gpu_type = place(w, must)
        si[at.N_PICKS] = size
        si[at.PICK_TYPE] = gpu_type
        if not _begin(w, must):
            return si[at.PHASE]
        _charge(w, must)
        si[at.PICK_JOB] = must
        return at.DONE_PHASE
    if not _window_fits(w):
        return at.DONE_PHASE
    si[at.PHASE] = at.JOB_PHASE
    return at.JOB_PHASE


@njit
def job_legal(w: World, job: int) -> bool:
    """Whether the job agent may start ``job`` now: it fits, and ends before the guarded job's reservation."""
    if not job_fits(w, job):
        return False
    if w.sf[at.SHADOW] == np.inf:
        return True
    draw = w.rng[0]
    size, _ = place(w, job)
    w.rng[0] = draw  # looking changes nothing, and a random placement that was weighed is the one that is made
    return size > 0 and w.sf[at.NOW] + w.jf[job, at.ESTIMATE] * placed_slowdown(w, job, size) < w.sf[at.SHADOW]


@njit
def hold_legal(w: World) -> bool:
    """HOLD is legal while something runs, will arrive or is timed, so that time always moves."""
    return next_time(w) < np.inf


@njit
def _window_fits(w: World) -> bool:
    """Fill the window; whether any job of it may start now."""
    for i in range(window_jobs(w, w.wj)):
        if job_legal(w, w.wj[i]):
            return True
    return False


@njit
def unit_free(w: World, unit: int) -> int:
    """GPUs the job being placed could take in ``unit`` now, its gang completable on one GPU type (0: illegal)."""
    job = w.si[at.PICK_JOB]
    chosen = w.si[at.PICK_TYPE]
    if chosen >= 0:
        return w.free[chosen, unit]
    best = 0
    types = w.ji[job, at.TYPES]
    for t in range(w.free.shape[0]):
        if (types >> t) & 1 and fits(w, w.free[t], t, w.ji[job, at.GPUS]):
            best = max(best, w.free[t, unit])
    return best


@njit
def unit_type(w: World, unit: int) -> int:
    """The type of a gang whose first pick is ``unit``: the one with most free GPUs in it, lowest index."""
    best = -1
    types = w.ji[w.si[at.PICK_JOB], at.TYPES]
    for t in range(w.free.shape[0]):
        if (types >> t) & 1 and w.free[t, unit] > 0 and fits(w, w.free[t], t, w.ji[w.si[at.PICK_JOB], at.GPUS]):
            if best < 0 or w.free[t, unit] > w.free[best, unit]:
                best = t
    return best


@njit
def apply_job(w: World, window: I8, action: int) -> bool:
    """The job agent's answer: an index of ``window``, or its length for HOLD.

    False if it is illegal (nothing changes).
    """
    si = w.si
    if action == window.shape[0]:
        if not hold_legal(w):
            return False
        si[at.HELD_NOW] = 1
        si[at.DECISIONS] += 1
        si[at.PHASE] = at.DONE_PHASE
        return True
    if action < 0 or action > window.shape[0] or window[action] < 0 or not job_legal(w, window[action]):
        return False
    job = window[action]
    si[at.DECISIONS] += 1
    si[at.PHASE] = at.DONE_PHASE
    if w.ci[at.PLACEMENT] != at.PLACE_AGENT and w.ci[at.PLACEMENT] != at.PLACE_CALLED:
        _weigh_pick(w, job)
        size, gpu_type = place(w, job)
        si[at.N_PICKS] = size
        si[at.PICK_TYPE] = gpu_type
    if _begin(w, job):
        _charge(w, job)
    return True


@njit
def apply_unit(w: World, unit: int) -> bool:
    """The GPU agent's pick: take what the gang needs of vertex ``unit``; starts the job when its gang is complete."""
    si = w.si
    if unit < 0 or unit >= w.ti.shape[0] or unit_free(w, unit) == 0:
        return False
    if si[at.PICK_TYPE] < 0:
        si[at.PICK_TYPE] = unit_type(w, unit)
    gpu_type = si[at.PICK_TYPE]
    restore_picks(w)
    take = min(w.free[gpu_type, unit], si[at.PICK_LEFT])
    if w.ci[at.UNIT_LEVEL] == 0:
        take = 1
    first = si[at.N_PICKS]
    size = split(w, w.free[gpu_type], unit, take, first)
    reserve(w, gpu_type, first, size, 1)
    si[at.N_PICKS] = merge_picks(w, size)
    for i in range(si[at.N_PICKS]):
        w.gp[i, 0] = w.pk[i, 0]
        w.gp[i, 1] = w.pk[i, 1]
    si[at.PICK_LEFT] -= take
    si[at.DECISIONS] += 1
    if si[at.PICK_LEFT] == 0:
        reserve(w, gpu_type, 0, si[at.N_PICKS], -1)
        si[at.PHASE] = at.DONE_PHASE
        start(w, si[at.PICK_JOB], gpu_type, si[at.N_PICKS])
        _charge(w, si[at.PICK_JOB])
    return True


@njit
def restore_picks(w: World) -> None:
    """Write the picks of the gang being placed back to ``pk``, which every placement weighed in between overwrites."""
    for i in range(w.si[at.N_PICKS]):
        w.pk[i, 0] = w.gp[i, 0]
        w.pk[i, 1] = w.gp[i, 1]


@njit
def single_free(w: World, units: I8, unit: int) -> bool:
    """Whether unit number ``unit`` may be free where units are single GPUs.

    The busy ones of an island stand before its free ones.
    """
    if w.ci[at.UNIT_LEVEL] > 0:
        return True
    v = units[unit]
    free = 0
    have = 0
    for t in range(w.cap.shape[0]):
        free += w.free[t, v]
        have += w.cap[t, v]
    busy = have - free
    return unit - busy >= 0 and units[unit - busy] == v


@njit
def reserve(w: World, gpu_type: int, first: int, last: int, sign: int) -> None:
    """Take the picks ``pk[first:last]`` out of the free counts (sign 1), or put them back (-1)."""
    for i in range(first, last):
        v = w.pk[i, 0]
        while v >= 0:
            w.free[gpu_type, v] -= sign * w.pk[i, 1]
            v = w.ti[v, at.PARENT]


@njit
def ask_all(address: int, phases: I8, windows: I8, max_events: int) -> None:
    """Run every cluster of a batch to its next decision.

    Fills phases[B], and the window of waiting jobs windows[B, K] of each.
    """
    for b in range(phases.shape[0]):
        w = world_at(address, b)
        phases[b] = run(w, max_events)
        if phases[b] == at.UNIT_PHASE and w.si[at.N_PICKS] == 0:
            window_jobs(w, w.wj)  # from here on picks take GPUs, and what fits is no longer what is free
        if phases[b] == at.JOB_PHASE or phases[b] == at.UNIT_PHASE:
            windows[b] = w.wj


@njit
def apply_all(address: int, phases: I8, windows: I8, actions: I8, units: I8) -> int:
    """Apply one answer a cluster; ``units`` maps unit numbers to vertices.

    Returns the first cluster whose answer was illegal, or -1.
    """
    for b in range(phases.shape[0]):
        if phases[b] != at.JOB_PHASE and phases[b] != at.UNIT_PHASE:
            continue
        w = world_at(address, b)
        if w.si[at.PHASE] != phases[b]:  # answered already: ask first
            return b
        if phases[b] == at.JOB_PHASE:
            if not apply_job(w, windows[b], actions[b]):
                return b
        elif (
            actions[b] < 0
            or actions[b] >= units.shape[0]
            or not single_free(w, units, actions[b])
            or not apply_unit(w, units[actions[b]])
        ):
            return b
    return -1


@njit
def choose_called_type(w: World) -> int:
    """The GPU type a Python placement places the picked job on; kept in PICK_TYPE."""
    job = w.si[at.PICK_JOB]
    w.si[at.PICK_TYPE] = choose_type(w, w.ji[job, at.TYPES], w.ji[job, at.GPUS])
    return w.si[at.PICK_TYPE]


@njit
def apply_counts(w: World, counts: I8) -> None:
    """Start the picked job on ``counts[nodes]`` GPUs of each node, below the node by best-fit.

    The caller has checked them.
    """
    level = w.ci[at.NODE_LEVEL]
    gpu_type = w.si[at.PICK_TYPE]
    size = 0
    for i in range(counts.shape[0]):
        if counts[i] > 0:
            size = split(w, w.free[gpu_type], w.loff[level] + i, counts[i], size)
    w.si[at.PHASE] = at.DONE_PHASE
    start(w, w.si[at.PICK_JOB], gpu_type, size)
