"""The YAML form of a cluster (docs/clusters.md), written; link figures that nobody measured are marked as defaults."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import yaml

from attn_sched.cluster.build import build_cluster
from attn_sched.cluster.topology import Cluster
from attn_sched.cluster.yamlfile import read_spec
from attn_sched.files import atomic_write

WIDTH = 118  # of a comment


@dataclass(frozen=True)
class LinkDefault:
    """The uplink assumed of a level's vertices, and why."""

    latency_us: float
    why: str
    bandwidth_GBps: float | None = None
    oversubscription: float | None = None  # instead of a bandwidth

    def text(self) -> str:
        """The link as a flow mapping."""
        if self.oversubscription is not None:
            return f"{{oversubscription: {self.oversubscription:g}, latency_us: {self.latency_us:g}}}"
        return f"{{bandwidth_GBps: {self.bandwidth_GBps:g}, latency_us: {self.latency_us:g}}}"


@dataclass(frozen=True)
class Group:
    """``count`` alike vertices of a level: with ``gpus`` GPUs each, or with ``children``."""

    level: str
    count: int = 1
    name: str | None = None
    gpus: int | None = None
    children: tuple[Group, ...] = ()
    gpu_type: str | None = None
    gpu_link: LinkDefault | None = None  # where it differs from the level's
    block: bool = False  # written over several lines

    def flow(self) -> str:
        """The group on one line."""
        parts = [f"{self.level}: {self.count}"]
        if self.name is not None:
            parts.append(f"name: {scalar(self.name)}")
        if self.gpu_type is not None:
            parts.append(f"gpu_type: {scalar(self.gpu_type)}")
        if self.gpu_link is not None:
            parts.append(f"links: {{gpu: {self.gpu_link.text()}}}")
        if self.gpus is not None:
            parts.append(f"gpus: {self.gpus}")
        else:
            parts.append(f"children: [{', '.join(child.flow() for child in self.children)}]")
        return f"{{{', '.join(parts)}}}"

    def lines(self, indent: int) -> Iterator[str]:
        """The group as an entry of a list."""
        pad = " " * indent
        if not self.block:
            yield f"{pad}- {self.flow()}"
            return
        yield f"{pad}- {self.level}: {self.count}"
        if self.name is not None:
            yield f"{pad}  name: {scalar(self.name)}"
        yield f"{pad}  children:"
        for child in self.children:
            yield from child.lines(indent + 4)


@dataclass(frozen=True)
class Description:
    """A cluster to be written."""

    levels: tuple[str, ...]  # leaves first
    links: dict[str, LinkDefault]
    tree: tuple[Group, ...]
    gpu_type: str | None = None
    comments: tuple[str, ...] = ()  # one paragraph each
    notes: tuple[str, ...] = field(default=())  # what was left out or not read; comments too

    def text(self, name: str | None = None) -> str:
        """The file."""
        lines = _comments(self.comments)
        lines += _comments(
            [
                "CHECK THE LINKS: every figure under 'links' is a default, not measured and not read from anywhere. "
                "Bandwidths are GB/s in each direction."
            ]
        )
        lines += _comments(self.notes)
        if name is not None:
            lines.append(f"name: {scalar(name)}")
        lines.append(f"levels: [{', '.join(self.levels)}]")
        if self.gpu_type is not None:
            lines.append(f"gpu_type: {scalar(self.gpu_type)}")
        lines.append("links:")
        lines += [f"  {level}: {self.links[level].text()} # default: {self.links[level].why}" for level in self.levels]
        lines.append("tree:")
        lines += [line for group in self.tree for line in group.lines(2)]
        return "\n".join(lines) + "\n"


def scalar(text: str) -> str:
    """A string as YAML, in quotes where it would read as something else."""
    return yaml.safe_dump(text, width=1 << 20).split("\n", 1)[0]


def _comments(paragraphs: Sequence[str]) -> list[str]:
    return [
        line
        for paragraph in paragraphs
        for line in textwrap.wrap(
            paragraph,
            WIDTH,
            initial_indent="# ",
            subsequent_indent="# ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    ]


def write_description(description: Description, out: str | os.PathLike[str]) -> Cluster:
    """Write the file, whole or not at all, and load it.

    Raises:
        InputError: it cannot be written, or is no cluster that can be loaded (too large, for one).
    """
    path = Path(out)
    taken = {f"{group.name}" for group in description.tree if group.name is not None}
    name = f"{path.stem}-cluster" if path.stem in taken else None
    with atomic_write(path) as part:
        part.write_text(description.text(name), encoding="utf-8")
        spec = read_spec(part)
        return build_cluster(replace(spec, file=path, name=path.stem if name is None else name))
