"""Random trees: the arrays are consistent, and equal to the tree expanded object by object."""

from __future__ import annotations

import itertools
import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from attn_sched.cluster import Cluster, load_cluster, preset_names
from attn_sched.errors import InputError
from tests.cluster.reference import check_against, check_arrays
from tests.cluster.trees import documents

slow_ok = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=150)


def load_text(text: str) -> Cluster:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cluster.yaml"
        path.write_text(text, encoding="utf-8")
        return load_cluster(path)


@pytest.mark.parametrize("name", [*preset_names(), "count:7", "nodes:3x5"])
def test_named_clusters_have_consistent_arrays(name: str) -> None:
    check_arrays(load_cluster(name))


@slow_ok
@given(documents())
def test_random_trees(document: dict[str, Any]) -> None:
    cluster = load_text(yaml.safe_dump(document, sort_keys=False))
    check_arrays(cluster)
    check_against(cluster, document)
    assert cluster.level_names == tuple(document["levels"])
    assert cluster.typed == ("gpu_type" in document)


def _cut(cluster: Cluster, sides: dict[int, int]) -> float:
    """Least cost over the sides of all vertices above those of ``sides``, by trying every combination."""
    below = min(sides)
    above = [v for v in range(below, cluster.num_vertices) if v not in sides]
    best = math.inf
    for choice in itertools.product((0, 1), repeat=len(above)):
        side = {**sides, **dict(zip(above, choice, strict=True))}
        cost = sum(
            cluster.capacity[v] for v in side if cluster.parent[v] >= 0 and side[v] != side[int(cluster.parent[v])]
        )
        best = min(best, float(cost))
    return best


def _brute_force_bisection(cluster: Cluster) -> float:
    base = cluster.node_level if len(cluster.vertices(cluster.node_level)) > 1 else 1
    ids = list(cluster.vertices(base))
    cuts: dict[int, float] = {}
    for choice in itertools.product((0, 1), repeat=len(ids)):
        gpus = int(np.dot(choice, cluster.gpus[ids]))
        if 2 * gpus <= cluster.num_gpus:
            cuts[gpus] = min(cuts.get(gpus, math.inf), _cut(cluster, dict(zip(ids, choice, strict=True))))
    return cuts[max(cuts)]


@settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=60)
@given(documents())
def test_bisection_is_the_least_of_all_cuts(document: dict[str, Any]) -> None:
    cluster = load_text(yaml.safe_dump(document))
    bases = cluster.vertices(cluster.node_level)
    if len(bases) == 1:
        bases = cluster.vertices(1)
    above = cluster.num_vertices - bases.stop
    if len(bases) < 2 or len(bases) + above > 12:
        return
    assert cluster.bisection_bandwidth() == pytest.approx(_brute_force_bisection(cluster))


@slow_ok
@given(documents())
def test_networkx_tells_the_same_tree(document: dict[str, Any]) -> None:
    import networkx as nx

    cluster = load_text(yaml.safe_dump(document))
    graph = cluster.to_networkx()
    assert nx.is_arborescence(graph)
    assert sum(node["kind"] == "gpu" for node in graph.nodes.values()) == cluster.num_gpus
    for vertex, name in enumerate(cluster.vertex_names):
        assert graph.nodes[name]["index"] == vertex and graph.nodes[name]["gpus"] == cluster.gpus[vertex]
        for parent in graph.predecessors(name):
            assert graph.edges[parent, name]["capacity"] == cluster.capacity[vertex]
    assert len(cluster.to_networkx(gpus=False)) == cluster.num_vertices


@slow_ok
@given(documents())
def test_level_summaries_add_up(document: dict[str, Any]) -> None:
    cluster = load_text(yaml.safe_dump(document))
    rows = cluster.levels()
    assert [row.name for row in rows] == list(cluster.level_names)
    assert rows[0].count == cluster.num_gpus
    for row in rows[1:]:
        ids = np.array(cluster.vertices(row.level))
        assert row.count == (~cluster.through[ids]).sum() > 0
        assert 0 < row.gpus[0] <= row.gpus[1] and row.bandwidth[0] <= row.bandwidth[1]


@settings(deadline=None, max_examples=200)
@given(st.one_of(st.text(max_size=200), documents().map(yaml.safe_dump), st.binary(max_size=200)), st.data())
def test_no_file_ends_in_anything_but_a_cluster_or_a_message(raw: str | bytes, data: st.DataObject) -> None:
    content = raw.encode("utf-8", "surrogatepass") if isinstance(raw, str) else raw
    if data.draw(st.booleans()) and content:  # damage it somewhere
        at = data.draw(st.integers(0, len(content) - 1))
        content = content[:at] + data.draw(st.binary(min_size=1, max_size=3)) + content[at + 1 :]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cluster.yaml"
        path.write_bytes(content)
        try:
            cluster = load_cluster(path)
        except InputError as error:
            assert str(path) in str(error) and "\n" not in str(error)
        else:
            check_arrays(cluster)
