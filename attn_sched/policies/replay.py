"""Replaying workloads under a named policy."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from attn_sched.cluster import Cluster
from attn_sched.errors import InputError
from attn_sched.policies import learned
from attn_sched.policies.called import answer_called
from attn_sched.policies.names import Policy, parse_policy
from attn_sched.policies.views import PlacementView
from attn_sched.simulator import layout as at
from attn_sched.simulator.engine import Engine, Progress
from attn_sched.simulator.layout import F8, I8
from attn_sched.simulator.loop import run
from attn_sched.simulator.options import SimOptions
from attn_sched.simulator.rule import EngineRule
from attn_sched.simulator.schedule import Schedule
from attn_sched.simulator.world import check_workload
from attn_sched.workload import Workload

LATENCY_SAMPLES = 2000
LATER_JOBS = 2000  # jobs after a window that are tried first
MORE_LATER = 4  # times as many are tried next

Source = Callable[[], Workload]


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
        InputError: unknown policy, a workload the cluster cannot run, learned parts that cannot be used, or a user's
        rule that returned something unusable.
    """
    return simulate_many([workload], cluster, policy, options, progress)[0]


def simulate_many(
    workloads: Sequence[Workload],
    cluster: Cluster,
    policy: str,
    options: SimOptions | None = None,
    progress: Progress | None = None,
) -> list[Schedule]:
    """Replay each workload as :func:`simulate` does; the schedules are the same, and learned policies much quicker.

    Args:
        progress: told the number of replays done, fractions included.

    Raises:
        InputError: as :func:`simulate`.
    """
    return simulate_sources([partial(_itself, workload) for workload in workloads], cluster, policy, options, progress)


def _itself(workload: Workload) -> Workload:
    return workload


def simulate_sources(
    sources: Sequence[Source],
    cluster: Cluster,
    policy: str,
    options: SimOptions | None = None,
    progress: Progress | None = None,
) -> list[Schedule]:
    """As :func:`simulate_many`, of workloads that are made when their turn comes, and made again if need be.

    A window of a long log carries all later jobs; many such are not to be held at once.
    """
    parsed = parse_policy(policy)
    options = options or SimOptions()
    if options.max_wait_s is not None and parsed.ordering.preempt:
        raise InputError("a starvation guard does not go with a preemptive policy", field="max-wait", expected="none")
    tell = progress or (lambda done: None)
    if parsed.learned:
        return _learned(sources, cluster, parsed, options, tell)
    schedules: list[Schedule] = []
    for done, source in enumerate(sources):
        workload = source()
        check_workload(workload, cluster)
        if not done:
            _compile(cluster, workload, parsed, options)
        schedules.append(_ruled(workload, cluster, parsed, options, partial(_tell_share, tell, done, 1)))
        tell(done + 1)
    return schedules


@dataclass(frozen=True)
class _Attempt:
    """A workload with some of the jobs that arrive after its last counted one."""

    workload: Workload
    last: int  # jobs up to the last counted one
    whole: bool  # no later job is left out

    @classmethod
    def of(cls, workload: Workload, later: int) -> _Attempt:
        """A window's later arrivals matter only until its last counted job ends: some are tried, then more."""
        last = int(np.flatnonzero(workload.counted)[-1]) + 1 if workload.counted.any() else len(workload)
        if last + later >= len(workload):
            return cls(workload, last, True)
        return cls(workload.select(np.arange(last + later)), last, False)

    def suffices(self, schedule: Schedule) -> bool:
        """Whether the jobs left out arrive too late to matter."""
        return self.whole or bool(np.nanmax(schedule.finish_s[: self.last]) < self.workload.submit_s[-1])


def _ruled(workload: Workload, cluster: Cluster, parsed: Policy, options: SimOptions, progress: Progress) -> Schedule:
    later = LATER_JOBS
    while True:
        attempt = _Attempt.of(workload, later)
        schedule = _replay(attempt.workload, cluster, parsed, options, progress)
        if attempt.suffices(schedule):
            return schedule
        later *= MORE_LATER


def _learned(
    sources: Sequence[Source], cluster: Cluster, parsed: Policy, options: SimOptions, tell: Progress
) -> list[Schedule]:
    player = learned.load_player(parsed)
    player.check(cluster)
    found: dict[int, Schedule] = {}
    waiting = list(range(len(sources)))
    later, compiled = LATER_JOBS, False
    while waiting:
        again: list[int] = []
        for batch in _batches(waiting, sources, cluster, later):
            workloads = [attempt.workload for attempt in batch.values()]
            if not compiled:
                compiled = True
                stand_in = replace(player, policy=_stand_in(parsed))
                learned.replay_batch([_one_job(workloads[0])], cluster, stand_in, SimOptions(comm=options.comm))
            share = partial(_tell_share, tell, len(found), len(batch))
            schedules = learned.replay_batch(workloads, cluster, player, options, share)
            for (k, attempt), schedule in zip(batch.items(), schedules, strict=True):
                if attempt.suffices(schedule):
                    found[k] = schedule
                else:
                    again.append(k)
            tell(len(found))
        waiting = again
        later *= MORE_LATER
    return [found[k] for k in range(len(sources))]


def _tell_share(tell: Progress, done: int, size: int, part: float) -> None:
    tell(done + size * part)


def _batches(
    numbers: Sequence[int], sources: Sequence[Source], cluster: Cluster, later: int
) -> Iterator[dict[int, _Attempt]]:
    """The workloads of these numbers with so many later jobs, as many at a time as go side by side."""
    batch: dict[int, _Attempt] = {}
    longest = 0
    for k in numbers:
        if batch and (len(batch) == learned.BATCH or (len(batch) + 1) * longest > learned.MOST_ROWS):
            yield batch
            batch, longest = {}, 0
        workload = sources[k]()
        check_workload(workload, cluster)
        batch[k] = _Attempt.of(workload, later)
        longest = max(longest, len(batch[k].workload))
    yield batch


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
        answer_called(engine, parsed, phase)
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
    """Replay one job, so that all that the policy needs is compiled or loaded before time is taken."""
    stand_in = _stand_in(parsed)
    engine = Engine(cluster, [_one_job(workload)], stand_in.engine_rule(), SimOptions(comm=options.comm))
    while (phase := engine.run()) != at.DONE_PHASE:
        answer_called(engine, stand_in, phase)


def _stand_in(parsed: Policy) -> Policy:
    """The policy with stand-ins for rules in Python, which are not called only to have things compiled."""
    ordering, placement = parsed.ordering, parsed.placement
    if ordering.called is not None:
        ordering = replace(ordering, called=lambda queue: queue.submit_s)
    if placement.called is not None:
        placement = replace(placement, called=_any_free)
    return replace(parsed, ordering=ordering, placement=placement)


def _one_job(workload: Workload) -> Workload:
    return workload.select(np.array([0])).replace(counted=np.array([True]))


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
