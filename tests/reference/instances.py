"""Hypothesis strategies: small random clusters, workloads and policies.

Times are small whole numbers, so that events often tie, or floats with many digits, so that they never do. Every job
can be placed on the empty cluster by counting GPUs of one type; see ``placeable`` for the rule ``best-fit``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from attn_sched.cluster.topology import Cluster
from attn_sched.workload.workload import Workload
from tests.reference.comm import Comm
from tests.reference.job import CloseCalls, read_jobs
from tests.reference.placement import Placer
from tests.reference.shapes import Group, Island, Vertex, make_cluster, make_jobs
from tests.reference.tree import Tree

ORDERS = ("fifo", "sjf", "ljf", "smallest", "largest", "saf", "hrrn", "wfp3", "unicep", "f1", "user-fair", "ftf")
QUEUEINGS = ("strict", "skip", "commit", "easy")
PLACEMENTS = ("topo-best-fit", "first-fit", "load-balance", "best-fit", "tiresias-skew", "lwf", "contention")
TYPES = ("V100", "A100", "T4")
WISHES = (*TYPES, "V100|A100", "A100|T4", "V100|A100|T4")
"""What jobs may ask for; clusters are typed by a prefix of ``TYPES``."""

MARGIN = 1e-9
"""Discard instances whose ``Result.margin`` is below this when two programs are compared."""


@dataclass(frozen=True)
class Instance:
    """One thing to replay; ``options`` are the keyword arguments of ``simulate_reference``."""

    cluster: Cluster
    jobs: Workload
    options: dict[str, Any]


@st.composite
def clusters(draw: st.DrawFn, *, levels: tuple[int, int] = (1, 4), types: int = 3) -> Cluster:
    """A cluster whose root is at a level in ``levels``, with up to ``types`` GPU types (none named if 0)."""
    top = draw(st.sampled_from([lev for lev in (3, 2, 4, 3, 2, 4, 1) if levels[0] <= lev <= levels[1]]))
    kinds = draw(st.sampled_from([k for k in (0, 0, 1, 1, 2, 3) if k <= types]))
    kind = st.integers(0, max(0, kinds - 1))
    sizes = draw(st.sampled_from([(2,), (4,), (8,), (1, 2, 4), (2, 8), (1, 2, 3, 5)]))
    links = {  # of the uplinks of each level, the GPUs' first: capacities in bytes/s, latency in s
        0: (draw(st.sampled_from([12e9, 130e9, math.inf])), 5e-6),
        1: (draw(st.sampled_from([1.17e9, 11.5e9])), 5e-5),
        2: (draw(st.sampled_from([1.17e9, 7.3e9, 23e9])), 7e-5),
        3: (draw(st.sampled_from([2.1e9, 15e9])), 9e-5),
    }
    uneven = draw(st.booleans())

    def link(level: int) -> tuple[float, float]:
        capacity, latency = links[level]
        return (capacity * draw(st.sampled_from([1.0, 1.0, 0.5])), latency) if uneven else (capacity, latency)

    def island(alone: bool) -> Island:
        capacity, latency = link(1)
        gpu_capacity, gpu_latency = links[0]
        if top == 4 and alone and draw(st.booleans()):  # a node without NVLink islands
            return Island(
                draw(st.sampled_from(sizes)), draw(kind), math.inf, 0.0, gpu_capacity, gpu_latency, through=True
            )
        return Island(draw(st.sampled_from(sizes)), draw(kind), capacity, latency, gpu_capacity, gpu_latency)

    def vertex(level: int) -> Vertex:
        count = draw(st.integers(2, 5 if top == 2 else 3) if level == top else st.integers(1, 2))
        children = tuple(island(count == 1) if level == 2 else vertex(level - 1) for _ in range(count))
        return Group(children, *link(level)) if level < top else Group(children)

    root: Vertex = Island(draw(st.integers(1, 12)), 0) if top == 1 else vertex(top)
    nvlink = top == 3 and draw(st.booleans())
    return make_cluster(
        root, TYPES[:kinds] if kinds else ("",), level_names=("gpu", "nvlink", "node") if nvlink else None, name="drawn"
    )


def seconds(whole: bool, high: int) -> st.SearchStrategy[float]:
    """Times from 0 to ``high``: whole numbers, or multiples of an irrational one jittered by further digits."""
    if whole:
        return st.integers(0, high).map(float)
    return st.integers(1, high * 1000).map(lambda x: x * math.pi / 3000 + (x * 7919 % 10007) * 1e-7)


@st.composite
def workloads(
    draw: st.DrawFn,
    cluster: Cluster,
    *,
    max_jobs: int = 12,
    whole: bool | None = None,
    oracle: bool | None = None,
    cancels: bool = True,
) -> Workload:
    """Jobs for ``cluster``; None means either, ``oracle`` False that estimates are off, sometimes far."""
    count = draw(st.integers(min(max_jobs, 4), max_jobs) | st.integers(1, max_jobs))
    whole = draw(st.booleans()) if whole is None else whole
    oracle = draw(st.booleans()) if oracle is None else oracle

    def many(strategy: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(strategy, min_size=count, max_size=count))

    duration = many(seconds(whole, draw(st.sampled_from([20, 60, 3]))))
    wishes = many(st.integers(-1, len(WISHES) - 1))
    size = cluster.gpus[: cluster.num_islands]
    have = [int(size[cluster.island_type == k].sum()) for k in range(len(cluster.gpu_types))]
    most = []
    for position, wish in enumerate(wishes):
        named = WISHES[wish].split("|") if cluster.typed and wish >= 0 else list(cluster.gpu_types)
        largest = max((have[k] for k, kind in enumerate(cluster.gpu_types) if kind in named), default=0)
        if largest == 0:  # nothing of the kind here: drop the wish
            wishes[position], largest = -1, max(have)
        most.append(largest)
    wide = many(st.sampled_from([1, 2, 3, 4, 5, 6, 8, 12, 99]))
    submit = sorted(many(seconds(whole, draw(st.sampled_from([10, 40, 0]) if whole else st.just(20)))))
    waits = many(st.one_of(st.just(math.inf), seconds(whole, 40))) if cancels and draw(st.booleans()) else None
    return make_jobs(
        submit,
        duration,
        [min(m, w) for m, w in zip(most, wide, strict=True)],
        estimate=None if oracle else many(seconds(whole, 60)),
        user=many(st.integers(0, 2)),
        gpu_type=wishes,
        gpu_type_names=WISHES,
        grad_bytes=many(st.sampled_from([5.5e8, 1.4e9, 5.5e8, 1.4e9, 1e8, 0.0])),
        compute=many(st.sampled_from([0.05, 0.13, 0.02])),
        overlap=many(st.sampled_from([0.0, 0.0, 0.3, 1.0])),
        cancel=None if waits is None else [s + w + (1 if whole else 0.1) for s, w in zip(submit, waits, strict=True)],
        skewed=many(st.booleans()),
    )


@st.composite
def policies(draw: st.DrawFn, *, preemptive: bool = False, comm: bool | None = None) -> dict[str, Any]:
    """Keyword arguments of ``simulate_reference``."""
    enabled = draw(st.booleans()) if comm is None else comm
    options: dict[str, Any] = {
        "order": draw(st.sampled_from(("srtf", "srsf") if preemptive else ORDERS)),
        "placement": draw(st.sampled_from(PLACEMENTS)),
        "comm": enabled,
        "contention": draw(st.sampled_from(("equal", "none", "maxmin"))) if enabled else "equal",
        "allreduce": draw(st.sampled_from(("ring", "hierarchical"))) if enabled else "ring",
    }
    if preemptive:
        options["restart_cost"] = float(draw(st.sampled_from((0, 0, 1, 7))))
        return options
    options["queueing"] = draw(st.sampled_from(QUEUEINGS))
    theta = st.sampled_from((1.0, 1.05, 1.5, 3.0))
    options["hold"] = draw(st.none() | st.tuples(theta, st.sampled_from((0.0, 0.25, 1.0, 8.0))))
    options["max_wait"] = draw(st.none() | st.sampled_from((0.0, 4.0, 25.0)))
    return options


@st.composite
def instances(
    draw: st.DrawFn, *, preemptive: bool = False, comm: bool | None = None, max_jobs: int = 12, types: int = 3
) -> Instance:
    """A cluster, jobs that the placement rule can place on it, and a policy."""
    cluster = draw(clusters(types=types))
    options = draw(policies(preemptive=preemptive, comm=comm))
    jobs = draw(workloads(cluster, max_jobs=max_jobs))
    able = placeable(cluster, jobs, options["placement"])
    return Instance(cluster, jobs.replace(num_gpus=np.where(able, jobs.num_gpus, 1).astype(np.int32)), options)


def placeable(cluster: Cluster, jobs: Workload, placement: str) -> np.ndarray:
    """Which jobs the placement rule can place on the empty cluster."""
    tree = Tree(cluster)
    placer = Placer(tree, placement, Comm(tree), CloseCalls())
    return np.array([placer.fits(job, tree.size) for job in read_jobs(jobs, tree)])
