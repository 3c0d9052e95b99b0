"""What was wanted of the agents, and whether it was reached."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from attn_sched.evaluation.formatting import DASH, MINUS
from attn_sched.evaluation.statistics import Estimate
from benchmarks.results.entrants import (
    FULL,
    GPU_ONLY,
    JOB_ONLY,
    MEDIUM,
    PLACEMENT,
    RETRAINED,
    RULE,
    SJF,
    START,
    TUNED_NAME,
    agents_label,
)
from benchmarks.results.plan import DGX256, HELIOS, MAIN, SIZES, Cell
from benchmarks.results.scores import JAIN, NOTHING, OVERHEAD, WAIT, Scores

AGENTS = agents_label(FULL)
NOTHING_FOUND = "there is nothing to compare"
ROUNDING = 1e-9  # differences below it are none
WAITING = "best-fit"  # a placement under which gangs wait for whole nodes: no GPU agent may do that


@dataclass(frozen=True)
class Verdict:
    """One thing that was wanted."""

    wanted: str
    found: str  # with the number
    reached: bool | None  # None: not measured

    @property
    def word(self) -> str:
        """As it stands in the table."""
        return {True: "reached", False: "**not reached**", None: "not measured"}[self.reached]


def told(estimate: Estimate, *, signed: bool = False) -> str:
    """A number with its interval: ``0.652 (0.611-0.704)``, or ``+0.012 (-0.004 to +0.031)`` for differences."""

    def one(value: float) -> str:
        if not math.isfinite(value):
            return DASH
        sign = ("+" if value > 0 else MINUS if value < 0 else "") if signed else ""
        size = abs(value) if signed else value
        return sign + (f"{size:.3f}" if abs(size) < 10 else f"{size:,.1f}")

    if estimate.low is None or estimate.high is None:
        return one(estimate.value)
    between = " to " if signed else DASH
    return f"{one(estimate.value)} ({one(estimate.low)}{between}{one(estimate.high)})"


def judged(
    wanted: str,
    estimate: Estimate,
    limit: float,
    what: str,
    *,
    least: bool = False,
    strict: bool = False,
    signed: bool = False,
    more: str = "",
) -> Verdict:
    """The verdict on a number.

    Args:
        wanted: In words.
        estimate: The number; NaN is one that there is not.
        limit: The most that it may be.
        what: What the number is.
        least: ``limit`` is the least that it may be instead.
        strict: It must not be equal.
        signed: It is a difference.
        more: What is told besides.
    """
    if not math.isfinite(estimate.value):
        return Verdict(wanted, NOTHING_FOUND + more, None)

    def beyond(value: float) -> float:
        return limit - value if least else value - limit

    reached = beyond(estimate.value) < 0 if strict else beyond(estimate.value) <= ROUNDING
    remark = ""
    if estimate.low is not None and estimate.high is not None:
        ends = beyond(estimate.low), beyond(estimate.high)
        if reached and max(ends) > ROUNDING:
            remark = "; the interval reaches beyond the mark"
        elif not reached and min(ends) <= 0:
            remark = "; the mark lies within the interval"
    return Verdict(wanted, f"{what} {told(estimate, signed=signed)}{remark}{more}", reached)


class Judge:
    """Holds scores against what was wanted."""

    def __init__(self, scores: Scores) -> None:
        self.scores = scores

    def _compare(self, label: str, other: str, cells: Sequence[Cell] | None = None) -> Estimate:
        """Ratio of excess over the cells in which both were replayed."""
        scores = self.scores
        wanted = self.scores.plan.section(MAIN) if cells is None else cells
        both = [cell for cell in wanted if scores.has(label, cell) and scores.has(other, cell)]
        return scores.ratio(label, other, both) if both else NOTHING

    def wanted(self) -> list[Verdict]:
        """The figures that were asked for."""
        scores, rule = self.scores, self.scores.reference
        cells = scores.cells(MAIN, AGENTS, rule)
        helios = [cell for cell in scores.plan.section(MAIN) if cell.log.family == HELIOS.family]
        by_best_fit = self._compare(AGENTS, "sjf+best-fit", helios)
        ratio = "ratio of excess"
        return [
            judged(
                "excess at least 35 % below the hand-written rule that is best on validation",
                self._compare(AGENTS, rule), 0.65, ratio,
            ),
            judged("excess at least 20 % below `tuned`", self._compare(AGENTS, TUNED_NAME), 0.8, ratio),
            judged(
                f"excess at least 50 % below SJF (`{SJF}`) on the Helios cells",
                self._compare(AGENTS, SJF, helios), 0.5, ratio,
                more=f"; to `sjf+best-fit` {told(by_best_fit)}" if math.isfinite(by_best_fit.value) else "",
            ),
            self._every_cell(cells),
            judged(
                "99th percentile wait no worse than that rule's",
                scores.ratio(AGENTS, rule, cells, WAIT), 1.0, "ratio of p99 wait",
            ),
            judged(
                "Jain index over users no worse than that rule's",
                scores.difference(AGENTS, rule, cells, JAIN), 0.0, "difference of the index", least=True, signed=True,
            ),
            self._overhead(cells),
            judged("PPO better than its own imitation start", self._compare(AGENTS, agents_label(START)), 1.0, ratio,
                    strict=True),
            self._seeds(),
        ]  # fmt: skip

    def gates(self) -> list[Verdict]:
        """The five gates."""
        return [self._gate1(), self._gate2(), self._gate3(), self._gate4(), self._gate5()]

    def _every_cell(self, cells: Sequence[Cell]) -> Verdict:
        wanted = "less excess than that rule in every cell"
        if not cells:
            return Verdict(wanted, NOTHING_FOUND, None)
        record = self.scores.record(AGENTS, self.scores.reference, cells)
        found = f"less in {len(record.won)} of {len(cells)} cells (clearly in {record.clear_wins})"
        if record.lost:
            found += f"; not in {', '.join(record.lost)}"
        return Verdict(wanted, found, not record.lost)

    def _overhead(self, cells: Sequence[Cell]) -> Verdict:
        wanted = "communication overhead no worse than the best of all rules"
        best = self.scores.least_overhead(cells)
        if best is None:
            return Verdict(wanted, NOTHING_FOUND, None)
        difference = self.scores.difference(AGENTS, best, cells, OVERHEAD)
        own = f"; {self.scores.average(AGENTS, cells, OVERHEAD):.3f} against"
        return judged(wanted, difference, 0.0, "difference", signed=True,
                       more=f"{own} {self.scores.average(best, cells, OVERHEAD):.3f} of `{best}`")  # fmt: skip

    def _seeds(self) -> Verdict:
        wanted = f"all {len(MEDIUM)} seeds at the medium budget better than that rule"
        ratios = [self._compare(agents_label(seed), self.scores.reference).value for seed in MEDIUM]
        known = [ratio for ratio in ratios if math.isfinite(ratio)]
        if not known:
            return Verdict(wanted, NOTHING_FOUND, None)
        found = f"ratios of excess {', '.join(f'{ratio:.3f}' for ratio in known)}"
        if len(known) < len(MEDIUM):
            return Verdict(wanted, f"{found}; {len(MEDIUM) - len(known)} missing", None)
        return Verdict(wanted, found, all(ratio < 1 for ratio in known))

    def _gate1(self) -> Verdict:
        label = f"fifo+{AGENTS}"
        wanted = f"gate 1: `{label}` has less communication overhead than FIFO with the best placement rule"
        scores = self.scores
        cells = scores.cells(MAIN, label)
        fifo = [rule for rule in scores.rules if rule.startswith("fifo+")]
        best = scores.least_overhead(cells, fifo)
        if best is None:
            return Verdict(wanted, NOTHING_FOUND, None)
        more = f"; ratio of excess to it {told(self._compare(label, best, cells))}"
        at_once = scores.least_overhead(cells, [rule for rule in fifo if rule != f"fifo+{WAITING}"])
        if best == f"fifo+{WAITING}" and at_once is not None:
            gap = told(scores.difference(label, at_once, cells, OVERHEAD), signed=True)
            more += f"; under it gangs wait for whole nodes: to `{at_once}`, the best that places what fits, {gap}"
        return judged(wanted, scores.difference(label, best, cells, OVERHEAD), 0.0, f"difference to `{best}`",
                       strict=True, signed=True, more=more)  # fmt: skip

    def _gate2(self) -> Verdict:
        label = f"{AGENTS}+{PLACEMENT}"
        wanted = f"gate 2: `{label}` has less excess than every ordering rule with that placement"
        scores = self.scores
        same = [one.label for one in scores.field.of_kind(RULE) if one.placement == PLACEMENT]
        cells = scores.cells(MAIN, label, scores.reference)
        best = scores.least_excess(cells, same)
        if best is None:
            return Verdict(wanted, NOTHING_FOUND, None)
        return judged(wanted, self._compare(label, best, cells), 1.0,
                       f"ratio of excess to the best of {len(same)}, `{best}`,", strict=True)  # fmt: skip

    def _gate3(self) -> Verdict:
        wanted = "gate 3: both agents together have less excess than either alone"
        both, seed = AGENTS, agents_label(MEDIUM[0])
        alone = [(both, f"{both}+{PLACEMENT}"), (both, f"fifo+{both}"), (both, f"sjf+{both}")]
        trained = [(seed, self._label_of(role)) for role in (JOB_ONLY, GPU_ONLY)]
        found = []
        for label, other in (*alone, *trained):
            ratio = self._compare(label, other) if other else NOTHING
            if math.isfinite(ratio.value):
                found.append((label, other, ratio))
        if not any(label == both for label, _, _ in found):
            return Verdict(wanted, NOTHING_FOUND, None)
        said = "; ".join(f"`{label}` to `{other}` {told(ratio)}" for label, other, ratio in found)
        return Verdict(wanted, f"ratios of excess: {said}", all(ratio.value < 1 for _, _, ratio in found))

    def _label_of(self, role: str) -> str:
        """The label of agents that come in one form; empty if they are not there."""
        return next((one.label for one in self.scores.field.entrants if one.role == role), "")

    def _gate4(self) -> Verdict:
        wanted = f"gate 4: excess no worse than SJF's (`{SJF}`) at a better Jain index"
        cells = self.scores.cells(MAIN, AGENTS, SJF)
        if not cells:
            return Verdict(wanted, NOTHING_FOUND, None)
        excess = self.scores.ratio(AGENTS, SJF, cells)
        jain = self.scores.difference(AGENTS, SJF, cells, JAIN)
        found = f"ratio of excess {told(excess)}, difference of the index {told(jain, signed=True)}"
        return Verdict(wanted, found, excess.value <= 1 and jain.value > 0)

    def _gate5(self) -> Verdict:
        large = [cell for cell in self.scores.plan.section(SIZES) if cell.cluster_name == DGX256.stem]
        return judged("gate 5: on 256 GPUs less than 5 % worse than agents trained there",
                       self._compare(AGENTS, agents_label(RETRAINED), large), 1.05, "ratio of excess",
                       strict=True)  # fmt: skip


def table(verdicts: Sequence[Verdict]) -> list[str]:
    """As a Markdown table."""
    lines = ["| wanted | found | |", "|---|---|---|"]
    return lines + [f"| {verdict.wanted} | {verdict.found} | {verdict.word} |" for verdict in verdicts]
