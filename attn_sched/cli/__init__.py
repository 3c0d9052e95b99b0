"""The command line. Commands are imported when they are run, so that light ones start without the engine."""

from __future__ import annotations

import importlib
from typing import Any

import click

from attn_sched import __version__
from attn_sched.errors import InputError

INPUT_ERROR_STATUS = 2
INTERRUPTED_STATUS = 130

# Name: (module, attribute, one line for --help).
COMMANDS: dict[str, tuple[str, str, str]] = {
    "clusters": ("attn_sched.cli.clusters", "clusters", "List, show and convert cluster descriptions."),
    "compare": ("attn_sched.cli.compare", "compare", "Replay a trace under several policies and compare them."),
    "jobs": ("attn_sched.cli.jobs", "jobs", "List, show, follow and stop jobs on a Ray cluster."),
    "policies": ("attn_sched.cli.policies", "policies", "List the scheduling policies."),
    "simulate": ("attn_sched.cli.simulate", "simulate", "Replay a trace under one policy."),
    "submit": ("attn_sched.cli.submit", "submit", "Run a command on a Ray cluster."),
    "traces": ("attn_sched.cli.traces", "traces", "Inspect, convert and synthesise traces."),
    "train": ("attn_sched.cli.train", "train", "Learn scheduling agents from logs."),
}


class LazyGroup(click.Group):
    """A group that imports a command only to run it, and ends every wrong input with one line and status 2."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*COMMANDS, *self.commands})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return super().get_command(ctx, cmd_name)
        module, attribute, _ = COMMANDS[cmd_name]
        command = getattr(importlib.import_module(module), attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{module}.{attribute} is not a click command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """One line a command, from the table: help must not import the engine."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, _, line) in sorted(COMMANDS.items())])

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.UsageError as error:
            raise _one_line(error) from error

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except InputError as error:
            raise OneLineError(str(error)) from error
        except click.UsageError as error:
            raise _one_line(error) from error
        except MemoryError as error:
            # numpy says how much it wanted; others say nothing.
            raise OneLineError(f"not enough memory: {error}".rstrip(": ")) from error
        except RecursionError as error:
            raise OneLineError("something in the input is nested too deep") from error
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(INTERRUPTED_STATUS)
        except BrokenPipeError:
            raise  # click ends quietly when the reader of a pipe goes away
        except OSError as error:
            # A file that went away or a full disk: the user's to mend, so no traceback.
            where = f"{error.filename}: " if error.filename else ""
            raise OneLineError(f"{where}{error.strerror or error}") from error


class OneLineError(click.ClickException):
    """An error told in a single line on standard error."""

    exit_code = INPUT_ERROR_STATUS

    def show(self, file: Any = None) -> None:
        click.echo(f"attn-sched: error: {' '.join(self.format_message().split())}", file=file, err=file is None)


def _one_line(error: click.UsageError) -> click.ClickException:
    """Click's three lines of usage as one; a bare command still shows its help."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        return error
    command = error.ctx.command_path if error.ctx is not None else "attn-sched"
    return OneLineError(f"{error.format_message().rstrip('.')}; see '{command} --help'")


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="attn-sched")
def main() -> None:
    """Replay GPU-cluster traces under scheduling policies, on any cluster, and compare the results."""
