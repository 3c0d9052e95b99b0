"""The options that ``simulate`` and ``compare`` share: one spelling, one default and one check for each."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from attn_sched.choices import ALLREDUCE, CONTENTION, LATER, LOAD_BY, OVERSIZED, USERS
from attn_sched.errors import InputError
from attn_sched.evaluation.setup import WorkloadSpec, check_seconds, check_warmup
from attn_sched.files import check_outputs

if TYPE_CHECKING:
    from attn_sched.simulator.options import SimOptions

LONGEST_POLICY = 500  # characters of a policy's name, which may hold a path

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--cluster", "cluster_spec", required=True, metavar="C", help="Preset, YAML file, count:N or nodes:AxB."
    ),
    click.option(
        "--comm", type=click.Choice(["on", "off"]), default="on", show_default=True, help="Model communication."
    ),
    click.option(
        "--contention",
        type=click.Choice(CONTENTION),
        default="equal",
        show_default=True,
        help="How running jobs share a link.",
    ),
    click.option(
        "--allreduce",
        type=click.Choice(ALLREDUCE),
        default="ring",
        show_default=True,
        help="All-reduce algorithm of the jobs.",
    ),
    click.option(
        "--estimate",
        default="oracle",
        show_default=True,
        metavar="E",
        help="Durations that policies see: oracle, lognormal(SIGMA), requested or history.",
    ),
    click.option(
        "--max-wait",
        type=float,
        metavar="S",
        help="Starvation guard: reserve GPUs for a job after S seconds. Preemptive policies refuse it, and one of them "
        "in a list refuses the whole comparison.",
    ),
    click.option(
        "--warmup", type=int, metavar="N", help="Jobs replayed before a window, not counted [default: as many]."
    ),
    click.option(
        "--oversized",
        type=click.Choice(OVERSIZED),
        default="drop",
        show_default=True,
        help="What to do with jobs that do not fit the empty cluster.",
    ),
    click.option(
        "--users",
        type=click.Choice(USERS),
        default="trace",
        show_default=True,
        help="Whose the jobs are, for fairness.",
    ),
    click.option("--group", metavar="G", help="Keep the jobs of one group (virtual cluster) only."),
    click.option(
        "--restart-cost", type=float, default=0.0, show_default=True, metavar="S", help="Seconds lost at a restart."
    ),
    click.option(
        "--load-by",
        type=click.Choice(LOAD_BY),
        default="stretch",
        show_default=True,
        help="Reach a load by stretching time or by leaving jobs out at random.",
    ),
    click.option(
        "--later",
        type=click.Choice(LATER),
        default="same",
        show_default=True,
        help="Jobs after a window: stretched by its own factor, or block by block to the same load.",
    ),
    click.option(
        "--starved-after",
        type=float,
        default=86_400.0,
        show_default=True,
        metavar="S",
        help="A job that waits longer counts as starved.",
    ),
    click.option(
        "--seed", type=int, default=0, show_default=True, metavar="N", help="Fixes everything drawn at random."
    ),
)


@dataclass(frozen=True)
class ReplayOptions:
    """The shared options, checked."""

    cluster_spec: str
    workload: WorkloadSpec
    simulation: SimOptions
    warmup: int | None
    starved_after_s: float


def replay_options(command: F) -> F:
    """Add the shared options; the command receives them as keyword arguments for :func:`gather`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def gather(given: dict[str, Any]) -> ReplayOptions:
    """Check the shared options before any long work. Raises InputError."""
    from attn_sched.simulator.options import SimOptions

    for field in ("max-wait", "restart-cost", "starved-after"):
        check_seconds(given[field.replace("-", "_")], field)
    workload = WorkloadSpec(
        estimate=given["estimate"],
        users=given["users"],
        group=given["group"],
        oversized=given["oversized"],
        load_by=given["load_by"],
        later=given["later"],
        seed=given["seed"],
    )
    simulation = SimOptions(
        comm=given["comm"] == "on",
        contention=given["contention"],
        allreduce=given["allreduce"],
        restart_cost_s=given["restart_cost"],
        max_wait_s=given["max_wait"],
        seed=given["seed"],
    )
    return ReplayOptions(
        given["cluster_spec"], workload, simulation, check_warmup(given["warmup"]), given["starved_after"]
    )


def check_trace(path: str) -> None:
    """A missing trace is told before anything else is loaded."""
    if not path.strip():
        raise InputError("no file is named", field="TRACE", expected="a trace file")
    if not Path(path).exists():
        raise InputError("does not exist", file=path, expected="a trace file")


def check_files(trace: str, cluster_spec: str, **outputs: str | None) -> None:
    """No output may be one that cannot be written, another output, or what the command reads."""
    check_outputs(outputs, {"the trace itself": trace, "the description of the cluster": cluster_spec})
    check_trace(trace)


def check_png_name(path: str | None) -> None:
    """A picture is named as what it is."""
    if path is not None and Path(path).suffix.lower() != ".png":
        raise InputError("does not end in .png", file=path, field="png", expected="the name of a PNG file")


def check_policy_name(name: str) -> None:
    """Nobody wants ten thousand characters back in a message."""
    if len(name) > LONGEST_POLICY:
        problem = f"{name[:40] + '...'!r} has {len(name):,} characters"
        raise InputError(problem, field="policy", expected=f"a policy's name of at most {LONGEST_POLICY} characters")


def command_line() -> str:
    """The command as typed, for provenance; the program by its name alone."""
    import shlex

    return shlex.join(["attn-sched", *sys.argv[1:]])
