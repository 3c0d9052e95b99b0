"""A cluster as a networkx tree, for people and for libraries that know graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attn_sched.cluster.topology import Cluster

if TYPE_CHECKING:
    import networkx


def to_networkx(cluster: Cluster, *, gpus: bool = True) -> networkx.DiGraph:
    """The tree with edges from parent to child; nodes are named as in ``vertex_names``, GPUs ``<island>/gpu<k>``.

    Node attributes: ``level`` (0 = GPU), ``kind`` (the level's name, ``root``), ``gpus`` (below), ``index`` (vertex or
    GPU id), ``through`` (stands in for a missing level) and, on GPUs, ``gpu_type`` where the cluster names types. Edge
    attributes: ``capacity`` (bytes/s per direction, inf = unlimited) and ``latency`` (s). With ``gpus=False`` islands
    are the leaves.
    """
    import networkx as nx

    graph: nx.DiGraph = nx.DiGraph(name=cluster.name)
    names = cluster.vertex_names
    for level in range(cluster.num_levels, 0, -1):
        for vertex in cluster.vertices(level):
            graph.add_node(
                names[vertex],
                level=level,
                kind=cluster.level_name(level),
                gpus=int(cluster.gpus[vertex]),
                index=vertex,
                through=bool(cluster.through[vertex]),
            )
            if cluster.parent[vertex] >= 0:
                graph.add_edge(
                    names[cluster.parent[vertex]],
                    names[vertex],
                    capacity=float(cluster.capacity[vertex]),
                    latency=float(cluster.latency[vertex]),
                )
    if gpus:
        for island in range(cluster.num_islands):
            link = {"capacity": float(cluster.gpu_capacity[island]), "latency": float(cluster.gpu_latency[island])}
            kind = {"gpu_type": cluster.gpu_types[cluster.island_type[island]]} if cluster.typed else {}
            first = int(cluster.gpu_off[island])
            for gpu in range(first, int(cluster.gpu_off[island + 1])):
                name = f"{names[island]}/gpu{gpu - first}"
                graph.add_node(name, level=0, kind="gpu", gpus=1, index=gpu, through=False, **kind)
                graph.add_edge(names[island], name, **link)
    return graph
