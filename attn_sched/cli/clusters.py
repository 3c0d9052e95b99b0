"""``attn-sched clusters``: which clusters there are, what one consists of, and descriptions from Slurm's files."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from attn_sched.cluster import Cluster


def _chain(cluster: Cluster) -> str:
    return " < ".join(cluster.level_names)


@click.group("clusters")
def clusters() -> None:
    """List, show and convert cluster descriptions."""


@clusters.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def list_clusters(as_json: bool) -> None:
    """The presets, one a line, and the shorthands."""
    from attn_sched.cluster import load_cluster, preset_names

    loaded = [load_cluster(name) for name in preset_names()]
    if as_json:
        rows = [_json_head(cluster) for cluster in loaded]
        click.echo(json.dumps({"presets": rows, "shorthands": ["count:N", "nodes:AxB"]}))
        return
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading, justify in (
        ("name", "left"),
        ("GPUs", "right"),
        ("nodes", "right"),
        ("levels", "left"),
        ("what it is", "left"),
    ):
        table.add_column(heading, justify=justify, no_wrap=heading != "what it is")  # type: ignore[arg-type]
    for cluster in loaded:
        nodes = len(cluster.vertices(cluster.node_level))
        table.add_row(cluster.name, f"{cluster.num_gpus:,}", f"{nodes:,}", _chain(cluster), cluster.description)
    table.add_row("count:N", "N", "1", "gpu", "one pool of N GPUs, only counted: no links")
    table.add_row("nodes:AxB", "A x B", "A", "gpu < node", "A nodes of B GPUs under one switch, links of dgx64")
    table.add_row("FILE.yaml", "", "", "", "your own, described in docs/clusters.md")
    Console(width=None if Console().is_terminal else 140).print(table)


@clusters.command("show")
@click.argument("name")
@click.option("--png", type=click.Path(), metavar="FILE", help="Draw the tree to this file.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def show_cluster(name: str, png: str | None, as_json: bool) -> None:
    """Levels, links and bisection bandwidth of NAME: a preset, count:N, nodes:AxB or a YAML file."""
    from attn_sched.cli.replay_options import check_png_name
    from attn_sched.cluster import load_cluster
    from attn_sched.files import check_outputs

    check_outputs({"png": png}, {"the description of the cluster": name})
    check_png_name(png)
    cluster = load_cluster(name)
    if png is not None:
        from attn_sched.cluster.drawing import draw_cluster

        draw_cluster(cluster, png)
    if as_json:
        click.echo(json.dumps(_json(cluster)))
        return
    _print(cluster)
    if png is not None:
        click.echo(f"drawn to {png}")


@clusters.command("convert")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--out", required=True, type=click.Path(path_type=Path), help="YAML file to write.")
@click.option("--nodes", type=click.Path(path_type=Path), help="slurm.conf or gres.conf with the GPUs of each node.")
@click.option("--gpus-per-node", type=int, metavar="N", help="GPUs of every node, instead of --nodes.")
@click.option(
    "--node-topology", type=click.Path(path_type=Path), help="What nvidia-smi topo -m prints on one of the nodes."
)
@click.option("--top", metavar="SWITCH", help="Take what is below this switch only.")
@click.option("--num-nodes", type=int, metavar="N", help="How many nodes, where FILE is of one node [default: 1].")
def convert_cluster(
    file: Path,
    out: Path,
    nodes: Path | None,
    gpus_per_node: int | None,
    node_topology: Path | None,
    top: str | None,
    num_nodes: int | None,
) -> None:
    """Describe a cluster in YAML, from Slurm's topology.conf or from what nvidia-smi topo -m prints on a node.

    The file has defaults for all links: check them. docs/clusters.md lists them.
    """
    from attn_sched.cluster.imported import describe_nodes, describe_slurm
    from attn_sched.cluster.nodetopology import is_node_topology
    from attn_sched.cluster.yamltext import write_description
    from attn_sched.errors import InputError
    from attn_sched.files import check_outputs

    check_outputs(
        {"out": out}, {"the file to convert": file, "the list of nodes": nodes, "the topology of a node": node_topology}
    )
    if is_node_topology(file):
        given = {"nodes": nodes, "gpus-per-node": gpus_per_node, "node-topology": node_topology, "top": top}
        for option, value in given.items():
            if value is not None:
                raise InputError("goes with a topology.conf", field=option, expected=f"--num-nodes N with {file}")
        described = describe_nodes(file, 1 if num_nodes is None else num_nodes)
    else:
        if num_nodes is not None:
            raise InputError("a topology.conf says how many nodes there are", field="num-nodes", expected="no count")
        described = describe_slurm(file, nodes=nodes, gpus_per_node=gpus_per_node, node_topology=node_topology, top=top)
    cluster = write_description(described, out)
    _told(cluster, out, described.notes)


def _told(cluster: Cluster, out: Path, notes: tuple[str, ...]) -> None:
    """What was written, and what to know of it."""
    from attn_sched.agents.limits import check_depth
    from attn_sched.cluster.formatting import plural
    from attn_sched.errors import InputError

    nodes = len(cluster.vertices(cluster.node_level))
    size = f"{plural(cluster.num_gpus, 'GPU')} in {plural(nodes, 'node')} ({_chain(cluster)})"
    click.echo(f"{size} written to {out}; its links are defaults: check them")
    for note in notes:
        click.echo(note)
    try:
        check_depth(cluster)
    except InputError as error:
        click.echo(f"too deep for agents, rules will do: {error}")


def _print(cluster: Cluster) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from attn_sched.cluster.formatting import bandwidth_text, latency_text, plural, range_text, ratio_text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    columns = ("level", "count", "GPUs each", "children each", "uplink, per direction", "latency", "oversubscribed")
    for at, heading in enumerate(columns):
        table.add_column(heading, justify="left" if at in (0, 4) else "right")
    for level in cluster.levels():
        table.add_row(
            level.name,
            f"{level.count:,}",
            range_text(level.gpus),
            range_text(level.children) if level.level else "",
            bandwidth_text(level.bandwidth),
            latency_text(level.latency),
            ratio_text(level.oversubscription),
        )
    console = Console(width=None if Console().is_terminal else 120, highlight=False)
    nodes = len(cluster.vertices(cluster.node_level))
    console.print(f"[bold]{escape(cluster.name)}[/bold]  {escape(cluster.description)}")
    unit = cluster.level_name(cluster.unit_level) if cluster.num_levels > 1 else "the whole pool"
    console.print(f"{plural(cluster.num_gpus, 'GPU')}, {plural(nodes, 'node')}; placement unit: {unit}")
    console.print(table)
    bisection = cluster.bisection_bandwidth()
    between = f"{bandwidth_text((bisection, bisection))} per direction, between halves of whole nodes"
    console.print(f"bisection bandwidth: {'not worked out for so many nodes' if math.isnan(bisection) else between}")
    if cluster.typed:
        kinds = ", ".join(f"{plural(gpus, 'GPU')} of {escape(kind)}" for kind, gpus in _by_type(cluster).items())
        console.print(f"GPU types: {kinds}")
    else:
        console.print("GPU types: none named; wishes for a type are ignored")


def _by_type(cluster: Cluster) -> dict[str, int]:
    import numpy as np

    weights = cluster.gpus[: cluster.num_islands]
    counts = np.bincount(cluster.island_type, weights=weights, minlength=len(cluster.gpu_types))
    return {kind: int(count) for kind, count in zip(cluster.gpu_types, counts, strict=True)}


def _finite(value: float) -> float | None:
    """JSON has no infinity: unlimited is null, and so is what is not known."""
    return value if math.isfinite(value) else None


def _json_head(cluster: Cluster) -> dict[str, Any]:
    return {
        "name": cluster.name,
        "description": cluster.description,
        "gpus": cluster.num_gpus,
        "nodes": len(cluster.vertices(cluster.node_level)),
        "levels": list(cluster.level_names),
    }


def _json(cluster: Cluster) -> dict[str, Any]:
    levels = [
        {
            "name": level.name,
            "count": level.count,
            "gpus": list(level.gpus),
            "children": list(level.children),
            "bandwidth_Bps": [_finite(value) for value in level.bandwidth],
            "latency_s": list(level.latency),
            "oversubscription": None if level.oversubscription is None else list(level.oversubscription),
        }
        for level in cluster.levels()
    ]
    return {
        **_json_head(cluster),
        "levels": levels,
        "unit": cluster.level_name(cluster.unit_level),
        "bisection_Bps": _finite(cluster.bisection_bandwidth()),
        "gpu_types": _by_type(cluster) if cluster.typed else {},
    }
