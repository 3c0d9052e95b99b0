"""Expand a checked description into the flat arrays of ``Cluster``.

Each group is built once and then repeated as arrays, so the time depends on the length of the description and on the
speed of ``numpy.tile``, hardly on the number of nodes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from attn_sched.cluster.spec import MAX_GPUS, MAX_VERTICES, UNLIMITED, ClusterSpec, GroupSpec, LinkSpec
from attn_sched.cluster.topology import NO_GPU_TYPES, Cluster

Counters = dict[str, int]  # prefix -> how many siblings bear it already
Scope = dict[int, LinkSpec]  # level -> uplink in force


@dataclass(frozen=True)
class _Forest:
    """Sibling vertices of one level with all that is below them; index l of a tuple is level l (index 0 unused)."""

    level: int
    gpus: int  # in all
    uplinks: float  # sum of the uplinks of the top vertices, seen through pass-through vertices; bytes/s
    kids: tuple[NDArray[np.int64], ...]  # children of each vertex; GPUs for level 1
    capacity: tuple[NDArray[np.float64], ...]
    latency: tuple[NDArray[np.float64], ...]
    through: tuple[NDArray[np.bool_], ...]
    names: tuple[list[str], ...]  # paths below the vertex that holds the forest
    gpu_capacity: NDArray[np.float64]  # per island
    gpu_latency: NDArray[np.float64]
    gpu_type: NDArray[np.int64]

    @property
    def count(self) -> int:
        return len(self.kids[self.level]) if self.level else self.gpus

    @property
    def vertices(self) -> int:
        return sum(len(kids) for kids in self.kids)


def _map(forests: Sequence[_Forest], level: int, join: Callable[[list[NDArray]], NDArray]) -> dict[str, object]:
    """The array fields of forests of one level, each joined over the forests by ``join``."""
    fields: dict[str, object] = {}
    for key in ("kids", "capacity", "latency", "through"):
        fields[key] = tuple(join([getattr(f, key)[at] for f in forests]) for at in range(level + 1))
    for key in ("gpu_capacity", "gpu_latency", "gpu_type"):
        fields[key] = join([getattr(f, key) for f in forests])
    return fields


def _side_by_side(forests: Sequence[_Forest]) -> _Forest:
    """Forests of the same level as one."""
    if len(forests) == 1:
        return forests[0]
    level = forests[0].level
    return _Forest(
        level=level,
        gpus=sum(f.gpus for f in forests),
        uplinks=sum(f.uplinks for f in forests),
        names=tuple([name for f in forests for name in f.names[at]] for at in range(level + 1)),
        **_map(forests, level, np.concatenate),  # type: ignore[arg-type]
    )


class _Builder:
    def __init__(self, spec: ClusterSpec) -> None:
        self.spec = spec
        self.types: dict[str, int] = {}
        self.untyped_line: int | None = None
        self.untyped = False

    # ---- pieces ----

    def _gpus(self, group: GroupSpec, link: LinkSpec, gpu_type: str | None) -> _Forest:
        if gpu_type is None:
            self.untyped, self.untyped_line = True, self.untyped_line or group.line
        index = self.types.setdefault(gpu_type or "", len(self.types))
        bandwidth = math.inf if link.bandwidth is None else link.bandwidth
        return _Forest(
            level=0,
            gpus=group.count,
            uplinks=group.count * bandwidth,
            kids=(np.empty(0, np.int64),),
            capacity=(np.empty(0),),
            latency=(np.empty(0),),
            through=(np.empty(0, np.bool_),),
            names=([],),
            gpu_capacity=np.array([bandwidth]),
            gpu_latency=np.array([link.latency or 0.0]),
            gpu_type=np.array([index]),
        )

    def _island(self, bundles: Sequence[_Forest], line: int | None) -> _Forest:
        """GPUs written side by side under one vertex become one bundle; they must be alike."""
        first = bundles[0]
        for other in bundles[1:]:
            for key, what in (("gpu_type", "types"), ("gpu_capacity", "links"), ("gpu_latency", "links")):
                if getattr(first, key)[0] != getattr(other, key)[0]:
                    raise self.spec.error(
                        f"GPUs of different {what} lie side by side under one vertex",
                        line=line,
                        expected="a level between them and this vertex, such as 'board', with a group for each kind",
                    )
        return replace(first, gpus=sum(b.gpus for b in bundles), uplinks=sum(b.uplinks for b in bundles))

    def _vertex(
        self, level: int, below: Sequence[_Forest], link: LinkSpec, line: int | None, *, through: bool = False
    ) -> _Forest:
        """One vertex of ``level``, not yet named, that holds ``below``."""
        direct = [forest for forest in below if forest.level == level - 1]
        if len(direct) < len(below):
            lower = [forest for forest in below if forest.level < level - 1]
            stand_in = self._vertex(level - 1, lower, UNLIMITED, line, through=True)
            named = self._placed(stand_in, [f"({self.spec.levels[level - 1]})"])
            at = next(i for i, forest in enumerate(below) if forest.level < level - 1)
            before = [forest for forest in below[:at] if forest.level == level - 1]
            direct = [*before, named, *direct[len(before) :]]
        held = self._island(direct, line) if level == 1 else _side_by_side(direct)
        capacity = held.uplinks if through else self._capacity(level, held.uplinks, link, line)
        if held.gpus > MAX_GPUS:
            raise self.spec.error(f"{held.gpus} GPUs", line=line, expected=f"at most {MAX_GPUS}")
        return _Forest(
            level=level,
            gpus=held.gpus,
            uplinks=capacity,
            kids=(*held.kids, np.array([held.count])),
            capacity=(*held.capacity, np.array([math.inf if through else capacity])),
            latency=(*held.latency, np.array([link.latency or 0.0])),
            through=(*held.through, np.array([through])),
            names=(*held.names, [""]),
            gpu_capacity=held.gpu_capacity,
            gpu_latency=held.gpu_latency,
            gpu_type=held.gpu_type,
        )

    def _capacity(self, level: int, uplinks: float, link: LinkSpec, line: int | None) -> float:
        if link.oversubscription is None:
            return math.inf if link.bandwidth is None else link.bandwidth
        if math.isinf(uplinks):
            raise self.spec.error(
                f"the oversubscription of level {self.spec.levels[level]!r} is a ratio of unlimited links",
                line=link.line or line,
                expected="a bandwidth_GBps here, or a limited bandwidth on the level below",
            )
        return uplinks / link.oversubscription

    def _placed(self, one: _Forest, names: list[str]) -> _Forest:
        """A single unnamed vertex repeated once a name, its descendants' names put under it."""
        count, level = len(names), one.level
        # A stand-in does not show in the paths of what it holds.
        heads = [""] * count if one.through[level][0] else [f"{name}/" for name in names]
        below = tuple([head + name for head in heads for name in one.names[at]] for at in range(level))
        return _Forest(
            level=level,
            gpus=one.gpus * count,
            uplinks=one.uplinks * count,
            names=(*below, names),
            **_map([one], level, lambda arrays: np.tile(arrays[0], count)),  # type: ignore[arg-type]
        )

    # ---- the description ----

    def _copies(self, one: _Forest, count: int, group: GroupSpec, counters: Counters, *, own: bool) -> _Forest:
        prefix = group.name if own and group.name is not None else self.spec.levels[one.level]
        if count * one.vertices > MAX_VERTICES:
            raise self.spec.error(f"more than {MAX_VERTICES:,} vertices", line=group.line, expected="a smaller count")
        if own and group.name is not None and count == 1:
            return self._placed(one, [group.name])
        start = counters.get(prefix, 0)
        counters[prefix] = start + count
        return self._placed(one, [f"{prefix}{i}" for i in range(start, start + count)])

    def _group(self, group: GroupSpec, outer: Scope, gpu_type: str | None, counters: Counters) -> _Forest:
        scope = {**outer, **{at: link.over(outer.get(at, UNLIMITED)) for at, link in group.links.items()}}
        gpu_type = group.gpu_type or gpu_type
        if group.level == 0:
            return self._gpus(group, scope.get(0, UNLIMITED), gpu_type)
        inner: Counters = {}
        below = self._siblings(group.children, scope, gpu_type, inner)
        one = self._vertex(group.level, below, scope.get(group.level, UNLIMITED), group.line)

        def wrapped(step: int, amount: int, names: Counters) -> _Forest:
            """``amount`` copies under as few vertices of the step's level as hold them; the last may be part full."""
            if step < 0:
                return self._copies(one, amount, group, names, own=True)
            level = group.per[step][0]
            size = math.prod(held for _, held in group.per[: step + 1])
            full, rest = divmod(amount, size)
            parts = []
            for held, times in ((size, full), (rest, 1)):
                if held and times:
                    link = scope.get(level, UNLIMITED)
                    vertex = self._vertex(level, [wrapped(step - 1, held, {})], link, group.line)
                    parts.append(self._copies(vertex, times, group, names, own=False))
            return _side_by_side(parts)

        return wrapped(len(group.per) - 1, group.count, counters)

    def _siblings(
        self, groups: Sequence[GroupSpec], scope: Scope, gpu_type: str | None, counters: Counters
    ) -> list[_Forest]:
        """All groups under one vertex; no two vertices may come out with the same name."""
        forests, seen = [], set[str]()
        for group in groups:
            forest = self._group(group, scope, gpu_type, counters)
            for name in forest.names[forest.level]:
                if name in seen:
                    raise self.spec.error(
                        f"a second vertex named {name!r} under one parent", line=group.line, expected="another name"
                    )
                seen.add(name)
            forests.append(forest)
        return forests

    def cluster(self) -> Cluster:
        spec, top = self.spec, len(self.spec.levels)
        counters: Counters = {}
        below = self._siblings(spec.tree, spec.links, spec.gpu_type, counters)
        root = self._vertex(top, below, UNLIMITED, None)
        root.names[top][0] = spec.name
        if self.untyped and len(self.types) > 1:
            raise spec.error(
                "these GPUs have no gpu_type though others do",
                line=self.untyped_line,
                expected="a gpu_type for all or none",
            )
        names = tuple(name for at in range(1, top + 1) for name in root.names[at])
        if names.count(spec.name) > 1:
            raise spec.error(
                f"the name {spec.name!r} is also that of a vertex", expected="another name for the cluster"
            )
        return _flatten(spec, root, names, tuple(self.types) if not self.untyped else NO_GPU_TYPES)


def _flatten(spec: ClusterSpec, root: _Forest, names: tuple[str, ...], types: tuple[str, ...]) -> Cluster:
    top = root.level
    sizes = [len(kids) for kids in root.kids]  # sizes[0] is 0
    offsets = np.cumsum([0, *sizes])  # offsets[l]: first vertex of level l; offsets[1] is 0
    count = int(offsets[-1])
    parent = np.full(count, -1, np.int32)
    child_lo = np.zeros(count, np.int32)
    child_hi = np.zeros(count, np.int32)
    gpus = np.zeros(count, np.int32)
    gpus[: sizes[1]] = root.kids[1]
    for level in range(2, top + 1):
        here = slice(offsets[level], offsets[level + 1])
        ends = offsets[level - 1] + np.cumsum(root.kids[level])
        child_hi[here] = ends
        child_lo[here] = ends - root.kids[level]
        parent[offsets[level - 1] : offsets[level]] = np.repeat(np.arange(here.start, here.stop), root.kids[level])
        below = gpus[offsets[level - 1] : offsets[level]]
        gpus[here] = np.add.reduceat(below, child_lo[here] - offsets[level - 1])
    node_level = spec.levels.index("node") if "node" in spec.levels else 1
    return Cluster(
        name=spec.name,
        description=spec.description,
        level_names=spec.levels,
        level_off=offsets.astype(np.int32),
        parent=parent,
        child_lo=child_lo,
        child_hi=child_hi,
        gpus=gpus,
        capacity=np.concatenate(root.capacity),
        latency=np.concatenate(root.latency),
        through=np.concatenate(root.through),
        gpu_capacity=root.gpu_capacity,
        gpu_latency=root.gpu_latency,
        island_type=root.gpu_type.astype(np.int32),
        gpu_types=types,
        gpu_off=np.concatenate([[0], np.cumsum(root.kids[1])]).astype(np.int32),
        vertex_names=names,
        node_level=node_level,
        unit_level=node_level if spec.unit is None else spec.unit,
    )


def build_cluster(spec: ClusterSpec) -> Cluster:
    """The flat arrays of a checked description.

    Raises:
        InputError: what only the expansion shows: oversubscribed unlimited links, unlike GPUs side by side, a mix of
            typed and untyped GPUs, more vertices than memory should hold.
    """
    return _Builder(spec).cluster()
