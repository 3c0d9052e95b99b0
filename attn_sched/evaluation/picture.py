"""A comparison as one picture (PNG), for a README or a slide: completion with intervals beside the waits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from attn_sched.evaluation.comparison import WAIT_GRID_S, Cell, Comparison
from attn_sched.evaluation.formatting import describe_load
from attn_sched.evaluation.registry import BY_KEY
from attn_sched.files import atomic_write

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HOUR_S = 3600.0
# Tol's bright, and ink
_COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#999999", "#222222")
_DASHES = ("-", "--", ":", "-.")
_WAIT_TICKS = ((1.0, "1 s"), (60.0, "1 min"), (HOUR_S, "1 h"), (86_400.0, "1 d"), (604_800.0, "1 w"))


def write_picture(comparison: Comparison, path: str | Path) -> None:
    """Draw the last load of a comparison: mean completion time of every policy, and the distribution of waits."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    load = comparison.plan.loads[-1]
    cells = sorted(comparison.at_load(load), key=lambda cell: -cell.estimates["jct_mean_s"].value)
    figure = Figure(figsize=(11.0, 1.6 + 0.36 * len(cells)), layout="constrained")
    FigureCanvasAgg(figure)
    bars, waits = figure.subplots(1, 2, width_ratios=(1.15, 1.0))
    _draw_bars(bars, cells)
    _draw_waits(waits, cells)
    size = f"{comparison.cluster.name}, {comparison.cluster.num_gpus:,} GPUs"
    figure.suptitle(f"{comparison.trace} on {size}; {describe_load(load).lower()}", fontsize=11)
    with atomic_write(path) as part:
        figure.savefig(part, format="png", dpi=130)


def _draw_bars(axes: Axes, cells: list[Cell]) -> None:
    estimates = [cell.estimates["jct_mean_s"] for cell in cells]
    values = np.array([estimate.value for estimate in estimates]) / HOUR_S
    places = np.arange(len(cells))
    axes.barh(places, values, height=0.6, color=[_COLOURS[k % len(_COLOURS)] for k in range(len(cells))])
    for place, estimate in zip(places, estimates, strict=True):
        if estimate.low is not None and estimate.high is not None:
            axes.plot([estimate.low / HOUR_S, estimate.high / HOUR_S], [place, place], color="#222222", linewidth=1.2)
    axes.set_yticks(places, [cell.policy for cell in cells], fontsize=9)
    if values.max() > 20 * values.min():
        axes.set_xscale("log")
    axes.set_xlabel(f"{BY_KEY['jct_mean_s'].label}, hours (95 % interval)", fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_waits(axes: Axes, cells: list[Cell]) -> None:
    grid = np.maximum(WAIT_GRID_S, 1.0)
    for k, cell in enumerate(cells):
        style = _DASHES[(k // len(_COLOURS) + k) % len(_DASHES)]
        axes.plot(grid, 100 * cell.wait_cdf, style, color=_COLOURS[k % len(_COLOURS)], linewidth=1.5, label=cell.policy)
    axes.set_xscale("log")
    axes.set_xticks([at for at, _ in _WAIT_TICKS], [name for _, name in _WAIT_TICKS], fontsize=9)
    axes.minorticks_off()
    last = max(float(grid[np.searchsorted(cell.wait_cdf, 1.0 - 1e-9).clip(max=len(grid) - 1)]) for cell in cells)
    axes.set_xlim(1.0, max(last, 60.0))
    axes.set_ylim(0, 100)
    axes.set_xlabel("time waited", fontsize=9)
    axes.set_ylabel("% of jobs that waited no longer", fontsize=9)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
