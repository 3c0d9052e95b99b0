"""The cluster as the engine sees it: one tree, flattened into arrays.

GPUs are level 0 and have no vertex of their own; the vertices of level 1 ("islands") count them. Vertices are numbered
level by level, islands first, depth first inside a level, the root last, so a vertex's children are contiguous. Every
leaf-to-root path meets every level: where part of the tree misses one, a pass-through vertex (uplink unlimited, latency
0) stands in.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import networkx

    from attn_sched.cluster.links import LevelSummary

NO_GPU_TYPES = ("",)


@dataclass(frozen=True, eq=False)
class Cluster:
    """A tree of L levels below the root, V vertices, I islands (vertices of level 1). Treat the arrays as read-only."""

    name: str
    description: str
    level_names: tuple[str, ...]  # [L] leaves first, "gpu" first; the root is not named
    level_off: NDArray[np.int32]  # [L+2] vertices of level l >= 1 are level_off[l] .. level_off[l+1]-1
    parent: NDArray[np.int32]  # [V] -1 for the root
    child_lo: NDArray[np.int32]  # [V] children are vertices child_lo .. child_hi-1; 0, 0 for islands
    child_hi: NDArray[np.int32]  # [V]
    gpus: NDArray[np.int32]  # [V] GPUs below
    capacity: NDArray[np.float64]  # [V] uplink, bytes/s per direction; inf = unlimited (root, pass-through)
    latency: NDArray[np.float64]  # [V] uplink, s; 0 for the root and pass-through vertices
    through: NDArray[np.bool_]  # [V] stands in for a level this part of the tree does not have
    gpu_capacity: NDArray[np.float64]  # [I] uplink of each GPU of the island, bytes/s per direction
    gpu_latency: NDArray[np.float64]  # [I] s
    island_type: NDArray[np.int32]  # [I] index in gpu_types: an island holds GPUs of one type
    gpu_types: tuple[str, ...]  # ("",) when the description names none: wishes for a type are then ignored
    gpu_off: NDArray[np.int32]  # [I+1] GPUs of island i have the ids gpu_off[i] .. gpu_off[i+1]-1
    vertex_names: tuple[str, ...]  # [V] unique paths such as "rack0/node3"; the root bears the cluster's name
    node_level: int  # what rules call a node: the level named "node", else 1
    unit_level: int  # where a GPU agent chooses; 0 = single GPUs

    @property
    def num_levels(self) -> int:
        """L: the root is a vertex of this level."""
        return len(self.level_names)

    @property
    def num_vertices(self) -> int:
        """V, root and pass-through vertices included."""
        return len(self.parent)

    @property
    def num_islands(self) -> int:
        """I, the number of vertices of level 1; they are vertices 0 .. I-1."""
        return int(self.level_off[2])

    @property
    def num_gpus(self) -> int:
        """GPUs of the whole cluster."""
        return int(self.gpus[-1])

    @property
    def typed(self) -> bool:
        """Whether the description names GPU types."""
        return self.gpu_types != NO_GPU_TYPES

    @cached_property
    def _ancestors(self) -> tuple[NDArray[np.int32], ...]:
        rows = [np.arange(self.num_islands, dtype=np.int32)]
        for _ in range(2, self.num_levels + 1):
            rows.append(self.parent[rows[-1]])
        return tuple(rows)

    def ancestor(self, level: int) -> NDArray[np.int32]:
        """The vertex of ``level`` (1 .. L) above each island (the island itself for 1), shape [I].

        Raises:
            ValueError: no such level.
        """
        if not 1 <= level <= self.num_levels:
            raise ValueError(f"level {level} is not one of 1 .. {self.num_levels}")
        return self._ancestors[level - 1]

    def vertices(self, level: int) -> range:
        """The ids of the vertices of ``level`` (1 .. L)."""
        return range(int(self.level_off[level]), int(self.level_off[level + 1]))

    def level_name(self, level: int) -> str:
        """The name of a level; ``root`` for L."""
        return self.level_names[level] if level < self.num_levels else "root"

    def with_unit(self, unit: str) -> Cluster:
        """The same cluster with another placement unit, named by its level.

        Raises:
            ValueError: no such level.
        """
        if unit not in self.level_names:
            raise ValueError(f"no level named {unit!r}; the levels are {', '.join(self.level_names)}")
        return dataclasses.replace(self, unit_level=self.level_names.index(unit))

    def to_networkx(self, *, gpus: bool = True) -> networkx.DiGraph:
        """The tree as a ``networkx.DiGraph``, edges pointing down; see ``attn_sched.cluster.convert``."""
        from attn_sched.cluster.convert import to_networkx

        return to_networkx(self, gpus=gpus)

    def bisection_bandwidth(self) -> float:
        """Bytes/s per direction between two halves of the cluster; see ``attn_sched.cluster.links``."""
        from attn_sched.cluster.links import bisection_bandwidth

        return bisection_bandwidth(self)

    def levels(self) -> list[LevelSummary]:
        """What each level consists of, leaves first; see ``attn_sched.cluster.links``."""
        from attn_sched.cluster.links import level_summaries

        return level_summaries(self)
