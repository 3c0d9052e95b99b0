"""One decision of the agents as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from attn_sched.agents.explain import Candidate, Explanation

# What is shown first where there is no room for all.
FIRST = {
    "job": ("wait", "estimate", "gpus", "fits", "best_slowdown", "user_gpu_share"),
    "unit": ("free_share", "picked_here", "marginal_slowdown", "completes", "next_release", "uplink_jobs"),
}
NAME_WIDTH = 40
GAP = 3  # columns of the terminal between two of a table
MOST_UNITS = 16  # in the second table


def print_explanation(explained: Explanation, policy: str) -> None:
    """What was chosen, every candidate with its score, probability, attention and features, and the state."""
    from rich.console import Console
    from rich.markup import escape

    from attn_sched.evaluation.formatting import format_duration

    console = Console(highlight=False)
    chosen = explained.chosen
    if explained.agent == "gpu":
        did = f"the GPU agent takes {chosen.name} for job {explained.placing}"
    else:
        did = "the job agent holds" if chosen.kind == "hold" else f"the job agent starts job {chosen.name}"
    when = "" if explained.time_s is None else f" after {format_duration(explained.time_s)}"
    number = "" if explained.decision is None else f" {explained.decision:,}"
    console.print(
        escape(f"Decision{number} of {policy}{when}: {did} (probability {chosen.probability:.3f})"), style="bold"
    )
    console.print(escape(f"state: {_listed(explained.state)}"), style="dim")
    if explained.placing_features is not None:
        console.print(escape(f"job {explained.placing}: {_listed(explained.placing_features)}"), style="dim")
    console.print()
    ranked = sorted(explained.candidates, key=lambda candidate: (-candidate.probability, candidate.action))
    _table(console, ranked, explained.attention_on("self"), explained.choice, scored=True)
    if explained.units:
        looks = explained.attention_on("cross")
        units = sorted(explained.units, key=lambda unit: -looks.get(unit.name, 0.0))
        console.print()
        _table(console, units[:MOST_UNITS], looks, None, scored=False)
        if len(units) > MOST_UNITS:
            console.print(f"{len(units) - MOST_UNITS} more units got less attention", style="dim")
    told = (
        "attention is that of the deciding token in the last layer, mean over its heads; "
        if explained.attention
        else ""
    )
    console.print(f"\n{told}features are scaled as the networks see them; --json has all of it", style="dim")


def _table(
    console: Console, rows: list[Candidate], attention: dict[str, float], choice: int | None, *, scored: bool
) -> None:
    from rich.table import Table
    from rich.text import Text

    kind = "job" if any(row.kind == "job" for row in rows) else "unit"
    titles = [*(("score", "probability") if scored else ()), *(("attention",) if attention else ())]
    names = min(max((len(row.name) for row in rows), default=0) + 2, NAME_WIDTH)
    room = console.width - names - sum(len(title) + GAP for title in titles)
    features = next((row.features for row in rows if row.features), {})
    shown: list[str] = []
    for name in (*(name for name in FIRST[kind] if name in features), *(n for n in features if n not in FIRST[kind])):
        room -= max(len(name), len("-0.00")) + GAP
        if room < 0:
            break
        shown.append(name)
    table = Table(show_edge=False, pad_edge=False)
    table.add_column(kind, overflow="fold", max_width=NAME_WIDTH)
    for title in (*titles, *shown):
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        cells = []
        if scored:
            cells = ["illegal", ""] if row.score is None else [f"{row.score:.2f}", f"{row.probability:.3f}"]
        if attention:
            cells.append(f"{attention.get(row.name, 0.0):.3f}")
        cells += [f"{row.features[name]:.2f}" if row.features else "" for name in shown]
        taken = choice is not None and row.action == choice
        table.add_row(Text(row.name + (" *" if taken else "")), *cells, style="bold green" if taken else None)
    console.print(table)


def _listed(features: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.2f}" for name, value in features.items())
