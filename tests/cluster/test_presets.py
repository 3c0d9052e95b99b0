"""Every preset against figures worked out by hand from the specification's table."""

from __future__ import annotations

import math

import numpy as np
import pytest

from attn_sched.cluster import Cluster, load_cluster, preset_names
from attn_sched.cluster.shorthands import NIC, NVLINK
from attn_sched.errors import InputError

GB = 1e9

# name: (GPUs, nodes, racks, GPU link, node uplink, rack uplink: how many, latencies of GPU, node, rack, bisection)
FIGURES = {
    "testbed32": (32, 8, 2, 130, 11.5, {23.0: 2}, (3, 5, 7), 23),
    "dgx64": (64, 8, 2, 130, 11.5, {23.0: 2}, (3, 5, 7), 23),
    "eth64": (64, 16, 4, 12, 1.17, {1.17: 4}, (5, 50, 70), 2.34),
    # 13 racks of 24 small nodes and one of 9; 28 of 8 big nodes and one of 7.
    "philly": (2490, 552, 43, 12, 11.5, {138.0: 13, 51.75: 1, 46.0: 28, 40.25: 1}, (5, 5, 7), 931.5),
    # 16 racks of 8 and one of 5. Halves of 66 and 67 nodes: 8 racks and 2 nodes.
    "helios-venus": (1064, 133, 17, 130, 11.5, {46.0: 16, 28.75: 1}, (3, 5, 7), 8 * 46 + 2 * 11.5),
    "pod1024": (1024, 128, 16, 450, 92, {368.0: 16}, (3, 5, 7), 8 * 368),
    "nvl72": (144, 36, 2, 900, math.inf, {828.0: 2}, (4, 4, 5), 828),
}


def test_the_table_is_complete() -> None:
    assert set(preset_names()) == set(FIGURES)


@pytest.mark.parametrize("name", FIGURES)
def test_preset(name: str) -> None:
    gpus, nodes, racks, gpu_link, nic, uplinks, latencies, bisection = FIGURES[name]
    cluster = load_cluster(name)
    assert cluster.name == name and cluster.description
    assert cluster.level_names == ("gpu", "node", "rack")
    assert (cluster.node_level, cluster.unit_level) == (1, 1)
    assert cluster.num_gpus == gpus
    assert (cluster.num_islands, len(cluster.vertices(1)), len(cluster.vertices(2))) == (nodes, nodes, racks)
    assert not cluster.typed and not cluster.through.any()
    assert np.allclose(cluster.gpu_capacity, gpu_link * GB, rtol=1e-12)
    assert np.allclose(cluster.capacity[:nodes], nic * GB, rtol=1e-12)
    found = cluster.capacity[cluster.vertices(2)]
    assert sorted(found / GB) == pytest.approx(sorted(c for c, n in uplinks.items() for _ in range(n)))
    for at, latency in enumerate(latencies):
        row = cluster.gpu_latency if at == 0 else cluster.latency[cluster.vertices(at)]
        assert (row == latency / 1e6).all()
    assert cluster.capacity[-1] == math.inf and cluster.latency[-1] == 0.0
    assert cluster.bisection_bandwidth() == pytest.approx(bisection * GB)


def test_philly_racks_hold_machines_of_one_size() -> None:
    cluster = load_cluster("philly")
    sizes = [set(cluster.gpus[cluster.child_lo[v] : cluster.child_hi[v]].tolist()) for v in cluster.vertices(2)]
    assert sizes == [{2}] * 14 + [{8}] * 29
    held = [int(cluster.child_hi[v] - cluster.child_lo[v]) for v in cluster.vertices(2)]
    assert held == [24] * 13 + [9] + [8] * 28 + [7]


def test_count_is_one_pool_without_links() -> None:
    cluster = load_cluster("count:96")
    assert (cluster.num_gpus, cluster.num_levels, cluster.num_vertices, cluster.num_islands) == (96, 1, 1, 1)
    assert cluster.level_off.tolist() == [0, 0, 1]
    assert cluster.parent.tolist() == [-1]
    assert (cluster.node_level, cluster.unit_level) == (1, 1)
    assert cluster.gpu_capacity.tolist() == [math.inf] and cluster.gpu_latency.tolist() == [0.0]
    assert cluster.gpu_off.tolist() == [0, 96]
    assert cluster.vertex_names == ("count:96",)
    assert cluster.bisection_bandwidth() == math.inf


def test_nodes_lie_under_one_switch_with_the_links_of_dgx64() -> None:
    cluster, dgx = load_cluster("nodes:12x8"), load_cluster("dgx64")
    assert (cluster.num_gpus, cluster.num_islands, cluster.num_vertices) == (96, 12, 13)
    assert cluster.level_names == ("gpu", "node")
    assert NVLINK.bandwidth == dgx.gpu_capacity[0] and NVLINK.latency == dgx.gpu_latency[0]
    assert NIC.bandwidth == dgx.capacity[0] and NIC.latency == dgx.latency[0]
    assert (cluster.gpu_capacity == dgx.gpu_capacity[0]).all() and (cluster.capacity[:12] == dgx.capacity[0]).all()
    assert cluster.bisection_bandwidth() == pytest.approx(6 * 11.5 * GB)


@pytest.mark.parametrize(
    "name",
    ["", "dgx65", "count", "count:", "count:0", "count:-3", "count:1.5", "count:x", "nodes:", "nodes:3", "nodes:0x8",
     "nodes:3x", "nodes:3x8x2", "pods:3", "no\0pe", "x" * 5000, "count:99999999999", "count:²"],
)  # fmt: skip
def test_unknown_names_list_what_exists(name: str) -> None:
    with pytest.raises(InputError) as caught:
        load_cluster(name)
    assert "expected" in str(caught.value) and "\n" not in str(caught.value)
    if name in ("", "dgx65", "count", "pods:3"):
        for known in (*preset_names(), "count:N", "nodes:AxB"):
            assert known in str(caught.value)


def test_big_clusters() -> None:
    big: list[Cluster] = [load_cluster("nodes:10000x8"), load_cluster("nodes:512x8")]
    assert [cluster.num_gpus for cluster in big] == [80_000, 4_096]


def test_the_placement_unit_can_be_another_level() -> None:
    cluster = load_cluster("dgx64")
    assert [cluster.with_unit(unit).unit_level for unit in ("gpu", "node", "rack")] == [0, 1, 2]
    assert cluster.unit_level == 1
    with pytest.raises(ValueError, match="nvlink"):
        cluster.with_unit("nvlink")


def test_ancestors() -> None:
    cluster = load_cluster("dgx64")
    assert cluster.ancestor(1).tolist() == list(range(8))
    assert cluster.ancestor(2).tolist() == [8] * 4 + [9] * 4
    assert cluster.ancestor(3).tolist() == [10] * 8
    for level in (0, 4, -1):
        with pytest.raises(ValueError):
            cluster.ancestor(level)


def test_absurd_counts_end_in_a_message_and_huge_ones_at_once() -> None:
    with pytest.raises(InputError, match="expected a smaller count"):
        load_cluster("nodes:1000000x1000")
    with pytest.raises(InputError, match="at most 100000000"):
        load_cluster("nodes:100000x100000")
    assert math.isnan(load_cluster("nodes:60000x8").bisection_bandwidth())
