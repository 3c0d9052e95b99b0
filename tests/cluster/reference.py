"""The YAML format expanded the slow way, object by object: an independent reading of docs/clusters.md for the tests."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from attn_sched.cluster import Cluster


@dataclass
class Vertex:
    """One vertex, written out."""

    level: int
    capacity: float  # bytes/s
    latency: float  # s
    through: bool = False
    children: list[Vertex] = field(default_factory=list)  # above level 1
    gpus: int = 0  # of an island
    gpu_link: tuple[float, float] = (math.inf, 0.0)
    gpu_type: str = ""

    def seen(self) -> float:
        """What the parent's oversubscription counts."""
        if not self.through:
            return self.capacity
        return self.gpus * self.gpu_link[0] if self.level == 1 else sum(child.seen() for child in self.children)

    def at(self, level: int) -> list[Vertex]:
        """Vertices of a level below, depth first."""
        return [self] if level == self.level else [v for child in self.children for v in child.at(level)]

    def total(self) -> int:
        """GPUs below."""
        return self.gpus if self.level == 1 else sum(child.total() for child in self.children)


@dataclass
class Gpus:
    """GPUs directly under a vertex."""

    count: int
    link: tuple[float, float]
    gpu_type: str
    level: int = 0


def _merge(scope: dict, links: dict) -> dict:
    out = {level: dict(link) for level, link in scope.items()}
    for level, link in links.items():
        old = out.setdefault(level, {})
        if "bandwidth_GBps" in link or "oversubscription" in link:
            old.pop("bandwidth_GBps", None)
            old.pop("oversubscription", None)
        old.update(link)
    return out


class Expansion:
    """A whole document as vertices."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.levels: list[str] = document["levels"]
        items = [
            item
            for group in document["tree"]
            for item in self.group(group, document.get("links", {}), document.get("gpu_type", ""))
        ]
        self.root = self.vertex(len(self.levels), items, {"bandwidth_GBps": math.inf})

    def vertex(self, level: int, items: list, link: dict, through: bool = False) -> Vertex:
        made = Vertex(level, math.inf, link.get("latency_us", 0) / 1e6, through)
        if level == 1:
            made.gpus = sum(item.count for item in items)
            made.gpu_link, made.gpu_type = items[0].link, items[0].gpu_type
            below = made.gpus * made.gpu_link[0]
        else:
            lower = [item for item in items if item.level < level - 1]
            for item in items:
                if item.level == level - 1:
                    made.children.append(item)
                elif item is lower[0]:
                    made.children.append(self.vertex(level - 1, lower, {}, through=True))
            below = sum(child.seen() for child in made.children)
        if not through:
            if "oversubscription" in link:
                made.capacity = below / link["oversubscription"]
            elif link.get("bandwidth_GBps") not in (None, "unlimited"):
                made.capacity = link["bandwidth_GBps"] * 1e9
        return made

    def group(self, group: dict, scope: dict, gpu_type: str) -> list:
        scope = _merge(scope, group.get("links", {}))
        gpu_type = group.get("gpu_type", gpu_type)
        name = next(key for key in self.levels if key in group)
        level, count = self.levels.index(name), group[name]
        if level == 0:
            return [self.gpus(count, scope, gpu_type)]

        def one() -> Vertex:
            if "gpus" in group:
                items = [self.gpus(group["gpus"], scope, gpu_type)]
            else:
                items = [item for child in group["children"] for item in self.group(child, scope, gpu_type)]
            return self.vertex(level, items, scope.get(name, {}))

        made = [one() for _ in range(count)]
        for wrapper in self.levels:
            size = group.get("per", {}).get(wrapper)
            if size:
                at = self.levels.index(wrapper)
                made = [self.vertex(at, made[i : i + size], scope.get(wrapper, {})) for i in range(0, len(made), size)]
        return made

    def gpus(self, count: int, scope: dict, gpu_type: str) -> Gpus:
        link = scope.get("gpu", {})
        bandwidth = link.get("bandwidth_GBps", "unlimited")
        capacity = math.inf if bandwidth == "unlimited" else bandwidth * 1e9
        return Gpus(count, (capacity, link.get("latency_us", 0) / 1e6), gpu_type)


def check_arrays(cluster: Cluster) -> None:
    """What must hold of any cluster's arrays, whatever it was made from."""
    levels, count, islands = cluster.num_levels, cluster.num_vertices, cluster.num_islands
    assert len(cluster.level_off) == levels + 2
    assert cluster.level_off[0] == cluster.level_off[1] == 0 and cluster.level_off[-1] == count
    assert (np.diff(cluster.level_off[1:]) > 0).all() and len(cluster.vertices(levels)) == 1
    for name in ("parent", "child_lo", "child_hi", "gpus", "capacity", "latency", "through"):
        assert getattr(cluster, name).shape == (count,), name
    for name in ("gpu_capacity", "gpu_latency", "island_type"):
        assert getattr(cluster, name).shape == (islands,), name
    for name in ("level_off", "parent", "child_lo", "child_hi", "gpus", "island_type", "gpu_off"):
        assert getattr(cluster, name).dtype == np.int32, name
    for name in ("capacity", "latency", "gpu_capacity", "gpu_latency"):
        assert getattr(cluster, name).dtype == np.float64, name
    assert cluster.parent[-1] == -1 and (cluster.parent[:-1] >= 0).all()
    assert cluster.capacity[-1] == math.inf and cluster.latency[-1] == 0.0
    assert (cluster.gpus > 0).all() and (cluster.capacity > 0).all() and (cluster.latency >= 0).all()
    assert len(set(cluster.vertex_names)) == count and cluster.vertex_names[-1] == cluster.name
    assert (cluster.capacity[cluster.through] == math.inf).all() and (cluster.latency[cluster.through] == 0.0).all()
    assert cluster.gpu_off[0] == 0 and (np.diff(cluster.gpu_off) == cluster.gpus[:islands]).all()
    assert cluster.gpu_off[-1] == cluster.num_gpus
    assert (cluster.child_lo[:islands] == 0).all() and (cluster.child_hi[:islands] == 0).all()
    for level in range(2, levels + 1):
        at = int(cluster.level_off[level - 1])
        for vertex in cluster.vertices(level):
            low, high = int(cluster.child_lo[vertex]), int(cluster.child_hi[vertex])
            assert low == at < high, "children are contiguous and in order"
            at = high
            assert (cluster.parent[low:high] == vertex).all()
            assert cluster.gpus[low:high].sum() == cluster.gpus[vertex]
        assert at == cluster.level_off[level]
    here: np.ndarray = np.arange(islands)
    for level in range(1, levels + 1):
        assert (cluster.ancestor(level) == here).all()
        here = cluster.parent[here]
    assert set(cluster.island_type.tolist()) <= set(range(len(cluster.gpu_types)))


def check_against(cluster: Cluster, document: dict[str, Any]) -> None:
    """The cluster's arrays equal the slow expansion of its document."""
    slow = Expansion(document)
    for level in range(1, cluster.num_levels + 1):
        vertices = slow.root.at(level)
        ids = cluster.vertices(level)
        assert len(vertices) == len(ids)
        assert [v.total() for v in vertices] == cluster.gpus[ids].tolist()
        assert [v.through for v in vertices] == cluster.through[ids].tolist()
        assert np.allclose([v.capacity for v in vertices], cluster.capacity[ids], rtol=1e-12)
        assert [v.latency for v in vertices] == cluster.latency[ids].tolist()
        if level > 1:
            assert [len(v.children) for v in vertices] == (cluster.child_hi[ids] - cluster.child_lo[ids]).tolist()
    islands = slow.root.at(1)
    assert [v.gpu_link for v in islands] == list(zip(cluster.gpu_capacity, cluster.gpu_latency, strict=True))
    assert [v.gpu_type for v in islands] == [cluster.gpu_types[t] for t in cluster.island_type]
