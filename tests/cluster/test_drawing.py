"""Drawings: files appear whole, for every preset and for odd shapes."""

from __future__ import annotations

from pathlib import Path

import pytest

from attn_sched.cluster import load_cluster, preset_names
from attn_sched.cluster.drawing import _layout, draw_cluster
from attn_sched.errors import InputError

MIXED = """\
levels: [gpu, nvlink, node, rack, spine]
gpu_type: A100
tree:
  - {node: 100, per: {rack: 8, spine: 4}, children: [{nvlink: 2, gpus: 4}]}
  - {rack: 1, gpu_type: V100, children: [{node: 2, gpus: 8, name: big}, {node: 1, gpus: 300}]}
"""


@pytest.mark.parametrize("name", [*preset_names(), "count:96", "count:1", "nodes:1x1", "nodes:500x8"])
def test_every_cluster_can_be_drawn(name: str, tmp_path: Path) -> None:
    from matplotlib.image import imread

    path = tmp_path / "tree.png"
    draw_cluster(load_cluster(name), path)
    height, width = imread(path).shape[:2]
    assert 100 < height < 3000 and 100 < width < 3000
    assert list(tmp_path.iterdir()) == [path]


def test_a_mixed_tree_with_types(tmp_path: Path) -> None:
    path = tmp_path / "mixed.yaml"
    path.write_text(MIXED)
    draw_cluster(load_cluster(path), tmp_path / "tree.png")
    assert (tmp_path / "tree.png").read_bytes().startswith(b"\x89PNG")


def test_long_runs_say_how_many_they_leave_out() -> None:
    cluster = load_cluster("pod1024")
    root = _layout(cluster)
    shown = [child for child in root.children if child.vertex >= 0]
    hidden = [child.hidden for child in root.children if child.vertex < 0]
    assert len(shown) + sum(hidden) == 16 and len(hidden) == 1
    assert [cluster.vertex_names[child.vertex] for child in shown][-1] == "rack15"
    assert all(item.vertex >= 0 for item in _layout(load_cluster("dgx64")).children)


def test_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        draw_cluster(load_cluster("dgx64"), tmp_path / "none" / "tree.png")
