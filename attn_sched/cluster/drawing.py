"""A picture of a cluster: the tree from the root down, nodes as boxes of GPUs.

Long runs of alike vertices are drawn as the first ones, an ellipsis with the number left out, and the last, so that a
pod of a thousand GPUs reads as well as a rack.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from attn_sched.cluster.formatting import bandwidth_text, latency_text, plural
from attn_sched.cluster.links import level_summaries
from attn_sched.cluster.topology import Cluster
from attn_sched.files import atomic_write

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = (
    "#4477aa",
    "#ee6677",
    "#228833",
    "#ccbb44",
    "#66ccee",
    "#aa3377",
    "#bbbbbb",
)  # Tol's bright, safe for the colour-blind
_INK, _FAINT, _LINK, _BOX = "#222222", "#8a8f98", "#5b6470", "#f4f5f7"
_MAX_COLUMNS = 72  # of GPU cells side by side before runs are shortened
_MIN_COLUMNS = 16
_SCALE = 0.2  # inches a drawing unit
_LINE_INCHES = 0.17  # of the legend
_MAX_CELLS = 64  # GPUs drawn one by one in an island
_ROW = 4.2  # from one level to the next, in drawing units
_CELL, _GAP = 1.0, 0.9  # width of a GPU cell and of the gap between islands, in drawing units


@dataclass
class _Item:
    """One thing drawn: a vertex, or (``vertex`` < 0) an ellipsis for ``hidden`` siblings."""

    vertex: int
    level: int
    hidden: int = 0
    children: list[_Item] = field(default_factory=list)
    left: float = 0.0
    width: float = 0.0

    @property
    def centre(self) -> float:
        return self.left + self.width / 2


def _shape(cluster: Cluster, vertex: int, cache: dict[int, tuple]) -> tuple:
    """What a vertex looks like; equal for vertices that can stand for each other."""
    if vertex not in cache:
        own = (float(cluster.capacity[vertex]), float(cluster.latency[vertex]), bool(cluster.through[vertex]))
        if vertex < cluster.num_islands:
            rest: tuple = (int(cluster.gpus[vertex]), int(cluster.island_type[vertex]))
        else:
            children = range(int(cluster.child_lo[vertex]), int(cluster.child_hi[vertex]))
            rest = tuple(_shape(cluster, child, cache) for child in children)
        cache[vertex] = (own, hash(rest), int(cluster.gpus[vertex]))
    return cache[vertex]


def _pick(cluster: Cluster, vertex: int, level: int, keep: int, cache: dict[int, tuple]) -> _Item:
    """The items for a vertex, at most ``keep`` of each run of alike siblings, the last of the run among them."""
    item = _Item(vertex, level)
    if level == 1:
        return item
    runs: list[list[int]] = []
    for child in range(int(cluster.child_lo[vertex]), int(cluster.child_hi[vertex])):
        if runs and _shape(cluster, runs[-1][0], cache) == _shape(cluster, child, cache):
            runs[-1].append(child)
        else:
            runs.append([child])
    if len(runs) > 2 * keep + 1:  # every sibling differs: a run of runs
        flat = [child for run in runs for child in run]
        runs = [flat]
    for run in runs:
        shown = run if len(run) <= keep + 1 else [*run[: max(1, keep - 1)], -1, *run[-1:][: keep - 1]]
        for child in shown:
            if child < 0:
                item.children.append(_Item(-1, level - 1, hidden=len(run) - len(shown) + 1))
            else:
                item.children.append(_pick(cluster, child, level - 1, keep, cache))
    return item


def _grid(gpus: int) -> tuple[int, int]:
    """Columns and rows of GPU cells of an island."""
    drawn = min(gpus, _MAX_CELLS)
    columns = min(drawn, 2 if drawn <= 4 else 4 if drawn <= 16 else 8)
    return columns, math.ceil(drawn / columns)


def _measure(cluster: Cluster, item: _Item, left: float) -> float:
    """Lay out an item and all below it from ``left``; its width."""
    item.left = left
    if item.vertex < 0:
        item.width = 2.6
    elif item.level == 1:
        item.width = max(_grid(int(cluster.gpus[item.vertex]))[0] * _CELL + 0.6, 2.6)
    else:
        at = left
        gap = _GAP * (1.0 if item.level == 2 else 2.5)
        for i, child in enumerate(item.children):
            at += gap if i else 0.0
            at += _measure(cluster, child, at)
        item.width = at - left
    return item.width


def _short_name(cluster: Cluster, vertex: int) -> str:
    return cluster.vertex_names[vertex].rsplit("/", 1)[-1]


class _Picture:
    def __init__(self, cluster: Cluster, axes: Axes) -> None:
        self.cluster, self.axes = cluster, axes
        finite = [c for c in {float(c) for c in cluster.capacity} if math.isfinite(c)]
        self.thinnest, self.thickest = (min(finite), max(finite)) if finite else (1.0, 1.0)

    def row(self, level: int) -> float:
        return (level - 1) * _ROW

    def line_width(self, capacity: float) -> float:
        """1 to 5 points, logarithmic in the capacity."""
        if math.isinf(capacity) or self.thickest <= self.thinnest:
            return 1.6
        return 1.0 + 4.0 * math.log(capacity / self.thinnest) / math.log(self.thickest / self.thinnest)

    def links(self, parent: _Item) -> None:
        """A bar under the parent and a stub from it to each child, as thick as the child's uplink."""
        start = self.row(parent.level) - 0.55
        end = self.row(parent.level - 1) + (0.55 if parent.level > 2 else 0.35)
        bar = (start + end) / 2
        centres = [parent.centre, *(child.centre for child in parent.children)]
        self.axes.plot([parent.centre] * 2, [start, bar], color=_LINK, linewidth=1.0, zorder=1)
        self.axes.plot([min(centres), max(centres)], [bar, bar], color=_LINK, linewidth=1.0, zorder=1)
        for child in parent.children:
            width, style = 1.2, ":"
            if child.vertex >= 0:
                capacity = float(self.cluster.capacity[child.vertex])
                width, style = self.line_width(capacity), "-" if math.isfinite(capacity) else "--"
            stub = {"color": _LINK, "linewidth": width, "linestyle": style, "solid_capstyle": "butt"}
            self.axes.plot([child.centre] * 2, [bar, end], zorder=1, **stub)  # type: ignore[arg-type]

    def island(self, item: _Item) -> None:
        from matplotlib.patches import FancyBboxPatch, Rectangle

        cluster, gpus = self.cluster, int(self.cluster.gpus[item.vertex])
        columns, rows = _grid(gpus)
        top = self.row(1) + 0.35
        height = rows * _CELL + 0.5
        box = FancyBboxPatch(
            (item.left, top - height),
            item.width,
            height,
            boxstyle="round,pad=0,rounding_size=0.25",
            fc=_BOX,
            ec=_INK,
            lw=0.9,
        )
        self.axes.add_patch(box)
        colour = _COLOURS[int(cluster.island_type[item.vertex]) % len(_COLOURS)]
        start = item.centre - columns * _CELL / 2
        for i in range(min(gpus, _MAX_CELLS)):
            x, y = start + i % columns * _CELL, top - 0.25 - (i // columns + 1) * _CELL
            self.axes.add_patch(Rectangle((x + 0.1, y + 0.1), _CELL - 0.2, _CELL - 0.2, fc=colour, ec="none"))
        name = _short_name(cluster, item.vertex) if cluster.num_levels > 1 else ""
        left_out = f"{gpus:,} GPUs, {_MAX_CELLS} drawn" if gpus > _MAX_CELLS else ""
        text = "\n".join(part for part in (name, left_out) if part)
        self.axes.text(item.centre, top - height - 0.25, text, ha="center", va="top", fontsize=7, color=_INK)

    def switch(self, item: _Item) -> None:
        cluster = self.cluster
        through = bool(cluster.through[item.vertex])
        is_root = item.level == cluster.num_levels
        text = cluster.name if is_root else _short_name(cluster, item.vertex)
        text = f"{text}\n{plural(int(cluster.gpus[item.vertex]), 'GPU')}"
        self.axes.text(
            item.centre,
            self.row(item.level),
            text,
            ha="center",
            va="center",
            fontsize=9 if is_root else 8,
            color=_FAINT if through else _INK,
            zorder=3,
            bbox={"boxstyle": "round,pad=0.35", "fc": "white", "ec": _FAINT if through else _INK, "lw": 0.9},
        )

    def draw(self, item: _Item) -> None:
        if item.vertex < 0:
            # Under the dots, what they stand for.
            y = self.row(item.level) - (0.5 if item.level == 1 else 0.0)
            self.axes.text(
                item.centre,
                y,
                f"· · ·\n{item.hidden} more",
                ha="center",
                va="center",
                fontsize=8,
                color=_INK,
                zorder=3,
                bbox={"boxstyle": "round,pad=0.2", "fc": "white", "ec": "none"},
            )
            return
        if item.level == 1:
            self.island(item)
            return
        self.links(item)
        self.switch(item)
        for child in item.children:
            self.draw(child)


def _legend(cluster: Cluster) -> str:
    lines = []
    for level in reversed(level_summaries(cluster)):
        bandwidth = bandwidth_text(level.bandwidth)
        lines.append(f"{level.name} uplink: {bandwidth}, {latency_text(level.latency)}")
    lines.append(f"bisection: {bandwidth_text((cluster.bisection_bandwidth(),) * 2)}")
    return "\n".join(lines)


def _layout(cluster: Cluster) -> _Item:
    """The whole picture laid out, runs shortened as far as its width asks for."""
    cache: dict[int, tuple] = {}
    for keep in (64, 8, 5, 3, 2, 1):
        root = _pick(cluster, cluster.num_vertices - 1, cluster.num_levels, keep, cache)
        if _measure(cluster, root, 0.0) <= _MAX_COLUMNS:
            break
    return root


def draw_cluster(cluster: Cluster, path: str | Path) -> None:
    """Write a PNG of the cluster's tree.

    Raises:
        InputError: the file cannot be written.
    """
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    root = _layout(cluster)
    rows = max(_grid(gpus)[1] for gpus in set(cluster.gpus[: cluster.num_islands].tolist()))
    top, bottom = (cluster.num_levels - 1) * _ROW + 1.4, -(rows + 1.4)
    spare = max(0.0, _MIN_COLUMNS - root.width) / 2 + 0.8
    left, right = -spare, root.width + spare
    legend = _legend(cluster)
    note = _LINE_INCHES * (max(legend.count("\n") + 1, len(cluster.gpu_types) + 1) + 1)
    figure = Figure(((right - left) * _SCALE, (top - bottom) * _SCALE + note), dpi=150, facecolor="white")
    FigureCanvasAgg(figure)
    with matplotlib.rc_context({"font.family": "DejaVu Sans"}):
        share = note / figure.get_figheight()
        axes = figure.add_axes((0.0, share, 1.0, 1.0 - share))
        axes.set_xlim(left, right)
        axes.set_ylim(bottom, top)
        axes.set_aspect("equal")
        axes.axis("off")
        _Picture(cluster, axes).draw(root)
        edge = 0.15 / figure.get_figwidth()
        figure.text(edge, share, legend, ha="left", va="top", fontsize=8, color=_INK, linespacing=1.4)
        if cluster.typed:
            handles = [Patch(color=_COLOURS[i % len(_COLOURS)], label=name) for i, name in enumerate(cluster.gpu_types)]
            figure.legend(handles=handles, loc="lower right", fontsize=8, frameon=False, title="GPU type")
        with atomic_write(path) as part:
            figure.savefig(part, format="png")
