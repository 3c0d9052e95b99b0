"""A comparison as an Arrow table: one row a cell (policy at a load), each metric with its interval."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attn_sched import __version__
from attn_sched.evaluation.comparison import Cell, Comparison
from attn_sched.evaluation.registry import HEADLINE, METRICS
from attn_sched.evaluation.setup import dropped_counts
from attn_sched.evaluation.statistics import Estimate
from attn_sched.files import atomic_write

if TYPE_CHECKING:
    import pyarrow as pa

METADATA_KEY = b"attn_sched"


def provenance(comparison: Comparison) -> dict[str, Any]:
    """What the numbers were made from, JSON-able."""
    plan = comparison.plan
    return {
        "version": __version__,
        "trace": comparison.trace,
        "cluster": comparison.cluster.name,
        "gpus": comparison.cluster.num_gpus,
        "kept_jobs": comparison.kept_jobs,
        "dropped": dropped_counts(comparison.info),
        "options": comparison.options,
        "workload": {key: value for key, value in comparison.info.items() if key != "dropped"},
        "reference": plan.reference_policy,
        "windows": plan.windows,
        "window_jobs": plan.window_jobs if plan.windows else None,
        "windows_overlap": comparison.windows_overlap,
        "caveats": comparison.caveats,
        "seed": plan.workload.seed,
    }


def rows(comparison: Comparison) -> list[dict[str, Any]]:
    """One dictionary a cell: ``KEY``, ``KEY_low``, ``KEY_high``; of headline metrics ``KEY_diff`` to the reference."""
    table = []
    for cell in comparison.cells:
        reference = comparison.reference_at(cell.load)
        row: dict[str, Any] = {
            "trace": comparison.trace,
            "cluster": comparison.cluster.name,
            "policy": cell.policy,
            "load": cell.load,
            "reference": reference.policy,
            "windows": len(cell.windows),
        }
        for metric in METRICS:
            row.update(_columns(metric.key, cell.estimates[metric.key]))
        for metric in HEADLINE:
            row.update(_columns(f"{metric.key}_diff", cell.difference(reference, metric.key)))
        row["by_window"] = [_window_row(cell, k) for k in range(len(cell.windows))]
        table.append(row)
    return table


def _columns(key: str, estimate: Estimate) -> dict[str, float | None]:
    value = estimate.value if math.isfinite(estimate.value) else None
    return {key: value, f"{key}_low": estimate.low, f"{key}_high": estimate.high}


def _window_row(cell: Cell, k: int) -> dict[str, Any]:
    window = cell.windows[k]
    first, last = window.bounds if window.bounds is not None else (None, None)
    return {
        "first": first,
        "last": last,
        **{key: None if value is None else float(value) for key, value in window.values.items()},
    }


def schema() -> pa.Schema:
    """Columns of :func:`to_arrow`; a column that is null throughout keeps its type."""
    import pyarrow as pa

    number = pa.float64()
    keys = [metric.key for metric in METRICS] + [f"{metric.key}_diff" for metric in HEADLINE]
    window = pa.struct([("first", pa.int64()), ("last", pa.int64()), *((metric.key, number) for metric in METRICS)])
    return pa.schema(
        [
            ("trace", pa.string()),
            ("cluster", pa.string()),
            ("policy", pa.string()),
            ("load", number),
            ("reference", pa.string()),
            ("windows", pa.int32()),
            *((f"{key}{end}", number) for key in keys for end in ("", "_low", "_high")),
            ("by_window", pa.list_(window)),
        ]
    )


def to_arrow(comparison: Comparison) -> pa.Table:
    """The comparison as a table, its provenance as JSON in the schema metadata under ``attn_sched``."""
    import pyarrow as pa

    note = json.dumps(provenance(comparison), allow_nan=False).encode()
    return pa.Table.from_pylist(rows(comparison), schema=schema()).replace_schema_metadata({METADATA_KEY: note})


def write_results(comparison: Comparison, path: str | Path) -> None:
    """Write the table as Parquet, whole or not at all."""
    import pyarrow.parquet as pq

    with atomic_write(path) as part:
        pq.write_table(to_arrow(comparison), part)
