"""The YAML format: what it can express, and how it tells mistakes."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from attn_sched.cluster import Cluster, load_cluster
from attn_sched.errors import InputError
from tests.cluster.mistakes import HEAD, MISTAKES


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def load(tmp_path: Path, text: str) -> Cluster:
    return load_cluster(write(tmp_path, text))


def test_the_name_is_the_files_unless_given(tmp_path: Path) -> None:
    assert load(tmp_path, HEAD + "  - {rack: 1, children: [{node: 1, gpus: 2}]}").name == "mine"
    assert load(tmp_path, "name: x1\n" + HEAD + "  - {rack: 1, children: [{node: 1, gpus: 2}]}").name == "x1"


def test_overrides_reach_down_and_keep_what_they_do_not_say(tmp_path: Path) -> None:
    cluster = load(
        tmp_path,
        HEAD
        + """\
  - rack: 1
    children:
      - {node: 2, gpus: 4}
  - rack: 2
    name: fast
    links: {gpu: {latency_us: 1}, node: {bandwidth_GBps: 20}, rack: {oversubscription: 1}}
    children:
      - {node: 1, gpus: 4}
      - {node: 1, gpus: 4, links: {node: {latency_us: 2}}}
""",
    )
    assert cluster.vertex_names[-4:] == ("rack0", "fast0", "fast1", "mine")
    assert cluster.capacity.tolist() == [10e9, 10e9, 20e9, 20e9, 20e9, 20e9, 10e9, 40e9, 40e9, math.inf]
    assert cluster.latency.tolist() == pytest.approx([5e-6, 5e-6, 5e-6, 2e-6, 5e-6, 2e-6, 7e-6, 7e-6, 7e-6, 0])
    assert cluster.gpu_latency.tolist() == pytest.approx([3e-6, 3e-6, 1e-6, 1e-6, 1e-6, 1e-6])


def test_a_missing_level_is_passed_through(tmp_path: Path) -> None:
    cluster = load(
        tmp_path,
        HEAD
        + "  - {node: 2, gpus: 1}\n  - {rack: 1, children: [{node: 3, gpus: 4}]}\n  - {node: 1, name: odd, gpus: 2}\n",
    )
    # One stand-in holds all three nodes that have no rack, where the first of them stood.
    assert cluster.vertex_names == (
        "node0", "node1", "odd", "rack0/node0", "rack0/node1", "rack0/node2", "(rack)", "rack0", "mine",
    )  # fmt: skip
    assert cluster.through.tolist() == [False] * 6 + [True, False, False]
    assert cluster.capacity[6] == math.inf and cluster.latency[6] == 0.0
    assert cluster.levels()[2].count == 1


def test_gpus_may_hang_anywhere(tmp_path: Path) -> None:
    cluster = load(
        tmp_path,
        "levels: [gpu, nvlink, node]\ntree:\n"
        "  - {node: 1, children: [{nvlink: 1, gpus: 4}, {gpu: 2}, {gpu: 1}]}\n  - {gpu: 5}\n",
    )
    assert cluster.vertex_names == ("node0/nvlink0", "node0/(nvlink)", "(nvlink)", "node0", "(node)", "mine")
    assert cluster.gpus.tolist() == [4, 3, 5, 7, 5, 12]


def test_oversubscription_counts_through_a_missing_level(tmp_path: Path) -> None:
    cluster = load(
        tmp_path,
        """\
levels: [gpu, nvlink, node]
links:
  gpu: {bandwidth_GBps: 12}
  nvlink: {bandwidth_GBps: 20}
  node: {oversubscription: 4}
tree:
  - {node: 1, children: [{nvlink: 2, gpus: 2}]}
  - {node: 1, gpus: 4}
""",
    )
    assert cluster.capacity[cluster.vertices(2)].tolist() == [10e9, 12e9]


def test_bundles_of_bundles_leave_remainders(tmp_path: Path) -> None:
    cluster = load(
        tmp_path, "levels: [gpu, node, rack, spine]\ntree:\n  - {node: 11, gpus: 2, per: {rack: 2, spine: 3}}\n"
    )
    assert [int(g) // 2 for g in cluster.gpus[cluster.vertices(2)]] == [2, 2, 2, 2, 2, 1]
    assert [int(g) // 2 for g in cluster.gpus[cluster.vertices(3)]] == [6, 5]
    assert cluster.vertex_names[10] == "spine1/rack2/node0"


def test_racks_of_several_groups_are_numbered_on(tmp_path: Path) -> None:
    cluster = load(tmp_path, HEAD + "  - {node: 3, gpus: 2, per: {rack: 2}}\n  - {node: 2, gpus: 8, per: {rack: 2}}\n")
    assert cluster.vertex_names[-4:] == ("rack0", "rack1", "rack2", "mine")


def test_gpu_types(tmp_path: Path) -> None:
    cluster = load(
        tmp_path,
        "gpu_type: T4\n"
        + HEAD
        + """\
  - rack: 1
    gpu_type: V100
    children: [{node: 1, gpus: 2}, {node: 1, gpus: 2, gpu_type: A100-80}]
  - {rack: 1, children: [{node: 1, gpus: 2}]}
""",
    )
    assert [cluster.gpu_types[t] for t in cluster.island_type] == ["V100", "A100-80", "T4"]
    assert cluster.typed


def test_the_unit_is_a_level(tmp_path: Path) -> None:
    text = HEAD + "  - {rack: 1, children: [{node: 1, gpus: 2}]}\n"
    assert load(tmp_path, "unit: rack\n" + text).unit_level == 2
    assert load(tmp_path, "unit: gpu\n" + text).unit_level == 0


def test_without_a_node_level_islands_are_the_nodes(tmp_path: Path) -> None:
    cluster = load(tmp_path, "levels: [gpu, host, rack]\ntree: [{rack: 2, children: [{host: 3, gpus: 2}]}]\n")
    assert cluster.node_level == cluster.unit_level == 1


def test_aliases_and_numbers_with_exponents(tmp_path: Path) -> None:
    cluster = load(
        tmp_path,
        "levels: [gpu, node]\nlinks: {gpu: {bandwidth_GBps: 1e2}, node: &l {bandwidth_GBps: unlimited}}\n"
        "tree: [{node: 1, gpus: 2}, {node: 1, gpus: 2, links: {node: *l}}]\n",
    )
    assert cluster.gpu_capacity.tolist() == [100e9, 100e9] and cluster.capacity.tolist() == [math.inf] * 3


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake(name: str, tmp_path: Path) -> None:
    text, line, message = MISTAKES[name]
    path = write(tmp_path, text)
    with pytest.raises(InputError) as caught:
        load_cluster(str(path))
    told = str(caught.value)
    assert message in told and "expected" in told and "\n" not in told
    assert caught.value.file == str(path) and told.startswith(str(path))
    assert caught.value.row == line, told


def test_what_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_bytes(b"levels: [gpu]\nname: \xff\xfe\n")
    with pytest.raises(InputError, match="row 2: is not UTF-8 text"):
        load_cluster(path)
    path.write_bytes(b"x" * (9 * 1024 * 1024))
    with pytest.raises(InputError, match="longer than 8 MiB"):
        load_cluster(path)


def test_what_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a directory"):
        load_cluster(tmp_path)
    with pytest.raises(InputError, match=r"none\.yaml: does not exist"):
        load_cluster(str(tmp_path / "none.yaml"))
    with pytest.raises(InputError, match=r"none\.yaml: does not exist"):
        load_cluster("none.yaml")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_a_file_without_permission(tmp_path: Path) -> None:
    path = write(tmp_path, "levels: [gpu]\ntree: [{gpu: 1}]\n")
    path.chmod(0)
    with pytest.raises(InputError, match="Permission denied"):
        load_cluster(path)


def test_a_file_that_cannot_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, mode: str = "r") -> None:
        raise PermissionError(13, "Permission denied")

    path = write(tmp_path, "levels: [gpu]\ntree: [{gpu: 1}]\n")
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(InputError, match="cannot be read: Permission denied"):
        load_cluster(path)
