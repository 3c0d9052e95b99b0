"""The tables of the page, in Markdown."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from attn_sched.evaluation.formatting import DASH, MISSING, format_number, format_range, format_value
from attn_sched.evaluation.statistics import Estimate
from benchmarks.results.entrants import (
    ABLATIONS,
    AGENTS,
    FULL,
    MEDIUM,
    PLACEMENT,
    PREEMPTIVE,
    RETRAINED,
    ROLES,
    RULE,
    SJF,
    TUNED,
    TUNED_NAME,
    Entrant,
    agents_label,
)
from benchmarks.results.plan import HELIOS, MAIN, Cell
from benchmarks.results.scores import EXCESS, JAIN, OVERHEAD, WAIT, Scores
from benchmarks.results.verdicts import told

Row = Sequence[str]


def markdown(head: Row, rows: Iterable[Row], left: int = 1) -> list[str]:
    """A table whose first ``left`` columns are aligned to the left; empty without rows."""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    if not lines:
        return []
    return ["| " + " | ".join(head) + " |", "|" + "---|" * left + "---:|" * (len(head) - left), *lines, ""]


def summary(scores: Scores) -> list[str]:
    """Every policy on all cells of the first section: who learned first, then rules from best to worst."""
    rule = scores.reference
    cells = scores.plan.section(MAIN)
    best_of_all = scores.least_overhead(cells)
    rows = []
    for entrant in ranked(scores, (AGENTS, TUNED, RULE), cells):
        name, shared = entrant.label, scores.cells(MAIN, entrant.label)
        record = scores.record(name, rule, shared)
        overhead = "" if best_of_all is None else told(scores.difference(name, best_of_all, shared, OVERHEAD),
                                                       signed=True)  # fmt: skip
        rows.append(
            (
                f"`{name}`" + (" (the best rule)" if name == rule else ""),
                told(scores.ratio(name, rule, shared)),
                _ratio(scores, name, TUNED_NAME, shared),
                _ratio(scores, name, SJF, [cell for cell in shared if cell.log.family == HELIOS.family]),
                told(scores.own_best_ratio(name, shared)),
                MISSING if name == rule else f"{len(record.won)} ({record.clear_wins})",
                MISSING if name == rule else f"{len(record.lost)} ({record.clear_losses})",
                told(scores.ratio(name, rule, shared, WAIT)),
                told(scores.difference(name, rule, shared, JAIN), signed=True),
                overhead,
            )
        )
    head = ("policy", "excess / best rule", "/ `tuned`", "/ SJF, Helios", "/ each cell's best", "won", "lost",
            "p99 wait / best rule", "Jain, difference", "overhead, difference")  # fmt: skip
    return markdown(head, rows)


def ranked(scores: Scores, kinds: Sequence[str], cells: Sequence[Cell]) -> list[Entrant]:
    """The policies of some kinds that were replayed in all of some cells, kind by kind, rules from best to worst."""
    found: list[Entrant] = []
    for kind in kinds:
        there = [one for one in scores.field.of_kind(kind) if cells and all(scores.has(one.label, c) for c in cells)]
        if kind in (RULE, PREEMPTIVE):
            there.sort(key=lambda one: scores.ratio(one.label, scores.reference, cells).value)
        found += there
    return found


def _ratio(scores: Scores, label: str, other: str, cells: Sequence[Cell]) -> str:
    both = [cell for cell in cells if scores.has(other, cell)]
    if not both or label == other:
        return MISSING
    return told(scores.ratio(label, other, both))


def preemptive(scores: Scores) -> list[str]:
    """Preemptive rules against the best rule."""
    return _short(scores, [one.label for one in ranked(scores, (PREEMPTIVE,), scores.plan.section(MAIN))])


def _short(scores: Scores, labels: Sequence[str], beside: str | None = None) -> list[str]:
    """A few columns of the summary; with ``beside`` also the ratio to that policy."""
    rows = []
    for label in labels:
        cells = scores.cells(MAIN, label)
        row = [f"`{label}`", told(scores.ratio(label, scores.reference, cells))]
        if beside is not None:
            row.append(_ratio(scores, label, beside, cells))
        row += [
            told(scores.ratio(label, scores.reference, cells, WAIT)),
            told(scores.difference(label, scores.reference, cells, JAIN), signed=True),
            f"{scores.average(label, cells, OVERHEAD):.3f}",
        ]
        rows.append(row)
    head = ["policy", "excess / best rule", "p99 wait / best rule", "Jain, difference", "communication overhead"]
    if beside is not None:
        head.insert(2, f"excess / `{beside}`")
    return markdown(head, rows)


def fifo_placements(scores: Scores) -> list[str]:
    """FIFO with every placement rule and with the GPU agent."""
    labels = [one.label for one in scores.field.entrants if one.label.startswith("fifo+") and one.kind != PREEMPTIVE]
    return _short(scores, [label for label in labels if scores.cells(MAIN, label) == scores.plan.section(MAIN)])


def ablations(scores: Scores) -> list[str]:
    """What is left when a part is left out; all with the budget and the seed of the first medium run."""
    by_role = {one.role: one.label for one in scores.field.of_kind(AGENTS) if scores.cells(MAIN, one.label)}
    labels = [by_role[role] for role in (MEDIUM[0], *ABLATIONS) if role in by_role]
    whole = by_role.get(MEDIUM[0])
    return _short(scores, labels, beside=whole) if any(label != whole for label in labels) else []


def seeds(scores: Scores) -> list[str]:
    """Mean and range over the seeds of the medium budget."""
    labels = [agents_label(key) for key in MEDIUM if scores.cells(MAIN, agents_label(key))]
    if not labels:
        return []
    rule = scores.reference

    def over(values: Sequence[float], sign: str = "") -> str:
        return f"{np.mean(values):{sign}.3f} ({min(values):{sign}.3f} to {max(values):{sign}.3f})"

    cells = {label: scores.cells(MAIN, label) for label in labels}
    row = [
        f"{len(labels)} seeds: {', '.join(f'`{label}`' for label in labels)}",
        over([scores.ratio(label, rule, cells[label]).value for label in labels]),
        over([scores.ratio(label, rule, cells[label], WAIT).value for label in labels]),
        over([scores.difference(label, rule, cells[label], JAIN).value for label in labels], "+"),
        over([scores.average(label, cells[label], OVERHEAD) for label in labels]),
    ]
    head = ("mean (range)", "excess / best rule", "p99 wait / best rule", "Jain, difference", "communication overhead")
    return markdown(head, [row])


def groups(scores: Scores, label: str) -> list[str]:
    """One policy against the best rule, ``tuned`` and each cell's best, by groups of cells."""
    found = {"all": scores.plan.section(MAIN), **scores.group_cells(MAIN)}
    for section in scores.plan.sections:
        if section.key != MAIN:
            found[section.title[0].lower() + section.title[1:]] = section.cells
    rows = []
    for name, cells in found.items():
        shared = [cell for cell in cells if scores.has(label, cell)]
        if shared:
            record = scores.record(label, scores.reference, shared)
            rows.append((name, f"{len(shared)}", told(scores.ratio(label, scores.reference, shared)),
                         _ratio(scores, label, TUNED_NAME, shared), told(scores.own_best_ratio(label, shared)),
                         f"{len(record.won)}{DASH}{len(record.lost)}"))  # fmt: skip
    head = ("cells", "number", "excess / best rule", "/ `tuned`", "/ each cell's best", f"won{DASH}lost")
    return markdown(head, rows)


def cell_tables(scores: Scores, section: str, labels: Sequence[str]) -> list[str]:
    """A table for each log and cluster, by load: some policies, the best rule, and the cell's own best rule."""
    places: dict[str, list[Cell]] = {}
    for cell in scores.plan.section(section):
        places.setdefault(cell.place, []).append(cell)
    lines = []
    for place, cells in places.items():
        rows = [row for cell in cells for row in _cell_rows(scores, cell, labels)]
        head = ("load", "policy", "excess", "/ best rule", "p99 wait", "Jain", "overhead")
        windows = scores.series(scores.reference, cells[0], EXCESS).size
        size = f"{windows} window{'s' * (windows != 1)} of {cells[0].jobs:,} jobs"
        lines += [f"**{place}** ({size})", "", *markdown(head, rows, left=2)]
    return lines


def _cell_rows(scores: Scores, cell: Cell, labels: Sequence[str]) -> list[Row]:
    rule, best = scores.reference, scores.best_rule(cell)
    rows: list[Row] = []
    for label in dict.fromkeys((*labels, rule, best)):
        if not scores.has(label, cell):
            continue
        excess = scores.excess(label, cell)
        interval = _between(excess)
        what = [word for word, is_so in (("best rule", label == rule), ("best of this cell", label == best)) if is_so]
        rows.append(
            (
                f"{cell.load:g}",
                f"`{label}`" + (f" ({', '.join(what)})" if what else ""),
                format_value(excess.value, "s", short=True) + interval,
                told(scores.ratio(label, rule, [cell])) if label != rule else "1",
                format_value(scores.mean(label, cell, WAIT), "s", short=True),
                format_value(scores.mean(label, cell, JAIN), "index"),
                format_value(scores.mean(label, cell, OVERHEAD), "ratio"),
            )
        )
    return rows


def _between(estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None:
        return ""
    return f" ({format_range(estimate.low, estimate.high, 's', estimate.value)})"


def matrix(scores: Scores, section: str = MAIN) -> list[str]:
    """Mean excess of every policy in every cell, in hours, a table a cluster; the least of a column's bold."""
    clusters: dict[str, list[Cell]] = {}
    for cell in scores.plan.section(section):
        clusters.setdefault(cell.cluster_name, []).append(cell)
    lines = []
    for name, cells in clusters.items():
        there = ranked(scores, (AGENTS, TUNED, RULE, PREEMPTIVE), cells)
        values = {one.label: [scores.mean(one.label, cell, EXCESS) / 3600 for cell in cells] for one in there}
        compete = [values[one.label] for one in there if one.kind != PREEMPTIVE]
        least = [min(column) for column in zip(*compete, strict=True)]
        rows = [
            [f"`{label}`", *(_hours(value, value == best) for value, best in zip(row, least, strict=True))]
            for label, row in values.items()
        ]
        head = ["policy", *(f"{cell.log.key} {cell.load:g}" for cell in cells)]
        lines += [f"**`{name}`**", "", *markdown(head, rows)]
    return lines


def _hours(value: float, best: bool) -> str:
    text = f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"**{text}**" if best and math.isfinite(value) else text


def validation(scores: Scores, shown: int = 8) -> list[str]:
    """The rules that do best on the validation cells, and what they come to on the test cells."""
    cells, test = scores.plan.validation, scores.plan.section(MAIN)
    rows = []
    for label, mean in list(scores.validation_means.items())[:shown]:
        least = scores.validation_means[scores.reference]
        rows.append((f"`{label}`", f"{mean / least:.3f}", told(scores.ratio(label, scores.reference, cells)),
                     told(scores.ratio(label, scores.reference, test)) if test else MISSING))  # fmt: skip
    head = ("rule", "validation, geometric mean / best", "validation, mean of ratios", "test, mean of ratios")
    return markdown(head, rows)


def training(cards: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What the agents' model cards say of their making."""
    rows = []
    for role in ROLES:
        card = cards.get(role.key)
        if card is None:
            continue
        budget, found = card["budget"], card["scores"].get("validation")
        seconds = sum(value for key, value in budget.items() if key.endswith("seconds"))
        seeds = ", ".join(map(str, card["seeds"])) or MISSING
        rows.append(
            (
                f"`{agents_label(role.key)}`",
                role.what,
                seeds,
                format_number(float(budget["decisions"])) if "decisions" in budget else MISSING,
                f"{seconds / 60:,.0f} min" if seconds else MISSING,
                f"{found['score']:.3f}" if isinstance(found, dict) and "score" in found else MISSING,
                f"`{card['weights']['sha256'][:12]}`",
            )
        )
    head = ("agents", "what they are", "seed", "decisions of PPO", "training, wall time", "validation score", "weights")
    return markdown(head, rows, left=2)


def of_interest(section: str) -> tuple[str, ...]:
    """The policies that the tables of single cells show besides the best rules."""
    full = agents_label(FULL)
    if section == MAIN:
        return full, f"{full}+{PLACEMENT}", TUNED_NAME, SJF
    return full, agents_label(RETRAINED), TUNED_NAME, SJF
