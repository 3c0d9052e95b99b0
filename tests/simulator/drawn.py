"""Random replays of every kind, and what is read off their schedules: runs, what was down, who waited when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from attn_sched.cluster import Cluster
from attn_sched.policies import parse_policy
from attn_sched.simulator import Engine, NodeChange, Schedule, SimOptions
from attn_sched.simulator import layout as at
from attn_sched.simulator.state import World
from attn_sched.workload import Workload
from tests.reference.instances import ORDERS, PLACEMENTS, QUEUEINGS, clusters, placeable, workloads

ALL_ORDERS = (*ORDERS, "qssf", "random")
ALL_PLACEMENTS = (*PLACEMENTS, "random")
PREEMPTIVE = ("srtf", "srsf", "tiresias", "themis-like")


@dataclass(frozen=True)
class Replay:
    """One thing to replay."""

    cluster: Cluster
    jobs: Workload
    policy: str
    options: SimOptions

    def engine(self, batch: int = 1) -> Engine:
        """An engine that has not moved yet, of ``batch`` clusters with these jobs."""
        return Engine(self.cluster, [self.jobs] * batch, parse_policy(self.policy).engine_rule(), self.options)

    def run(self) -> tuple[Schedule, World]:
        """Replay to the end: the schedule and the final state."""
        engine = self.engine()
        assert engine.run() == at.DONE_PHASE
        return engine.schedule(), engine.view(0)


@st.composite
def node_changes(draw: st.DrawFn, cluster: Cluster) -> tuple[NodeChange, ...]:
    """Vertices that fail, some of them twice or inside one another, and that all return."""
    changes = []
    for _ in range(draw(st.integers(1, 4))):
        vertex = cluster.vertex_names[draw(st.integers(0, cluster.num_vertices - 1))]
        down = draw(st.integers(0, 40))
        changes.append(NodeChange(float(down), vertex, up=False))
        changes.append(NodeChange(float(down + draw(st.integers(0, 20))), vertex, up=True))
    return tuple(changes)


@st.composite
def replays(
    draw: st.DrawFn,
    *,
    preemptive: bool = False,
    comm: bool | None = None,
    failures: bool | None = None,
    cancels: bool = True,
    hold: bool | None = None,
    guard: bool | None = None,
    orders: tuple[str, ...] = ALL_ORDERS,
    queueings: tuple[str, ...] = QUEUEINGS,
    placements: tuple[str, ...] = ALL_PLACEMENTS,
    oracle: bool | None = None,
    max_jobs: int = 14,
    types: int = 3,
) -> Replay:
    """A cluster, jobs, a policy and options; None means either."""

    def either(choice: bool | None) -> bool:
        return draw(st.booleans()) if choice is None else choice

    cluster = draw(clusters(types=types))
    placement = draw(st.sampled_from(placements))
    if preemptive:
        policy = f"{draw(st.sampled_from(PREEMPTIVE))}+{placement}"
    else:
        policy = f"{draw(st.sampled_from(orders))}:{draw(st.sampled_from(queueings))}+{placement}"
        if either(hold):
            patience = draw(st.sampled_from((0.0, 0.25, 1.0, 8.0)))
            policy += f"+hold({draw(st.sampled_from((1.0, 1.05, 1.5)))},{patience})"
    jobs = draw(workloads(cluster, max_jobs=max_jobs, cancels=cancels, oracle=oracle))
    # Whatever best-fit can place, the other rules can place too; random is not known to the reference.
    able = placeable(cluster, jobs, "best-fit" if placement == "best-fit" else "first-fit")
    jobs = jobs.replace(num_gpus=np.where(able, jobs.num_gpus, 1).astype(np.int32))
    enabled = either(comm)
    kwargs: dict[str, Any] = {"comm": enabled}
    if enabled:
        kwargs["contention"] = draw(st.sampled_from(("equal", "none", "maxmin")))
        kwargs["allreduce"] = draw(st.sampled_from(("ring", "hierarchical")))
    if not preemptive and either(guard):
        kwargs["max_wait_s"] = draw(st.sampled_from((0.0, 4.0, 25.0)))
    kwargs["restart_cost_s"] = draw(st.sampled_from((0.0, 0.0, 1.0, 7.0)))
    if either(failures):
        kwargs["changes"] = draw(node_changes(cluster))
        kwargs["checkpoint_s"] = draw(st.sampled_from((None, 3.7, 1.1)))
    return Replay(cluster, jobs, policy, SimOptions(**kwargs))


@dataclass(frozen=True)
class Run:
    """A stretch of time in which a job held a gang: its start (in the engine's order) and GPUs by island."""

    job: int
    start: float
    end: float  # nan if it was running when the replay stopped
    gang: dict[int, int]


def runs_of(schedule: Schedule) -> list[Run]:
    """The runs in the order in which they began.

    Fails unless each is a whole gang on one GPU type that the job may use.
    """
    cluster, jobs = schedule.cluster, schedule.workload
    runs: list[Run] = []
    open_run: dict[int, int] = {}
    for s in range(len(schedule.seg_job)):
        job, island, count = int(schedule.seg_job[s]), int(schedule.seg_island[s]), int(schedule.seg_count[s])
        if open_run:  # the segments of one start stand together
            first = s - len(open_run)
            assert job == schedule.seg_job[first], "a gang was cut short"
            assert schedule.seg_start[s] == schedule.seg_start[first]
            np.testing.assert_equal(schedule.seg_end[s], schedule.seg_end[first])
            assert island not in open_run
        assert count > 0
        open_run[island] = count
        held = sum(open_run.values())
        assert held <= jobs.num_gpus[job], "more GPUs than the gang has"
        if held == jobs.num_gpus[job]:
            kinds = {int(cluster.island_type[i]) for i in open_run}
            assert len(kinds) == 1, "a gang on two GPU types"
            wish = int(jobs.gpu_type[job])
            if cluster.typed and wish >= 0:
                assert cluster.gpu_types[kinds.pop()] in jobs.gpu_type_names[wish].split("|")
            runs.append(Run(job, float(schedule.seg_start[s]), float(schedule.seg_end[s]), open_run))
            open_run = {}
    assert not open_run, "a gang was cut short"
    return runs


def islands_below(cluster: Cluster, vertex: int) -> list[int]:
    """The islands of a subtree."""
    level = next(lev for lev in range(1, cluster.num_levels + 1) if vertex in cluster.vertices(lev))
    return [int(i) for i in np.flatnonzero(cluster.ancestor(level) == vertex)]


def down_times(cluster: Cluster, options: SimOptions) -> list[tuple[int, float, float]]:
    """(island, from, until) of every stretch in which an island is down; stretches of no length count."""
    names = {name: v for v, name in enumerate(cluster.vertex_names)}
    depth = [0] * cluster.num_islands
    since = [0.0] * cluster.num_islands
    out = []
    for change in sorted(options.changes, key=lambda change: change.time_s):
        for island in islands_below(cluster, names[change.vertex]):
            if change.up:
                if depth[island] == 0:
                    continue
                depth[island] -= 1
                if depth[island] == 0:
                    out.append((island, since[island], change.time_s))
            else:
                if depth[island] == 0:
                    since[island] = change.time_s
                depth[island] += 1
    out += [(i, since[i], np.inf) for i in range(cluster.num_islands) if depth[i]]
    return out
