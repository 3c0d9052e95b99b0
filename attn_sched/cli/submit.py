"""``attn-sched submit``: run a command on a Ray cluster."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence

import click

from attn_sched.cli.jobs import cluster_options, connect, follow, note, typed_options
from attn_sched.errors import InputError

PROGRAM = "attn-sched"
# The package comes with the job, so it need not be installed on the nodes.
AS_MODULE = ("python", "-m", "attn_sched.cli")
OWN_MODULES = ("attn_sched", "tune", "benchmarks")
# Options of our own commands that name what is to be kept.
RESULTS = ("--out", "--storage", "--report", "--png")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[--] COMMAND...")
@cluster_options
@click.option(
    "--working-dir",
    metavar="DIR",
    help="Sent along [default: the checkout around the current folder, else that folder].",
)
@click.option("--env", "assignments", multiple=True, metavar="KEY=VALUE", help="An environment variable of the job.")
@click.option("--id", "--name", "job", metavar="ID", help="The job's name, new to the cluster [default: drawn].")
@click.option("--cpus", type=float, metavar="N", help="Reserve for the command, on any node [default: on the head].")
@click.option("--gpus", type=float, metavar="N", help="Likewise: a training's learner then has a GPU.")
@click.option("--no-wait", is_flag=True, help="Print the job's id and do not follow it.")
def submit(
    command: tuple[str, ...],
    address: str | None,
    token_file: str | None,
    working_dir: str | None,
    assignments: tuple[str, ...],
    job: str | None,
    cpus: float | None,
    gpus: float | None,
    no_wait: bool,
) -> None:
    """Run COMMAND on a Ray cluster, in a copy of this folder, and show what it prints.

    \b
    attn-sched submit --address http://head:8265 -- attn-sched train --config quick --out /shared/run1
    attn-sched submit -- python -m tune.search --config small --storage /shared/search

    The exit status is 0 if it succeeds, 1 if it fails or is stopped, 2 if it cannot be submitted. Ctrl-C ends only the
    showing. docs/jobs.md says what a cluster needs and how its token works.
    """
    from tune.packing import measure, megabytes, parse_variables, runtime_env, working_folder

    entrypoint = shlex.join(job_command(command))
    variables = parse_variables(assignments)
    if job is not None and not _ID.fullmatch(job):
        raise InputError(f"{job!r} is no name of a job", field="id", expected="letters, digits, '_', '.' and '-'")
    for option, amount in (("cpus", cpus), ("gpus", gpus)):
        if amount is not None and not 0 <= amount < float("inf"):
            raise InputError(f"{amount:g} is out of range", field=option, expected="a number from 0 up")
    folder = working_folder(working_dir)
    jobs = connect(address, token_file)
    private = () if jobs.token is None or jobs.token.file is None else (jobs.token.file,)
    environment = runtime_env(folder, variables, private)
    contents = measure(folder, environment["excludes"])
    note(f"sending {folder} ({contents.files:,} files, {megabytes(contents.size)}) to {jobs.address}")
    job = jobs.submit(entrypoint, environment, job=job, cpus=cpus, gpus=gpus)
    note(f"job {job} is submitted")
    if no_wait:
        click.echo(job)
        return
    follow(jobs, job, typed_options(address, token_file))


def job_command(command: Sequence[str]) -> list[str]:
    """The command as the nodes can run it.

    Raises:
        InputError: there is none, or its results would be lost with the job's copy of the folder.
    """
    if not command or not command[0].strip():
        raise InputError("no command is given", field="command", expected="attn-sched submit [OPTIONS] -- COMMAND...")
    words = list(command)
    if words[0] == PROGRAM or words[0].endswith(f"/{PROGRAM}"):
        words[:1] = AS_MODULE
    if words[1:2] == ["-m"] and words[2:] and words[2].split(".")[0] in OWN_MODULES:
        _check_results(words[3:])
    return words


def _check_results(words: Sequence[str]) -> None:
    """A relative path would lie in the copy, which the cluster removes."""
    for number, word in enumerate(words):
        option, separator, value = word.partition("=")
        if option not in RESULTS:
            continue
        value = value if separator else next(iter(words[number + 1 :]), "")
        if value and not os.path.isabs(value) and "://" not in value:
            raise InputError(
                f"{value!r} would be lost with the job's copy of the folder",
                field=option.lstrip("-"),
                expected="a whole path, on storage that all nodes share",
            )
