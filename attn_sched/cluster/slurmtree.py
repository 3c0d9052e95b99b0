"""Slurm's ``topology.conf`` of the plugin topology/tree: switches, and the nodes or switches below each.

``man topology.conf``. Slurm lets several switches stand at the top (jobs then stay below one of them) and a node be
named by two switches; a tree allows neither, so both are told, and one of several tops can be chosen.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from attn_sched.cluster.slurmconf import Entry, read_entries
from attn_sched.errors import InputError

KEYS = ("SwitchName", "Switches", "Nodes", "LinkSpeed")
MAX_HEIGHT = 8  # levels of switches; no network has as many
EXPECTED = "a topology.conf with lines such as SwitchName=s0 Nodes=tux[0-7]"


@dataclass(frozen=True)
class Switch:
    """A switch with the nodes or the switches below it; one of the two is empty."""

    name: str
    nodes: tuple[str, ...] = ()
    switches: tuple[Switch, ...] = ()
    line: int | None = field(default=None, compare=False)

    @property
    def height(self) -> int:
        """Levels of switches from here down: 1 = nodes hang on it."""
        return 1 + max((switch.height for switch in self.switches), default=0)

    def all_nodes(self) -> list[str]:
        """Every node below, in order."""
        return [*self.nodes, *(node for switch in self.switches for node in switch.all_nodes())]


def read_topology(file: Path, top: str | None = None) -> Switch:
    """The tree of a topology.conf.

    Args:
        file: The file.
        top: The switch to begin at; None: the one that is below no other.

    Raises:
        InputError: what is no tree, with the line: unknown keys, switches that are missing, defined twice, below two
            others or below themselves, nodes below two switches, several switches at the top.
    """
    entries: dict[str, Entry] = {}
    for entry in read_entries(file, EXPECTED):
        name = _check(entry)
        if name in entries:
            problem = f"switch {name!r} is defined in row {entries[name].line} already"
            raise entry.error(problem, "each switch once", field="switchname")
        entries[name] = entry
    if not entries:
        raise InputError("defines no switch", file=file, expected=EXPECTED)
    parents = _parents(entries)
    _check_ways_up(entries, parents)
    tops = [name for name in entries if name not in parents]
    if top is not None:
        if top not in entries:
            raise InputError(f"no switch {top!r}", file=file, field="top", expected=f"one of {_some(list(entries))}")
        tops = [top]
    if len(tops) > 1:
        problem = f"{len(tops)} switches are below no other: {_some(tops)}"
        raise entries[tops[1]].error(problem, "one switch above them, or --top SWITCH to take one of them")
    tree = _grow(tops[0], entries)
    _each_node_once(tree, file)
    return tree


def _check(entry: Entry) -> str:
    """The switch that a line defines."""
    known = {key.lower() for key in KEYS}
    for key in entry.values:
        if key in ("blockname", "blocksizes"):
            raise entry.error("describes blocks (topology/block)", "switches (topology/tree): SwitchName lines")
        if key not in known:
            close = difflib.get_close_matches(key, known, n=1)
            hint = f"; did you mean {next(name for name in KEYS if name.lower() == close[0])}?" if close else ""
            raise entry.error(f"unknown key {key!r}{hint}", f"one of {', '.join(KEYS)}")
    if entry.rest:
        raise entry.error(f"{entry.rest[:40]!r} is no Key=Value", EXPECTED)
    if "switchname" not in entry.values:
        raise entry.error("names no switch", EXPECTED)
    if "nodes" in entry.values and "switches" in entry.values:
        raise entry.error("has both Nodes and Switches", "one of the two")
    name = entry.values["switchname"]
    if entry.hosts("switchname") != [name]:
        raise entry.error(f"{name!r} is not the name of one switch", "a line for each switch", field="switchname")
    return name


def _parents(entries: dict[str, Entry]) -> dict[str, str]:
    parents: dict[str, str] = {}
    for name, entry in entries.items():
        for child in entry.hosts("switches"):
            if child not in entries:
                raise entry.error(f"switch {child!r} is not defined", f"a line SwitchName={child}", field="switches")
            if child == name:
                raise entry.error(f"switch {name!r} is below itself", "a tree", field="switches")
            if child in parents:
                problem = f"switch {child!r} is below {parents[child]!r} and below {name!r}"
                raise entry.error(problem, "a tree: one switch above each", field="switches")
            parents[child] = name
    return parents


def _way_up(name: str, parents: dict[str, str]) -> list[str]:
    """The switches from one to the top; where they go round, up to the first that is met again, which ends it."""
    way = [name]
    seen = {name}
    while way[-1] in parents:
        way.append(parents[way[-1]])
        if way[-1] in seen:
            break
        seen.add(way[-1])
    return way


def _check_ways_up(entries: dict[str, Entry], parents: dict[str, str]) -> None:
    for name, entry in entries.items():
        way = _way_up(name, parents)
        met = way.index(way[-1])
        if met < len(way) - 1:
            circle = " < ".join(way[met:][:12])
            raise entries[way[met]].error(f"the switches {circle} go round in a circle", "a tree")
        if len(way) > MAX_HEIGHT:
            raise entry.error(f"switch {name!r} has {len(way) - 1} others above it", f"at most {MAX_HEIGHT} levels")


def _grow(name: str, entries: dict[str, Entry]) -> Switch:
    entry = entries[name]
    below = tuple(_grow(child, entries) for child in entry.hosts("switches"))
    return Switch(name, tuple(entry.hosts("nodes")), below, entry.line)


def _each_node_once(tree: Switch, file: Path) -> None:
    seen: dict[str, Switch] = {}
    waiting = [tree]
    while waiting:
        switch = waiting.pop()
        for node in switch.nodes:
            if node in seen:
                raise InputError(
                    f"node {node!r} is below {seen[node].name!r} (row {seen[node].line}) too",
                    file=file,
                    row=switch.line,
                    field="nodes",
                    expected="each node below one switch",
                )
            seen[node] = switch
        waiting += reversed(switch.switches)


def without(tree: Switch, empty: set[str]) -> tuple[Switch | None, list[str]]:
    """The tree without some nodes and without the switches that then hold nothing, and the names of those switches."""
    nodes = tuple(node for node in tree.nodes if node not in empty)
    kept, gone = [], []
    for switch in tree.switches:
        left, lost = without(switch, empty)
        gone += lost
        if left is not None:
            kept.append(left)
    if not nodes and not kept:
        return None, [*gone, tree.name]
    return Switch(tree.name, nodes, tuple(kept), tree.line), gone


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
