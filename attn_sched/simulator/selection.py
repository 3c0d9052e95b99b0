"""Which job starts next: ordering, queueing, hold and starvation guard of the non-preemptive rules.

``next_start`` leaves the placement in ``pk`` and returns the job, or -1 when nothing starts at this event.
"""

from __future__ import annotations

import numpy as np

from attn_sched.jit import njit
from attn_sched.simulator import layout as at
from attn_sched.simulator.allocation import add_released, sync_user
from attn_sched.simulator.fitting import best_slowdown, class_fits, job_fits, placed_slowdown
from attn_sched.simulator.placement import estimated_left, fits
from attn_sched.simulator.placing import place
from attn_sched.simulator.state import World

YEAR = 365.0 * 86_400.0


@njit
def estimate(w: World, job: int) -> float:
    """Estimated duration as rules use it: at least 1 s."""
    return max(w.jf[job, at.ESTIMATE], at.MIN_ESTIMATE)


@njit
def mean_active_users(w: World, job: int) -> float:
    """Time-average number of active users since ``job`` was submitted; the present number if no time has passed."""
    elapsed = w.sf[at.NOW] - w.jf[job, at.SUBMIT]
    if elapsed <= 0.0:
        return float(w.si[at.ACTIVE])
    return (w.sf[at.ACTIVE_INTEGRAL] - w.jf[job, at.ACTIVE_0]) / elapsed


@njit
def gpu_counts(w: World) -> tuple[int, int]:
    """GPUs of the cluster, and how many of them are free; all types together."""
    root = w.cap.shape[1] - 1
    gpus = 0
    free = 0
    for t in range(w.cap.shape[0]):
        gpus += w.cap[t, root]
        free += w.free[t, root]
    return gpus, free


@njit
def fair_duration(w: World, job: int, duration: float) -> float:
    """Seconds ``job`` would take on a 1/A share of the cluster.

    Duration * max(1, n A / N) (Themis, NSDI 2020, section 3).
    """
    gpus, _ = gpu_counts(w)
    return duration * max(1.0, w.ji[job, at.GPUS] * mean_active_users(w, job) / gpus)


@njit
def dynamic_key(w: World, job: int) -> float:
    """Key of an ordering whose keys change with time or state; smallest first."""
    order = w.ci[at.ORDER]
    if order == at.CALLED:
        return w.jf[job, at.KEY]
    wait = w.sf[at.NOW] - w.jf[job, at.SUBMIT]
    d = estimate(w, job)
    n = w.ji[job, at.GPUS]
    if order == at.HRRN:
        return -(wait + d) / d
    if order == at.WFP3:
        return -((wait / d) ** 3) * n
    if order == at.UNICEP:
        return -wait / (np.log2(max(n, 2)) * d)
    if order == at.USER_FAIR:
        user = w.ji[job, at.USER]
        sync_user(w, user)
        return w.uf[user, at.U_GPU_TIME]
    return -(wait + d) / fair_duration(w, job, d)  # FTF


@njit
def held(w: World, job: int) -> bool:
    """Whether the hold rule keeps ``job`` waiting: its best slowdown now exceeds theta and its patience is not over."""
    if not w.ci[at.HOLD] or w.sf[at.NOW] >= w.jf[job, at.DEADLINE]:
        return False
    return best_slowdown(w, job) > w.cf[at.THETA]


@njit
def ends_before(w: World, job: int, limit: float) -> bool:
    """Place ``job`` (picks in ``pk``) and tell whether it would end before ``limit`` by its estimate."""
    if w.sf[at.NOW] + w.jf[job, at.ESTIMATE] >= limit:
        return False  # too long even unslowed: no need to place it
    size, gpu_type = place(w, job)
    w.si[at.N_PICKS] = size
    w.si[at.PICK_TYPE] = gpu_type
    if size == 0:
        return False
    if limit == np.inf:
        return True
    return w.sf[at.NOW] + w.jf[job, at.ESTIMATE] * placed_slowdown(w, job, size) < limit


@njit
def expected_end(w: World, job: int) -> float:
    """When a running job should end by its estimate at its present speed; now, if it runs past its estimate."""
    left = estimated_left(w, job, w.jf[job, at.LEFT])
    return max(w.sf[at.NOW], w.jf[job, at.SYNCED] + left / w.jf[job, at.RATE])


@njit
def _until_free(w: World, gpu_type: int, need: int) -> float:
    """Seconds until ``need`` GPUs of a type should be free by the estimates of running jobs; inf if they never are."""
    free = w.free[gpu_type, w.free.shape[1] - 1]
    for i in range(w.si[at.N_FINISH]):
        w.sjf[i, 0] = expected_end(w, w.fh[i]) if w.ji[w.fh[i], at.PLACED] == gpu_type else np.inf
    end = w.sf[at.NOW]
    while free < need:  # the next to end; there are few, and few are needed
        soonest = 0
        for i in range(1, w.si[at.N_FINISH]):
            if w.sjf[i, 0] < w.sjf[soonest, 0]:
                soonest = i
        if w.si[at.N_FINISH] == 0 or w.sjf[soonest, 0] == np.inf:
            return np.inf
        end = w.sjf[soonest, 0]
        free += w.ji[w.fh[soonest], at.GPUS]
        w.sjf[soonest, 0] = np.inf
    return end - w.sf[at.NOW]


@njit
def until_fits(w: World, job: int) -> float:
    """Seconds until enough GPUs of a type ``job`` may run on should be free, wherever they are; a year if never."""
    soonest = YEAR
    for t in range(w.free.shape[0]):
        if (w.ji[job, at.TYPES] >> t) & 1:
            soonest = min(soonest, _until_free(w, t, w.ji[job, at.GPUS]))
    return soonest


@njit
def shadow_time(w: World, job: int) -> float:
    """Earliest time at which ``job`` should fit, as running jobs end one after another; inf if it never does."""
    running = w.si[at.N_FINISH]
    for i in range(running):
        w.sj[i] = w.fh[i]
        w.sjf[i, 0] = expected_end(w, w.fh[i])
    order = np.argsort(w.sjf[:running, 0], kind="mergesort")
    need = w.ji[job, at.GPUS]
    types = w.ji[job, at.TYPES]
    free = w.free.copy()
    if _any_fits(w, free, types, need):
        return w.sf[at.NOW]
    for k in order:
        other = w.sj[k]
        t = w.ji[other, at.PLACED]
        add_released(w, free[t], other)
        if _any_fits(w, free, types, need):
            return w.sjf[k, 0]
    return np.inf


@njit
def _any_fits(w: World, free: at.I8, types: int, need: int) -> bool:
    """``fitting.types_fit`` for free counts to come; that one takes no table, which costs it a fifth of its speed."""
    for t in range(free.shape[0]):
        if (types >> t) & 1 and fits(w, free[t], t, need):
            return True
    return False


@njit
def _heap_best(w: World, only_fitting: bool) -> int:
    """Best job over all class heaps; with ``only_fitting`` among those that fit and are not held."""
    best = -1
    best_key = np.inf
    jobs = w.ji.shape[0]
    hold = w.ci[at.HOLD]
    for c in range(w.cl.shape[0]):
        fresh = w.cl[c, at.C_FRESH]
        ripe = w.cl[c, at.C_RIPE]
        if fresh + ripe == 0:
            continue
        if only_fitting and not class_fits(w, w.cl[c, at.C_FIT]):
            continue
        base = w.cl[c, at.C_BASE]
        if fresh > 0:
            job = w.hp[base]
            key = w.jf[job, at.KEY]
            if best < 0 or key < best_key or (key == best_key and job < best):
                if not (only_fitting and hold and held(w, job)):
                    best = job
                    best_key = key
        if ripe > 0:
            job = w.hp[base + jobs]
            key = w.jf[job, at.KEY]
            if best < 0 or key < best_key or (key == best_key and job < best):
                best = job
                best_key = key
    return best


@njit
def _scan_best(w: World, only_fitting: bool, limit: float) -> int:
    """As ``_heap_best`` by looking at every waiting job: keys that change, or a time ``limit`` to end before."""
    best = -1
    best_key = np.inf
    static = w.ci[at.ORDER] == at.STATIC or w.ci[at.ORDER] == at.QSSF
    draw = w.rng[0]
    job = w.si[at.Q_HEAD]
    while job >= 0:
        key = w.jf[job, at.KEY] if static else dynamic_key(w, job)
        if best < 0 or key < best_key:
            if not only_fitting or (
                job_fits(w, job) and not held(w, job) and (limit == np.inf or ends_before(w, job, limit))
            ):
                best = job
                best_key = key
            w.rng[0] = draw  # a random placement that was weighed must be the one that is made
        job = w.ji[job, at.NEXT]
    return best


@njit
def best_job(w: World, only_fitting: bool, limit: float) -> int:
    """The waiting job with the smallest key (ties: earliest).

    ``only_fitting``: that fits, is not held, ends before ``limit``.
    """
    if w.ci[at.IN_ORDER] and not only_fitting:
        return w.si[at.Q_HEAD]
    if w.ci[at.CLASSED] and limit == np.inf:
        return _heap_best(w, only_fitting)
    return _scan_best(w, only_fitting, limit)


@njit
def _backfill(w: World, limit: float) -> int:
    """First waiting job in arrival order that fits, is not held and ends before ``limit``.

    What was looked at in vain need not be looked at again before something starts or ends: time only brings the limit
    nearer. So an arrival costs one look, not one at every waiting job.
    """
    si = w.si
    rule = w.ci[at.PLACEMENT]
    steady = not w.ci[at.HOLD] and not w.ci[at.GUARD]
    if rule == at.LEAST_WORKLOAD or rule == at.RANDOM or rule == at.LEAST_CONTENTION:
        steady = steady and not w.ci[at.COMM]  # these place otherwise as time goes by, and a placement sets the speed
    job = si[at.Q_HEAD]
    if steady and si[at.SCANNED] == si[at.VERSION] + 1:
        job = w.ji[si[at.SCANNED_TAIL], at.NEXT]
    while job >= 0:
        if w.sf[at.NOW] + w.jf[job, at.ESTIMATE] < limit and job_fits(w, job) and not held(w, job):
            if ends_before(w, job, limit):
                return job
        job = w.ji[job, at.NEXT]
    si[at.SCANNED] = si[at.VERSION] + 1
    si[at.SCANNED_TAIL] = si[at.Q_TAIL]
    return -1


@njit
def guard_limit(w: World) -> tuple[int, float]:
    """The starvation guard at this event: (job that must start now or -1, time before which other starts must end)."""
    if not w.ci[at.GUARD] or w.si[at.N_WAITING] == 0:
        return -1, np.inf
    oldest = w.si[at.Q_HEAD]
    if w.sf[at.NOW] < w.jf[oldest, at.SUBMIT] + w.cf[at.MAX_WAIT]:
        return -1, np.inf
    if job_fits(w, oldest):
        return oldest, np.inf
    # One reservation an event: a start may slow others down, and must not push back the time it had to respect.
    if w.si[at.GUARD_EPOCH] != w.si[at.EVENTS] + 1 or w.si[at.GUARD_JOB] != oldest:
        w.si[at.GUARD_EPOCH] = w.si[at.EVENTS] + 1
        w.si[at.GUARD_JOB] = oldest
        w.sf[at.GUARD_SHADOW] = shadow_time(w, oldest)
    return -1, w.sf[at.GUARD_SHADOW]


@njit
def next_start(w: World) -> int:
    """The job to start now, its placement in ``pk`` (N_PICKS, PICK_TYPE); -1 when the rule lets time run on."""
    if w.si[at.N_WAITING] == 0:
        return -1
    must, limit = guard_limit(w)
    queueing = w.ci[at.QUEUEING]
    if must >= 0:
        if w.si[at.PICKED] == must:
            w.si[at.PICKED] = -1
        ends_before(w, must, np.inf)
        w.si[at.DECISIONS] += 1
        return must
    if queueing == at.SKIP:
        job = best_job(w, True, limit)
        w.si[at.DECISIONS] += 1
        if job >= 0:
            ends_before(w, job, np.inf)
        return job
    if queueing == at.STRICT:
        job = best_job(w, False, np.inf)
        w.si[at.DECISIONS] += 1
        if not job_fits(w, job) or held(w, job) or not ends_before(w, job, limit):
            return -1
        return job
    # commit and easy: what was picked stays picked until it starts
    if w.si[at.PICKED] < 0:
        job = best_job(w, False, np.inf)
        w.si[at.DECISIONS] += 1
        w.si[at.PICKED] = job
        if queueing == at.EASY:
            if held(w, job) and job_fits(w, job):
                w.sf[at.SHADOW] = w.jf[job, at.DEADLINE]  # when its patience ends it starts, if nothing better comes
            else:
                w.sf[at.SHADOW] = shadow_time(w, job)
    job = w.si[at.PICKED]
    if job_fits(w, job) and not held(w, job) and ends_before(w, job, limit):
        w.si[at.PICKED] = -1
        return job
    if queueing == at.EASY:
        filler = _backfill(w, min(limit, w.sf[at.SHADOW]))
        if filler >= 0:
            w.si[at.DECISIONS] += 1
        return filler
    return -1
