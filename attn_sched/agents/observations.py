"""Observations.

The state of each cluster as padded tokens with masks, built by one compiled function for every user of them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from attn_sched.agents.rewards import DEFAULT_WEIGHTS
from attn_sched.agents.schema import GLOBAL_FEATURES, JOB_FEATURES, MAX_LEVEL, UNIT_FEATURES, UNIT_GROUPS
from attn_sched.cluster import Cluster
from attn_sched.jit import njit
from attn_sched.simulator import layout as at
from attn_sched.simulator import links
from attn_sched.simulator.engine import Ask, Engine
from attn_sched.simulator.fitting import best_path, best_slowdown
from attn_sched.simulator.layout import I8
from attn_sched.simulator.loop import hold_legal, job_legal, unit_free, unit_type
from attn_sched.simulator.selection import estimate, expected_end, gpu_counts, until_fits
from attn_sched.simulator.splitting import islands_below
from attn_sched.simulator.state import World, world_at

F4 = npt.NDArray[np.float32]
I1 = npt.NDArray[np.int8]
I4 = npt.NDArray[np.int32]

# Places of the features in their rows; the names are in ``schema``.
(_WAIT, _ESTIMATE, _RATIO, _GPUS, _BYTES, _COMM, _FITS, _LEVEL) = range(8)
(_SLOWDOWN, _SHARE, _USER_SLOWDOWN, _PENDING, _AGE, _UNTIL_FITS, _LOST, _OF_CLUSTER, _LENGTH_RANK, _AREA_RANK) = range(
    _LEVEL + MAX_LEVEL + 1, len(JOB_FEATURES)
)
(
    _FREE, _WHOLE, _NEXT, _UNTIL, _PICKED, _PICKED_RACK, _UPLINK, _RACK_UPLINK, _MARGINAL, _COMPLETES, _FILL,
    _RACK_FILL, _RACK_COMPLETES,
) = range(len(UNIT_FEATURES))  # fmt: skip
(_QUEUE, _FREE_SHARE, _ASKED, _MEAN_WAIT, _MAX_WAIT, _JAIN, _NEED, _WEIGHTS) = range(8)

_LOG_WEEK = float(np.log1p(7 * 86_400.0))
_LOG_MANY = float(np.log1p(1000.0))


@njit
def _time(seconds: float) -> float:
    return np.log1p(max(0.0, seconds)) / _LOG_WEEK


_COUNTS = (np.log1p(np.arange(4096.0)) / _LOG_MANY).astype(np.float64)


@njit
def _count(number: float) -> float:
    i = int(number)
    return _COUNTS[i] if i < _COUNTS.shape[0] and i == number else np.log1p(number) / _LOG_MANY


@njit
def _slow(slowdown: float) -> float:
    return 1.0 - 1.0 / slowdown


@njit
def static_features(w: World, out: F4) -> None:
    """What never changes of each job, out f4[J, 4]: estimate, GPUs, bytes and communication share, scaled."""
    for job in range(w.si[at.N_JOBS]):
        out[job, 0] = _time(estimate(w, job))
        out[job, 1] = np.log2(w.ji[job, at.GPUS]) / 10.0
        out[job, 2] = np.log10(max(w.jf[job, at.GRAD], 1e6) / 1e6) / 4.0
        out[job, 3] = 1.0 - w.jf[job, at.COMPUTE] / w.jf[job, at.BEST_ITER]


@njit
def _observe_slowdown(w: World, job: int, slowdown: float, out: F4) -> None:
    """What the best placement of a job does to it."""
    out[_SLOWDOWN] = _slow(slowdown)
    out[_LOST] = _time(estimate(w, job) * (slowdown - 1.0))


@njit
def observe_job(w: World, job: int, fits: bool, gpus: int, static: F4, out: F4) -> None:
    """Features of one waiting (or just selected) job in a cluster of ``gpus``: out f4[len(JOB_FEATURES)].

    What it is among the others of the window and how long it has to wait are 0.
    """
    now = w.sf[at.NOW]
    wait = now - w.jf[job, at.SUBMIT]
    user = w.ji[job, at.USER]
    out[_WAIT] = _time(wait)
    out[_ESTIMATE] = static[job, 0]
    out[_RATIO] = np.log1p(wait / estimate(w, job)) / 5.0
    out[_GPUS] = static[job, 1]
    out[_BYTES] = static[job, 2]
    out[_COMM] = static[job, 3]
    out[_FITS] = 1.0 if fits else 0.0
    for k in range(_LEVEL, _LEVEL + MAX_LEVEL + 1):
        out[k] = 0.0
    out[_SLOWDOWN] = 1.0
    out[_LOST] = 0.0
    if fits:
        level = best_path(w, w.ji[job, at.FIT])
        if level >= 0:
            out[_LEVEL + min(level, MAX_LEVEL)] = 1.0
            _observe_slowdown(w, job, best_slowdown(w, job), out)
    running = w.si[at.RUNNING_GPUS]
    out[_SHARE] = w.ui[user, at.U_GPUS] / running if running > 0 else 0.0
    out[_USER_SLOWDOWN] = 0.0
    if w.ui[user, at.U_FINISHED] > 0 and w.sf[at.JAIN_SUM] > 0.0:
        own = w.uf[user, at.U_SLOWDOWNS] / w.ui[user, at.U_FINISHED]
        every = w.sf[at.JAIN_SUM] / w.si[at.JAIN_USERS]
        out[_USER_SLOWDOWN] = min(1.0, max(-1.0, np.log(own / every) / 4.0))
    out[_PENDING] = _count(w.ui[user, at.U_WAITING])
    out[_OF_CLUSTER] = w.ji[job, at.GPUS] / gpus
    for k in (_AGE, _UNTIL_FITS, _LENGTH_RANK, _AREA_RANK):
        out[k] = 0.0


@njit
def _observe_order(w: World, window: I8, waiting: int, jobs: F4) -> None:
    """What the first ``waiting`` jobs of the window are among each other."""
    others = max(1, waiting - 1)
    for i in range(waiting):
        job = window[i]
        length = estimate(w, job)
        area = length * w.ji[job, at.GPUS]
        shorter = 0.0
        smaller = 0.0
        for k in range(waiting):
            if k != i:
                other = estimate(w, window[k])
                shorter += 1.0 if other < length else 0.5 if other == length else 0.0
                other *= w.ji[window[k], at.GPUS]
                smaller += 1.0 if other < area else 0.5 if other == area else 0.0
        jobs[i, _AGE] = 1.0 - i / others
        jobs[i, _LENGTH_RANK] = shorter / others
        jobs[i, _AREA_RANK] = smaller / others


@njit
def _observe_waits(w: World, window: I8, waiting: int, jobs: F4) -> None:
    """How long those jobs of the window have to wait that do not fit."""
    for i in range(waiting):
        if jobs[i, _FITS] > 0.0:
            continue
        job = window[i]
        known = -1
        for k in range(i):  # queues are long, but of few different sizes
            alike = w.ji[window[k], at.GPUS] == w.ji[job, at.GPUS] and w.ji[window[k], at.TYPES] == w.ji[job, at.TYPES]
            if alike and jobs[k, _FITS] == 0.0:
                known = k
                break
        jobs[i, _UNTIL_FITS] = jobs[known, _UNTIL_FITS] if known >= 0 else _time(until_fits(w, job))


@njit
def _releases(w: World, units: I8, unit_of: I8, out: F4) -> None:
    """When running jobs free the units, by their estimates."""
    now = w.sf[at.NOW]
    for u in range(units.shape[0]):
        out[u, _NEXT] = np.inf
        out[u, _UNTIL] = 0.0
    for i in range(w.si[at.N_FINISH]):
        job = w.fh[i]
        left = expected_end(w, job) - now
        e = w.ji[job, at.ENTRY]
        while e >= 0:
            v = w.en[e, at.E_VERTEX]
            if w.ti[v, at.LEVEL] == 1:
                u = unit_of[v]
                out[u, _NEXT] = min(out[u, _NEXT], left)
                out[u, _UNTIL] = max(out[u, _UNTIL], left)
            e = w.en[e, at.E_NEXT]
    for u in range(units.shape[0]):
        out[u, _NEXT] = _time(out[u, _NEXT]) if out[u, _NEXT] < np.inf else 0.0
        out[u, _UNTIL] = _time(out[u, _UNTIL])


@njit
def _marginal(w: World, job: int, unit: int, take: int) -> float:
    """Slowdown of the gang picked so far with ``take`` GPUs of ``unit`` added, as if that were all of it.

    The GPUs are counted in the unit's first islands; shares are those of equal contention (or none).
    """
    if not w.ci[at.COMM] or w.ji[job, at.GPUS] <= 1:
        return 1.0
    gpu_type = w.si[at.PICK_TYPE]
    if gpu_type < 0:
        gpu_type = unit_type(w, unit)
    size = w.si[at.N_PICKS]
    gang = w.ji[job, at.GPUS] - w.si[at.PICK_LEFT] + take
    lo, hi = islands_below(w, unit)
    for island in range(lo, hi):
        count = min(take, w.free[gpu_type, island])
        if count > 0 and size < w.pk.shape[0]:
            w.pk[size, 0] = island
            w.pk[size, 1] = count
            size += 1
            take -= count
    touched = links.touch(w, size)
    links.path(w, touched, gang, 1, w.pf)
    slowdown = links.gang_slowdown(w, job, gang, w.pf)
    links.untouch(w)
    return slowdown


@njit
def _observe_units(w: World, units: I8, unit_of: I8, placing: bool, out: F4, mask: I1) -> None:
    _releases(w, units, unit_of, out)
    types = w.free.shape[0]
    need = 0
    gang = 1
    job = -1
    if placing:
        job = w.si[at.PICK_JOB]
        need = w.si[at.PICK_LEFT]
        gang = w.ji[job, at.GPUS]
    vertices = w.ti.shape[0]
    for v in range(vertices):
        w.vf[v] = 0.0
    if placing:
        for i in range(w.si[at.N_PICKS]):
            v = w.pk[i, 0]
            while v >= 0:
                w.vf[v] += w.pk[i, 1]
                v = w.ti[v, at.PARENT]
    # Single GPUs as units: those of an island are alike, so the busy ones of an island stand before its free ones.
    single = w.ci[at.UNIT_LEVEL] == 0
    last = -1
    place = 0
    for u in range(units.shape[0]):
        v = units[u]
        place = place + 1 if v == last else 0
        last = v
        free = 0
        have = 0
        for t in range(types):
            free += w.free[t, v]
            have += w.cap[t, v]
        is_free = place >= have - free
        if single:
            out[u, _FREE] = 1.0 if is_free else 0.0
            out[u, _WHOLE] = out[u, _FREE]
        else:
            out[u, _FREE] = free / have
            out[u, _WHOLE] = 1.0 if free == have else 0.0
        up = w.ti[v, at.PARENT]
        out[u, _UPLINK] = _count(w.lk[v, at.L_JOBS])
        out[u, _RACK_UPLINK] = _count(w.lk[up, at.L_JOBS]) if up >= 0 else 0.0
        out[u, _PICKED] = w.vf[v] / gang
        out[u, _PICKED_RACK] = w.vf[up] / gang if up >= 0 else 0.0
        out[u, _MARGINAL] = 0.0
        for k in (_COMPLETES, _FILL, _RACK_FILL, _RACK_COMPLETES):
            out[u, k] = 0.0
        mask[u] = 0
        if placing:
            room = unit_free(w, v)
            above = unit_free(w, up) if up >= 0 else room
            out[u, _FILL] = min(1.0, need / room) if room > 0 else 0.0
            out[u, _RACK_FILL] = min(1.0, need / above) if above > 0 else 0.0
            out[u, _RACK_COMPLETES] = 1.0 if above >= need else 0.0
            if single:
                room = min(room, 1) if is_free else 0
            if room > 0:
                mask[u] = 1
                out[u, _MARGINAL] = _slow(_marginal(w, job, v, min(room, need)))
                out[u, _COMPLETES] = 1.0 if room >= need else 0.0


@njit
def observe(
    w: World, phase: int, window: I8, units: I8, unit_of: I8, weights: F4, static: F4,
    jobs: F4, job_mask: I1, unit_rows: F4, unit_mask: I1, glob: F4, chosen: F4,
) -> None:  # fmt: skip
    """Fill the observation of one cluster; see ``Observations`` for shapes."""
    size = window.shape[0]
    placing = phase == at.UNIT_PHASE
    gpus, free = gpu_counts(w)
    waiting = 0
    while waiting < size and window[waiting] >= 0:
        waiting += 1
    asked = 0
    any_legal = False
    for i in range(waiting):
        job = window[i]
        asked += w.ji[job, at.GPUS]
        # While a gang is being placed its picks have taken GPUs: whether others fit is not asked.
        legal = not placing and job_legal(w, job)
        any_legal = any_legal or legal
        observe_job(w, job, legal, gpus, static, jobs[i])
        job_mask[i] = 1 if legal else 0
    jobs[waiting:] = 0.0
    _observe_order(w, window, waiting, jobs)
    if not placing:
        _observe_waits(w, window, waiting, jobs)
    job_mask[waiting:size] = 0
    job_mask[size] = 1 if not placing and (hold_legal(w) or not any_legal) else 0
    chosen[:] = 0.0
    if placing:
        # Its best placement is that from before the picks, which have taken GPUs since.
        observe_job(w, w.si[at.PICK_JOB], False, gpus, static, chosen)
        chosen[_FITS] = 1.0
        chosen[_LEVEL + min(w.si[at.PICK_LEVEL], MAX_LEVEL)] = 1.0
        _observe_slowdown(w, w.si[at.PICK_JOB], w.sf[at.PICK_SLOWDOWN], chosen)
    _observe_units(w, units, unit_of, placing, unit_rows, unit_mask)
    queue = w.si[at.N_WAITING]
    glob[_QUEUE] = _count(queue)
    glob[_FREE_SHARE] = free / gpus
    glob[_ASKED] = _count(asked / gpus)
    glob[_MEAN_WAIT] = _time(w.sf[at.WAIT_SUM] / queue) if queue > 0 else 0.0
    glob[_MAX_WAIT] = _time(w.sf[at.NOW] - w.jf[w.si[at.Q_HEAD], at.SUBMIT]) if queue > 0 else 0.0
    glob[_JAIN] = 1.0
    if w.si[at.JAIN_USERS] > 0:
        glob[_JAIN] = w.sf[at.JAIN_SUM] ** 2 / (w.si[at.JAIN_USERS] * w.sf[at.JAIN_SQUARES])
    glob[_NEED] = np.log2(1.0 + w.si[at.PICK_LEFT]) / 10.0 if placing else 0.0
    glob[_WEIGHTS:] = weights


@njit
def observe_all(
    address: int, phases: I8, windows: I8, units: I8, unit_of: I8, weights: F4, static: F4,
    jobs: F4, job_mask: I1, unit_rows: F4, unit_mask: I1, glob: F4, chosen: F4,
) -> None:  # fmt: skip
    """``observe`` for every cluster of a batch that waits for an agent; the rows of the others are zero."""
    for b in range(phases.shape[0]):
        if phases[b] == at.JOB_PHASE or phases[b] == at.UNIT_PHASE:
            observe(
                world_at(address, b), phases[b], windows[b], units, unit_of, weights[b], static[b],
                jobs[b], job_mask[b], unit_rows[b], unit_mask[b], glob[b], chosen[b],
            )  # fmt: skip
        else:
            jobs[b] = 0.0
            job_mask[b] = 0
            unit_rows[b] = 0.0
            unit_mask[b] = 0
            glob[b] = 0.0
            chosen[b] = 0.0


def unit_groups(cluster: Cluster, units: I8) -> I4:
    """Ids of the vertices a unit lies in, i4[U, UNIT_GROUPS]; past the root, the root."""
    rows = [units]
    for _ in range(UNIT_GROUPS - 1):
        above = cluster.parent[rows[-1]]
        rows.append(np.where(above < 0, rows[-1], above).astype(np.int64))
    return np.stack(rows, axis=1).astype(np.int32)


class Observations:
    """The observations of an engine's B clusters, refilled in place by ``update``.

    K window jobs, U units; see ``schema``.
    """

    def __init__(self, engine: Engine) -> None:
        batch = len(engine.workloads)
        window = engine.window
        self.engine = engine
        self.jobs: F4 = np.zeros(
            (batch, window, len(JOB_FEATURES)), np.float32
        )  # [B, K, :] waiting jobs; zero rows pad, and no job's row is zero (estimates are at least a second)
        self.job_mask: I1 = np.zeros(
            (batch, window + 1), np.int8
        )  # [B, K + 1] legal answers of a job agent; last: HOLD
        self.units: F4 = np.zeros((batch, len(engine.units), len(UNIT_FEATURES)), np.float32)  # [B, U, :]
        self.unit_mask: I1 = np.zeros((batch, len(engine.units)), np.int8)  # [B, U] legal answers of a GPU agent
        self.glob: F4 = np.zeros((batch, len(GLOBAL_FEATURES)), np.float32)  # [B, :]
        self.chosen: F4 = np.zeros((batch, len(JOB_FEATURES)), np.float32)  # [B, :] the job whose gang is being placed
        self.weights: F4 = np.tile(np.array(DEFAULT_WEIGHTS, np.float32), (batch, 1))  # [B, 3] objective weights
        self._static: F4 = np.zeros((batch, engine.batch.arrays["ji"].shape[1], 4), np.float32)
        for b in range(batch):
            static_features(engine.view(b), self._static[b])
        cluster = engine.cluster
        level = max(1, cluster.unit_level)
        above = cluster.ancestor(level)
        first = {int(vertex): u for u, vertex in reversed(list(enumerate(engine.units)))}
        self.unit_of: I8 = np.array([first[int(vertex)] for vertex in above], dtype=np.int64)  # [I] unit of each island

        self.groups: I4 = unit_groups(cluster, engine.units)  # [U, UNIT_GROUPS]; see ``schema``

    def reset(self, b: int) -> None:
        """Cluster ``b`` has started anew with another workload."""
        rows = self.engine.batch.arrays["ji"].shape[1]
        if rows > self._static.shape[1]:
            more = rows - self._static.shape[1]
            self._static = np.pad(self._static, ((0, 0), (0, more), (0, 0)))
        static_features(self.engine.view(b), self._static[b])

    def update(self, ask: Ask) -> None:
        """Fill all arrays for the decisions that ``ask`` waits for."""
        observe_all(
            self.engine.batch.address, ask.phases, ask.windows, self.engine.units, self.unit_of, self.weights,
            self._static, self.jobs, self.job_mask, self.units, self.unit_mask, self.glob, self.chosen,
        )  # fmt: skip
