"""The report's charts: bars with intervals, waits, fairness against completion, completion against load."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from markupsafe import Markup

from attn_sched.evaluation.comparison import WAIT_GRID_S, Cell, Comparison
from attn_sched.evaluation.formatting import format_value
from attn_sched.evaluation.registry import BY_KEY, Metric
from attn_sched.evaluation.statistics import Estimate
from attn_sched.evaluation.svg import Scale, drawing, line, log_ticks, polyline, tag, text, value_ticks

WIDTH = 460.0
SERIES = 8  # lines told apart in one chart
CHAR_PX = 6.3  # width of a character of chart text, about


def series_class(index: int) -> str:
    """Colour, dash and marker of the k-th policy."""
    return f"s{index % SERIES}"


def shorten(name: str, limit: int = 60) -> str:
    """A name that fits its place in a picture; tables hold it in full."""
    return name if len(name) <= limit else name[: limit - 1] + "…"


def bars(metric: Metric, cells: Sequence[Cell], reference: str, best: set[str]) -> Markup | None:
    """A bar a policy from zero, its interval over it; None when there is nothing to compare."""
    known = [(cell, cell.estimates[metric.key]) for cell in cells if math.isfinite(cell.estimates[metric.key].value)]
    if len({estimate.value for _, estimate in known}) < 2:
        return None
    top = max(_upper(estimate) for _, estimate in known) or 1.0
    row, head, foot = 36.0, 6.0, 26.0
    height = head + row * len(known) + foot
    x = Scale(0.0, top, 4.0, WIDTH - 92.0)
    parts = []
    for tick, label in value_ticks(0.0, top, metric.unit):
        parts.append(line(x(tick), head, x(tick), height - foot + 4, "gridline"))
        parts.append(text(max(x(tick), 4.0), height - 8, label, "t axis", "start" if tick == 0 else "middle"))
    for k, (cell, estimate) in enumerate(known):
        y = head + row * k
        name = (
            shorten(cell.policy)
            + (" (reference)" if cell.policy == reference else "")
            + (" ★" if cell.policy in best else "")
        )
        kind = "bar best" if cell.policy in best else "bar"
        parts.append(text(4.0, y + 12, name, "t strong" if cell.policy in best else "t"))
        parts.append(tag("rect", x=x(0), y=y + 17, width=max(x(estimate.value) - x(0), 0.5), height=12.0, class_=kind))
        if estimate.low is not None and estimate.high is not None:
            parts.append(_whisker(x(max(estimate.low, 0.0)), x(estimate.high), y + 23))
        parts.append(
            text(x(_upper(estimate)) + 6, y + 27, format_value(estimate.value, metric.unit, short=True), "t num")
        )
    return drawing(WIDTH, height, f"{metric.label} by policy: {_told(known, metric)}", parts)


def _told(known: Sequence[tuple[Cell, Estimate]], metric: Metric) -> str:
    return "; ".join(
        f"{cell.policy} {format_value(estimate.value, metric.unit, short=True)}" for cell, estimate in known
    )


def _upper(estimate: Estimate) -> float:
    return max(estimate.value, estimate.value if estimate.high is None else estimate.high)


def _whisker(x1: float, x2: float, y: float) -> Markup:
    return tag("path", d=f"M{x1:.2f} {y - 4:.2f}v8M{x1:.2f} {y:.2f}H{x2:.2f}M{x2:.2f} {y - 4:.2f}v8", class_="whisker")


def lined(cells: Sequence[Cell], reference: str) -> list[Cell]:
    """At most eight policies for one chart: the reference and those with the lowest mean JCT, in the plan's order."""
    if len(cells) <= SERIES:
        return list(cells)

    def rank(cell: Cell) -> tuple[bool, float]:
        value = cell.estimates["jct_mean_s"].value
        return cell.policy != reference, value if math.isfinite(value) else math.inf

    chosen = {cell.policy for cell in sorted(cells, key=rank)[:SERIES]}
    return [cell for cell in cells if cell.policy in chosen]


def wait_distribution(cells: Sequence[Cell]) -> Markup:
    """Share of jobs that waited at most so long, against a logarithmic time."""
    left, right, top, bottom = 54.0, WIDTH - 14.0, 10.0, 262.0
    longest = max((float(cell.estimates["wait_max_s"].value) for cell in cells if cell.windows), default=1.0)
    longest = longest if math.isfinite(longest) else 1.0
    x = Scale(1.0, max(10.0, longest * 1.1), left, right, log=True)
    # Where most jobs start at once the lower part of the axis would be empty.
    least = min((float(cell.wait_cdf[np.searchsorted(WAIT_GRID_S, x.low)]) for cell in cells), default=0.0)
    floor = next(step for step in (0.9, 0.75, 0.5, 0.0) if step <= least)
    y = Scale(floor, 1.0, bottom, top)
    parts = [*_frame_y(y, left, right, value_ticks(floor, 1.0, "share", 4))]
    for tick, label in _thin(log_ticks(x.low, x.high, "s"), x, 46.0):
        parts += [
            line(x(tick), top, x(tick), bottom, "gridline"),
            text(x(tick), bottom + 18, label, "t axis", "middle"),
        ]
    parts.append(text((left + right) / 2, bottom + 36, "time waited (left edge: 1 s or less)", "t axis", "middle"))
    inside = (x.low <= WAIT_GRID_S) & (x.high >= WAIT_GRID_S)
    for k, cell in enumerate(cells):
        shares = cell.wait_cdf[inside]
        corners: list[tuple[float, float]] = []
        for at, share in zip(WAIT_GRID_S[inside], shares, strict=True):
            corners.append((x(float(at)), y(float(share))))
        corners.append((right, y(float(cell.wait_cdf[np.searchsorted(WAIT_GRID_S, x.high)]))))
        parts.append(polyline(corners, f"curve {series_class(k)}"))
    told = "; ".join(f"{cell.policy}: {100 * cell.wait_cdf[0]:.0f} % start at once" for cell in cells)
    return drawing(WIDTH, 304.0, f"Distribution of waits. {told}", parts)


def pareto(points: Sequence[tuple[float, float]]) -> list[int]:
    """Indices of the points that no other beats in both: low first coordinate, high second; by first coordinate."""
    front: list[int] = []
    best = -math.inf
    for k in sorted(range(len(points)), key=lambda k: (points[k][0], -points[k][1])):
        if points[k][1] > best:
            front.append(k)
            best = points[k][1]
    return front


def fairness_scatter(cells: Sequence[Cell]) -> Markup | None:
    """Jain's index of users against mean JCT with the Pareto front; None when nothing can be drawn."""
    known = [
        cell
        for cell in cells
        if math.isfinite(cell.estimates["jct_mean_s"].value) and math.isfinite(cell.estimates["jain_user"].value)
    ]
    if not known:
        return None
    left, right, top, bottom = 46.0, WIDTH - 14.0, 16.0, 262.0
    across, up = ([cell.estimates[key] for cell in known] for key in ("jct_mean_s", "jain_user"))
    x, y = _fitted(across, left, right, log=True), _fitted(up, bottom, top, ceiling=1.0)
    x_ticks = log_ticks(x.low, x.high, "s") if x.log else []
    if len(x_ticks) < 3:
        x_ticks = value_ticks(x.low, x.high, "s", 4)
    parts = [*_frame_y(y, left, right, value_ticks(y.low, y.high, "index", 5))]
    for tick, label in _thin(x_ticks, x, 56.0):
        parts += [
            line(x(tick), top, x(tick), bottom, "gridline"),
            text(x(tick), bottom + 18, label, "t axis", "middle"),
        ]
    parts.append(text((left + right) / 2, bottom + 36, "mean JCT (further left is better)", "t axis", "middle"))
    parts.append(text(left, 11.0, "Jain's index over users (higher is better)", "t axis"))
    points = [(a.value, b.value) for a, b in zip(across, up, strict=True)]
    front = pareto(points)
    parts.append(polyline(_staircase([(x(points[k][0]), y(points[k][1])) for k in front]), "front"))
    placed: list[tuple[float, float, float, float]] = [(x(a) - 6, y(b) - 6, x(a) + 6, y(b) + 6) for a, b in points]
    labels = []
    for k, cell in enumerate(known):
        px, py = x(points[k][0]), y(points[k][1])
        for estimate, flat in ((across[k], True), (up[k], False)):
            if estimate.low is not None and estimate.high is not None:
                ends = (
                    (x(estimate.low), py, x(estimate.high), py) if flat else (px, y(estimate.low), px, y(estimate.high))
                )
                parts.append(line(*ends, "spread"))
        parts.append(tag("circle", cx=px, cy=py, r=5.0, class_="dot best" if k in front else "dot"))
        labels.append(_label(px, py, shorten(cell.policy, 34), placed, left, right, top, bottom))
    told = ", ".join(known[k].policy for k in front)
    return drawing(WIDTH, 304.0, f"Fairness against completion time. On the Pareto front: {told}", [*parts, *labels])


def _staircase(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Corners of a front: what is reachable stays reachable until the next point improves on it."""
    corners = list(points[:1])
    for (_, before), (px, py) in pairwise(points):
        corners += [(px, before), (px, py)]
    return corners


def _fitted(
    estimates: Sequence[Estimate], start: float, stop: float, *, log: bool = False, ceiling: float | None = None
) -> Scale:
    """A scale that holds all values and intervals with some room; logarithmic only when asked and the values spread."""
    lows = [estimate.value if estimate.low is None else estimate.low for estimate in estimates]
    highs = [_upper(estimate) for estimate in estimates]
    low, high = min(lows), max(highs)
    if log and low > 0 and high / low > 8:
        return Scale(low / 1.25, high * 1.25, start, stop, log=True)
    room = 0.1 * (high - low) or 0.05 * abs(high) or 1.0
    low, high = low - room, high + room
    if lows and min(lows) >= 0:
        low = max(low, 0.0)
    return Scale(low, high if ceiling is None else max(min(high, ceiling), low + 1e-9), start, stop)


def _label(
    px: float,
    py: float,
    name: str,
    placed: list[tuple[float, float, float, float]],
    left: float,
    right: float,
    top: float,
    bottom: float,
) -> Markup:
    """The name near its point, where it covers no other point or name if such a place is near."""
    width = CHAR_PX * len(name)
    options = []
    for dy in (4.0, -9.0, 17.0, -22.0, 30.0, -35.0, 43.0, -48.0, 56.0):
        options += [(px + 9, py + dy), (px - 9 - width, py + dy), (px - width / 2, py + dy)]
    fallback = None
    for tx, ty in options:
        tx = min(max(tx, left + 2), right - width)
        box = (tx, ty - 10, tx + width, ty + 3)
        if box[1] < top - 4 or box[3] > bottom:
            continue
        fallback = fallback or box
        if not any(box[0] < b[2] and b[0] < box[2] and box[1] < b[3] and b[1] < box[3] for b in placed):
            break
    else:
        box = fallback or (px + 9, py - 6, px + 9 + width, py + 7)
    placed.append(box)
    far = abs(box[3] - 3 - py) > 14
    leader = (
        line(px, py, min(max(px, box[0]), box[2]), box[3] if box[3] < py else box[1], "leader") if far else Markup("")
    )
    return leader + text(box[0], box[3] - 3, name, "t halo")


def load_response(comparison: Comparison, key: str = "jct_mean_s") -> Markup | None:
    """A metric against the offered load, a line a policy; None with fewer than two loads."""
    loads = sorted(load for load in comparison.plan.loads if load is not None)
    if len(loads) < 2:
        return None
    metric = BY_KEY[key]
    chosen = lined(comparison.at_load(loads[-1]), comparison.plan.reference_policy)
    cells = {(cell.policy, cell.load): cell.estimates[key] for cell in comparison.cells}
    left, right, top, bottom = 62.0, WIDTH - 14.0, 10.0, 262.0
    shown = [cells[cell.policy, load] for cell in chosen for load in loads]
    shown = [estimate for estimate in shown if math.isfinite(estimate.value)]
    if not shown:
        return None
    y = _fitted([Estimate(estimate.value) for estimate in shown], bottom, top, log=True)
    x = Scale(loads[0], loads[-1], left + 12, right - 12)
    y_ticks = log_ticks(y.low, y.high, metric.unit) if y.log else []
    if len(y_ticks) < 2:
        y_ticks = value_ticks(y.low, y.high, metric.unit, 5)
    parts = [*_frame_y(y, left, right, y_ticks)]
    for load in loads:
        parts.append(text(x(load), bottom + 18, f"{load:g}", "t axis", "middle"))
    parts.append(text((left + right) / 2, bottom + 36, "offered load", "t axis", "middle"))
    for k, cell in enumerate(chosen):
        corners = [
            (x(load), y(cells[cell.policy, load].value))
            for load in loads
            if math.isfinite(cells[cell.policy, load].value)
        ]
        parts.append(polyline(corners, f"curve {series_class(k)}"))
        parts += [tag("circle", cx=px, cy=py, r=3.0, class_=f"mark {series_class(k)}") for px, py in corners]
    names = ", ".join(cell.policy for cell in chosen)
    return drawing(WIDTH, 304.0, f"{metric.label} against offered load for {names}", parts)


def _frame_y(y: Scale, left: float, right: float, marks: Sequence[tuple[float, str]]) -> list[Markup]:
    parts = []
    for tick, label in marks:
        parts += [line(left, y(tick), right, y(tick), "gridline"), text(left - 6, y(tick) + 4, label, "t axis", "end")]
    return parts


def _thin(marks: Sequence[tuple[float, str]], scale: Scale, gap: float) -> list[tuple[float, str]]:
    """Ticks at least ``gap`` pixels apart."""
    kept: list[tuple[float, str]] = []
    for mark in marks:
        if not kept or abs(scale(mark[0]) - scale(kept[-1][0])) >= gap:
            kept.append(mark)
    return kept
