"""``attn-sched simulate``: replay one trace under one policy."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from attn_sched.cli.replay_options import check_files, check_policy_name, gather, replay_options
from attn_sched.errors import InputError
from attn_sched.evaluation.setup import check_load, cut, dropped_counts, kept_workload, parse_window
from attn_sched.files import atomic_write
from attn_sched.progress import progress_bar

if TYPE_CHECKING:
    from attn_sched.simulator.schedule import Schedule

EXPLAINED_WIDTH = 120  # columns of a terminal that has room for the definitions too


@click.command()
@click.argument("trace", metavar="TRACE")
@click.option(
    "--policy",
    required=True,
    metavar="P",
    help="A policy, for example sjf+topo-best-fit or agents:NAME; see `attn-sched policies list`.",
)
@click.option("--load", type=float, metavar="R", help="Scale arrivals to an offered load [default: as recorded].")
@click.option("--window", "window_text", metavar="A:B", help="Count the kept jobs A..B-1 only, the cluster warmed up.")
@click.option("--out", metavar="FILE", help="Write the schedule as Parquet, one row a job.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
@click.option(
    "--explain",
    type=click.IntRange(min=1),
    metavar="N",
    help="Show the agents' N-th decision and what is behind it instead of metrics.",
)
@replay_options
def simulate(
    trace: str,
    policy: str,
    load: float | None,
    window_text: str | None,
    out: str | None,
    as_json: bool,
    explain: int | None,
    **shared: Any,
) -> None:
    """Replay TRACE (any readable log, or a Parquet table made by `traces convert`) under one policy."""
    options = gather(shared)
    bounds = None if window_text is None else parse_window(window_text)
    if load is not None:
        check_load(load)
    if bounds is None and options.warmup is not None:
        raise InputError("warms up a window, and there is none", field="warmup", expected="--window A:B with it")
    if explain is not None and out is not None:
        raise InputError("stops at a decision and leaves no schedule", field="explain", expected="no --out with it")
    check_files(trace, options.cluster_spec, out=out)

    # Imported after the cheap checks: these load the engine.
    from attn_sched.cluster import load_cluster
    from attn_sched.evaluation.metrics import evaluate
    from attn_sched.policies import check_policy, explain_decision, parse_policy
    from attn_sched.policies import simulate as replay

    check_policy_name(policy)
    parse_policy(policy)
    cluster = load_cluster(options.cluster_spec)
    check_policy(policy, cluster)
    kept = kept_workload(trace, cluster, options.workload)
    workload = cut(kept, cluster, options.workload, bounds=bounds, warmup=options.warmup, load=load)
    if explain is not None:
        explained = explain_decision(workload, cluster, policy, explain, options.simulation)
        if as_json:
            click.echo(json.dumps({"policy": policy, **explained.as_dict()}, allow_nan=False))
        else:
            from attn_sched.cli.explanation import print_explanation

            print_explanation(explained, policy)
        return
    with progress_bar(policy, 1.0) as advance:
        schedule = replay(workload, cluster, policy, options.simulation, progress=advance)
    values = evaluate(schedule, starved_after_s=options.starved_after_s)
    if out is not None:
        import pyarrow.parquet as pq

        with atomic_write(out) as part:
            pq.write_table(schedule.to_arrow(), part)
    if as_json:
        click.echo(json.dumps(result_object(schedule, values), allow_nan=False))
    else:
        print_table(schedule, values)


def result_object(schedule: Schedule, values: dict[str, float | int | None]) -> dict[str, Any]:
    """The metrics with what they were measured on, ready for JSON."""
    info = schedule.workload.info
    return {
        "trace": schedule.workload.name,
        "cluster": schedule.cluster.name,
        "gpus": schedule.cluster.num_gpus,
        "policy": schedule.policy,
        "options": schedule.options,
        "workload": {key: value for key, value in info.items() if key != "dropped"},
        **values,
        "dropped": dropped_counts(info),
    }


def print_table(schedule: Schedule, values: dict[str, float | int | None]) -> None:
    """All metrics, one a line, explained where there is room, with the facts of the replay above them."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from attn_sched.evaluation.formatting import MAIN_FACTS, describe_info, format_value
    from attn_sched.evaluation.registry import METRICS

    console = Console(highlight=False)
    workload, cluster = schedule.workload, schedule.cluster
    console.print(
        escape(f"{workload.name} on {cluster.name} ({cluster.num_gpus:,} GPUs) under {schedule.policy}"), style="bold"
    )
    for line in describe_info(workload.info, MAIN_FACTS):
        console.print(escape(line), style="dim")
    table = Table(show_edge=False, pad_edge=False)
    table.add_column("metric")
    table.add_column("value", justify="right")
    explained = console.width >= EXPLAINED_WIDTH
    if explained:
        table.add_column("meaning", style="dim")
    for metric in METRICS:
        meaning = [escape(metric.definition)] if explained else []
        table.add_row(metric.key, format_value(values[metric.key], metric.unit), *meaning)
    console.print(table)
