"""Small clusters and workloads as flat arrays, written out by hand here so that tests need no reader or builder."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attn_sched.cluster.topology import Cluster
from attn_sched.workload.workload import Workload


@dataclass(frozen=True)
class Island:
    """A level-1 vertex: so many GPUs of one type, their uplinks and its own (bytes/s, seconds)."""

    gpus: int
    kind: int = 0
    capacity: float = math.inf
    latency: float = 0.0
    gpu_capacity: float = math.inf
    gpu_latency: float = 0.0
    through: bool = False
    """Stands in for a level that the node above does not have: no link of its own."""


@dataclass(frozen=True)
class Group:
    """A vertex above the islands with its uplink; all its children are of the level below."""

    children: tuple[Vertex, ...]
    capacity: float = math.inf
    latency: float = 0.0


Vertex = Island | Group

LEVELS: dict[int, tuple[str, ...]] = {
    1: ("gpu",),
    2: ("gpu", "node"),
    3: ("gpu", "node", "rack"),
    4: ("gpu", "nvlink", "node", "rack"),
}
"""Level names by the level of the root, unless told otherwise."""


def make_cluster(
    root: Vertex, gpu_types: Sequence[str] = ("",), level_names: Sequence[str] | None = None, name: str = "small"
) -> Cluster:
    """The cluster whose root is ``root``; every path from the root down must have the same length."""
    layers: list[list[tuple[Vertex, int]]] = [[(root, -1)]]  # from the root down: vertex, position of its parent above
    while isinstance(layers[-1][0][0], Group):
        below: list[tuple[Vertex, int]] = []
        for position, (vertex, _) in enumerate(layers[-1]):
            if isinstance(vertex, Island):
                raise ValueError("paths of different lengths")
            below.extend((child, position) for child in vertex.children)
        layers.append(below)
    layers.reverse()
    islands = [vertex for vertex, _ in layers[0] if isinstance(vertex, Island)]
    if len(islands) < len(layers[0]):
        raise ValueError("paths of different lengths")
    first = [0, *np.cumsum([len(layer) for layer in layers]).tolist()]  # the first vertex of each level, from level 1
    total = first[-1]
    parent, low, high, gpus = [-1] * total, [0] * total, [0] * total, [0] * total
    vertices: list[Vertex] = []
    for level, layer in enumerate(layers):
        for position, (vertex, above) in enumerate(layer):
            v = first[level] + position
            vertices.append(vertex)
            if above >= 0:
                parent[v] = first[level + 1] + above
            if isinstance(vertex, Island):
                gpus[v] = vertex.gpus
            else:
                mine = [first[level - 1] + p for p, (_, up) in enumerate(layers[level - 1]) if up == position]
                low[v], high[v] = mine[0], mine[-1] + 1
                gpus[v] = sum(gpus[c] for c in mine)
    names = tuple(level_names or LEVELS[len(layers)])
    node_level = names.index("node") if "node" in names else 1
    return Cluster(
        name=name,
        description="",
        level_names=names,
        level_off=np.array([0, *first], dtype=np.int32),
        parent=np.array(parent, dtype=np.int32),
        child_lo=np.array(low, dtype=np.int32),
        child_hi=np.array(high, dtype=np.int32),
        gpus=np.array(gpus, dtype=np.int32),
        capacity=np.array([math.inf if up < 0 else v.capacity for v, up in zip(vertices, parent, strict=True)]),
        latency=np.array([0.0 if up < 0 else v.latency for v, up in zip(vertices, parent, strict=True)]),
        through=np.array([isinstance(vertex, Island) and vertex.through for vertex in vertices]),
        gpu_capacity=np.array([island.gpu_capacity for island in islands]),
        gpu_latency=np.array([island.gpu_latency for island in islands]),
        island_type=np.array([island.kind for island in islands], dtype=np.int32),
        gpu_types=tuple(gpu_types),
        gpu_off=np.array([0, *np.cumsum([island.gpus for island in islands])], dtype=np.int32),
        vertex_names=(*(f"v{v}" for v in range(total - 1)), name),
        node_level=node_level,
        unit_level=node_level,
    )


def count_cluster(gpus: int) -> Cluster:
    """One pool of GPUs without links."""
    return make_cluster(Island(gpus))


def node_cluster(nodes: int, gpus: int, **links: Any) -> Cluster:
    """Equal nodes under one switch; ``links`` are fields of ``Island``."""
    return make_cluster(Group((Island(gpus, **links),) * nodes))


def make_jobs(
    submit: Sequence[float],
    duration: Sequence[float],
    gpus: Sequence[int],
    *,
    estimate: Sequence[float] | None = None,
    user: Sequence[int] | None = None,
    gpu_type: Sequence[int] | None = None,
    gpu_type_names: Sequence[str] = (),
    grad_bytes: Sequence[float] | float = 0.0,
    compute: Sequence[float] | float = 1.0,
    overlap: Sequence[float] | float = 0.0,
    cancel: Sequence[float] | None = None,
    skewed: Sequence[bool] | None = None,
) -> Workload:
    """Jobs from columns; what is left out is neutral: oracle estimates, one user, any GPU type, no communication."""
    count = len(submit)

    def column(values: Sequence[Any] | float | None, default: float, dtype: type) -> np.ndarray:
        filled = default if values is None else values
        return np.array(np.broadcast_to(np.asarray(filled, dtype=dtype), (count,)))

    users = column(user, 0, np.int32)
    return Workload(
        name="drawn",
        job_id=np.array([str(j) for j in range(count)], dtype=object),
        submit_s=column(submit, 0, np.float64),
        duration_s=column(duration, 0, np.float64),
        num_gpus=column(gpus, 1, np.int32),
        estimate_s=column(duration if estimate is None else estimate, 0, np.float64),
        requested_s=np.full(count, np.nan),
        user=users,
        user_names=tuple(f"user{u}" for u in range(int(users.max()) + 1)),
        trace_user=np.full(count, -1, dtype=np.int32),
        trace_user_names=(),
        group=np.full(count, -1, dtype=np.int32),
        group_names=(),
        gpu_type=column(gpu_type, -1, np.int32),
        gpu_type_names=tuple(gpu_type_names),
        model=np.zeros(count, dtype=np.int32),
        model_names=("drawn",),
        grad_bytes=column(grad_bytes, 0, np.float64),
        compute_s=column(compute, 1, np.float64),
        overlap=column(overlap, 0, np.float64),
        skewed=column(skewed, 0, np.bool_),
        priority=np.zeros(count, dtype=np.int32),
        cancel_s=column(cancel, math.inf, np.float64),
        counted=np.ones(count, dtype=np.bool_),
        info={},
    )
