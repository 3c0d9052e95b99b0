"""Clusters that the features cannot describe."""

from __future__ import annotations

from dataclasses import replace

import pytest

from attn_sched.agents.limits import check_depth
from attn_sched.cluster import load_cluster
from attn_sched.cluster.topology import Cluster
from attn_sched.errors import InputError
from tests.reference.shapes import Group, Island, Vertex, make_cluster

PRESETS = ("dgx64", "eth64", "nvl72", "pod1024", "testbed32", "philly", "helios-venus", "nodes:3x4", "count:8")


def tree(levels: int) -> Cluster:
    """Two islands of two GPUs, one below so many levels (root included) as the other."""
    vertex: Vertex = Group((Island(2), Island(2)))
    for _ in range(levels - 2):
        vertex = Group((vertex,))
    return make_cluster(vertex, level_names=("gpu", *(f"level{k}" for k in range(1, levels))))


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_not_too_deep(name: str) -> None:
    check_depth(load_cluster(name))
    check_depth(load_cluster(name).with_unit("gpu"))


def test_deep_trees() -> None:
    check_depth(tree(4))
    with pytest.raises(InputError, match="has 4 levels above its placement unit 'level1'; expected at most 3"):
        check_depth(tree(5))
    check_depth(replace(tree(5), unit_level=2))
    with pytest.raises(InputError, match="has 4 levels above its placement unit 'gpu'"):
        check_depth(tree(5).with_unit("gpu"))
    check_depth(replace(tree(6), unit_level=3))
    with pytest.raises(InputError, match="has 7 levels above the GPUs; expected at most 6"):
        check_depth(replace(tree(7), unit_level=4))
