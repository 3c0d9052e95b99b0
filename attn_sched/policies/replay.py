"""Replaying a workload under a named policy."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from attn_sched.cluster import Cluster
from attn_sched.errors import InputError
from attn_sched.policies.names import Policy, parse_policy
from attn_sched.policies.registry import check_keys
from attn_sched.policies.views import PlacementView, QueueView
from attn_sched.simulator import layout as at
from attn_sched.simulator.engine import Engine, Progress
from attn_sched.simulator.fitting import best_slowdown
from attn_sched.simulator.layout import F8, I8
from attn_sched.simulator.loop import apply_counts, choose_called_type, run
from attn_sched.simulator.options import SimOptions
from attn_sched.simulator.rule import EngineRule
from attn_sched.simulator.schedule import Schedule
from attn_sched.simulator.state import World
from attn_sched.simulator.world import check_workload
from attn_sched.workload import Workload

LATENCY_SAMPLES = 2000
LATER_JOBS = 2000  # jobs after a window that are tried first


def simulate(
    workload: Workload,
    cluster: Cluster,
    policy: str,
    options: SimOptions | None = None,
    progress: Progress | None = None,
) -> Schedule:
    """Replay ``workload`` on ``cluster`` under the policy named ``policy`` until every counted job has ended.

    The same arguments give the same schedule to the last bit. Compilation is not part of ``Schedule.engine_s``.

    Raises:
        InputError: unknown policy, a workload the cluster cannot run, or a user's rule that returned something
        unusable.
    """
    parsed = parse_policy(policy)
    options = options or SimOptions()
    if options.max_wait_s is not None and parsed.ordering.preempt:
        raise InputError("a starvation guard does not go with a preemptive policy", field="max-wait", expected="none")
    check_workload(workload, cluster)
    _compile(cluster, workload, parsed, options)
    last = int(np.flatnonzero(workload.counted)[-1]) + 1 if workload.counted.any() else len(workload)
    later = LATER_JOBS
    while last + later < len(workload):
        # A window's later arrivals matter only until its last counted job ends: try with some, then with more.
        schedule = _replay(workload.select(np.arange(last + later)), cluster, parsed, options, progress)
        if np.nanmax(schedule.finish_s[:last]) < schedule.workload.submit_s[-1]:
            return schedule
        later *= 4
    return _replay(workload, cluster, parsed, options, progress)


def _replay(
    workload: Workload, cluster: Cluster, parsed: Policy, options: SimOptions, progress: Progress | None
) -> Schedule:
    rule = parsed.engine_rule()
    engine = Engine(cluster, [workload], rule, options)
    latencies: list[float] = []
    while True:
        phase = engine.run(progress=progress)
        if phase == at.DONE_PHASE:
            break
        began = time.perf_counter()
        _answer(engine, parsed, phase)
        took = time.perf_counter() - began
        engine.engine_s += took
        if len(latencies) < LATENCY_SAMPLES:
            latencies.append(took)
    about = {"policy": parsed.full_name, **options.as_dict()}
    schedule = engine.schedule(policy=parsed.name, options=about)
    if parsed.ordering.called is None and parsed.placement.called is None:
        schedule.decision_latency_s = _sample_latency(cluster, workload, rule, options)
    else:
        schedule.decision_latency_s = np.array(latencies)
    return schedule


def _compile(cluster: Cluster, workload: Workload, parsed: Policy, options: SimOptions) -> None:
    """Replay one job, so that all that the policy needs is compiled or loaded before time is taken.

    Rules in Python are not called for that: stand-ins answer in their place.
    """
    one = workload.select(np.array([0])).replace(counted=np.array([True]))
    ordering, placement = parsed.ordering, parsed.placement
    if ordering.called is not None:
        ordering = replace(ordering, called=lambda queue: queue.submit_s)
    if placement.called is not None:
        placement = replace(placement, called=_any_free)
    stand_in = replace(parsed, ordering=ordering, placement=placement)
    engine = Engine(cluster, [one], stand_in.engine_rule(), SimOptions(comm=options.comm))
    while (phase := engine.run()) != at.DONE_PHASE:
        _answer(engine, stand_in, phase)


def _any_free(view: PlacementView) -> I8:
    """The first free GPUs by node number."""
    before = np.concatenate([[0], np.cumsum(view.free)[:-1]])
    return np.clip(view.num_gpus - before, 0, view.free)


def _sample_latency(cluster: Cluster, workload: Workload, rule: EngineRule, options: SimOptions) -> F8:
    """Seconds per event of the first events, one compiled call each, less what an empty call costs."""
    few = workload.select(np.arange(min(len(workload), LATENCY_SAMPLES)))
    few = few.replace(counted=np.ones(len(few), dtype=bool))
    engine = Engine(cluster, [few], rule, options)
    w = engine.view(0)
    empty = []
    for _ in range(50):
        began = time.perf_counter()
        run(w, 0)
        empty.append(time.perf_counter() - began)
    overhead = float(np.median(empty))
    samples: list[float] = []
    while len(samples) < LATENCY_SAMPLES:
        began = time.perf_counter()
        phase = run(w, 1)
        samples.append(time.perf_counter() - began - overhead)
        if phase != -1:
            break
    return np.maximum(np.array(samples), 0.0)


def _answer(engine: Engine, policy: Policy, phase: int) -> None:
    """Let a user's own ordering or placement decide."""
    w = engine.view(0)
    if phase == at.KEYS_PHASE:
        view = _queue_view(engine, w)
        assert policy.ordering.called is not None
        jobs = view.job.copy()  # the rule may write to what it is given
        w.jf[jobs, at.KEY] = check_keys(policy.ordering.called(view), len(jobs), policy.ordering.name)
        w.si[at.ASKED] = 1
    elif phase == at.PLACE_PHASE:
        _place(engine, w, policy)


def _waiting(w: World) -> np.ndarray:
    return np.flatnonzero(w.ji[: int(w.si[at.N_JOBS]), at.STATUS] == at.WAITING).astype(np.int64)


def _group_gpus(w: World, workload: Workload) -> I8:
    """GPUs that running jobs of each group hold."""
    held = np.flatnonzero((w.ji[: len(workload), at.STATUS] == at.RUNNING) & (workload.group >= 0))
    counts = np.bincount(workload.group[held], weights=w.ji[held, at.GPUS], minlength=len(workload.group_names))
    return counts.astype(np.int64)


def _queue_view(engine: Engine, w: World) -> QueueView:
    workload = engine.workloads[0]
    jobs = _waiting(w)
    now = float(w.sf[at.NOW])
    slowdown = np.array([best_slowdown(w, int(job)) for job in jobs])
    users = w.uf[:, at.U_GPU_TIME] + w.ui[:, at.U_GPUS] * (now - w.uf[:, at.U_SYNCED])
    return QueueView(
        now_s=now,
        job=jobs,
        submit_s=w.jf[jobs, at.SUBMIT],
        wait_s=now - w.jf[jobs, at.SUBMIT],
        estimate_s=w.jf[jobs, at.ESTIMATE],
        num_gpus=w.ji[jobs, at.GPUS],
        user=w.ji[jobs, at.USER],
        group=workload.group[jobs].astype(np.int64),
        priority=workload.priority[jobs].astype(np.int64),
        fits=np.isfinite(slowdown).astype(np.int64),
        best_slowdown=slowdown,
        user_gpu_s=users,
        group_gpus=_group_gpus(w, workload),
        group_quota=np.array(workload.group_quota or [np.inf] * len(workload.group_names)),
        free_gpus=int(w.free[:, -1].sum()),
        workload=engine.workloads[0],
        cluster=engine.cluster,
    )


def _place(engine: Engine, w: World, policy: Policy) -> None:
    gpu_type = choose_called_type(w)
    cluster = engine.cluster
    lo, hi = int(cluster.level_off[cluster.node_level]), int(cluster.level_off[cluster.node_level + 1])
    job = int(w.si[at.PICK_JOB])
    need = int(w.ji[job, at.GPUS])
    free = w.free[gpu_type, lo:hi].copy()
    rack = cluster.parent[lo:hi] if cluster.node_level < cluster.num_levels else np.zeros(hi - lo, dtype=np.int32)
    view = PlacementView(
        now_s=float(w.sf[at.NOW]),
        job=job,
        num_gpus=need,
        priority=int(engine.workloads[0].priority[job]),
        free=free.copy(),
        size=w.cap[gpu_type, lo:hi].copy(),
        rack=rack - rack.min(),
        workload=engine.workloads[0],
        cluster=cluster,
    )
    assert policy.placement.called is not None
    given = policy.placement.called(view)
    name = policy.placement.name
    try:
        counts = np.asarray(given)
    except ValueError:  # rows of different lengths
        counts = np.empty(0, dtype=np.int64)
    if counts.shape != free.shape or not np.issubdtype(counts.dtype, np.integer):
        raise InputError(
            f"the placement {name!r} returned {counts.dtype}{list(counts.shape)}",
            field="policy",
            expected=f"whole numbers, one for each of {len(free)} nodes",
        )
    if (counts < 0).any() or (counts > free).any() or counts.sum() != need:
        raise InputError(
            f"the placement {name!r} took {int(counts.sum())} GPUs for a gang of {need}, or some that are not free",
            field="policy",
            expected="free GPUs that add up to the gang",
        )
    apply_counts(w, counts.astype(np.int64))
