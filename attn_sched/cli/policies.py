"""``attn-sched policies``: what a policy's name can be made of."""

from __future__ import annotations

import json

import click


@click.group()
def policies() -> None:
    """The orderings, queueings, placements and trained weights that policy names combine."""


@policies.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list instead of a table.")
def list_command(as_json: bool) -> None:
    """Every part with one line and its source."""
    from attn_sched.policies import list_policies
    from attn_sched.policies.names import LEARNED_SHAPE, SHAPE

    rows = list_policies()
    if as_json:
        click.echo(
            json.dumps([dict(zip(("name", "kind", "line", "source"), row, strict=True)) for row in rows], indent=1)
        )
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(highlight=False)
    console.print(escape(f"A policy is {SHAPE}."))
    console.print(escape(f"Learned parts stand in the same places: {LEARNED_SHAPE}; NAME is listed here, or a path."))
    console.print(
        "Without a placement it is topo-best-fit; without a queueing, strict for fifo and skip for the others.\n"
    )
    table = Table(show_edge=False, pad_edge=False)
    for title in ("name", "kind", "what it does", "source"):
        table.add_column(title, style="dim" if title == "source" else "", no_wrap=title == "name")
    for row in rows:
        table.add_row(*(escape(cell) for cell in row))
    console.print(table)
