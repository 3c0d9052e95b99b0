"""The tree inside a node from the matrix that ``nvidia-smi topo -m`` prints.

For each pair of GPUs it names how they reach each other, from the nearest: ``NV#`` (that many NVLinks), ``PIX`` (one
PCIe switch), ``PXB`` (several), ``PHB`` (a PCIe host bridge), ``NODE`` (several host bridges of one NUMA node), ``SYS``
(between NUMA nodes; ``SOC`` in old versions). The legend below the matrix says the same.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from attn_sched.cluster.textfiles import read_text
from attn_sched.errors import InputError

CLASSES = ("NV", "PIX", "PXB", "PHB", "NODE", "SYS")  # the nearest first
LEVELS = ("nvlink", "pix", "pxb", "phb", "numa")  # levels of islands that are joined by each class but the last
MOST_DIRECT_LINKS = 18  # NVLinks of a GPU; where the pairs add up to more, they share a switch
EXPECTED = "what 'nvidia-smi topo -m' prints"
_ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_GPU = re.compile(r"GPU\d+")
_NVLINK = re.compile(r"NV(\d{1,2})")


@dataclass(frozen=True)
class Part:
    """GPUs that are near each other; parts of one level differ in nothing but what this says."""

    level: str
    gpus: int  # in all
    nvlinks: int = 0  # of each GPU, 0 = PCIe; of a part without parts below
    parts: tuple[Part, ...] = ()

    def leaves(self) -> tuple[Part, ...]:
        """The parts without parts below."""
        return tuple(leaf for part in self.parts for leaf in part.leaves()) if self.parts else (self,)


@dataclass(frozen=True)
class NodeTopology:
    """The parts of a node."""

    node: Part
    levels: tuple[str, ...]  # those that the parts below the node have, nearest first
    # Level -> the GPUs of each of its parts, as the matrix numbers them.
    islands: dict[str, tuple[tuple[int, ...], ...]]


def is_node_topology(file: Path) -> bool:
    """Whether a file holds such a matrix."""
    return _header(_lines(file)) is not None


def read_node_topology(file: Path) -> NodeTopology:
    """The tree inside the node that a matrix describes.

    GPUs that a chain of links of a class joins are near each other by that class. A class whose parts are those of a
    nearer one, or all GPUs, is no level.

    Raises:
        InputError: the file cannot be read or holds no whole, symmetric matrix of known classes.
    """
    lines = _lines(file)
    header = _header(lines)
    if header is None:
        raise InputError("holds no matrix of GPUs", file=file, expected=EXPECTED)
    at, names = header
    matrix = _matrix(file, lines, at, names)
    gpus = len(names)
    ranks = [[-1 if a == b else _rank(matrix[a][b]) for b in range(gpus)] for a in range(gpus)]
    islands: dict[str, tuple[tuple[int, ...], ...]] = {}
    before: tuple[tuple[int, ...], ...] = tuple((gpu,) for gpu in range(gpus))
    for rank, level in enumerate(LEVELS):
        parts = _joined(ranks, rank)
        if len(parts) > 1 and parts != before:
            islands[level] = before = parts
    links = [_links(matrix[gpu]) for gpu in range(gpus)]
    node = _part("node", tuple(range(gpus)), tuple(reversed(islands)), islands, links)
    return NodeTopology(node, tuple(islands), islands)


def _lines(file: Path) -> list[str]:
    return [_ESCAPES.sub("", line) for line in read_text(file, EXPECTED).split("\n")]


def _header(lines: Sequence[str]) -> tuple[int, list[str]] | None:
    """The line that names the columns, and the GPUs among them, which come first."""
    for at, line in enumerate(lines):
        words = line.split()
        if words and words[0] == "GPU0" and not (len(words) > 1 and words[1] == "X"):
            names = []
            for word in words:
                if not _GPU.fullmatch(word):
                    break
                names.append(word)
            return at, names
    return None


def _matrix(file: Path, lines: Sequence[str], at: int, names: list[str]) -> list[list[str]]:
    rows: dict[str, list[str]] = {}
    places: dict[str, int] = {}
    for number, line in enumerate(lines[at + 1 :], at + 2):
        words = line.split()
        if not words or not _GPU.fullmatch(words[0]):
            continue
        name, cells = words[0], words[1 : 1 + len(names)]
        if name not in names or name in rows:
            problem = f"a {'second ' if name in rows else ''}row of {name}"
            raise InputError(problem, file=file, row=number, expected=f"one row for each of {names[0]} to {names[-1]}")
        if len(cells) < len(names):
            raise InputError(f"the row of {name} is cut off", file=file, row=number, expected=f"{len(names)} cells")
        own = names.index(name)
        for column, cell in enumerate(cells):
            if (cell == "X") != (column == own) or (cell != "X" and _rank(cell) < 0):
                raise InputError(
                    f"{name} reaches {names[column]} by {cell[:20]!r}",
                    file=file,
                    row=number,
                    expected="NV#, PIX, PXB, PHB, NODE or SYS (X for itself)",
                )
        rows[name], places[name] = cells, number
    missing = [name for name in names if name not in rows]
    if missing:
        raise InputError(f"no row of {missing[0]}", file=file, row=at + 1, expected="one for each GPU")
    matrix = [rows[name] for name in names]
    for a, name in enumerate(names):
        for b in range(a):
            if _rank(matrix[a][b]) != _rank(matrix[b][a]):
                problem = f"{name} reaches {names[b]} by {matrix[a][b]}, {names[b]} reaches {name} by {matrix[b][a]}"
                raise InputError(problem, file=file, row=places[name], expected="the same both ways")
    return matrix


def _rank(cell: str) -> int:
    """Index in ``CLASSES``; -1 for anything else."""
    if _NVLINK.fullmatch(cell):
        return 0
    cell = "SYS" if cell == "SOC" else cell
    return CLASSES.index(cell) if cell in CLASSES[1:] else -1


def _joined(ranks: list[list[int]], most: int) -> tuple[tuple[int, ...], ...]:
    """Sets of GPUs joined by pairs of at most a rank, each in order, by their first GPU."""
    import networkx as nx

    graph: nx.Graph = nx.Graph()
    graph.add_nodes_from(range(len(ranks)))
    graph.add_edges_from((a, b) for a, row in enumerate(ranks) for b in range(a) if row[b] <= most)
    return tuple(sorted(tuple(sorted(part)) for part in nx.connected_components(graph)))


def _links(row: Sequence[str]) -> int:
    """NVLinks of a GPU: those to its peers together, or, where a switch lies between, those to any of them."""
    counts = [int(match.group(1)) for match in map(_NVLINK.fullmatch, row) if match is not None]
    total = sum(counts)
    return total if total <= MOST_DIRECT_LINKS else max(counts)


def _part(
    level: str,
    gpus: tuple[int, ...],
    levels: Sequence[str],
    islands: dict[str, tuple[tuple[int, ...], ...]],
    links: Sequence[int],
) -> Part:
    """A part of a level with what is below it; ``levels`` are those below, the widest first."""
    if not levels:
        return Part(level, len(gpus), min(links[gpu] for gpu in gpus))
    below = [part for part in islands[levels[0]] if part[0] in gpus]
    parts = tuple(_part(levels[0], part, levels[1:], islands, links) for part in below)
    return Part(level, len(gpus), parts=parts)
