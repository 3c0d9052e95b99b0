"""``attn-sched compare``: replay one trace under several policies, at several loads, and say which does better."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from attn_sched.cli.replay_options import (
    check_files,
    check_png_name,
    check_policy_name,
    command_line,
    gather,
    replay_options,
)
from attn_sched.errors import InputError
from attn_sched.evaluation.setup import WINDOW_JOBS, check_load, kept_workload
from attn_sched.progress import progress_bar

if TYPE_CHECKING:
    from attn_sched.evaluation.comparison import Comparison
    from attn_sched.evaluation.registry import Metric
    from attn_sched.evaluation.statistics import Estimate


@click.command()
@click.argument("trace", metavar="TRACE")
@click.option("--policies", required=True, metavar="P1,P2,..", help="Policies, the first being the reference.")
@click.option("--loads", metavar="R1,R2,..", help="Offered loads to scale to [default: as recorded].")
@click.option("--windows", type=int, metavar="N", help="Count N windows of the trace [default: the whole trace, once].")
@click.option("--window-jobs", type=int, metavar="K", help=f"Jobs a window counts [default: {WINDOW_JOBS}].")
@click.option("--reference", metavar="P", help="Policy that differences are taken to [default: the first].")
@click.option("--report", metavar="FILE", help="Write a self-contained HTML report.")
@click.option("--png", metavar="FILE", help="Write one picture of the last load: completion and waits.")
@click.option("--out", metavar="FILE", help="Write the results as Parquet, one row a policy and load.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
@click.option(
    "--jobs", "processes", type=click.IntRange(min=1), default=1, show_default=True, help="Replays at a time."
)
@replay_options
def compare(
    trace: str,
    policies: str,
    loads: str | None,
    windows: int | None,
    window_jobs: int | None,
    reference: str | None,
    report: str | None,
    png: str | None,
    out: str | None,
    as_json: bool,
    processes: int,
    **shared: Any,
) -> None:
    """Replay TRACE under several policies and compare them, with 95 % intervals."""
    options = gather(shared)
    wanted = parse_loads(loads)
    if windows is None and window_jobs is not None:
        raise InputError(
            "counts the jobs of windows, and there are none", field="window-jobs", expected="--windows N with it"
        )
    check_files(trace, options.cluster_spec, report=report, png=png, out=out)
    check_png_name(png)

    # Imported after the cheap checks: these load the engine.
    from attn_sched.cluster import load_cluster
    from attn_sched.evaluation.comparison import ComparisonPlan
    from attn_sched.evaluation.comparison import compare as run
    from attn_sched.evaluation.results import write_results
    from attn_sched.policies import check_policy, parse_policy, split_policy_list

    names = tuple(name.strip() for name in split_policy_list(policies))
    for name in names:
        check_policy_name(name)
        parse_policy(name)
    plan = ComparisonPlan(
        policies=names,
        loads=wanted,
        windows=windows,
        window_jobs=WINDOW_JOBS if window_jobs is None else window_jobs,
        warmup=options.warmup,
        reference=reference,
        starved_after_s=options.starved_after_s,
        workload=options.workload,
    )
    cluster = load_cluster(options.cluster_spec)
    for name in names:
        check_policy(name, cluster)
    kept = kept_workload(trace, cluster, options.workload)
    replays = len(plan.policies) * len(plan.loads) * len(plan.bounds(len(kept.submit_s)))
    with progress_bar(f"{replays} replays", replays) as advance:
        comparison = run(kept, cluster, plan, options.simulation, processes=processes, progress=advance)
    if out is not None:
        write_results(comparison, out)
    if report is not None:
        from attn_sched.evaluation.report import write_report

        write_report(comparison, report, command=command_line())
    if png is not None:
        from attn_sched.evaluation.picture import write_picture

        write_picture(comparison, png)
    if as_json:
        import json

        from attn_sched.evaluation.results import provenance, rows

        click.echo(json.dumps({**provenance(comparison), "cells": rows(comparison)}, allow_nan=False))
    else:
        print_tables(comparison)


def parse_loads(text: str | None) -> tuple[float | None, ...]:
    """``0.7,0.9`` as numbers; nothing given is the load as recorded."""
    if text is None:
        return (None,)
    loads = []
    for part in text.split(","):
        if not part.strip():
            raise InputError(f"{text!r} lacks a load", field="loads", expected="R1,R2,.., for example 0.7,0.9")
        try:
            loads.append(check_load(float(part), "loads"))
        except ValueError as error:
            if isinstance(error, InputError):
                raise
            raise InputError(
                f"{part!r} is not a number", field="loads", expected="R1,R2,.., for example 0.7,0.9"
            ) from error
    return tuple(loads)


# Columns of the table, most wanted first; as many are shown as the terminal has room for.
TABLE_KEYS = (
    "jct_mean_s",
    "excess_mean_s",
    "wait_p99_s",
    "jain_user",
    "comm_overhead",
    "wait_mean_s",
    "bounded_slowdown_mean",
    "rho_over_1_share",
    "allocated_utilisation",
)
COLUMN_WIDTH = 17
PIPED_WIDTH = 190
LEAST_COLUMNS = 3


def print_tables(comparison: Comparison) -> None:
    """One table a load: policies down, the main metrics across, intervals below values, the best in bold."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table
    from rich.text import Text

    from attn_sched.evaluation.formatting import MAIN_FACTS, describe_info, describe_load
    from attn_sched.evaluation.registry import BY_KEY

    # A pipe has no width of its own: give all columns room there, unless COLUMNS says otherwise.
    told = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit()
    console = Console(highlight=False, width=None if told else PIPED_WIDTH)
    plan = comparison.plan
    counted = f"{plan.windows} windows of {plan.window_jobs} jobs" if plan.windows else f"{comparison.kept_jobs:,} jobs"
    console.print(
        escape(f"{comparison.trace} on {comparison.cluster.name} ({comparison.cluster.num_gpus:,} GPUs): {counted}"),
        style="bold",
    )
    for line in describe_info(comparison.info, MAIN_FACTS):
        console.print(escape(line), style="dim")
    for line in comparison.caveats:
        console.print(escape(line), style="bold yellow")
    names = min(max(len(policy) for policy in plan.policies), 40)
    room = max(LEAST_COLUMNS, (console.width - names) // COLUMN_WIDTH)
    metrics = [BY_KEY[key] for key in TABLE_KEYS[:room]]
    for load in plan.loads:
        table = Table(title=describe_load(load), title_justify="left", show_edge=False, pad_edge=False)
        table.add_column("policy", overflow="fold")
        for metric in metrics:
            table.add_column(metric.label, justify="right", no_wrap=True)
        for cell in comparison.at_load(load):
            marks = [cell.policy in comparison.best(load, metric) for metric in metrics]
            columns = [
                Text(_with_interval(cell.estimates[metric.key], metric, best), style="bold green" if best else "")
                for metric, best in zip(metrics, marks, strict=True)
            ]
            table.add_row(Text(cell.policy), *columns)
        console.print(table)
    console.print("* best; ranges are 95 % intervals", style="dim")
    left_out = len(TABLE_KEYS) - len(metrics)
    if left_out:
        more = "1 more column has" if left_out == 1 else f"{left_out} more columns have"
        console.print(f"{more} no room here; --json, --report and --out have all", style="dim")


def _with_interval(estimate: Estimate, metric: Metric, best: bool) -> str:
    from attn_sched.evaluation.formatting import format_range, format_value

    text = format_value(estimate.value, metric.unit, short=True) + (" *" if best else "")
    if estimate.low is None or estimate.high is None:
        return text
    return f"{text}\n{format_range(estimate.low, estimate.high, metric.unit, estimate.value)}"
