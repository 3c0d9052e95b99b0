"""Random networks written as Slurm's files, for hypothesis, and the matrix of a node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import strategies as st

from attn_sched.cluster.hostlist import compress


@dataclass(frozen=True)
class Net:
    """A switch with nodes or switches below it."""

    name: str
    nodes: tuple[tuple[str, int], ...] = ()  # name, GPUs
    below: tuple[Net, ...] = ()

    def switches(self) -> list[Net]:
        return [self, *(switch for net in self.below for switch in net.switches())]

    def height(self) -> int:
        return 1 + max((net.height() for net in self.below), default=0)

    def paths(self, above: str = "") -> list[tuple[str, int]]:
        """Path of each node below the top switch, and its GPUs."""
        own = [(above + name, gpus) for name, gpus in self.nodes]
        return own + [path for net in self.below for path in net.paths(f"{above}{net.name}/")]


@st.composite
def nets(draw: st.DrawFn) -> Net:
    """A tree of at most four levels of switches; some nodes have other GPU counts than most."""
    counters = {"node": 0, "switch": 0}
    width = draw(st.sampled_from([1, 3]))

    def switch(height: int) -> Net:
        name = f"s{counters['switch']}"
        counters["switch"] += 1
        if height == 1:
            nodes = []
            for _ in range(draw(st.integers(1, 5))):
                counters["node"] += draw(st.integers(1, 3))
                nodes.append((f"tux{counters['node']:0{width}d}", draw(st.sampled_from([8, 8, 8, 4]))))
            return Net(name, tuple(nodes))
        heights = [height - 1, *draw(st.lists(st.integers(1, height - 1), max_size=2))]
        return Net(name, below=tuple(switch(under) for under in heights))

    return switch(draw(st.integers(1, 4)))


@st.composite
def topology_confs(draw: st.DrawFn, net: Net) -> str:
    """The text of a topology.conf: lines in any order, keys in any case, continued and commented at will."""
    lines = []
    for switch in net.switches():
        key, names = ("Nodes", [name for name, _ in switch.nodes]) if switch.nodes else (
            "Switches", [below.name for below in switch.below]
        )  # fmt: skip
        hosts = compress(names) if draw(st.booleans()) else ",".join(names)
        case = draw(st.sampled_from([lambda key: key, str.lower, str.upper]))
        gap = draw(st.sampled_from([" ", "   ", " \\\n  "]))
        parts = [f"{case('SwitchName')}={switch.name}", f"{case(key)}={hosts}"]
        if draw(st.booleans()):
            parts.append(f"{case('LinkSpeed')}=400")
        lines.append(gap.join(parts) + draw(st.sampled_from(["", " # a comment", "\n\n# another"])))
    return "\n".join(draw(st.permutations(lines))) + "\n"


def slurm_conf(nodes: list[tuple[str, int]]) -> str:
    """NodeName lines, one for all nodes of a GPU count."""
    text = "ClusterName=test\n"
    for gpus in sorted({count for _, count in nodes}):
        hosts = compress(name for name, count in nodes if count == gpus)
        text += f"NodeName={hosts} CPUs=64 Gres=gpu:a100:{gpus}(S:0-1),nvme:1 State=UNKNOWN\n"
    return text


def matrix(gpus: int, reach: Callable[[int, int], str], nics: int = 1) -> str:
    """As ``nvidia-smi topo -m`` prints it."""
    names = [f"GPU{gpu}" for gpu in range(gpus)]
    cards = [f"NIC{nic}" for nic in range(nics)]
    head = "\t" + "\t".join([*names, *cards]) + "\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID"
    lines = [f"\x1b[4m{head}\x1b[0m"]
    for a in range(gpus):
        cells = [" X " if a == b else reach(min(a, b), max(a, b)) for b in range(gpus)]
        lines.append("\t".join([names[a], *cells, *["SYS"] * nics, "0-31,64-95", "0", "N/A"]))
    for card in cards:
        lines.append("\t".join([card, *["SYS"] * gpus, " X "]))
    lines += ["", "Legend:", "", "  X    = Self", "  NV#  = Connection traversing a bonded set of # NVLinks"]
    lines += ["", "NIC Legend:", "", "  NIC0: mlx5_0", ""]
    return "\n".join(lines)
