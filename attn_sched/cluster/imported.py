"""From what operators have - Slurm's files, a node's matrix - to a description of the cluster."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from attn_sched.cluster.hostlist import compress
from attn_sched.cluster.nodetopology import LEVELS as ISLANDS
from attn_sched.cluster.nodetopology import NodeTopology, Part, read_node_topology
from attn_sched.cluster.slurmnodes import Gpus, NodeGpus, read_nodes
from attn_sched.cluster.slurmtree import Switch, read_topology, without
from attn_sched.cluster.yamltext import Description, Group, LinkDefault
from attn_sched.errors import InputError

SWITCHES = ("rack", "spine", "core", "tier-d", "tier-e", "tier-f", "tier-g")  # levels of switches, from the nodes up
BOARD = "board"  # level of the GPUs of one type in a node that has several
NVLINK_GBPS = 25.0  # of one NVLink, per direction: NVLink 2, 3 and 4 (NVIDIA's data sheets of V100, A100 and H100)

UNKNOWN_GPU = LinkDefault(3, "NVLink as in the preset dgx64", bandwidth_GBps=130)
PCIE_GPU = LinkDefault(5, "PCIe 3.0 x16, less protocol", bandwidth_GBps=12)
LINKS: dict[str, LinkDefault] = {
    BOARD: LinkDefault(5, "one PCIe 3.0 x16", bandwidth_GBps=12),
    "nvlink": LinkDefault(4, "PCIe between the islands of a node", bandwidth_GBps=25),
    "pix": LinkDefault(5, "one PCIe 3.0 x16 from the switch up", bandwidth_GBps=12),
    "pxb": LinkDefault(5, "one PCIe 3.0 x16 from the switches up", bandwidth_GBps=12),
    "phb": LinkDefault(5, "one PCIe 3.0 x16 from the host bridge on", bandwidth_GBps=12),
    "numa": LinkDefault(6, "the link between two processors", bandwidth_GBps=20),
    "node": LinkDefault(5, "one 100 Gb/s NIC, less protocol", bandwidth_GBps=11.5),
    "rack": LinkDefault(7, "half of what its nodes can send", oversubscription=2),
    **{level: LinkDefault(9, "half of what is below", oversubscription=2) for level in SWITCHES[1:]},
}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_NAME_EXPECTED = "letters, digits, '_', '.' and '-'"


def gpu_link(nvlinks: int) -> LinkDefault:
    """The link assumed of a GPU with so many NVLinks."""
    if not nvlinks:
        return PCIE_GPU
    return LinkDefault(3, f"{nvlinks} NVLinks of 25 GB/s (NVLink 5: 50)", bandwidth_GBps=nvlinks * NVLINK_GBPS)


# ---- the inside of a node ----


class _Insides:
    """How the GPUs of nodes are written."""

    def __init__(self, topology: NodeTopology | None) -> None:
        self.topology = topology
        leaves = () if topology is None else topology.node.leaves()
        links = Counter[int]()
        for leaf in leaves:
            links[leaf.nvlinks] += leaf.gpus
        self.nvlinks = links.most_common(1)[0][0] if links else None
        self.link = UNKNOWN_GPU if self.nvlinks is None else gpu_link(self.nvlinks)
        self.plain: list[str] = []  # nodes that the matrix does not fit
        self.boards = False

    def node(self, name: str | None, gpus: Gpus, count: int = 1) -> Group:
        """A node with these GPUs."""
        kinds = [(kind, number) for kind, number in gpus.items() if number]
        if len(kinds) > 1:
            self.boards = True
            boards = tuple(Group(BOARD, gpus=number, gpu_type=kind) for kind, number in kinds)
            if self.topology is not None:
                self.plain.append(str(name))
            return Group("node", count, name, children=boards)
        kind, number = kinds[0]
        if self.topology is None:
            return Group("node", count, name, gpus=number, gpu_type=kind)
        if number != self.topology.node.gpus:
            self.plain.append(str(name))
            return Group("node", count, name, gpus=number, gpu_type=kind)
        children = self._parts(self.topology.node.parts)
        return Group("node", count, name, gpus=None if children else number, children=children, gpu_type=kind)

    def _parts(self, parts: Sequence[Part]) -> tuple[Group, ...]:
        groups = []
        for part, alike in itertools.groupby(parts):
            link = gpu_link(part.nvlinks) if not part.parts and part.nvlinks != self.nvlinks else None
            children = self._parts(part.parts)
            gpus = None if children else part.gpus
            groups.append(Group(part.level, len(list(alike)), gpus=gpus, children=children, gpu_link=link))
        return tuple(groups)

    def levels(self) -> tuple[str, ...]:
        """The levels below nodes that are in use."""
        islands = self.topology.levels if self.topology is not None else ()
        return (*((BOARD,) if self.boards else ()), *(level for level in ISLANDS if level in islands))

    def comments(self) -> list[str]:
        """Which GPUs lie together, as ``nvidia-smi`` numbers them."""
        if self.topology is None:
            return []
        return [
            f"GPUs of each {level}: {' | '.join(','.join(map(str, part)) for part in parts)}"
            for level, parts in self.topology.islands.items()
        ]


def _links(levels: Sequence[str], insides: _Insides) -> dict[str, LinkDefault]:
    return {level: insides.link if level == "gpu" else LINKS[level] for level in levels}


# ---- clusters ----


def describe_nodes(file: Path, num_nodes: int) -> Description:
    """Alike nodes under one switch, each as the matrix in a file says.

    Raises:
        InputError: the file holds no such matrix, or the count is none.
    """
    _at_least_one(num_nodes, "num-nodes")
    topology = read_node_topology(file)
    insides = _Insides(topology)
    group = insides.node(None, {None: topology.node.gpus}, num_nodes)
    levels = ("gpu", *insides.levels(), "node")
    comments = [f"Made from {file.name} (nvidia-smi topo -m) by attn-sched clusters convert.", *insides.comments()]
    return Description(levels, _links(levels, insides), (group,), comments=tuple(comments))


def describe_slurm(
    file: Path,
    *,
    nodes: Path | None = None,
    gpus_per_node: int | None = None,
    node_topology: Path | None = None,
    top: str | None = None,
) -> Description:
    """The switches of a topology.conf and the GPUs of their nodes.

    Args:
        file: The topology.conf.
        nodes: A slurm.conf or gres.conf with the GPUs of each node.
        gpus_per_node: GPUs of every node instead.
        node_topology: What ``nvidia-smi topo -m`` prints on a node; nodes with another number of GPUs are written
            without it. It also says how many GPUs a node has where nothing else does.
        top: The switch to begin at, where several are at the top.

    Raises:
        InputError: whatever is wrong with a file, or with the choice of them.
    """
    if nodes is not None and gpus_per_node is not None:
        raise InputError("and --nodes both say how many GPUs a node has", field="gpus-per-node", expected="one of them")
    if gpus_per_node is not None:
        _at_least_one(gpus_per_node, "gpus-per-node")
    topology = None if node_topology is None else read_node_topology(node_topology)
    if topology is not None and node_topology is not None and gpus_per_node not in (None, topology.node.gpus):
        raise InputError(
            f"is of a node with {topology.node.gpus} GPUs, --gpus-per-node says {gpus_per_node}",
            file=node_topology, field="node-topology", expected="the same number",
        )  # fmt: skip
    if nodes is None and gpus_per_node is None:
        if topology is None:
            raise InputError(
                "nothing says how many GPUs a node has",
                field="nodes",
                expected="--nodes slurm.conf, --gpus-per-node N or --node-topology FILE",
            )
        gpus_per_node = topology.node.gpus
    tree = read_topology(file, top)
    known = None if nodes is None else read_nodes(nodes)
    gpus = _gpus_of(tree, known, gpus_per_node, file)
    notes = []
    empty = {name for name, kinds in gpus.items() if not any(kinds.values())}
    full, lost = without(tree, empty)
    if empty:
        notes.append(f"Left out, without GPUs: {len(empty)} nodes ({compress(n for n in gpus if n in empty)})")
    if full is None:
        raise InputError("no node below its switches has GPUs", file=file, expected="nodes that are in --nodes too")
    if lost:
        notes.append(f"Left out, without GPUs below them: the switches {compress(lost)}")
    if known is not None:
        beside = [name for name, kinds in known.nodes.items() if any(kinds.values()) and name not in gpus]
        if beside:
            where = f"below {top}" if top is not None else f"in {file.name}"
            notes.append(f"Left out, not {where}: {len(beside)} nodes with GPUs ({compress(beside)})")
    gpu_type = _common_type(full, gpus, known)
    insides = _Insides(topology)
    groups = _below(full, gpus, insides, gpu_type)
    if topology is not None and len(insides.plain) == len(full.all_nodes()):
        raise InputError(
            f"is of a node with {topology.node.gpus} GPUs of one type, and no node has these",
            file=node_topology, field="node-topology", expected="the matrix of one of the nodes",
        )  # fmt: skip
    if insides.plain:
        notes.append(f"Without islands, since the matrix is of other GPUs: {compress(insides.plain)}")
    levels = ("gpu", *insides.levels(), "node", *SWITCHES[: full.height - 1])
    sources = [path.name for path in (file, nodes, node_topology) if path is not None]
    comments = [f"Made from {', '.join(sources)} by attn-sched clusters convert; below the switch {full.name}."]
    comments += insides.comments()
    return Description(levels, _links(levels, insides), groups, gpu_type, tuple(comments), tuple(notes))


def _at_least_one(number: int, option: str) -> None:
    if number < 1:
        raise InputError(f"{number} is no count", field=option, expected="a whole number of at least 1")


def _gpus_of(tree: Switch, known: NodeGpus | None, gpus_per_node: int | None, file: Path) -> dict[str, Gpus]:
    """The GPUs of every node of the tree; names are checked on the way."""
    found: dict[str, Gpus] = {}
    waiting = [tree]
    while waiting:
        switch = waiting.pop()
        for name in (switch.name, *switch.nodes):
            if not _NAME.fullmatch(name):
                raise InputError(
                    f"{name[:40]!r} cannot name a vertex", file=file, row=switch.line, expected=_NAME_EXPECTED
                )
        for name in switch.nodes:
            gpus: Gpus | None = {None: gpus_per_node or 0} if known is None else known.of(name)
            if gpus is None and known is not None:
                raise InputError(
                    f"node {name!r} is not in {known.file.name}",
                    file=file, row=switch.line, field="nodes", expected="a line NodeName=... for each node",
                )  # fmt: skip
            found[name] = gpus or {}
        waiting += reversed(switch.switches)
    return found


def _common_type(tree: Switch, gpus: dict[str, Gpus], known: NodeGpus | None) -> str | None:
    """The one type of all GPUs; None where there are several, or none is named. It must be all or none."""
    kinds: dict[str | None, str] = {}  # type -> a node that has it
    for name in tree.all_nodes():
        for kind, count in gpus[name].items():
            if count:
                kinds.setdefault(kind, name)
    if known is not None:
        for kind, name in kinds.items():
            row = known.lines.get(name)
            if kind is None and len(kinds) > 1:
                other, owner = next((k, n) for k, n in kinds.items() if k is not None)
                problem = f"the GPUs of {name} have no type, those of {owner} are of type {other!r}"
                raise InputError(problem, file=known.file, row=row, expected="a type for all GPUs or for none")
            if kind is not None and not _NAME.fullmatch(kind):
                raise InputError(f"{kind[:40]!r} is no GPU type", file=known.file, row=row, expected=_NAME_EXPECTED)
    return next(iter(kinds)) if len(kinds) == 1 else None


def _below(switch: Switch, gpus: dict[str, Gpus], insides: _Insides, gpu_type: str | None) -> tuple[Group, ...]:
    """What hangs on a switch. Types go without saying where all GPUs are of one."""
    groups = []
    for name in switch.nodes:
        kinds: Gpus = {None: sum(gpus[name].values())} if gpu_type is not None else gpus[name]
        groups.append(insides.node(name, kinds))
    for below in switch.switches:
        children = _below(below, gpus, insides, gpu_type)
        groups.append(Group(SWITCHES[below.height - 1], 1, below.name, children=children, block=True))
    return tuple(groups)
