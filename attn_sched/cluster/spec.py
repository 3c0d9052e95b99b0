"""A cluster as its file describes it: plain, checked records, before anything is expanded.

``attn_sched.cluster.yamlfile`` reads them from YAML, ``attn_sched.cluster.shorthands`` writes them from names like
``nodes:12x8``, ``attn_sched.cluster.build`` expands them into flat arrays.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

from attn_sched.errors import InputError

GB = 1e9  # bytes; network figures are decimal

MAX_VERTICES = 500_000  # of one cluster: a slip in a count should end in a message, not in swap
MAX_GPUS = 100_000_000  # GPU ids are int32, and no data centre holds as many


@dataclass(frozen=True)
class LinkSpec:
    """The uplink of every vertex of one level; ``None`` leaves a figure to the enclosing part of the tree."""

    bandwidth: float | None = None  # bytes/s per direction, inf = unlimited
    oversubscription: float | None = None  # instead of bandwidth: sum of the children's uplinks / this ratio
    latency: float | None = None  # s
    line: int | None = None  # in the file, for messages

    def over(self, below: LinkSpec) -> LinkSpec:
        """This link where it says something, ``below`` where it does not."""
        rules = self if self.bandwidth is not None or self.oversubscription is not None else below
        return LinkSpec(
            bandwidth=rules.bandwidth,
            oversubscription=rules.oversubscription,
            latency=self.latency if self.latency is not None else below.latency,
            line=self.line if rules is self else below.line,
        )


UNLIMITED = LinkSpec(bandwidth=math.inf, latency=0.0)


@dataclass(frozen=True)
class GroupSpec:
    """``count`` alike vertices of one level, or ``count`` GPUs when ``level`` is 0."""

    level: int
    count: int
    children: tuple[GroupSpec, ...] = ()  # of each vertex; empty for GPUs
    name: str | None = None  # prefix of the vertices' names; the level's name when None
    gpu_type: str | None = None  # of all GPUs below that name none themselves
    links: dict[int, LinkSpec] = field(default_factory=dict)  # level -> uplink, for this vertex and all below
    per: tuple[tuple[int, int], ...] = ()  # ((level, how many each holds), ...): wrap the vertices, lowest level first
    line: int | None = None


@dataclass(frozen=True)
class ClusterSpec:
    """A whole cluster. ``levels`` are leaves first, from ``gpu``; the root above the last has no name there."""

    name: str
    levels: tuple[str, ...]
    tree: tuple[GroupSpec, ...]
    description: str = ""
    links: dict[int, LinkSpec] = field(default_factory=dict)  # level -> uplink; a level without one is unlimited
    gpu_type: str | None = None
    unit: int | None = None  # placement unit: a level; None = the node level
    file: Path | None = None  # for messages

    def error(self, problem: str, *, line: int | None = None, expected: str | None = None) -> InputError:
        """An InputError that names this file (or the cluster, where there is no file) and the line."""
        return InputError(problem, file=self.file or self.name, row=line, expected=expected)
