"""Numbers that describe a trace at a glance."""

from __future__ import annotations

from typing import Any

import numpy as np

from attn_sched.workload.trace import Trace

QUANTILES = (0.10, 0.25, 0.50, 0.75, 0.90, 0.95, 0.99)
DAY_S = 86_400.0


def describe(trace: Trace) -> dict[str, Any]:
    """JSON-able: format, counts, span, GPU mix, durations, load in busy GPUs, users, groups, what was dropped and
    noted.

    ``average_gpus_busy`` is the GPU time of all jobs over the span from the first to the last submission: the number of
    GPUs that would be busy on average if nothing ever waited. Durations unknown to the log count as nothing.
    """
    provenance = trace.provenance
    submit = trace.numbers("submit_time")
    gpus = trace.numbers("num_gpus")
    duration = trace.numbers("duration")
    known = np.isfinite(duration)
    span = float(submit[-1] - submit[0]) if len(submit) else 0.0
    sizes, counts = np.unique(gpus, return_counts=True)
    gpu_time = gpus * np.where(known, duration, 0.0)
    total = float(gpu_time.sum())
    time_by_size = np.bincount(np.searchsorted(sizes, gpus), weights=gpu_time, minlength=len(sizes))
    result: dict[str, Any] = {
        "source": provenance.source,
        "format": provenance.format,
        "rows_read": provenance.rows_read,
        "jobs": len(trace),
        "dropped": dict(provenance.dropped),
        "notes": dict(provenance.notes),
        "first_submission": provenance.epoch,
        "span_s": span,
        "jobs_per_day": len(trace) / span * DAY_S if span > 0 else None,
        "gpu_mix": [
            {
                "gpus": int(n),
                "jobs": int(c),
                "job_share": c / len(trace),
                "gpu_time_share": t / total if total > 0 else None,
            }
            for n, c, t in zip(sizes, counts, time_by_size, strict=True)
        ],
        "gpus_mean": float(gpus.mean()) if len(gpus) else None,
        "gpu_seconds": total,
        "average_gpus_busy": total / span if span > 0 and known.any() else None,
        "duration_unknown": int((~known).sum()),
        "duration_s": _durations(duration[known]),
    }
    for name in ("user", "group", "gpu_type", "model", "status"):
        values = trace.table[name]
        result["states" if name == "status" else f"{name}s"] = (
            len(values.unique().drop_null()) if trace.has(name) else None
        )
    if trace.has("gpu_type"):  # a wish may name several: "A|B"
        wishes = trace.table["gpu_type"].unique().drop_null().to_pylist()
        result["gpu_types"] = len({kind.strip() for wish in wishes for kind in wish.split("|")} - {""})
    result["requested_times"] = len(trace) - trace.table["requested_time"].null_count
    return result


def _durations(values: np.ndarray) -> dict[str, float] | None:
    if not len(values):
        return None
    result = {f"p{round(q * 100)}": float(v) for q, v in zip(QUANTILES, np.quantile(values, QUANTILES), strict=True)}
    return {"mean": float(values.mean()), "min": float(values.min()), **result, "max": float(values.max())}
