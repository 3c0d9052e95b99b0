"""Clusters from Slurm's topology.conf and slurm.conf, and from a node's matrix."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attn_sched.cluster import Cluster, load_cluster
from attn_sched.cluster.imported import LINKS, PCIE_GPU, SWITCHES, describe_nodes, describe_slurm
from attn_sched.cluster.nodetopology import Part, is_node_topology, read_node_topology
from attn_sched.cluster.slurmnodes import read_nodes
from attn_sched.cluster.yamltext import write_description
from attn_sched.errors import InputError
from tests.cluster.reference import check_arrays
from tests.cluster.slurm import Net, matrix, nets, slurm_conf, topology_confs

Reach = Callable[[int, int], str]
LEAVES = "SwitchName=s0 Nodes=tux[0-3]\nSwitchName=s1 Nodes=tux[4-7]\n"
TREE = LEAVES + "SwitchName=top Switches=s[0-1]\n"


def pairs_and_halves(a: int, b: int) -> str:
    return "NV4" if a // 2 == b // 2 else "NODE" if a // 4 == b // 4 else "SYS"


def save(folder: Path, **texts: str) -> dict[str, Path]:
    paths = {}
    for name, text in texts.items():
        paths[name] = folder / f"{name}.conf"
        paths[name].write_text(text, encoding="utf-8")
    return paths


def slurm(folder: Path, topology: str, nodes: str | None = None, topo: str | None = None, **given: object) -> Cluster:
    paths = save(folder, topology=topology, **({"nodes": nodes} if nodes else {}), **({"topo": topo} if topo else {}))
    if nodes is None and "gpus_per_node" not in given and topo is None:
        given["gpus_per_node"] = 8
    described = describe_slurm(
        paths["topology"],
        nodes=paths.get("nodes"),
        node_topology=paths.get("topo"),
        **given,  # type: ignore[arg-type]
    )
    written = write_description(described, folder / "out.yaml")
    cluster = load_cluster(folder / "out.yaml")
    check_arrays(cluster)
    assert cluster.vertex_names == written.vertex_names and (cluster.capacity == written.capacity).all()
    return cluster


def nodes_of(cluster: Cluster) -> list[tuple[str, int]]:
    ids = cluster.vertices(cluster.node_level)
    return [(cluster.vertex_names[at], int(cluster.gpus[at])) for at in ids]


# ---- trees ----


@st.composite
def written_nets(draw: st.DrawFn) -> tuple[Net, str]:
    net = draw(nets())
    return net, draw(topology_confs(net))


@given(written_nets(), st.booleans())
@settings(max_examples=150, deadline=None)
def test_a_tree_comes_back_as_it_was_written(drawn: tuple[Net, str], islands: bool) -> None:
    net, text = drawn
    plain = [node for switch in net.switches() for node in switch.nodes]
    islands = islands and any(gpus == 8 for _, gpus in plain)
    with tempfile.TemporaryDirectory() as folder:
        topo = matrix(8, pairs_and_halves) if islands else None
        cluster = slurm(Path(folder), text, nodes=slurm_conf(plain), topo=topo)
    assert sorted(nodes_of(cluster)) == sorted(net.paths())
    assert cluster.gpu_types == ("a100",)
    assert cluster.level_names[cluster.node_level + 1 :] == SWITCHES[: net.height() - 1]
    # Each switch but the top is a vertex of the level of its height, above what it holds.
    heights = {switch.name: switch.height() for switch in net.switches()[1:]}
    for name, height in heights.items():
        level = cluster.node_level + height
        held = [at for at in cluster.vertices(level) if cluster.vertex_names[at].rpartition("/")[2] == name]
        assert len(held) == 1
    assert sum(not cluster.through[at] for at in range(cluster.num_vertices)) >= len(heights) + len(plain) + 1
    if islands:
        nvlink = cluster.vertices(1)
        real = [at for at in nvlink if not cluster.through[at]]
        assert {int(cluster.gpus[at]) for at in real} == {2}
        assert len(real) == 4 * sum(gpus == 8 for _, gpus in plain)


def test_the_defaults_are_in_force_and_marked(tmp_path: Path) -> None:
    cluster = slurm(tmp_path, TREE)
    assert cluster.level_names == ("gpu", "node", "rack")
    assert set(cluster.gpu_capacity) == {130e9}
    assert set(cluster.capacity[cluster.vertices(1)]) == {11.5e9}
    assert set(cluster.capacity[cluster.vertices(2)]) == {23e9}
    text = (tmp_path / "out.yaml").read_text()
    assert "CHECK THE LINKS" in text
    links = text.partition("links:")[2].partition("tree:")[0]
    assert links.count("# default: ") == 3 == len(links.strip().splitlines())


def test_one_switch_is_the_root(tmp_path: Path) -> None:
    cluster = slurm(tmp_path, "SwitchName=only Nodes=tux[01-03]\n", gpus_per_node=4)
    assert cluster.level_names == ("gpu", "node")
    assert nodes_of(cluster) == [("tux01", 4), ("tux02", 4), ("tux03", 4)]


def test_a_leaf_beside_a_spine(tmp_path: Path) -> None:
    text = TREE + "SwitchName=far Nodes=far1\nSwitchName=core Switches=top,far\n"
    cluster = slurm(tmp_path, text)
    assert cluster.level_names == ("gpu", "node", "rack", "spine")
    assert "(spine)" in cluster.vertex_names and "far" in cluster.vertex_names and "top/s1/tux4" in cluster.vertex_names


def test_names_that_yaml_would_read_as_something_else(tmp_path: Path) -> None:
    text = "SwitchName=1e3 Nodes=[007-008],0x1f,yes,null\nSwitchName=t Switches=1e3\n"
    assert [name for name, _ in nodes_of(slurm(tmp_path, text))] == [
        f"1e3/{name}" for name in ("007", "008", "0x1f", "yes", "null")
    ]


def test_the_file_may_be_called_like_a_switch(tmp_path: Path) -> None:
    cluster = slurm(tmp_path, TREE.replace("s1", "out").replace("s[0-1]", "s0,out"))
    assert cluster.name == "out-cluster"


def test_what_has_no_gpus_is_left_out_and_told(tmp_path: Path) -> None:
    paths = save(
        tmp_path,
        topology=TREE.replace("s[0-1]", "s[0-2]") + "SwitchName=s2 Nodes=cpu[0-9]\n",
        nodes="NodeName=tux[0-6] Gres=gpu:8\nNodeName=tux7,cpu[0-9]\nNodeName=extra[1-2] Gres=gpu:4\n",
    )
    described = describe_slurm(paths["topology"], nodes=paths["nodes"])
    assert described.notes == (
        "Left out, without GPUs: 11 nodes (tux7,cpu[0-9])",
        "Left out, without GPUs below them: the switches s2",
        "Left out, not in topology.conf: 2 nodes with GPUs (extra[1-2])",
    )
    assert write_description(described, tmp_path / "out.yaml").num_gpus == 56
    assert "extra[1-2]" in (tmp_path / "out.yaml").read_text()


def test_one_of_several_tops(tmp_path: Path) -> None:
    cluster = slurm(tmp_path, LEAVES, top="s1")
    assert [name for name, _ in nodes_of(cluster)] == ["tux4", "tux5", "tux6", "tux7"]


def test_a_thousand_nodes_load_in_time(tmp_path: Path) -> None:
    lines = [f"SwitchName=s{at} Nodes=n[{at * 40:04d}-{at * 40 + 39:04d}]" for at in range(25)]
    cluster = slurm(tmp_path, "\n".join([*lines, "SwitchName=top Switches=s[0-24]"]))
    assert cluster.num_gpus == 8000 and cluster.vertex_names[999] == "s24/n0999"


# ---- nodes ----


def test_slurm_conf(tmp_path: Path) -> None:
    path = save(
        tmp_path,
        nodes="ControlMachine=x\nnodename=DEFAULT Gres=gpu:2\nNodeName=a[1-2] CPUs=4\n"
        "NodeName=b1 Gres=gpu:v100:4,gpu:k80:2\nNodeName=c1 Gres=nic:1\n"
        "NodeName=d1 Gres=gpu\nPartitionName=p Nodes=a[1-2]\n",
    )["nodes"]
    found = read_nodes(path)
    assert found.nodes == {"a1": {None: 2}, "a2": {None: 2}, "b1": {"v100": 4, "k80": 2}, "c1": {}, "d1": {None: 1}}
    assert found.of("e1") is None


def test_gres_conf(tmp_path: Path) -> None:
    path = save(
        tmp_path,
        nodes="AutoDetect=off\nNodeName=a[1-2] Name=gpu Type=a100 File=/dev/nvidia[0-3] Cores=0-7\n"
        "NodeName=a[1-2] Name=gpu Type=a100 File=/dev/nvidia[4-7]\nNodeName=b1 Name=gpu Count=2\n"
        "NodeName=a1 Name=nic Count=1\n",
    )["nodes"]
    found = read_nodes(path)
    assert found.nodes == {"a1": {"a100": 8}, "a2": {"a100": 8}, "b1": {None: 2}}
    assert found.of("cpu1") == {}
    path.write_text("Name=gpu Type=t4 File=/dev/nvidia0\nName=gpu Type=t4 File=/dev/nvidia1\n")
    assert read_nodes(path).of("any") == {"t4": 2}


def test_types(tmp_path: Path) -> None:
    nodes = "NodeName=tux[0-5] Gres=gpu:a100:8\nNodeName=tux6 Gres=gpu:v100:4\nNodeName=tux7 Gres=gpu:v100:2,gpu:t4:2\n"
    cluster = slurm(tmp_path, TREE, nodes=nodes, topo=matrix(8, pairs_and_halves))
    assert cluster.level_names == ("gpu", "board", "nvlink", "numa", "node", "rack")
    kinds = [cluster.gpu_types[kind] for kind in cluster.island_type]
    weights = cluster.gpus[: cluster.num_islands]
    assert {kind: int(sum(weights[np.array(kinds) == kind])) for kind in set(kinds)} == {"a100": 48, "v100": 6, "t4": 2}
    assert "Without islands, since the matrix is of other GPUs: tux[6-7]" in (tmp_path / "out.yaml").read_text()


# ---- the inside of a node ----


def read(tmp_path: Path, text: str) -> tuple[Part, tuple[str, ...]]:
    path = tmp_path / "topo.txt"
    path.write_text(text, encoding="utf-8")
    found = read_node_topology(path)
    return found.node, found.levels


def cube_mesh(a: int, b: int) -> str:
    """DGX-1: not every pair has an NVLink."""
    linked = a // 4 == b // 4 or b - a == 4
    return "NV1" if linked else "SYS"


def pcie_only(a: int, b: int) -> str:
    return "PIX" if a // 2 == b // 2 else "PXB" if a // 4 == b // 4 else "SOC"


@pytest.mark.parametrize(
    ("gpus", "reach", "levels", "shape", "nvlinks"),
    [
        (8, lambda a, b: "NV12", (), [8], 12),  # NVSwitch: 12 links of each GPU, not 7 x 12
        (4, lambda a, b: "NV4", (), [4], 12),  # each pair joined directly
        (8, cube_mesh, (), [8], 4),
        (8, pairs_and_halves, ("nvlink", "numa"), [[2, 2], [2, 2]], 4),
        (8, lambda a, b: "NV12" if a // 2 == b // 2 else "SYS", ("nvlink",), [2, 2, 2, 2], 12),
        (8, lambda a, b: "NV12" if b - a == 4 else "SYS", ("nvlink",), [2, 2, 2, 2], 12),
        (8, pcie_only, ("pix", "pxb"), [[2, 2], [2, 2]], 0),
        (4, lambda a, b: "PHB" if a // 2 == b // 2 else "NODE", ("phb",), [2, 2], 0),
        (4, lambda a, b: "SYS", (), [4], 0),
        (1, lambda a, b: "X", (), [1], 0),
    ],
)  # fmt: skip
def test_islands(gpus: int, reach: Reach, levels: tuple[str, ...], shape: list, nvlinks: int, tmp_path: Path) -> None:
    node, found = read(tmp_path, matrix(gpus, reach, nics=3))

    def sizes(part: Part) -> list:
        return [sizes(below) if below.parts else below.gpus for below in part.parts]

    assert found == levels
    assert (sizes(node) or [node.gpus]) == shape and node.gpus == gpus
    assert {leaf.nvlinks for leaf in node.leaves()} == {nvlinks}


def test_a_real_looking_one(tmp_path: Path) -> None:
    # Spaces instead of tabs, older names of NICs, no colours.
    text = """\
$ nvidia-smi topo -m
        GPU0    GPU1    GPU2    GPU3    mlx5_0  CPU Affinity
GPU0     X      NV2     SYS     SYS     PIX     0-23,48-71
GPU1    NV2      X      SYS     SYS     PIX     0-23,48-71
GPU2    SYS     SYS      X      NV2     SYS     24-47,72-95
GPU3    SYS     SYS     NV2      X      SYS     24-47,72-95
mlx5_0  PIX     PIX     SYS     SYS      X
"""
    node, levels = read(tmp_path, text)
    assert levels == ("nvlink",) and [part.gpus for part in node.parts] == [2, 2]


def test_gpus_without_nvlink_beside_some_with(tmp_path: Path) -> None:
    path = tmp_path / "topo.txt"
    path.write_text(matrix(6, lambda a, b: "NV4" if b < 4 and a // 2 == b // 2 else "SYS"), encoding="utf-8")
    cluster = write_description(describe_nodes(path, 2), tmp_path / "out.yaml")
    assert cluster.gpus[: cluster.num_islands].tolist() == [2, 2, 1, 1] * 2
    slow = (PCIE_GPU.bandwidth_GBps or 0) * 1e9
    assert cluster.gpu_capacity.tolist() == [100e9, 100e9, slow, slow] * 2
    check_arrays(cluster)
    assert "GPUs of each nvlink: 0,1 | 2,3 | 4 | 5" in (tmp_path / "out.yaml").read_text()


@given(st.lists(st.integers(1, 3), min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_nested_islands_are_found_whatever_the_numbers(shape: list[int], random: object) -> None:
    sizes = [1]
    for count in shape:
        sizes.append(sizes[-1] * count)
    gpus = sizes[-1]
    if gpus > 16:
        return
    number = list(range(gpus))
    random.shuffle(number)  # type: ignore[attr-defined]
    classes = ("NV2", "PIX", "PHB", "NODE")

    def reach(a: int, b: int) -> str:
        first, second = number[a], number[b]
        return next(
            (name for name, size in zip(classes, sizes[1:], strict=False) if first // size == second // size), "SYS"
        )

    with tempfile.TemporaryDirectory() as folder:
        node, levels = read(Path(folder), matrix(gpus, reach))
    wanted = [
        name
        for name, size, below in zip(("nvlink", "pix", "phb", "numa"), sizes[1:], sizes, strict=False)
        if below < size < gpus
    ]
    assert levels == tuple(wanted)
    parts = [node]
    for name in reversed(wanted):
        parts = [below for part in parts for below in part.parts]
        assert {part.level for part in parts} == {name}
    assert sum(part.gpus for part in parts) == gpus and len({part.gpus for part in parts}) == 1


def test_slurm_files_are_no_matrix(tmp_path: Path) -> None:
    paths = save(tmp_path, topology=TREE, matrix=matrix(4, pairs_and_halves))
    assert not is_node_topology(paths["topology"]) and is_node_topology(paths["matrix"])


def test_every_level_has_a_default() -> None:
    assert set(SWITCHES) <= set(LINKS)
    assert all((link.bandwidth_GBps is None) != (link.oversubscription is None) for link in LINKS.values())


# ---- mistakes ----

# what is wrong: (topology.conf, row, part of the message)
MISTAKES: dict[str, tuple[str, int | None, str]] = {
    "nothing": ("# nothing\n\n", None, "defines no switch"),
    "no switch": ("Nodes=tux1\n", 1, "names no switch"),
    "unknown key": ("\nSwitchName=s0 Node=tux1\n", 2, "unknown key 'node'; did you mean Nodes?"),
    "blocks": ("BlockName=b1 Nodes=tux[1-4]\n", 1, "topology/block"),
    "no pair": ("SwitchName=s0 Nodes=a1\ninclude more.conf\n", 2, "'include more.conf' is no Key=Value"),
    "key twice": ("SwitchName=s0 Nodes=a1 nodes=a2\n", 1, "is given twice"),
    "both": ("SwitchName=s0 Nodes=a1 Switches=s1\n", 1, "both Nodes and Switches"),
    "twice": (LEAVES + "SwitchName=s1 Nodes=tux9\n", 3, "switch 's1' is defined in row 2"),
    "several in one line": ("SwitchName=s[0-1] Nodes=tux1\n", 1, "not the name of one switch"),
    "missing switch": ("SwitchName=t \\\n  Switches=s[0-1]\nSwitchName=s0 Nodes=a\n", 1, "switch 's1' is not defined"),
    "two above": (TREE + "SwitchName=other Switches=s1\n", 4, "below 'top' and below 'other'"),
    "itself": ("SwitchName=s0 Switches=s0\n", 1, "below itself"),
    "circle": ("SwitchName=a Switches=b\nSwitchName=b Switches=c\nSwitchName=c Switches=a\n", 1, "round in a circle"),
    "circle beside": (TREE + "SwitchName=a Switches=b\nSwitchName=b Switches=a\n", 4, "go round in a circle"),
    "several tops": (LEAVES, 2, "2 switches are below no other: s0, s1"),
    "node twice": (TREE.replace("tux[4-7]", "tux[3-7]"), 2, "node 'tux3' is below 's0' (row 1) too"),
    "node twice here": ("SwitchName=s0 Nodes=tux[0-3],tux2\n", 1, "names 'tux2' twice"),
    "node twice, of very many": ("SwitchName=s0 Nodes=tux[0-99999],tux99999\n", 1, "names 'tux99999' twice"),
    "no hostlist": ("SwitchName=s0 Nodes=tux[0-\n", 1, "brackets"),
    "backwards": ("SwitchName=s0 Nodes=tux[3-0]\n", 1, "runs backwards"),
    "a name": ("SwitchName=s0 Nodes=tux/1\n", 1, "'tux/1' cannot name a vertex"),
    "too deep": (
        "".join(f"SwitchName=s{at} Switches=s{at + 1}\n" for at in range(9)) + "SwitchName=s9 Nodes=a\n",
        9,
        "at most 8",
    ),
    "no nodes": ("SwitchName=s0\n", None, "no node below its switches has GPUs"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name: str, tmp_path: Path) -> None:
    text, row, message = MISTAKES[name]
    path = save(tmp_path, topology=text)["topology"]
    with pytest.raises(InputError) as caught:
        describe_slurm(path, gpus_per_node=8)
    told = str(caught.value)
    assert message in told and "expected" in told and "\n" not in told
    assert (caught.value.file, caught.value.row) == (str(path), row)


@pytest.mark.parametrize(
    ("text", "row", "message"),
    [
        ("PartitionName=p Nodes=a\n", None, "no node has GPUs"),
        ("include nodes.conf\n", None, "files that it includes are not read"),
        ("NodeName=tux[0-7]\n", None, "no node has GPUs"),
        ("NodeName=tux[0-6] Gres=gpu:8\n", 2, "node 'tux7' is not in nodes.conf"),
        ("NodeName=tux[0-7] Gres=gpu:8\n\nNodeName=tux3 Gres=gpu:8\n", 3, "node 'tux3' stands in row 1"),
        ("NodeName=tux[0-7] Gres=gpu:a:b:8\n", 1, "is no list of resources"),
        ("NodeName=tux[0-6] Gres=gpu:a100:8\nNodeName=tux7 Gres=gpu:8\n", 2, "the GPUs of tux7 have no type"),
        ("NodeName=tux[0-7] Gres=gpu:a/100:8\n", 1, "'a/100' is no GPU type"),
        ("NodeName=tux[0-7] Name=gpu AutoDetect=nvml\n", 1, "says not how many GPUs"),
        ("NodeName=tux[0-7] Name=gpu Count=many\n", 1, "'many' is no number of GPUs"),
        ("NodeName=tux[0-7] Name=gpu File=/dev/nvidia[0-\n", 1, "brackets"),
    ],
)
def test_mistakes_in_the_list_of_nodes(text: str, row: int | None, message: str, tmp_path: Path) -> None:
    paths = save(tmp_path, topology=TREE, nodes=text)
    with pytest.raises(InputError) as caught:
        describe_slurm(paths["topology"], nodes=paths["nodes"])
    assert message in str(caught.value) and "expected" in str(caught.value)
    assert caught.value.row == row


GOOD = matrix(4, pairs_and_halves)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hello\n", "holds no matrix of GPUs"),
        (GOOD.replace("GPU2\tNODE", "GPU2\tSYS"), "the same both ways"),
        (GOOD.replace("NV4", "NVX"), "GPU0 reaches GPU1 by 'NVX'"),
        (GOOD.replace("GPU3\tNODE", "GPU7\tNODE"), "a row of GPU7"),
        (GOOD.replace("GPU3\tNODE", "GPU2\tNODE"), "a second row of GPU2"),
        ("\n".join(GOOD.split("\n")[:4]), "no row of GPU3"),
        (GOOD.partition("GPU3\tNODE")[0] + "GPU3\tNODE\tNODE\n", "the row of GPU3 is cut off"),
        (GOOD.replace("GPU1\tNV4\t X ", "GPU1\t X \tNV4"), "GPU1 reaches GPU0 by 'X'"),
    ],
)
def test_mistakes_in_the_matrix(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "topo.txt"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        describe_nodes(path, 1)
    assert message in str(caught.value) and "expected" in str(caught.value) and caught.value.file == str(path)


def test_what_does_not_go_together(tmp_path: Path) -> None:
    paths = save(tmp_path, topology=TREE, nodes="NodeName=tux[0-7] Gres=gpu:4\n", topo=matrix(8, pairs_and_halves))
    file, nodes, topo = paths["topology"], paths["nodes"], paths["topo"]
    with pytest.raises(InputError, match="nothing says how many GPUs"):
        describe_slurm(file)
    with pytest.raises(InputError, match="both say"):
        describe_slurm(file, nodes=nodes, gpus_per_node=4)
    with pytest.raises(InputError, match="at least 1"):
        describe_slurm(file, gpus_per_node=0)
    with pytest.raises(InputError, match="no switch 'tip'; expected one of s0, s1, top"):
        describe_slurm(file, gpus_per_node=4, top="tip")
    with pytest.raises(InputError, match="--gpus-per-node says 4"):
        describe_slurm(file, gpus_per_node=4, node_topology=topo)
    with pytest.raises(InputError, match="no node has these"):
        describe_slurm(file, nodes=nodes, node_topology=topo)
    with pytest.raises(InputError, match="at least 1"):
        describe_nodes(topo, 0)


def test_nothing_is_written_that_does_not_load(tmp_path: Path) -> None:
    path = tmp_path / "topo.txt"
    path.write_text(matrix(4, pairs_and_halves), encoding="utf-8")
    with pytest.raises(InputError, match=r"out\.yaml.*more than 500,000 vertices"):
        write_description(describe_nodes(path, 10_000_000), tmp_path / "out.yaml")
    assert [file.name for file in tmp_path.iterdir()] == ["topo.txt"]


@given(st.text(alphabet='SwitchNamenodes=[]0123-,\\\n #"topGPUX\tNV', max_size=200), st.booleans())
@settings(max_examples=200, deadline=None)
def test_whatever_the_text_it_is_a_tree_or_one_line(text: str, header: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x"
        path.write_text(("SwitchName=s0 Nodes=a1\n" if header else "") + text, encoding="utf-8")
        for describe in (
            lambda: describe_slurm(path, gpus_per_node=2),
            lambda: describe_nodes(path, 2),
            lambda: read_nodes(path),
        ):
            try:
                describe()
            except InputError as error:
                assert "\n" not in str(error) and error.file == str(path)
