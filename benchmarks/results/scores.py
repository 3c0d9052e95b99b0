"""Comparisons of policies over cells: every number of the page that has an interval comes from here."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from attn_sched.agents.rewards import LEAST_DURATION_S, LEAST_EXCESS
from attn_sched.evaluation.fairness import Floats
from attn_sched.evaluation.statistics import Estimate, RatioCell, bootstrap_mean, mean_of_ratios
from benchmarks.results.cache import Stored
from benchmarks.results.entrants import RULE, Field
from benchmarks.results.plan import MAIN, Cell, Plan

EXCESS, WAIT, JAIN, OVERHEAD = "excess_mean_s", "wait_p99_s", "jain_user", "comm_overhead"
NOTHING = Estimate(float("nan"))

Results = Mapping[tuple[str, str], Stored]


@dataclass(frozen=True)
class Record:
    """In which cells a policy has less excess than another, and in which more."""

    won: tuple[str, ...]
    lost: tuple[str, ...]  # or equal
    clear_wins: int  # cells whose whole interval is below 1
    clear_losses: int


class Scores:
    """All results, and how they compare.

    Args:
        plan: The cells.
        field: The policies.
        results: By the names of cell and policy; those that are not there are not compared.
    """

    def __init__(self, plan: Plan, field: Field, results: Results) -> None:
        self.plan = plan
        self.field = field
        self._results = results
        self.rules = tuple(entrant.label for entrant in field.of_kind(RULE))
        self._best_rules: dict[str, str] = {}

    def has(self, label: str, cell: Cell) -> bool:
        """Whether a policy was replayed in a cell."""
        return (cell.name, label) in self._results

    def series(self, label: str, cell: Cell, key: str) -> Floats:
        """f8[windows] of a metric."""
        return self._results[cell.name, label].values[key]

    def codes(self) -> dict[str, int]:
        """Digest of the code -> how many results it made."""
        counts: dict[str, int] = {}
        for stored in self._results.values():
            counts[stored.code] = counts.get(stored.code, 0) + 1
        return counts

    def cells(self, section: str, *labels: str) -> tuple[Cell, ...]:
        """The cells of a section in which all of some policies were replayed."""
        return tuple(cell for cell in self.plan.section(section) if all(self.has(label, cell) for label in labels))

    # One cell

    def excess(self, label: str, cell: Cell) -> Estimate:
        """Mean excess a job, s, with its interval over windows."""
        return bootstrap_mean(self.series(label, cell, EXCESS).tolist())

    def mean(self, label: str, cell: Cell, key: str) -> float:
        """Of a metric over the windows that have it; NaN where none has."""
        values = self.series(label, cell, key)
        known = values[np.isfinite(values)]
        return float(known.mean()) if known.size else float("nan")

    def floor(self, label: str, cell: Cell) -> float:
        """The least that an excess counts as where others are divided by it, s: where next to nobody waits, a ratio
        would make much of seconds. As in training's validation.
        """
        duration = self.series(label, cell, "jct_mean_s") - self.series(label, cell, EXCESS)
        return LEAST_EXCESS * max(float(np.nanmean(duration)), LEAST_DURATION_S)

    def best_rule(self, cell: Cell) -> str:
        """The hand-written rule with the least excess in a cell: known only afterwards."""
        if cell.name not in self._best_rules:
            there = self._there(self.rules, [cell])
            self._best_rules[cell.name] = min(there, key=lambda label: self.mean(label, cell, EXCESS))
        return self._best_rules[cell.name]

    # Many cells

    def ratio(self, label: str, other: str, cells: Sequence[Cell], key: str = EXCESS) -> Estimate:
        """Mean over cells of the ratio of two policies' sums over windows."""
        pairs = []
        for cell in cells:
            least = self.floor(other, cell) if key == EXCESS else LEAST_DURATION_S
            top, bottom = self.series(label, cell, key), self.series(other, cell, key)
            pairs.append(RatioCell(top, bottom, _group(cell, top.size), least))
        return mean_of_ratios(pairs)

    def difference(self, label: str, other: str, cells: Sequence[Cell], key: str) -> Estimate:
        """Mean over cells of the mean difference of two policies."""
        pairs = []
        for cell in cells:
            values = self.series(label, cell, key) - self.series(other, cell, key)
            pairs.append(RatioCell(values, np.ones_like(values), _group(cell, values.size)))
        return mean_of_ratios(pairs)

    def own_best_ratio(self, label: str, cells: Sequence[Cell]) -> Estimate:
        """Mean over cells of the ratio to each cell's own best rule."""
        pairs = []
        for cell in cells:
            best = self.best_rule(cell)
            top, bottom = self.series(label, cell, EXCESS), self.series(best, cell, EXCESS)
            pairs.append(RatioCell(top, bottom, _group(cell, top.size), self.floor(best, cell)))
        return mean_of_ratios(pairs)

    def average(self, label: str, cells: Sequence[Cell], key: str) -> float:
        """Mean over cells of a metric."""
        return float(np.mean([self.mean(label, cell, key) for cell in cells])) if cells else float("nan")

    def record(self, label: str, other: str, cells: Sequence[Cell]) -> Record:
        """Cells won and lost."""
        won: list[str] = []
        lost: list[str] = []
        clear_wins = clear_losses = 0
        for cell in cells:
            found = self.ratio(label, other, [cell])
            (won if found.value < 1 else lost).append(cell.name)
            clear_wins += found.high is not None and found.high < 1
            clear_losses += found.low is not None and found.low > 1
        return Record(tuple(won), tuple(lost), clear_wins, clear_losses)

    def _there(self, labels: Iterable[str], cells: Sequence[Cell]) -> list[str]:
        """Those of some policies that were replayed in all of some cells."""
        return [label for label in labels if all(self.has(label, cell) for cell in cells)]

    # Rules that stand out

    @cached_property
    def validation_means(self) -> dict[str, float]:
        """Rule -> geometric mean over the validation cells of its mean excess, s; best first.

        It ranks rules alike whatever each cell is measured in, so that no rule has to be singled out to divide by.
        """
        cells = self.plan.validation
        means = {}
        for label in self._there(self.rules, cells):
            logs = [math.log(max(self.mean(label, cell, EXCESS), self.floor(label, cell))) for cell in cells]
            means[label] = math.exp(sum(logs) / len(logs))
        return dict(sorted(means.items(), key=lambda item: item[1]))

    @property
    def reference(self) -> str:
        """The hand-written rule that is best on the validation cells."""
        return next(iter(self.validation_means))

    def least_overhead(self, cells: Sequence[Cell], labels: Iterable[str] | None = None) -> str | None:
        """The rule with the least communication overhead, mean over cells; None if none was replayed in all."""
        there = self._there(self.rules if labels is None else labels, cells) if cells else []
        return min(there, key=lambda label: self.average(label, cells, OVERHEAD)) if there else None

    def least_excess(self, cells: Sequence[Cell], labels: Iterable[str] | None = None) -> str | None:
        """The rule with the least mean ratio to the best on validation, in hindsight; None if there is none."""
        there = self._there(self.rules if labels is None else labels, cells) if cells else []
        return min(there, key=lambda label: self.ratio(label, self.reference, cells).value) if there else None

    def group_cells(self, section: str = MAIN) -> dict[str, tuple[Cell, ...]]:
        """Groups of cells that a reader may ask for: by data set, cluster and load."""
        cells = self.plan.section(section)
        groups: dict[str, list[Cell]] = {}
        for cell in cells:
            groups.setdefault(cell.log.family, []).append(cell)
        for cell in cells:
            groups.setdefault(f"`{cell.cluster_name}`", []).append(cell)
        for cell in sorted(cells, key=lambda cell: cell.load):
            groups.setdefault(f"load {cell.load:g}", []).append(cell)
        return {name: tuple(found) for name, found in groups.items()}


def _group(cell: Cell, windows: int) -> str:
    """Windows of one log are the same stretches of jobs at every load, and nearly so on every cluster."""
    return f"{cell.log.key}/{cell.part}/{cell.jobs}/{windows}"
