"""What a cluster's links amount to: a summary of each level, and the bisection bandwidth."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attn_sched.cluster.topology import Cluster


@dataclass(frozen=True)
class LevelSummary:
    """The vertices of one level (GPUs for level 0), pass-through vertices left out. Ranges are (least, most)."""

    level: int
    name: str
    count: int
    gpus: tuple[int, int]  # below each
    children: tuple[int, int]  # of each; 0 for GPUs
    bandwidth: tuple[float, float]  # uplink, bytes/s per direction, inf = unlimited
    latency: tuple[float, float]  # uplink, s
    # Sum of the children's uplinks / own uplink; None where not both limited.
    oversubscription: tuple[float, float] | None


def _range(values: NDArray) -> tuple[float, float]:
    return float(values.min()), float(values.max())


def _uplinks_seen(cluster: Cluster) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Of each vertex: its uplink as its parent's share counts it (a pass-through passes on what its children have), and
    the sum over its children. Shapes [V]."""
    below = np.zeros(cluster.num_vertices)
    seen = cluster.capacity.copy()
    islands = cluster.num_islands
    below[:islands] = cluster.gpus[:islands] * cluster.gpu_capacity
    for level in range(1, cluster.num_levels + 1):
        here = slice(int(cluster.level_off[level]), int(cluster.level_off[level + 1]))
        if level > 1:
            first = int(cluster.level_off[level - 1])
            children = seen[first : here.start]
            below[here] = np.add.reduceat(children, cluster.child_lo[here] - first)
        seen[here] = np.where(cluster.through[here], below[here], cluster.capacity[here])
    return seen, below


def level_summaries(cluster: Cluster) -> list[LevelSummary]:
    """One record a level, leaves first, the root left out."""
    latency, capacity = cluster.gpu_latency, cluster.gpu_capacity
    summaries = [
        LevelSummary(
            0, cluster.level_names[0], cluster.num_gpus, (1, 1), (0, 0), _range(capacity), _range(latency), None
        )
    ]
    _, below = _uplinks_seen(cluster)
    for level in range(1, cluster.num_levels):
        ids = np.array(cluster.vertices(level))
        ids = ids[~cluster.through[ids]]
        children = cluster.gpus[ids] if level == 1 else cluster.child_hi[ids] - cluster.child_lo[ids]
        limited = ids[np.isfinite(cluster.capacity[ids]) & np.isfinite(below[ids])]
        gpus = cluster.gpus[ids]
        summaries.append(
            LevelSummary(
                level=level,
                name=cluster.level_names[level],
                count=len(ids),
                gpus=(int(gpus.min()), int(gpus.max())),
                children=(int(children.min()), int(children.max())),
                bandwidth=_range(cluster.capacity[ids]),
                latency=_range(cluster.latency[ids]),
                oversubscription=_range(below[limited] / cluster.capacity[limited]) if len(limited) else None,
            )
        )
    return summaries


# ---- bisection ----
#
# A cut gives every vertex, switches included, one of two sides; it costs the capacity of the links whose ends differ.
# Entry k of a table is the least cost of a subtree with k units of GPUs on side A while the vertex above is on side B.
# With that vertex on side A the same entry holds for k units on side B, so one table is enough.


def _cheapest_sum(left: NDArray[np.float64], right: NDArray[np.float64], most: int) -> NDArray[np.float64]:
    """min over i of left[i] + right[k - i], for k up to ``most``."""
    if np.isfinite(left).sum() < np.isfinite(right).sum():
        left, right = right, left
    total = np.full(min(len(left) + len(right) - 1, most + 1), math.inf)
    for shift in np.flatnonzero(np.isfinite(right)):
        if shift < len(total):
            part = left[: len(total) - shift]
            np.minimum(total[shift : shift + len(part)], part + right[shift], out=total[shift : shift + len(part)])
    return total


def _with_uplink(table: NDArray[np.float64], capacity: float) -> NDArray[np.float64]:
    """The table of a vertex seen from its parent on side B: the vertex sides with it, or is cut off."""
    return np.minimum(table, table[::-1] + capacity)


BISECTION_PARTS = 50_000  # in units of the nodes' greatest common divisor; a few seconds


def bisection_bandwidth(cluster: Cluster) -> float:
    """The least capacity of links whose cut parts the cluster in two halves, bytes/s per direction; inf without limits.

    The halves are made of whole nodes and are as equal in GPUs as whole nodes allow. A cluster of one node is halved by
    islands, one of a single island by GPUs. Exact, by the usual dynamic programme for the least bisection of a tree,
    whose time grows with the square of the number of nodes at worst: nan beyond ``BISECTION_PARTS``.
    """
    base = cluster.node_level
    if len(cluster.vertices(base)) == 1:
        base = 1
    if len(cluster.vertices(base)) == 1:
        return cluster.num_gpus // 2 * float(cluster.gpu_capacity[0])
    ids = cluster.vertices(base)
    unit = int(np.gcd.reduce(cluster.gpus[ids.start : ids.stop]))
    total = cluster.num_gpus // unit
    if total > BISECTION_PARTS:
        return math.nan
    half = _nearest_to_half(cluster.gpus[ids.start : ids.stop] // unit)
    tables: dict[int, NDArray[np.float64]] = {}
    shared: dict[tuple, NDArray[np.float64]] = {}  # alike subtrees are worked out once
    kind: dict[int, tuple] = {}
    for vertex in ids:
        size = int(cluster.gpus[vertex]) // unit
        capacity = float(cluster.capacity[vertex])
        kind[vertex] = (size, capacity)
        if kind[vertex] not in shared:
            table = np.full(size + 1, math.inf)
            table[0] = 0.0  # the node is never split
            shared[kind[vertex]] = _with_uplink(table, capacity)
        tables[vertex] = shared[kind[vertex]]
    for level in range(base + 1, cluster.num_levels + 1):
        for vertex in cluster.vertices(level):
            children = range(int(cluster.child_lo[vertex]), int(cluster.child_hi[vertex]))
            capacity = float(cluster.capacity[vertex])
            kind[vertex] = (level, capacity, tuple(kind[child] for child in children))
            if kind[vertex] not in shared:
                is_root = level == cluster.num_levels
                table = np.zeros(1)
                for child in children:
                    # The halves are all that is asked of the root; _with_uplink needs whole tables.
                    table = _cheapest_sum(table, tables[child], total - half if is_root else total)
                shared[kind[vertex]] = table if is_root else _with_uplink(table, capacity)
            tables[vertex] = shared[kind[vertex]]
    root = tables[cluster.num_vertices - 1]
    return float(min(root[half], root[total - half]))  # the root may be on the side of either half


def _nearest_to_half(sizes: NDArray[np.int32]) -> int:
    """The sum nearest to half of all that some of the sizes add up to, from below."""
    bits = 1
    for size in sizes:
        bits |= bits << int(size)
    half = int(sizes.sum()) // 2
    return (bits & ((1 << (half + 1)) - 1)).bit_length() - 1
