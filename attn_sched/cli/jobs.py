"""``attn-sched jobs``: what has been submitted to a cluster, how it goes, what it prints, and stopping it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from attn_sched.cli import INTERRUPTED_STATUS
from attn_sched.cli.packages import check_packages

if TYPE_CHECKING:
    from tune.jobs import Jobs, JobState

NEEDED = ("ray", "aiohttp", "requests")
STOP_S = 90.0  # what a job is given to end, and some for the cluster to notice
LONGEST_COMMAND = 70  # characters in the list

F = TypeVar("F", bound=Callable[..., Any])

_CLUSTER_OPTIONS = (
    click.option(
        "--address",
        metavar="URL",
        help="The cluster's dashboard [default: $RAY_API_SERVER_ADDRESS, $RAY_ADDRESS, http://127.0.0.1:8265].",
    ),
    click.option(
        "--token-file",
        metavar="FILE",
        help="Holds the cluster's token [default: $RAY_AUTH_TOKEN, $RAY_AUTH_TOKEN_PATH, ~/.ray/auth_token].",
    ),
)


def cluster_options(command: F) -> F:
    """Which cluster, and by which token."""
    for option in reversed(_CLUSTER_OPTIONS):
        command = option(command)
    return command


def connect(address: str | None, token_file: str | None) -> Jobs:
    """The cluster's jobs. Raises InputError."""
    check_packages("jobs on a cluster need", NEEDED)
    from tune.jobs import Jobs, find_address, find_token

    token = find_token(token_file)
    found = Jobs(find_address(address), token)
    if token is not None and token.open_to_others:
        note(f"warning: others on this machine can read {token.file}; chmod 600 {token.file}")
    return found


def note(line: str) -> None:
    """A line for people, beside what the job prints."""
    click.echo(line, err=True)


def follow(found: Jobs, job: str, options: str) -> NoReturn:
    """Write what a job prints until it has ended, and exit as it did; Ctrl-C leaves it running.

    Args:
        found: Of its cluster.
        job: Its id.
        options: As typed, that name the cluster, for the line that says how to go on.
    """
    try:
        state = found.follow(job, lambda text: click.echo(text, nl=False), note)
    except KeyboardInterrupt:
        note(f"\njob {job} goes on; attn-sched jobs logs {job} --follow{options} shows it, "
             f"attn-sched jobs stop {job}{options} ends it")  # fmt: skip
        raise click.exceptions.Exit(INTERRUPTED_STATUS) from None
    note(state.told())
    raise click.exceptions.Exit(state.exit_status)


def typed_options(address: str | None, token_file: str | None) -> str:
    """The options of ``cluster_options`` as typed, each after a blank."""
    import shlex

    given = (("--address", address), ("--token-file", token_file))
    return "".join(f" {name} {shlex.quote(value)}" for name, value in given if value is not None)


@click.group("jobs")
def jobs() -> None:
    """Jobs on a Ray cluster: list them, show one, read its log, stop it. docs/jobs.md describes it."""


@jobs.command("list")
@cluster_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def list_jobs(address: str | None, token_file: str | None, as_json: bool) -> None:
    """What has been submitted to the cluster, the newest first."""
    states = connect(address, token_file).states()
    if as_json:
        click.echo(json.dumps({"jobs": [state.as_dict() for state in states]}))
        return
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("id", "status", "started", "command"):
        table.add_column(heading, no_wrap=heading != "command", overflow="fold")
    for state in states:
        command = state.command
        short = command if len(command) <= LONGEST_COMMAND else command[: LONGEST_COMMAND - 3] + "..."
        table.add_row(Text(state.id), state.status.lower(), _clock(state.started_s), Text(short))
    Console(width=None if Console().is_terminal else 140).print(table)


@jobs.command("status")
@click.argument("job", metavar="ID")
@cluster_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def status(job: str, address: str | None, token_file: str | None, as_json: bool) -> None:
    """How a job stands."""
    state = connect(address, token_file).state(job)
    if as_json:
        click.echo(json.dumps(state.as_dict()))
        return
    click.echo(state.told())
    click.echo(f"command: {state.command}")
    click.echo(f"started: {_clock(state.started_s)}")
    if state.ended:
        click.echo(f"ended:   {_clock(state.ended_s)}")


@jobs.command("logs")
@click.argument("job", metavar="ID")
@cluster_options
@click.option("--follow", "follows", is_flag=True, help="Until it has ended; the exit status is then the job's.")
def logs(job: str, address: str | None, token_file: str | None, follows: bool) -> None:
    """What a job has printed."""
    found = connect(address, token_file)
    if follows:
        found.state(job)
        follow(found, job, typed_options(address, token_file))
    click.echo(found.logs(job), nl=False)


@jobs.command("stop")
@click.argument("job", metavar="ID")
@cluster_options
def stop(job: str, address: str | None, token_file: str | None) -> None:
    """Stop a job. A training writes a checkpoint before it ends, for which it is given a minute."""
    state: JobState = connect(address, token_file).stop(job, STOP_S)
    click.echo(state.told())
    if not state.ended:
        note("it has been asked to stop, but has not yet")
        raise click.exceptions.Exit(1)


def _clock(time_s: float | None) -> str:
    from datetime import datetime

    return "-" if time_s is None else datetime.fromtimestamp(time_s).astimezone().isoformat(" ", "seconds")
