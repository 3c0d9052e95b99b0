"""The comparison as one HTML file that needs nothing else: no network, no script to be read; paper or phone."""

from __future__ import annotations

import math
import platform
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from markupsafe import Markup

from attn_sched import __version__
from attn_sched.evaluation import charts
from attn_sched.evaluation.comparison import Cell, Comparison
from attn_sched.evaluation.formatting import (
    MISSING,
    describe_info,
    describe_load,
    format_change,
    format_counts,
    format_duration,
    format_range,
    format_value,
)
from attn_sched.evaluation.gantt import Gantt
from attn_sched.evaluation.gantt_chart import SIZE_LABELS, gantt_chart
from attn_sched.evaluation.registry import BY_KEY, METRICS, Metric
from attn_sched.evaluation.summary import summary
from attn_sched.files import atomic_write

TABLE = (
    "jct_mean_s",
    "wait_mean_s",
    "wait_p99_s",
    "bounded_slowdown_mean",
    "jain_user",
    "rho_over_1_share",
    "comm_overhead",
    "allocated_utilisation",
)
BARS = ("jct_mean_s", "wait_mean_s", "wait_p99_s", "bounded_slowdown_mean", "jain_user", "comm_overhead")


def write_report(comparison: Comparison, path: str | Path, *, command: str = "", now: datetime | None = None) -> None:
    """Write the report, whole or not at all. ``command`` is shown as its origin; ``now`` defaults to the present."""
    page = render(comparison, command=command, now=now)
    with atomic_write(path) as part:
        part.write_text(page, encoding="utf-8")


def render(comparison: Comparison, *, command: str = "", now: datetime | None = None) -> str:
    """The report as a string of HTML."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("attn_sched.evaluation", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["breakable"] = breakable
    return environment.get_template("report.html.j2").render(**_context(comparison, command, now or datetime.now(UTC)))


def breakable(name: str) -> Markup:
    """A policy's name that may be broken after its plus signs."""
    return Markup("+<wbr>").join(name.split("+"))


def _context(comparison: Comparison, command: str, now: datetime) -> dict[str, Any]:
    plan = comparison.plan
    counted = (
        f"{plan.windows} windows of {plan.window_jobs:,} jobs" if plan.windows else f"{comparison.kept_jobs:,} jobs"
    )
    return {
        "trace": comparison.trace,
        "cluster": f"{comparison.cluster.name} ({comparison.cluster.num_gpus:,} GPUs)",
        "policies": len(plan.policies),
        "counted": counted,
        "users_label": _users_label(comparison),
        "sections": [_section(comparison, load, k) for k, load in enumerate(plan.loads)],
        "load_chart": charts.load_response(comparison),
        "load_legend": _legend(charts.lined(comparison.at_load(plan.loads[-1]), plan.reference_policy)),
        "gantt": _gantt(comparison),
        "gantt_sizes": list(enumerate(SIZE_LABELS)),
        "definitions": METRICS,
        "provenance": _provenance(comparison, command, now),
        "interval_note": _interval_note(comparison),
        "caveats": [line[0].upper() + line[1:] for line in comparison.caveats],
    }


def _section(comparison: Comparison, load: float | None, index: int) -> dict[str, Any]:
    cells = comparison.at_load(load)
    reference = comparison.plan.reference_policy
    pictures = [
        (BY_KEY[key], charts.bars(BY_KEY[key], cells, reference, comparison.best(load, BY_KEY[key]))) for key in BARS
    ]
    lined = charts.lined(cells, reference)
    return {
        "id": f"load-{index}",
        "title": describe_load(load),
        "summary": summary(comparison, load),
        "table": _table(comparison, load, [BY_KEY[key] for key in TABLE]),
        "full": _table(comparison, load, [metric for metric in METRICS if metric.key not in TABLE]),
        "bars": [(metric, picture) for metric, picture in pictures if picture is not None],
        "equal": [metric.label for metric, picture in pictures if picture is None and _known(cells, metric)],
        "waits": charts.wait_distribution(lined),
        "legend": _legend(lined),
        "left_out": len(cells) - len(lined),
        "scatter": charts.fairness_scatter(cells),
    }


def _known(cells: Sequence[Cell], metric: Metric) -> bool:
    return any(math.isfinite(cell.estimates[metric.key].value) for cell in cells)


def _legend(cells: Sequence[Cell]) -> list[tuple[str, str]]:
    return [(charts.series_class(k), cell.policy) for k, cell in enumerate(cells)]


def _table(comparison: Comparison, load: float | None, metrics: Sequence[Metric]) -> dict[str, Any]:
    """Head and rows; each cell with a text, its interval, its sort key and whether it is best."""
    reference = comparison.reference_at(load)
    best = {metric.key: comparison.best(load, metric) for metric in metrics}
    rows = []
    for cell in comparison.at_load(load):
        values = [_cell(cell, reference, metric, cell.policy in best[metric.key]) for metric in metrics]
        rows.append({"policy": cell.policy, "reference": cell is reference, "values": values})
    return {"metrics": metrics, "rows": rows}


def _cell(cell: Cell, reference: Cell, metric: Metric, best: bool) -> dict[str, Any]:
    estimate = cell.estimates[metric.key]
    interval = ""
    if estimate.low is not None and estimate.high is not None:
        interval = format_range(estimate.low, estimate.high, metric.unit, estimate.value)
    change = ""
    if cell is not reference and metric.headline and metric.pool == "mean":
        gap = cell.difference(reference, metric.key)
        if gap.excludes_zero:
            change = format_change(gap.value, metric.unit)
    return {
        "text": format_value(estimate.value, metric.unit, short=True),
        "exact": f"{estimate.value:.9g}" if math.isfinite(estimate.value) else MISSING,
        "sort": f"{estimate.value!r}" if math.isfinite(estimate.value) else "",
        "interval": interval,
        "change": change,
        "best": best,
    }


def _gantt(comparison: Comparison) -> dict[str, Any] | None:
    """The first window (or a stretch of the trace) at the first load, under the first few policies."""
    load = comparison.plan.loads[0]
    drawn = [(cell.policy, cell.windows[0].gantt) for cell in comparison.at_load(load)]
    pictures = [(policy, gantt) for policy, gantt in drawn if gantt is not None]
    if not pictures:
        return None
    first = pictures[0][1]
    bounds = comparison.at_load(load)[0].windows[0].bounds
    if bounds:
        what = f"Jobs {bounds[0]:,} to {bounds[1] - 1:,} of the trace"
        since = "the first job of the window was submitted"
    else:
        what, since = _stretch(first), "the start of this stretch"
    if bounds and load is not None and comparison.plan.workload.load_by == "thin":
        what += ", as far as thinning left them"
    policies = len(comparison.plan.policies)
    if len(pictures) < policies:
        shown = "policy" if len(pictures) == 1 else f"{len(pictures)}"
        what += f", under the first {shown} of {policies} policies"
    return {
        "what": f"{what}, {describe_load(load).lower()}",
        "pictures": [(policy, gantt_chart(gantt, policy, since), _in_use(gantt)) for policy, gantt in pictures],
        "sizes": any(gantt.bars for _, gantt in pictures),
        "gpus_per_row": first.gpus_per_row,
    }


def _stretch(gantt: Gantt) -> str:
    """Which part of a whole trace is drawn."""
    span = format_duration(gantt.to_s - gantt.from_s)
    if gantt.from_s <= 0:
        return f"The first {span} of the trace"
    what = (
        f"{span} from the middle of the trace"
        if gantt.gpus_per_row == 1
        else "The day in which most jobs are submitted"
    )
    return f"{what}, from {format_duration(gantt.from_s)} after the trace's first job"


def _in_use(gantt: Gantt) -> str:
    """How full an occupancy picture is: a full cluster is a plain area, which should be told from a broken picture."""
    return "" if gantt.occupancy is None else f"{100 * float(gantt.occupancy.mean()):.3g} %"


def _users_label(comparison: Comparison) -> str:
    users = comparison.info.get("users")
    return "" if users in (None, "trace") else f"Users, for fairness: {users}."


def _interval_note(comparison: Comparison) -> str:
    has = any(estimate.low is not None for cell in comparison.cells for estimate in cell.estimates.values())
    if not has:
        return "Too few windows or jobs for intervals."
    if comparison.plan.windows:
        return "Ranges are 95 % bootstrap intervals over the windows."
    return "Ranges are 95 % intervals from batch means of 256 jobs; only means and other ratios have one."


def _versions() -> str:
    parts = [f"attn-sched {__version__}", f"Python {platform.python_version()}"]
    for name in ("numpy", "numba", "pyarrow"):
        try:
            parts.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return ", ".join([*parts, sys.platform])


def _provenance(comparison: Comparison, command: str, now: datetime) -> list[tuple[str, str | Markup]]:
    plan = comparison.plan
    windows = (
        f"{plan.windows} of {plan.window_jobs:,} jobs"
        if plan.windows
        else "none: the whole trace from an empty cluster"
    )
    warmup = "as many jobs as a window counts" if plan.warmup is None else f"{plan.warmup:,} jobs"
    facts: list[tuple[str, str | Markup]] = [
        ("Trace", comparison.trace),
        ("Jobs kept", f"{comparison.kept_jobs:,}"),
        ("Left out", format_counts(comparison.info.get("dropped")) or "nothing"),
        ("Cluster", f"{comparison.cluster.name}, {comparison.cluster.num_gpus:,} GPUs"),
        ("Windows", windows),
        *([("Warm-up", warmup)] if plan.windows else []),
        ("Loads", ", ".join("as recorded" if load is None else f"{load:g}" for load in plan.loads)),
        ("Reference policy", plan.reference_policy),
        ("Workload", "; ".join(describe_info({k: v for k, v in comparison.info.items() if k != "dropped"})) or MISSING),
        ("Engine", "; ".join(describe_info(comparison.options)) or MISSING),
        ("Seed", str(plan.workload.seed)),
        ("Versions", _versions()),
        ("Made", now.strftime("%Y-%m-%d %H:%M UTC")),
    ]
    return [*facts, ("Command", command)] if command else facts
