"""GPUs of each node from ``slurm.conf`` (``NodeName=... Gres=gpu:a100:8``) or ``gres.conf`` (``Name=gpu ...``)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from attn_sched.cluster.hostlist import expand
from attn_sched.cluster.slurmconf import Entry, read_entries
from attn_sched.errors import InputError
from attn_sched.gres import gres_gpus

EXPECTED = "a slurm.conf or gres.conf with lines such as NodeName=tux[0-7] Gres=gpu:a100:8"

Gpus = dict[str | None, int]  # GPU type -> count; None = no type is named


@dataclass(frozen=True)
class NodeGpus:
    """The GPUs of the nodes of a file."""

    file: Path
    nodes: dict[str, Gpus]
    lines: dict[str, int]  # where each node stands
    others: Gpus | None  # of the nodes that it does not name; None: there should be none

    def of(self, node: str) -> Gpus | None:
        """The GPUs of a node, None where the file does not know it."""
        return self.nodes.get(node, self.others)


def read_nodes(file: Path) -> NodeGpus:
    """The GPUs of each node. Lines of slurm.conf count, where there are any, else those of gres.conf.

    Raises:
        InputError: the file cannot be read, names no node with GPUs, or says something of GPUs that cannot be.
    """
    entries = read_entries(file, EXPECTED)
    nodes = [entry for entry in entries if "nodename" in entry.values and "name" not in entry.values]
    resources = [entry for entry in entries if entry.values.get("name", "").lower() == "gpu"]
    found = _from_slurm(file, nodes) if nodes else _from_gres(file, resources)
    if not found.others and not any(any(gpus.values()) for gpus in found.nodes.values()):
        problem = "no node has GPUs"
        if any(entry.rest.lower().startswith("include") for entry in entries):
            problem += ", and files that it includes are not read"
        raise InputError(problem, file=file, expected=EXPECTED)
    return found


def _from_slurm(file: Path, entries: list[Entry]) -> NodeGpus:
    """``NodeName=DEFAULT`` holds for the lines that follow it."""
    nodes: dict[str, Gpus] = {}
    lines: dict[str, int] = {}
    default: Gpus = {}
    for entry in entries:
        given = _gres(entry) if "gres" in entry.values else default
        for name in entry.hosts("nodename"):
            if name.upper() == "DEFAULT":
                default = given
                continue
            if name in nodes:
                raise entry.error(f"node {name!r} stands in row {lines[name]} already", "each node once")
            nodes[name], lines[name] = given, entry.line
    return NodeGpus(file, nodes, lines, None)


def _gres(entry: Entry) -> Gpus:
    found = gres_gpus(entry.values["gres"])
    if found is None:
        raise entry.error(
            f"{entry.values['gres'][:60]!r} is no list of resources", "Gres=gpu:a100:8 or Gres=gpu:8", field="gres"
        )
    gpus: Gpus = {}
    for item in found:
        gpus[item.gpu_type] = gpus.get(item.gpu_type, 0) + item.count
    return gpus


def _from_gres(file: Path, entries: list[Entry]) -> NodeGpus:
    """Lines add up; one without ``NodeName`` holds for every node, and nodes that none names have no GPUs."""
    nodes: dict[str, Gpus] = {}
    lines: dict[str, int] = {}
    everywhere: Gpus = {}
    for entry in entries:
        kind, count = entry.values.get("type"), _devices(entry)
        names = entry.hosts("nodename")
        targets = [nodes.setdefault(name, {}) for name in names] if "nodename" in entry.values else [everywhere]
        lines |= dict.fromkeys(names, entry.line)
        for gpus in targets:
            gpus[kind] = gpus.get(kind, 0) + count
    for gpus in nodes.values():
        for kind, count in everywhere.items():
            gpus[kind] = gpus.get(kind, 0) + count
    return NodeGpus(file, nodes, lines, everywhere)


def _devices(entry: Entry) -> int:
    if "count" in entry.values:
        text = entry.values["count"]
        if not (text.isascii() and text.isdecimal() and len(text) <= 6):
            raise entry.error(f"{text[:40]!r} is no number of GPUs", "a whole number", field="count")
        return int(text)
    if "file" not in entry.values:
        raise entry.error("says not how many GPUs", "Count=8 or File=/dev/nvidia[0-7]: a slurm.conf has the counts")
    try:
        return len(expand(entry.values["file"]))
    except ValueError as error:
        raise entry.error(str(error), "File=/dev/nvidia[0-7]", field="file") from None
