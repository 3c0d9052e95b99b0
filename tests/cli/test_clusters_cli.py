"""``attn-sched clusters`` as a user meets it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from attn_sched.cli import main
from attn_sched.cluster import preset_names
from tests.cluster.slurm import matrix


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["clusters", *arguments])


def test_list_names_every_preset_once() -> None:
    result = run("list")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    for name in (*preset_names(), "count:N", "nodes:AxB"):
        assert sum(line.split()[:1] == [name] for line in lines) == 1, name
    assert any("2,490" in line and "gpu < node < rack" in line for line in lines)


def test_list_as_json() -> None:
    found = json.loads(run("list", "--json").stdout)
    assert [row["name"] for row in found["presets"]] == list(preset_names())
    assert {row["name"]: row["gpus"] for row in found["presets"]}["philly"] == 2490


@pytest.mark.parametrize("name", [*preset_names(), "count:96", "nodes:12x8"])
def test_show_every_cluster(name: str) -> None:
    result = run("show", name)
    assert result.exit_code == 0 and name in result.stdout and "bisection bandwidth" in result.stdout
    found = json.loads(run("show", name, "--json").stdout)
    assert found["name"] == name and found["levels"][0]["name"] == "gpu"


def test_show_tells_the_links() -> None:
    shown = run("show", "dgx64").stdout
    for text in ("64 GPUs, 8 nodes", "placement unit: node", "130 GB/s", "11.5 GB/s", "23 GB/s", "7 us", "2:1"):
        assert text in shown
    found = json.loads(run("show", "dgx64", "--json").stdout)
    rack = found["levels"][2]
    assert rack["bandwidth_Bps"] == [23e9, 23e9] and rack["oversubscription"] == [2.0, 2.0]
    assert found["bisection_Bps"] == 23e9
    unlimited = json.loads(run("show", "count:8", "--json").stdout)
    assert unlimited["bisection_Bps"] is None and unlimited["levels"][0]["bandwidth_Bps"] == [None, None]


def test_show_tells_gpu_types(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "levels: [gpu, node]\ntree: [{node: 3, gpus: 4, gpu_type: A100}, {node: 1, gpus: 1, gpu_type: T4}]\n"
    )
    assert "12 GPUs of A100, 1 GPU of T4" in run("show", str(path)).stdout
    assert json.loads(run("show", str(path), "--json").stdout)["gpu_types"] == {"A100": 12, "T4": 1}


def test_show_draws(tmp_path: Path) -> None:
    path = tmp_path / "tree.png"
    result = run("show", "testbed32", "--png", str(path))
    assert result.exit_code == 0 and str(path) in result.stdout.replace("\n", "")
    assert path.read_bytes().startswith(b"\x89PNG")


def test_mistakes_are_one_line(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("levels: [gpu, node]\ntree:\n  - node: 0\n    gpus: 4\n")
    for arguments, part in (
        (("show", "dgx46"), "dgx64"),
        (("show", str(path)), f"{path}, row 3"),
        (("show", str(tmp_path)), "is a directory"),
        (("show", "dgx64", "--png", str(tmp_path / "none" / "x.png")), "folder does not exist"),
        (("show", "dgx64", "--png", str(tmp_path)), "is a directory"),
        (("show",), "NAME"),
    ):
        result = run(*arguments)
        assert result.exit_code == 2, result.output
        assert part in result.stderr and len(result.stderr.splitlines()) == 1 and result.stdout == ""
    assert sorted(tmp_path.iterdir()) == [path]


def test_the_picture_replaces_no_description(tmp_path: Path) -> None:
    own = tmp_path / "own.png"  # a description all the same
    own.write_text("levels: [gpu]\ntree: [{gpu: 4}]\n")
    for png, say in ((own, "the description of the cluster"), (tmp_path / "x.txt", "does not end in .png")):
        result = run("show", str(own), "--png", str(png))
        assert result.exit_code == 2 and say in result.stderr and result.stdout == ""
    assert own.read_text().startswith("levels") and [path.name for path in tmp_path.iterdir()] == ["own.png"]


def test_convert(tmp_path: Path) -> None:
    topology, nodes, topo = (tmp_path / name for name in ("topology.conf", "slurm.conf", "topo.txt"))
    topology.write_text("SwitchName=s0 Nodes=tux[0-3]\nSwitchName=s1 Nodes=tux[4-7]\nSwitchName=t Switches=s[0-1]\n")
    nodes.write_text("NodeName=tux[0-6] Gres=gpu:a100:4\nNodeName=tux7\n")
    topo.write_text(matrix(4, lambda a, b: "NV4" if a // 2 == b // 2 else "SYS"))
    out = tmp_path / "mine.yaml"
    result = run("convert", str(topology), "--nodes", str(nodes), "--node-topology", str(topo), "--out", str(out))
    assert result.exit_code == 0, result.output
    said = result.stdout.replace("\n", " ")
    assert "28 GPUs in 7 nodes (gpu < nvlink < node < rack)" in said and "check them" in said
    assert "Left out, without GPUs: 1 nodes (tux7)" in said
    found = json.loads(run("show", str(out), "--json").stdout)
    assert (found["gpus"], found["nodes"], found["gpu_types"]) == (28, 7, {"a100": 28})
    assert run("convert", str(topo), "--num-nodes", "3", "--out", str(out)).exit_code == 0
    assert json.loads(run("show", str(out), "--json").stdout)["gpus"] == 12


def test_convert_says_when_agents_cannot_tell_the_levels_apart(tmp_path: Path) -> None:
    topology = tmp_path / "topology.conf"
    chain = "".join(f"SwitchName=s{at} Switches=s{at + 1}\n" for at in range(5)) + "SwitchName=s5 Nodes=tux[1-2]\n"
    topology.write_text(chain)
    result = run("convert", str(topology), "--gpus-per-node", "2", "--out", str(tmp_path / "deep.yaml"))
    assert result.exit_code == 0 and "too deep for agents" in result.stdout


def test_convert_mistakes_are_one_line_and_write_nothing(tmp_path: Path) -> None:
    topology, topo = tmp_path / "topology.conf", tmp_path / "topo.txt"
    topology.write_text("SwitchName=s0 Nodes=tux[0-3]\nSwitchName=s1 Nodes=tux[4-7]\n")
    topo.write_text(matrix(4, lambda a, b: "SYS"))
    out = ("--out", str(tmp_path / "mine.yaml"))
    for arguments, part in (
        ((str(topology), *out), "how many GPUs a node has"),
        ((str(topology), "--gpus-per-node", "8", *out), "row 2: 2 switches are below no other"),
        ((str(topology), "--gpus-per-node", "8", "--num-nodes", "2", *out), "num-nodes"),
        ((str(topology), "--gpus-per-node", "x", *out), "not a valid integer"),
        ((str(topology), "--top", "s0", "--nodes", str(topo), *out), "no node has GPUs"),
        ((str(topo), "--gpus-per-node", "4", *out), "goes with a topology.conf"),
        ((str(topo), "--num-nodes", "0", *out), "at least 1"),
        ((str(tmp_path / "none.conf"), *out), "does not exist"),
        ((str(tmp_path), *out), "is a directory"),
        ((str(topology), "--gpus-per-node", "8", "--top", "s0"), "--out"),
        ((str(topology), "--gpus-per-node", "8", "--top", "s0", "--out", str(topology)), "which it would replace"),
        ((str(topo), "--out", str(tmp_path / "none" / "x.yaml")), "folder does not exist"),
    ):
        result = run("convert", *arguments)
        assert result.exit_code == 2, result.output
        assert part in result.stderr and len(result.stderr.splitlines()) == 1 and result.stdout == "", result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["topo.txt", "topology.conf"]
