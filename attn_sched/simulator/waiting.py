"""The waiting jobs: one list in arrival order, and for keyed rules two heaps per class of alike jobs.

A class holds the jobs of one GPU count and GPU-type wish (under a hold rule also of one communication profile), so that
a decision looks at the head of each class and not at every job. Jobs whose patience is over lie in a second heap,
because a hold no longer applies to them.
"""

from __future__ import annotations

from attn_sched.jit import njit
from attn_sched.simulator import layout as at
from attn_sched.simulator.heaps import heap_push, heap_remove
from attn_sched.simulator.state import World


@njit
def list_insert(w: World, job: int) -> None:
    """Put ``job`` into the arrival-ordered list; the newest arrival goes to the tail at once."""
    ji = w.ji
    si = w.si
    after = si[at.Q_TAIL]
    if after > job:  # a restarted job goes back to its place by submission
        after = -1
        nxt = si[at.Q_HEAD]
        while nxt >= 0 and nxt < job:
            after = nxt
            nxt = ji[nxt, at.NEXT]
    before = si[at.Q_HEAD] if after < 0 else ji[after, at.NEXT]
    ji[job, at.PREV] = after
    ji[job, at.NEXT] = before
    if after < 0:
        si[at.Q_HEAD] = job
    else:
        ji[after, at.NEXT] = job
    if before < 0:
        si[at.Q_TAIL] = job
    else:
        ji[before, at.PREV] = job


@njit
def list_remove(w: World, job: int) -> None:
    """Take ``job`` out of the arrival-ordered list."""
    ji = w.ji
    before = ji[job, at.PREV]
    after = ji[job, at.NEXT]
    if before < 0:
        w.si[at.Q_HEAD] = after
    else:
        ji[before, at.NEXT] = after
    if after < 0:
        w.si[at.Q_TAIL] = before
    else:
        ji[after, at.PREV] = before


@njit
def class_push(w: World, job: int, ripe: bool) -> None:
    """Add ``job`` to the heap of its class: the first one, or the one of jobs past their patience."""
    c = w.ji[job, at.CLASS]
    if ripe:
        base = w.ji.shape[0] + w.cl[c, at.C_BASE]
        heap_push(w.hp, w.jf, w.ji, at.KEY, at.POS, base, w.cl[c, at.C_RIPE], job)
        w.cl[c, at.C_RIPE] += 1
    else:
        heap_push(w.hp, w.jf, w.ji, at.KEY, at.POS, w.cl[c, at.C_BASE], w.cl[c, at.C_FRESH], job)
        w.cl[c, at.C_FRESH] += 1


@njit
def class_remove(w: World, job: int) -> None:
    """Take ``job`` out of whichever heap of its class holds it."""
    c = w.ji[job, at.CLASS]
    jobs = w.ji.shape[0]
    base = w.cl[c, at.C_BASE]
    if w.ji[job, at.POS] >= jobs:
        heap_remove(w.hp, w.jf, w.ji, at.KEY, at.POS, base + jobs, w.cl[c, at.C_RIPE], job)
        w.cl[c, at.C_RIPE] -= 1
    else:
        heap_remove(w.hp, w.jf, w.ji, at.KEY, at.POS, base, w.cl[c, at.C_FRESH], job)
        w.cl[c, at.C_FRESH] -= 1


@njit
def enqueue(w: World, job: int) -> None:
    """``job`` starts to wait: it arrived, was suspended or lost its node."""
    now = w.sf[at.NOW]
    w.ji[job, at.STATUS] = at.WAITING
    w.jf[job, at.QUEUED_AT] = now
    list_insert(w, job)
    w.si[at.N_WAITING] += 1
    w.ui[w.ji[job, at.USER], at.U_WAITING] += 1
    w.sf[at.WAIT_SUM] += now - w.jf[job, at.SUBMIT]
    ripe = True
    if w.ci[at.HOLD]:
        ripe = now >= w.jf[job, at.DEADLINE]
        if not ripe:
            heap_push(w.th, w.jf, w.ji, at.DEADLINE, at.TPOS, at.FIRST, w.si[at.N_TIMERS], job)
            w.si[at.N_TIMERS] += 1
    else:
        ripe = False
    if w.ci[at.CLASSED]:
        class_push(w, job, ripe)


@njit
def dequeue(w: World, job: int) -> None:
    """``job`` stops waiting: it starts or is cancelled."""
    now = w.sf[at.NOW]
    w.jf[job, at.WAITED] += now - w.jf[job, at.QUEUED_AT]
    list_remove(w, job)
    w.si[at.N_WAITING] -= 1
    w.ui[w.ji[job, at.USER], at.U_WAITING] -= 1
    w.sf[at.WAIT_SUM] -= now - w.jf[job, at.SUBMIT]
    if w.ci[at.HOLD] and w.ji[job, at.TPOS] >= 0:
        heap_remove(w.th, w.jf, w.ji, at.DEADLINE, at.TPOS, at.FIRST, w.si[at.N_TIMERS], job)
        w.si[at.N_TIMERS] -= 1
    if w.ci[at.CLASSED]:
        class_remove(w, job)
