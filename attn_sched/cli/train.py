"""``attn-sched train``: learn a pair of agents from logs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from attn_sched.cli.packages import check_packages
from attn_sched.cli.replay_options import command_line
from attn_sched.errors import InputError

if TYPE_CHECKING:
    from attn_sched.training.configs import TrainingConfig
    from attn_sched.training.pipeline import Outcome

INTERRUPTED = 128  # and the signal's number: the exit status of a run that was asked to end
DEFAULT_CONFIG = "full"
NEEDED = ("torch", "safetensors", "ray", "cma", "tensorboard")


@click.command()
@click.option("--config", "base", metavar="NAME", help=f"quick, medium or full [default: {DEFAULT_CONFIG}].")
@click.option("--out", type=click.Path(), metavar="DIR", help="Folder of the run: new, or empty, or to resume.")
@click.option("--traces", metavar="P1,P2,..", help="Logs to learn from [default: synthetic ones].")
@click.option("--cluster", "clusters", metavar="C1,C2,..", help="Clusters to learn on [default: dgx64,eth64].")
@click.option("--weights", metavar="A,B,C", help="Of completion, fairness, communication [default: 1,0.5,0.25].")
@click.option("--agents", metavar="A1,A2", help="Which learn: job,gpu or one; a rule does the other's part.")
@click.option("--ablate", multiple=True, metavar="WHAT", help="Leave a part out: no-attention, no-topology, no-hold, "
              "no-completion, no-fairness or no-communication.")  # fmt: skip
@click.option(
    "--minutes", type=float, metavar="M", help="Wall time after which training ends, stages before it included."
)
@click.option("--seed", type=int, metavar="N", help="Fixes everything drawn in training [default: 0].")
@click.option(
    "--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Any other value; --show lists the keys."
)
@click.option("--resume", is_flag=True, help="Go on with the run in --out where its last checkpoint was written.")
@click.option("--show", is_flag=True, help="Print the whole configuration, one KEY=VALUE a line, and do nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as one JSON object.")
def train(base: str | None, out: str | None, resume: bool, show: bool, as_json: bool, **given: Any) -> None:
    """Learn agents from logs: a tuned rule, imitation of it, then PPO; the best ones on later jobs are kept.

    The run's folder holds everything: what was asked for, checkpoints, curves, and the agents in best/, which
    `simulate --policy agents:DIR/best` takes. docs/training.md describes it.
    """
    # One thread, before anything loads torch or a BLAS: a second one on cores that are busy makes all of it slower.
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    if out is None and (resume or not show):
        raise InputError("no folder is named", field="out", expected="--out DIR")
    check_packages("training needs", NEEDED)
    config = _config(base, Path(out) if resume and out is not None else None, given)
    if show:
        click.echo("\n".join(f"{key}={_text(value)}" for key, value in config.flat().items()))
        return
    assert out is not None
    _train(config, out, resume, as_json)


def _config(base: str | None, resumed: Path | None, given: dict[str, Any]) -> TrainingConfig:
    """The configuration that the options ask for. Raises InputError."""
    from attn_sched.training.configs import HIDDEN, ablate, load_config, named_config
    from attn_sched.training.overrides import parse_assignment
    from attn_sched.training.run_folder import RunFolder

    if base is not None:
        config = named_config(base)
    elif resumed is not None:
        folder = RunFolder(resumed)
        folder.check_existing()
        config = load_config(folder.config)
    else:
        config = named_config(DEFAULT_CONFIG)
    changes: dict[str, Any] = {}
    for option, key in (("traces", "data.traces"), ("clusters", "data.clusters"), ("agents", "ppo.agents"),
                        ("weights", "objective.weights")):  # fmt: skip
        if given[option] is not None:
            changes |= [parse_assignment(config, f"{key}={given[option]}")]
    for option in ("minutes", "seed"):
        if given[option] is not None:
            changes[option] = given[option]
    for assignment in given["assignments"]:
        changes |= [parse_assignment(config, assignment, HIDDEN)]
    config = config.with_values(changes)
    return config.with_values(ablate(config, given["ablate"]))


def _text(value: Any) -> str:
    """As ``--set`` takes it."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(_text, value)) if isinstance(value, tuple) else str(value)


def _train(config: TrainingConfig, out: str, resume: bool, as_json: bool) -> None:
    from attn_sched.training.curves import Reporter
    from attn_sched.training.pipeline import Run
    from attn_sched.training.ray_address import cluster_address
    from attn_sched.training.run_folder import RunFolder

    cluster_address()  # Ray is only needed at the end; that there is none to be had is said now
    report = Reporter(lambda line: click.echo(line, err=True))
    run = Run(config, RunFolder(out), resume=resume, command=command_line(), report=report)
    try:
        outcome = run.run()
    except KeyboardInterrupt as interrupt:
        number = getattr(interrupt, "number", 2)
        if report.log is not None:  # else nothing has been written yet
            report.line(f"interrupted; go on with: attn-sched train --resume --out {out}")
        raise click.exceptions.Exit(INTERRUPTED + number) from None
    if as_json:
        click.echo(json.dumps(outcome.as_dict(), allow_nan=False))
    else:
        print_outcome(outcome)


def print_outcome(outcome: Outcome) -> None:
    """The policies on the validation windows, and where the agents lie."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from attn_sched.evaluation.formatting import format_value

    console = Console(highlight=False, width=None if Console().is_terminal else 140)
    table = Table(title="on the validation windows", title_justify="left", show_edge=False, pad_edge=False)
    table.add_column("policy", overflow="fold")
    for heading in ("score", "excess", "p99 wait", "Jain (users)", "comm overhead"):
        table.add_column(heading, justify="right", no_wrap=True)
    for number, row in enumerate(outcome.rows()):
        table.add_row(
            Text(row["policy"]),
            f"{row['score']:.3f}",
            format_value(row["excess_mean_s"], "s", short=True),
            format_value(row["wait_p99_s"], "s", short=True),
            f"{row['jain']:.3f}",
            f"{row['comm_overhead']:.3f}",
            style="bold" if number == 0 else "",
        )
    console.print(table)
    console.print(
        f"score: mean over cells of the excess completion time, that of {outcome.rules.best} being 1", style="dim"
    )
    console.print(f"the agents: attn-sched simulate TRACE --cluster C --policy agents:{outcome.folder / 'best'}")
