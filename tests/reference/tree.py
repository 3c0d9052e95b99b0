"""The cluster tree as plain Python lists, and the rule ``topo-best-fit`` on it.

Everything is counted from scratch from ``free``, a list with the free GPUs of every island (the level-1 vertices).
"""

from __future__ import annotations

from typing import Any

Placement = dict[int, int]
"""GPUs taken from each island: ``{island: count}`` with counts > 0."""

Free = list[int]
"""Free GPUs of each island."""


class Tree:
    """A read-only view of an ``attn_sched.cluster.topology.Cluster`` (or of anything with the same arrays)."""

    def __init__(self, cluster: Any) -> None:
        self.top: int = len(cluster.level_names)  # the level of the root
        off = [int(x) for x in cluster.level_off]
        self.at: list[list[int]] = [[]] + [list(range(off[lev], off[lev + 1])) for lev in range(1, self.top + 1)]
        self.level: dict[int, int] = {v: lev for lev in range(1, self.top + 1) for v in self.at[lev]}
        self.parent = [int(x) for x in cluster.parent]
        self.children = [
            list(range(int(lo), int(hi))) if self.level[v] > 1 else []
            for v, (lo, hi) in enumerate(zip(cluster.child_lo, cluster.child_hi, strict=True))
        ]
        self.capacity = [float(x) for x in cluster.capacity]
        self.latency = [float(x) for x in cluster.latency]
        self.gpu_capacity = [float(x) for x in cluster.gpu_capacity]
        self.gpu_latency = [float(x) for x in cluster.gpu_latency]
        self.island_type = [int(x) for x in cluster.island_type]
        self.gpu_types: tuple[str, ...] = tuple(cluster.gpu_types)
        self.typed = self.gpu_types != ("",)
        self.islands = self.at[1]
        self.size: Free = [int(cluster.gpus[i]) for i in self.islands]  # GPUs of each island
        self.root = self.at[self.top][0]
        self.nodes = self.at[int(cluster.node_level)]
        self.num_gpus = sum(self.size)
        self._below = {v: [i for i in self.islands if v in self.path(i)] for v in self.level}

    def path(self, island: int) -> list[int]:
        """The vertices from ``island`` up to the root, both included."""
        found = [island]
        while self.parent[found[-1]] >= 0:
            found.append(self.parent[found[-1]])
        return found

    def islands_under(self, vertex: int) -> list[int]:
        """The islands in the subtree of ``vertex``."""
        return self._below[vertex]

    def count(self, vertex: int, free: Free, kind: int) -> int:
        """Free GPUs of type ``kind`` below ``vertex``."""
        return sum(free[i] for i in self._below[vertex] if self.island_type[i] == kind)

    def used_at(self, level: int, placement: Placement) -> set[int]:
        """The vertices of ``level`` that hold a GPU of ``placement``."""
        return {self.path(i)[level - 1] for i in placement}

    def vertices_in(self, root: int, level: int) -> list[int]:
        """The vertices of ``level`` in the subtree of ``root``."""
        return [v for v in self.at[level] if set(self._below[v]) <= set(self._below[root])]


def best_candidate(tree: Tree, free: Free, kind: int, candidates: list[int], need: int) -> Placement:
    """``need`` GPUs in the best one of ``candidates``, vertices of one level that each have so many free.

    Fewest vertices used at each level below, from the highest down; then fewest free GPUs; then the lowest index.
    """

    def rank(vertex: int) -> tuple[list[int], int, int]:
        placement = split(tree, free, kind, vertex, need)
        below = range(tree.level[vertex] - 1, 0, -1)
        return [len(tree.used_at(lev, placement)) for lev in below], tree.count(vertex, free, kind), vertex

    return split(tree, free, kind, min(candidates, key=rank), need)


def split(tree: Tree, free: Free, kind: int, vertex: int, need: int) -> Placement:
    """``need`` GPUs in the subtree of ``vertex``: its emptiest children whole until one child can hold the rest."""
    if tree.level[vertex] == 1:
        return {vertex: need}
    untaken = sorted(tree.children[vertex], key=lambda c: (-tree.count(c, free, kind), c))
    placement: Placement = {}
    rest = need
    while rest > 0 and not any(tree.count(c, free, kind) >= rest for c in untaken):
        child = untaken.pop(0)
        rest -= tree.count(child, free, kind)
        for i in tree.islands_under(child):
            if tree.island_type[i] == kind and free[i] > 0:
                placement[i] = free[i]
    if rest > 0:
        room = [c for c in untaken if tree.count(c, free, kind) >= rest]
        placement.update(best_candidate(tree, free, kind, room, rest))
    return placement


def topo_best_fit(tree: Tree, free: Free, kind: int, need: int, root: int | None = None) -> Placement | None:
    """The rule ``topo-best-fit`` in the subtree of ``root`` (default: the whole tree); None if too few are free."""
    top = tree.root if root is None else root
    for level in range(1, tree.level[top] + 1):
        room = [v for v in tree.vertices_in(top, level) if tree.count(v, free, kind) >= need]
        if room:
            return best_candidate(tree, free, kind, room, need)
    return None


def kind_rank(tree: Tree, free: Free, kind: int, need: int) -> tuple[int, int, int, int]:
    """How good a GPU type is for a gang that may use several: less is better.

    Of its ``topo-best-fit`` placement: top-level vertices (racks) used, nodes used, GPUs of the type left over in the
    nodes touched; then the index of the type.
    """
    placement = topo_best_fit(tree, free, kind, need)
    assert placement is not None
    nodes = tree.used_at(tree.level[tree.nodes[0]], placement)
    left = sum(tree.count(v, free, kind) for v in nodes) - need
    return len(tree.used_at(max(1, tree.top - 1), placement)), len(nodes), left, kind
