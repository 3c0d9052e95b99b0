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
_INK = "#222222"
# Five and eight have no common divisor: forty policies are distinct.
_DASHES: tuple[str | tuple[float, tuple[float, ...]], ...] = (
    "-",
    "--",
    ":",
    "-.",
    (0.0, (7.0, 1.5, 1.0, 1.5, 1.0, 1.5)),
)
_LEGEND_COLUMNS, _LONG_NAME = 3, 34  # characters
LOG_FROM = 20.0  # largest over smallest mean from which the axis is logarithmic
_WAIT_TICKS = ((1.0, "1 s"), (60.0, "1 min"), (HOUR_S, "1 h"), (86_400.0, "1 d"), (604_800.0, "1 w"))


def write_picture(comparison: Comparison, path: str | Path) -> None:
    """Draw the last load of a comparison: mean completion time of every policy, and the distribution of waits."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    load = comparison.plan.loads[-1]
    cells = sorted(comparison.at_load(load), key=lambda cell: -cell.estimates["jct_mean_s"].value)
    columns = _LEGEND_COLUMNS if max(len(cell.policy) for cell in cells) <= _LONG_NAME else 2
    legend = -(-len(cells) // columns)
    figure = Figure(figsize=(11.0, 1.8 + max(0.36 * len(cells), 1.2) + 0.2 * legend), layout="constrained")
    FigureCanvasAgg(figure)
    means, waits = figure.subplots(1, 2, width_ratios=(1.15, 1.0))
    _draw_means(means, cells)
    _draw_waits(waits, cells)
    handles, names = waits.get_legend_handles_labels()
    # Best first, as from the top of the other plot.
    figure.legend(
        handles[::-1],
        names[::-1],
        loc="outside lower center",
        ncols=columns,
        fontsize=7.5,
        frameon=False,
        handlelength=4.0,
    )
    size = f"{comparison.cluster.name}, {comparison.cluster.num_gpus:,} GPUs"
    figure.suptitle(f"{comparison.trace} on {size}; {describe_load(load).lower()}", fontsize=11)
    with atomic_write(path) as part:
        figure.savefig(part, format="png", dpi=130)


def _colour(k: int) -> str:
    return _COLOURS[k % len(_COLOURS)]


def _dashes(k: int) -> str | tuple[float, tuple[float, ...]]:
    """A line style of its own for all policies of one colour; neighbours differ too, for those who see no colours."""
    return _DASHES[k % len(_DASHES)]


def _draw_means(axes: Axes, cells: list[Cell]) -> None:
    """Bars from zero; dots where the axis is logarithmic and has no zero for a length to begin at."""
    from matplotlib.ticker import FuncFormatter, LogLocator

    estimates = [cell.estimates["jct_mean_s"] for cell in cells]
    values = np.array([estimate.value for estimate in estimates]) / HOUR_S
    places = np.arange(len(cells))
    colours = [_colour(k) for k in range(len(cells))]
    log = bool(values.max() > LOG_FROM * values.min() > 0)
    if log:
        axes.set_xscale("log")
        axes.scatter(values, places, s=46, color=colours, zorder=3)
        axes.grid(axis="x", alpha=0.25)
        axes.set_ylim(-0.6, len(cells) - 0.4)
        # As on the other side: 1, 10, 100, and where few powers of ten fit, some between.
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
        axes.minorticks_off()
    else:
        axes.barh(places, values, height=0.6, color=colours)
    intervals = False
    for place, estimate in zip(places, estimates, strict=True):
        if estimate.low is not None and estimate.high is not None:
            intervals = True
            axes.plot([estimate.low / HOUR_S, estimate.high / HOUR_S], [place, place], color=_INK, linewidth=1.2)
    axes.set_yticks(places, [cell.policy for cell in cells], fontsize=9)
    note = ", ".join(part for part in ("95 % interval" if intervals else "", "logarithmic" if log else "") if part)
    axes.set_xlabel(f"{BY_KEY['jct_mean_s'].label}, hours" + (f" ({note})" if note else ""), fontsize=9)
    axes.tick_params(labelsize=9)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_waits(axes: Axes, cells: list[Cell]) -> None:
    grid = np.maximum(WAIT_GRID_S, 1.0)
    for k, cell in enumerate(cells):
        axes.plot(grid, 100 * cell.wait_cdf, linestyle=_dashes(k), color=_colour(k), linewidth=1.5, label=cell.policy)
    axes.set_xscale("log")
    axes.set_xticks([at for at, _ in _WAIT_TICKS], [name for _, name in _WAIT_TICKS], fontsize=9)
    axes.minorticks_off()
    last = max(float(grid[np.searchsorted(cell.wait_cdf, 1.0 - 1e-9).clip(max=len(grid) - 1)]) for cell in cells)
    axes.set_xlim(1.0, max(last, 60.0))
    axes.set_ylim(0, 100)
    axes.set_xlabel("time waited", fontsize=9)
    axes.set_ylabel("% of jobs that waited no longer", fontsize=9)
    axes.grid(alpha=0.25)
    axes.tick_params(labelsize=9)
    axes.spines[["top", "right"]].set_visible(False)
