"""Making a ``Batch``: cluster, workloads, rule and options, laid out for the compiled loop."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attn_sched.choices import ALLREDUCE, CONTENTION
from attn_sched.cluster import Cluster
from attn_sched.errors import InputError
from attn_sched.seeding import stream
from attn_sched.simulator import layout as at
from attn_sched.simulator.layout import F8, I8
from attn_sched.simulator.options import SimOptions
from attn_sched.simulator.rule import THEMIS_LEASE_S, TIRESIAS_THRESHOLDS, EngineRule
from attn_sched.simulator.state import Batch, World
from attn_sched.workload import Workload

MAX_TYPES = 31  # bits of a type mask


def type_masks(workload: Workload, cluster: Cluster) -> I8:
    """Bit mask of the GPU types each job may run on, i8[J]; 0 where the cluster has none of those it names.

    A job that names no type may run on any; a cluster that names none takes every job.
    """
    everything = (1 << len(cluster.gpu_types)) - 1
    masks = np.full(len(workload.num_gpus), everything, dtype=np.int64)
    if not cluster.typed:
        return masks
    known = {name.casefold(): 1 << i for i, name in enumerate(cluster.gpu_types)}
    by_name = np.zeros(len(workload.gpu_type_names) + 1, dtype=np.int64)
    for i, wish in enumerate(workload.gpu_type_names):
        for alternative in wish.split("|"):
            by_name[i] |= known.get(alternative.strip().casefold(), 0)
    by_name[-1] = everything  # index -1: any type
    masks[:] = by_name[workload.gpu_type]
    return masks


def type_capacity(cluster: Cluster) -> I8:
    """GPUs of each type below each vertex, i8[T, V]."""
    cap = np.zeros((len(cluster.gpu_types), cluster.num_vertices), dtype=np.int64)
    islands = np.arange(cluster.num_islands)
    for level in range(1, cluster.num_levels + 1):
        np.add.at(cap, (cluster.island_type, cluster.ancestor(level)), cluster.gpus[islands])
    return cap


def _tree(cluster: Cluster) -> tuple[I8, F8]:
    ti = np.zeros((cluster.num_vertices, at.TI_COLUMNS), dtype=np.int64)
    ti[:, at.PARENT] = cluster.parent
    ti[:, at.CHILD_LO] = cluster.child_lo
    ti[:, at.CHILD_HI] = cluster.child_hi
    for level in range(1, cluster.num_levels + 1):
        lo, hi = cluster.level_off[level], cluster.level_off[level + 1]
        ti[lo:hi, at.LEVEL] = level
    own = np.full(cluster.num_vertices, -1, dtype=np.int64)
    lo, hi = cluster.level_off[cluster.node_level], cluster.level_off[cluster.node_level + 1]
    own[lo:hi] = np.arange(lo, hi)
    for v in range(lo - 1, -1, -1):  # children stand before their parents
        own[v] = own[cluster.parent[v]]
    ti[:, at.NODE] = own
    tf = np.zeros((cluster.num_vertices, at.TF_COLUMNS))
    tf[:, at.CAPACITY] = cluster.capacity
    tf[:, at.LATENCY] = cluster.latency
    tf[: cluster.num_islands, at.GPU_CAPACITY] = cluster.gpu_capacity
    tf[: cluster.num_islands, at.GPU_LATENCY] = cluster.gpu_latency
    return ti, tf


def _config(cluster: Cluster, rule: EngineRule, options: SimOptions) -> tuple[F8, I8]:
    cf = np.zeros(at.CF_COLUMNS)
    cf[at.THETA] = rule.theta or 0.0
    cf[at.MAX_WAIT] = np.inf if options.max_wait_s is None else options.max_wait_s
    cf[at.RESTART_COST] = options.restart_cost_s
    cf[at.CHECKPOINT] = options.checkpoint_s or 0.0
    cf[at.THRESHOLD_1], cf[at.THRESHOLD_2] = TIRESIAS_THRESHOLDS
    cf[at.LEASE] = THEMIS_LEASE_S
    ci = np.zeros(at.CI_COLUMNS, dtype=np.int64)
    ci[at.ORDER] = rule.order
    ci[at.QUEUEING] = rule.queueing
    ci[at.PLACEMENT] = rule.placement
    ci[at.HOLD] = rule.theta is not None
    ci[at.COMM] = options.comm
    ci[at.CONTENTION] = CONTENTION.index(options.contention)
    ci[at.ALLREDUCE] = ALLREDUCE.index(options.allreduce)
    ci[at.GUARD] = options.max_wait_s is not None
    ci[at.RECORD] = options.record_segments
    ci[at.NODE_LEVEL] = cluster.node_level
    ci[at.UNIT_LEVEL] = cluster.unit_level
    ci[at.TOP_LEVEL] = max(1, cluster.num_levels - 1)
    ci[at.N_TYPES] = len(cluster.gpu_types)
    ci[at.SINGLE_EVENTS] = rule.queueing in (at.COMMIT, at.EASY) and not rule.preempt
    ci[at.COST_BASE] = cluster.num_vertices + 1
    ci[at.PREEMPT] = rule.preempt
    ci[at.CLASSED] = rule.classed
    return cf, ci


def _changes(cluster: Cluster, options: SimOptions) -> F8:
    names = {name: v for v, name in enumerate(cluster.vertex_names)}
    rows = []
    for change in options.changes:
        if change.vertex not in names:
            raise InputError(
                f"{cluster.name} has no {change.vertex!r}",
                field="changes",
                expected="a vertex such as " + cluster.vertex_names[0],
            )
        rows.append((change.time_s, names[change.vertex], 1.0 if change.up else -1.0))
    rows.sort(key=lambda row: row[0])
    return np.array(rows, dtype=np.float64).reshape(-1, 3)


def _group_rows(columns: Sequence[np.ndarray]) -> tuple[I8, I8]:
    """Number equal rows: (number of each row i8[J], index of one row of each number)."""
    order = np.lexsort(tuple(reversed(columns)))
    changed = np.zeros(len(order), dtype=bool)
    if len(order):
        changed[0] = True
    for column in columns:
        ordered = column[order]
        changed[1:] |= ordered[1:] != ordered[:-1]
    number = np.empty(len(order), dtype=np.int64)
    number[order] = np.cumsum(changed) - 1
    return number, order[changed]


def largest_placeable(workload: Workload, cluster: Cluster) -> np.ndarray:
    """GPUs the empty cluster can give each job, i8[J]: all of its largest allowed type.

    It is 0 where it has none of the types named.
    """
    masks = type_masks(workload, cluster)
    largest = np.zeros(len(workload.num_gpus), dtype=np.int64)
    for t, gpus in enumerate(type_capacity(cluster)[:, -1]):
        largest = np.maximum(largest, np.where((masks >> t) & 1, gpus, 0))
    return largest


def too_large(workload: Workload, cluster: Cluster, job: int, largest: int) -> str:
    """What is said of a job that asks for more GPUs than the cluster can give it."""
    asked = f"job {workload.job_id[job]} asks for {workload.num_gpus[job]} GPUs"
    return f"{asked}, {cluster.name} can give it {largest}"


def check_workload(workload: Workload, cluster: Cluster) -> None:
    """Refuse what the engine cannot replay. Raises InputError that names the job."""
    jobs = len(workload.submit_s)
    if jobs == 0:
        raise InputError("has no jobs", file=workload.name, expected="at least one job to replay")
    unknown = np.flatnonzero(~np.isfinite(workload.duration_s))
    if len(unknown):
        raise InputError(
            f"job {workload.job_id[unknown[0]]} has no duration, so the log cannot be replayed",
            file=workload.name,
            field="duration",
        )
    for field in ("submit_s", "estimate_s", "grad_bytes", "compute_s", "overlap"):
        bad = np.flatnonzero(~np.isfinite(getattr(workload, field)))
        if len(bad):
            raise InputError(f"job {workload.job_id[bad[0]]} has no finite value", file=workload.name, field=field)
    for field in ("duration_s", "grad_bytes", "overlap"):
        bad = np.flatnonzero(getattr(workload, field) < 0)
        if len(bad):
            value = getattr(workload, field)[bad[0]]
            raise InputError(
                f"job {workload.job_id[bad[0]]} has {value:g}", file=workload.name, field=field, expected="at least 0"
            )
    bad = np.flatnonzero(workload.compute_s <= 0)
    if len(bad):
        raise InputError(
            f"job {workload.job_id[bad[0]]} computes for {workload.compute_s[bad[0]]:g} s an iteration",
            file=workload.name,
            field="compute_s",
            expected="more than 0",
        )
    if np.any(np.diff(workload.submit_s) < 0):
        raise InputError("jobs are not in order of submission", file=workload.name, field="submit_s")
    largest = largest_placeable(workload, cluster)
    bad = np.flatnonzero((workload.num_gpus > largest) | (workload.num_gpus < 1))
    if len(bad):
        job = bad[0]
        raise InputError(
            too_large(workload, cluster, job, int(largest[job])),
            file=workload.name,
            field="num_gpus",
        )


def make_world(
    cluster: Cluster,
    workloads: Sequence[Workload],
    rule: EngineRule,
    options: SimOptions,
    *,
    window: int = 32,
    segments: int | None = None,
) -> Batch:
    """Lay out a batch: one cluster shape, one rule, one workload per cluster. Shorter workloads are padded.

    Args:
        window: jobs a learned policy sees (K).
        segments: rows of the segment record to start with (it grows on demand).

    Raises:
        InputError: a workload cannot be replayed on this cluster.
    """
    if not workloads:
        raise InputError("there is no workload", field="workloads", expected="one for each cluster of the batch")
    for workload in workloads:
        check_workload(workload, cluster)
    if len(cluster.gpu_types) > MAX_TYPES:
        raise InputError(
            f"{len(cluster.gpu_types)} GPU types are too many", file=cluster.name, expected=f"at most {MAX_TYPES}"
        )
    batch = len(workloads)
    jobs = max(len(w.submit_s) for w in workloads)
    users = max(len(w.user_names) for w in workloads)
    ti, tf = _tree(cluster)
    cf, ci = _config(cluster, rule, options)
    cap = type_capacity(cluster)
    vertices, islands, gpus = cluster.num_vertices, cluster.num_islands, cluster.num_gpus
    # No more runs at once than there are GPUs, or than all jobs together ask for.
    asked = max(int(workload.num_gpus.sum(dtype=np.int64)) for workload in workloads)
    running = min(gpus, jobs)
    entries = min(gpus, asked) * max(1, cluster.num_levels - 1) + 1

    jf = np.zeros((batch, jobs, at.JF_COLUMNS))
    ji = np.zeros((batch, jobs, at.JI_COLUMNS), dtype=np.int64)
    rng = np.zeros((batch, 1), dtype=np.uint64)
    cancels = [np.argsort(w.cancel_s, kind="stable")[: int(np.isfinite(w.cancel_s).sum())] for w in workloads]
    cq = np.full((batch, max((len(c) for c in cancels), default=0)), -1, dtype=np.int64)
    fits: list[tuple[I8, I8]] = []
    classes: list[tuple[I8, I8]] = []
    for b, workload in enumerate(workloads):
        masks = type_masks(workload, cluster)
        _fill_jobs(jf[b], ji[b], workload, masks, rule, options, b)
        fits.append(_group_rows([workload.num_gpus, masks]))
        alike = [workload.num_gpus, masks]
        if rule.theta is not None and options.comm:
            alike += [workload.grad_bytes, workload.compute_s, workload.overlap]
        classes.append(_group_rows(alike))
        cq[b, : len(cancels[b])] = cancels[b]
        rng[b, 0] = stream(options.seed, _purpose("placement", b)).integers(0, 2**63, dtype=np.uint64)
    heads_first = (
        rule.queueing != at.SKIP
        and rule.order == at.STATIC
        and all(np.all(np.diff(jf[b, : len(workload.submit_s), at.KEY]) >= 0) for b, workload in enumerate(workloads))
    )
    if rule.classed and heads_first:
        # The best waiting job is always the oldest: the list in arrival order serves, and no heap is needed.
        ci[at.CLASSED], ci[at.IN_ORDER] = 0, 1
    cl = np.zeros((batch, max(len(rows) for _, rows in classes), 4), dtype=np.int64)
    fi = np.zeros((batch, max(len(rows) for _, rows in fits), at.FI_COLUMNS), dtype=np.int64)
    for b, workload in enumerate(workloads):
        count = len(workload.submit_s)
        number, rows = fits[b]
        ji[b, :count, at.FIT] = number
        fi[b, : len(rows), at.F_GPUS] = workload.num_gpus[rows]
        fi[b, : len(rows), at.F_TYPES] = ji[b, rows, at.TYPES]
        class_number, class_rows = classes[b]
        ji[b, :count, at.CLASS] = class_number
        sizes = np.bincount(class_number, minlength=len(class_rows))
        cl[b, : len(class_rows), at.C_BASE] = np.cumsum(sizes) - sizes
        cl[b, : len(class_rows), at.C_FIT] = number[class_rows]
    if segments is None:
        segments = jobs + jobs // 4 + 4 * vertices + 2 * running if options.record_segments else 0

    arrays = {
        "loff": cluster.level_off.astype(np.int64),
        "ti": ti,
        "tf": tf,
        "cap": cap,
        "cf": cf,
        "ci": ci,
        "changes": _changes(cluster, options),
        "jf": jf,
        "ji": ji,
        "free": np.zeros((batch, *cap.shape), dtype=np.int64),
        "lk": np.zeros((batch, vertices, 2), dtype=np.int64),
        "en": np.zeros((batch, entries, at.EN_COLUMNS), dtype=np.int64),
        "hp": np.zeros((batch, 2 * jobs if ci[at.CLASSED] else 0), dtype=np.int64),
        "cl": cl,
        "fi": fi,
        "ff": np.zeros((batch, fi.shape[1], at.P_COLUMNS)),
        "fh": np.zeros((batch, running + 1), dtype=np.int64),
        "th": np.zeros((batch, jobs if ci[at.HOLD] or ci[at.PREEMPT] else 0), dtype=np.int64),
        "uf": np.zeros((batch, users, at.UF_COLUMNS)),
        "ui": np.zeros((batch, users, 4), dtype=np.int64),
        "sf": np.zeros((batch, at.SF_COLUMNS)),
        "si": np.zeros((batch, at.SI_COLUMNS), dtype=np.int64),
        "rng": rng,
        "sgi": np.zeros((batch, segments, 3), dtype=np.int64),
        "sgf": np.zeros((batch, segments, 2)),
        "pk": np.zeros((batch, islands + 2, 2), dtype=np.int64),
        "gp": np.zeros((batch, islands + 2, 2), dtype=np.int64),
        "wj": np.full((batch, window), -1, dtype=np.int64),
        "sv": np.zeros((batch, vertices, 4), dtype=np.int64),
        "pf": np.zeros((batch, at.P_COLUMNS)),
        "vf": np.zeros((batch, vertices)),
        "sj": np.zeros((batch, running + 1), dtype=np.int64),
        "sjf": np.zeros((batch, running + 1, 2)),
        "down": np.zeros((batch, islands), dtype=np.int64),
        "cq": cq,
    }
    made = Batch(batch, arrays)
    for b, workload in enumerate(workloads):
        _reset_state(made.world(b), workload)
    return made


def _purpose(what: str, b: int) -> str:
    """Name of a random stream: each cluster of a batch draws from its own, the first as if it were alone."""
    return what if b == 0 else f"{what}:{b}"


def _fill_jobs(jf: F8, ji: I8, workload: Workload, masks: I8, rule: EngineRule, options: SimOptions, b: int) -> None:
    """The columns of a cluster's job tables that stand fixed before the first event; ``jf``, ``ji`` are views."""
    count = len(workload.submit_s)
    rows = jf[:count]
    rows[:, at.SUBMIT] = workload.submit_s
    rows[:, at.DURATION] = workload.duration_s
    rows[:, at.ESTIMATE] = workload.estimate_s
    rows[:, at.DEADLINE] = workload.submit_s + rule.patience * np.maximum(workload.estimate_s, at.MIN_ESTIMATE)
    rows[:, at.GRAD] = workload.grad_bytes
    rows[:, at.COMPUTE] = workload.compute_s
    rows[:, at.OVERLAP] = workload.overlap
    rows[:, at.CANCEL] = workload.cancel_s
    rows[:, at.START] = np.nan
    rows[:, at.FINISH] = np.nan
    rows[:, at.LEFT] = workload.duration_s
    rows[:, at.RATE] = 1.0
    if rule.keys is not None:
        given = rule.keys(workload, stream(options.seed, _purpose("ordering", b)))
        try:
            keys = np.asarray(given).astype(np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(
                f"the keys are no numbers ({error})", field="ordering", expected=f"{count} numbers, one a job"
            ) from None
        bad = np.flatnonzero(np.isnan(keys)) if keys.shape == (count,) else np.array([-1])
        if len(bad):
            what = (
                f"the keys have shape {keys.shape}"
                if bad[0] < 0
                else f"the key of job {workload.job_id[bad[0]]} is NaN"
            )
            raise InputError(what, field="ordering", expected=f"{count} numbers, one a job, smallest first")
        rows[:, at.KEY] = keys
    whole = ji[:count]
    whole[:, at.GPUS] = workload.num_gpus
    whole[:, at.USER] = workload.user
    whole[:, at.TYPES] = masks
    whole[:, at.STATUS] = at.FUTURE
    for column in (at.POS, at.RPOS, at.TPOS, at.PREV, at.NEXT, at.ENTRY, at.PLACED):
        whole[:, column] = -1
    whole[:, at.COUNTED] = workload.counted
    whole[:, at.SKEWED] = workload.skewed


def _reset_state(w: World, workload: Workload) -> None:
    """Everything that moves, at time zero: all GPUs free, nothing waiting."""
    w.free[:] = w.cap
    w.lk[:, at.L_HEAD] = -1
    w.en[:, at.E_NEXT] = np.arange(1, len(w.en) + 1)
    w.fi[:, at.F_VERSION] = -1
    si = w.si
    si[at.Q_HEAD] = si[at.Q_TAIL] = si[at.PICKED] = si[at.PICK_JOB] = si[at.PICK_TYPE] = -1
    si[at.N_JOBS] = len(workload.submit_s)
    si[at.COUNTED_LEFT] = int(np.count_nonzero(workload.counted))
    counted = np.flatnonzero(workload.counted)
    w.sf[at.COUNT_FROM] = workload.submit_s[counted[0]] if len(counted) else np.inf
    w.sf[at.TIMER] = np.inf
    w.sf[at.SHADOW] = np.inf
