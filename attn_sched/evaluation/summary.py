"""A comparison in plain sentences, no stronger than its intervals allow."""

from __future__ import annotations

import math
from collections.abc import Sequence

from attn_sched.evaluation.comparison import Cell, Comparison
from attn_sched.evaluation.formatting import format_change, format_value
from attn_sched.evaluation.registry import BY_KEY
from attn_sched.evaluation.statistics import Estimate


def _ranked(cells: Sequence[Cell], key: str) -> list[tuple[float, Cell]]:
    """Cells that have the metric, best first."""
    sign = -1.0 if BY_KEY[key].better == "higher" else 1.0
    known = [(cell.estimates[key].value, cell) for cell in cells]
    return sorted(((v, cell) for v, cell in known if math.isfinite(v)), key=lambda pair: sign * pair[0])


def _tied(ranked: Sequence[tuple[float, Cell]]) -> str:
    """The best policies by name, several when they are equal."""
    names = [cell.policy for value, cell in ranked if value == ranked[0][0]]
    if len(names) <= 3:
        return " and ".join(names) if len(names) < 3 else f"{names[0]}, {names[1]} and {names[2]}"
    return f"{names[0]} and {len(names) - 1} others"


def summary(comparison: Comparison, load: float | None) -> list[str]:
    """What a reader should take away at one load, most important first."""
    cells = comparison.at_load(load)
    lines = [*_completion(comparison, load, cells), *_waits(cells), *_fairness(cells), *_communication(cells)]
    starved = _ranked(cells, "starved_jobs")
    if starved and starved[-1][0] > 0:
        after = format_value(comparison.plan.starved_after_s, "s", short=True)
        some = [f"{cell.policy} {int(value):,}" for value, cell in starved if value > 0]
        listed = ", ".join(some[:6]) + (f" and {len(some) - 6} more policies" if len(some) > 6 else "")
        lines.append(f"Jobs that waited longer than {after}: {listed}.")
    unfinished = [cell.policy for cell in cells if cell.estimates["unfinished"].value > 0]
    if unfinished:
        lines.append(f"Some counted jobs never finished under {', '.join(unfinished)}; they are left out of the means.")
    return lines or ["No counted job finished."]


def _completion(comparison: Comparison, load: float | None, cells: Sequence[Cell]) -> list[str]:
    ranked = _ranked(cells, "jct_mean_s")
    if not ranked:
        return []
    value, best = ranked[0]
    mean = f"{format_value(value, 's', short=True)} from submission to completion on average"
    text = f"Jobs finish soonest under {_tied(ranked)}: {mean}"
    reference = comparison.reference_at(load)
    base = reference.estimates["jct_mean_s"].value
    if len(ranked) < 2 or value == ranked[-1][0]:
        return [f"Jobs take {mean}, under every policy alike."]
    if best is reference or value == base:
        second = next((cell for other, cell in ranked if other > value), ranked[-1][1])
        gap = second.difference(reference, "jct_mean_s")
        return [f"{text}, the reference. Next is {second.policy}, {format_change(gap.value, 's')}{_certainty(gap)}."]
    if not math.isfinite(base) or base <= 0:
        return [f"{text}."]
    gap = best.difference(reference, "jct_mean_s")
    return [f"{text}, {_percent(1 - value / base)} less than under {reference.policy}{_certainty(gap)}."]


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.01 else f"{100 * share:.1g} %"


def _certainty(gap: Estimate) -> str:
    if gap.low is None or gap.high is None:
        return ""
    span = f"95 % interval of the difference {format_change(gap.low, 's')} to {format_change(gap.high, 's')}"
    return f" ({span})" if gap.excludes_zero else f" ({span}: it could be chance)"


def _waits(cells: Sequence[Cell]) -> list[str]:
    ranked = _ranked(cells, "wait_p99_s")
    if len(ranked) < 2 or ranked[0][0] == ranked[-1][0]:
        return []
    (low, _), (high, worst) = ranked[0], ranked[-1]
    return [
        f"99 of 100 jobs wait no longer than {format_value(low, 's', short=True)} under {_tied(ranked)}; "
        f"under {worst.policy} that takes {format_value(high, 's', short=True)}."
    ]


def _fairness(cells: Sequence[Cell]) -> list[str]:
    ranked = _ranked(cells, "jain_user")
    if len(ranked) < 2 or ranked[0][0] == ranked[-1][0] or max(cell.estimates["users"].value for cell in cells) < 2:
        return []
    (high, _), (low, worst) = ranked[0], ranked[-1]
    return [
        f"Users are slowed most evenly under {_tied(ranked)} (Jain's index {high:.2f}, 1 being even), least under "
        f"{worst.policy} ({low:.2f})."
    ]


def _communication(cells: Sequence[Cell]) -> list[str]:
    ranked = _ranked(cells, "comm_overhead")
    if not ranked or ranked[-1][0] <= 1.001:
        return []
    (low, _), (high, worst) = ranked[0], ranked[-1]
    if len(ranked) < 2 or low == high:
        return [f"Beyond ideal placement, communication costs {100 * (high - 1):.1f} % in GPU time under every policy."]
    least = "nothing" if low <= 1.0005 else f"{100 * (low - 1):.1f} %"
    return [
        f"Beyond ideal placement, communication costs {least} in GPU time under {_tied(ranked)} and "
        f"{100 * (high - 1):.1f} % under {worst.policy}."
    ]
