"""``attn-sched traces``: look at, convert and synthesise job logs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from attn_sched.choices import FAMILIES, PARTS
from attn_sched.errors import InputError
from attn_sched.files import check_outputs, check_target
from attn_sched.progress import progress_bar

if TYPE_CHECKING:
    from rich.console import Console

    from attn_sched.workload.readers.base import ReadOptions
    from attn_sched.workload.trace import Trace

BAR_CELLS = 24
SIZES_SHOWN = 16
DURATIONS_SHOWN = ("mean", "p10", "p50", "p90", "p99", "max")
BIG_FILE_BYTES = 4 << 20  # smaller files are read before a bar could be drawn


@click.group()
def traces() -> None:
    """Look at, convert and synthesise job logs."""


def _reading_options(command: Any) -> Any:
    """The options of every command that reads a log."""
    for option in (
        click.option(
            "--map", "column_map", help="Columns of a plain CSV: submit_time=COL,duration=COL[:ms],num_gpus=COL"
        ),
        click.option("--format", "format_name", help="Name of the format, where the content does not tell."),
        click.option(
            "--throughputs",
            type=click.Path(path_type=Path),
            help="Steps per second of Gavel jobs; default: beside FILE.",
        ),
    ):
        command = option(command)
    return command


@contextmanager
def _options(
    file: Path, column_map: str | None, format_name: str | None, throughputs: Path | None
) -> Iterator[ReadOptions]:
    from attn_sched.workload.readers import ReadOptions
    from attn_sched.workload.readers.plain import parse_map

    mapping = None if column_map is None else parse_map(column_map)
    try:
        big = file.stat().st_size >= BIG_FILE_BYTES
    except OSError:
        big = False  # the reader says what is wrong
    with progress_bar(f"reading {file.name}", 1.0, enabled=big) as advance:
        yield ReadOptions(format_name, mapping, throughputs, advance if big else None)


def _read(file: Path, column_map: str | None, format_name: str | None, throughputs: Path | None) -> Trace:
    from attn_sched.workload.trace import read_trace

    if file == Path():  # what an empty name becomes
        raise InputError("no file is named", field="FILE", expected="a job log")
    with _options(file, column_map, format_name, throughputs) as options:
        return read_trace(file, options)


@traces.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@_reading_options
def info(file: Path, as_json: bool, column_map: str | None, format_name: str | None, throughputs: Path | None) -> None:
    """Show what FILE holds: format, jobs, span, GPU mix, durations, load, and what was left out."""
    from attn_sched.workload.describe import describe

    data = describe(_read(file, column_map, format_name, throughputs))
    if as_json:
        click.echo(json.dumps(data, indent=2))
        return
    from rich.console import Console

    _print(data, Console())


@traces.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Parquet file to write.")
@click.option(
    "--part",
    type=click.Choice(PARTS),
    help="Keep one part of the log, cut as training cuts it: learnt on, chosen by, or never read by it [default: all].",
)
@click.option("--draw-models", is_flag=True, help="Write the network drawn for every job into the model column.")
@click.option("--seed", default=0, show_default=True, help="Seed of the drawn networks.")
@_reading_options
def convert(
    file: Path,
    out: Path,
    part: str | None,
    draw_models: bool,
    seed: int,
    column_map: str | None,
    format_name: str | None,
    throughputs: Path | None,
) -> None:
    """Convert FILE, of any known format, to Parquet."""
    from attn_sched.workload.trace import write_trace

    check_outputs({"out": out}, {"the log itself": file, "the table of throughputs": throughputs})
    trace = _read(file, column_map, format_name, throughputs)
    if part is not None:
        from attn_sched.workload.episodes import trace_period

        trace = trace_period(trace, part)
    if draw_models:
        from attn_sched.workload.catalogue import record_models

        trace = record_models(trace, seed)
    write_trace(trace, out)
    click.echo(_summary(trace, out))


@traces.command()
@click.option("--family", required=True, help=f"One of {', '.join(FAMILIES)}.")
@click.option("--jobs", required=True, type=int, help="How many jobs.")
@click.option("--seed", default=0, show_default=True, help="The same seed gives the same log.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Parquet file to write.")
def synth(family: str, jobs: int, seed: int, out: Path) -> None:
    """Make a synthetic log with the statistics of a published one."""
    from attn_sched.workload.synthetic import synth as make
    from attn_sched.workload.trace import write_trace

    if seed < 0:
        raise InputError(f"{seed} is no seed", field="seed", expected="0 or more")
    check_target(out, "out")
    trace = make(family, jobs, seed)
    write_trace(trace, out)
    click.echo(_summary(trace, out))


def _summary(trace: Trace, out: Path) -> str:
    dropped = sum(trace.provenance.dropped.values())
    text = f"{len(trace):,} jobs ({trace.provenance.format}) written to {out}"
    if dropped:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in trace.provenance.dropped.items())
        text += f"; {dropped:,} of {trace.provenance.rows_read:,} left out: {reasons}"
    return text


def _print(data: dict[str, Any], console: Console) -> None:
    from rich.table import Table
    from rich.text import Text

    facts = Table(title=Text(data["source"]), show_header=False, title_justify="left", box=None, pad_edge=False)
    facts.add_column(style="bold", no_wrap=True)
    facts.add_column(overflow="fold")
    for name, value in _facts(data):
        facts.add_row(name, Text(value))
    console.print(facts)
    mix = data["gpu_mix"]
    if len(mix) > SIZES_SHOWN:  # the sizes with the most jobs
        mix = sorted(sorted(mix, key=lambda row: -row["jobs"])[:SIZES_SHOWN], key=lambda row: row["gpus"])
    table = Table(title="GPUs asked for", title_justify="left", header_style="bold")
    for heading in ("GPUs", "jobs", "share of jobs", "share of GPU time"):
        table.add_column(heading, justify="right")
    table.add_column("", no_wrap=True)
    for row in mix:
        time_share = row["gpu_time_share"]
        bar = "█" * round(row["job_share"] * BAR_CELLS)
        share = "-" if time_share is None else f"{time_share:.1%}"
        table.add_row(f"{row['gpus']}", f"{row['jobs']:,}", f"{row['job_share']:.1%}", share, bar)
    others = len(data["gpu_mix"]) - len(mix)
    if others:
        rest = data["jobs"] - sum(row["jobs"] for row in mix)
        table.add_row(f"{others} others", f"{rest:,}", f"{rest / data['jobs']:.1%}", "", "")
    console.print()
    console.print(table)
    if data["duration_s"] is not None:
        durations = Table(title="Durations", title_justify="left", header_style="bold")
        for name in DURATIONS_SHOWN:
            durations.add_column(name, justify="right", no_wrap=True)
        durations.add_row(*(_duration(data["duration_s"][name]) for name in DURATIONS_SHOWN))
        console.print()
        console.print(durations)


def _facts(data: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "format", data["format"]
    yield "jobs", f"{data['jobs']:,} of {data['rows_read']:,} rows"
    yield "first submission", data["first_submission"] or "no date in the log"
    rate = "" if data["jobs_per_day"] is None else f" ({data['jobs_per_day']:,.0f} jobs a day)"
    yield "span", _duration(data["span_s"]) + rate
    busy = data["average_gpus_busy"]
    yield (
        "load",
        "unknown"
        if busy is None
        else f"{busy:,.1f} GPUs busy on average ({data['gpu_seconds'] / 3600:,.0f} GPU hours)",
    )
    for name in ("users", "groups", "gpu_types", "models", "states"):
        yield name.replace("gpu_", "GPU "), "none named" if data[name] is None else f"{data[name]:,}"
    if data["requested_times"]:
        yield "requested times", f"{data['requested_times']:,} jobs"
    if data["duration_unknown"]:
        yield "unknown duration", f"{data['duration_unknown']:,} jobs"
    for heading, items in (("left out", data["dropped"]), ("note", data["notes"])):
        for reason, count in items.items():
            yield heading, f"{count:,} {reason}" if heading == "left out" else f"{reason}: {count:,} jobs"


def _duration(seconds: float) -> str:
    """``95 s``, ``12.3 min``, ``4.5 h``, ``9.1 d``."""
    for unit, size in (("d", 86_400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:,.0f} s"
