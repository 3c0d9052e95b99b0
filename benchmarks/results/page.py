"""The page: what is compared and how, verdicts, tables; every line of it comes from the run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.results import tables, texts, verdicts
from benchmarks.results.entrants import FULL, agents_label
from benchmarks.results.material import Material
from benchmarks.results.plan import Cell
from benchmarks.results.scores import Scores


def page(scores: Scores, material: Material, command: str) -> str:
    """The whole page, in Markdown.

    Args:
        scores: All results.
        material: Where the windows come from.
        command: That makes the page.

    Raises:
        InputError: a log that cannot be read.
    """
    judge = verdicts.Judge(scores)
    full = agents_label(FULL)
    parts = [
        ["# Trained agents against rules, on jobs they have not seen", ""],
        texts.introduction(scores, material, command),
        [
            "## What was wanted, and what was found",
            "",
            *verdicts.table([*judge.wanted(), *judge.gates()]),
            "",
            *texts.WANTED,
        ],
        _losses(scores, full),
        _titled("## All policies", tables.summary(scores), texts.SUMMARY),
        _titled("## By data set, cluster, load and kind of window", tables.groups(scores, full), [f"`{full}`.", ""]),
        _titled("## Seeds", tables.seeds(scores), texts.SEEDS),
        _titled("## Ablations", tables.ablations(scores), texts.ABLATIONS),
        _titled("## FIFO with each placement", tables.fifo_placements(scores)),
        _titled("## Preemptive rules", tables.preemptive(scores), texts.PREEMPTIVE),
        _titled("## The best rule", tables.validation(scores), texts.best_rule(scores)),
        _titled("## The agents", tables.training(scores.field.cards), texts.TRAINING),
    ]
    for section in scores.plan.sections:
        cells = tables.cell_tables(scores, section.key, tables.of_interest(section.key))
        parts.append([f"## {section.title}", "", *window_lines(material, section.cells), "", *cells])
    parts.append(_titled("## Every policy in every cell", tables.matrix(scores), texts.MATRIX))
    return "\n".join(line for part in parts for line in part).rstrip("\n") + "\n"


def _titled(title: str, table: Sequence[str], about: Sequence[str] = ()) -> list[str]:
    """A table under its title; nothing where there is no table."""
    return [title, "", *about, *table] if table else []


def _losses(scores: Scores, label: str) -> list[str]:
    """The cells of every section in which the agents do worse than the best rule, by name."""
    lost = []
    for section in scores.plan.sections:
        for cell in scores.cells(section.key, label):
            ratio = scores.ratio(label, scores.reference, [cell])
            if not ratio.value < 1:
                lost.append(f"- {cell.name}: {verdicts.told(ratio)}")
    measured = any(scores.cells(section.key, label) for section in scores.plan.sections)
    if not measured:
        return []
    told = lost or ["None."]
    return [f"Cells of all sections in which `{label}` has no less excess than the best rule:", "", *told, ""]


def window_lines(material: Material, cells: Sequence[Cell]) -> list[str]:
    """What a section's windows are, and where they are fewer, or start colder, than they should."""
    lines = []
    seen = set()
    for cell in cells:
        facts = material.facts(cell)
        key = (cell.place, facts)
        if key in seen:
            continue
        seen.add(key)
        what = f"- {cell.place}: {facts.windows} window{'s' * (facts.windows != 1)} of {facts.jobs:,} jobs"
        if facts.windows < cell.most:
            what += f" (no more than that fit, {cell.most} were wanted)"
        if facts.short_warmups:
            what += f"; {facts.short_warmups} warm{'s' * (facts.short_warmups == 1)} up with fewer jobs than they count"
        if facts.too_large:
            what += f"; {facts.too_large:,} jobs larger than the cluster left out"
        lines.append(what + ".")
    return lines


def cost_lines(scores: Scores) -> list[str]:
    """What each policy cost: decisions and seconds of engine and policy over all its replays."""
    lines = []
    cells = scores.plan.cells
    for entrant in scores.field.entrants:
        there = [cell for cell in cells if scores.has(entrant.label, cell)]
        if there:
            made, took = (
                float(np.nansum([np.nansum(scores.series(entrant.label, cell, key)) for cell in there]))
                for key in ("decisions", "engine_s")
            )
            windows = sum(scores.series(entrant.label, cell, "jobs").size for cell in there)
            speed = f"{made / took:,.0f} decisions/s" if took else "no time taken"
            lines.append(f"{entrant.label}: {windows:,} replays, {took:,.1f} s, {speed}")
    return lines
