"""From a Trace to a Workload."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from attn_sched.errors import InputError
from attn_sched.workload.catalogue import CONFIGS, assign_models, config_fields
from attn_sched.workload.estimates import with_estimates
from attn_sched.workload.trace import Trace
from attn_sched.workload.users import with_users
from attn_sched.workload.workload import Workload, choices


def build_workload(
    trace: Trace,
    *,
    seed: int = 0,
    estimate: str = "oracle",
    users: str = "trace",
    group: str | None = None,
    user: str | None = None,
) -> Workload:
    """Make a trace ready for replay.

    Args:
        trace: The log. Jobs of unknown duration are dropped and counted in ``info["dropped"]``.
        seed: Fixes the networks drawn for jobs that name none, estimates with noise and synthetic users.
        estimate: What policies see as the duration; see ``estimates.with_estimates``.
        users: Whose jobs they are; see ``users.with_users``.
        group: Keep this group (virtual cluster) only.
        user: Keep this user of the trace only.

    Raises:
        InputError: no job has a duration, or the group, user or a specification is unknown.
    """
    table = trace.table
    source = trace.provenance.source
    info: dict[str, Any] = {
        "source": source,
        "format": trace.provenance.format,
        "epoch": trace.provenance.epoch,
        "rows_read": trace.provenance.rows_read,
        "dropped": dict(trace.provenance.dropped),
        "notes": dict(trace.provenance.notes),
        "seed": seed,
        "group": group,
        "user": user,
        "load": None,
        "load_by": None,
        "window": None,
        "split": None,
    }
    for column, wanted in (("group", group), ("user", user)):
        if wanted is not None:
            table = _only(table, column, wanted, source)
    unknown = table["duration"].null_count
    if unknown == len(table):
        reason = f"its format ({trace.provenance.format}) gives no durations"
        raise InputError(
            f"cannot be replayed: {reason}", file=source, field="duration", expected="a log with run times"
        )
    if unknown:
        info["dropped"]["unknown duration"] = info["dropped"].get("unknown duration", 0) + unknown
        table = table.filter(pc.is_valid(table["duration"]))
    jobs = len(table)
    trace_user, trace_user_names = _codes(table["user"])
    groups, group_names = _codes(table["group"])
    gpu_type, gpu_type_names = _codes(table["gpu_type"])
    assignment = assign_models(Trace(table, trace.provenance), seed)
    info["models"] = dict(assignment.counts)
    requested = table["requested_time"].combine_chunks().to_numpy(zero_copy_only=False)
    duration = np.array(table["duration"].to_numpy(), dtype=np.float64)
    workload = Workload(
        name=trace.name,
        job_id=np.asarray(table["job_id"].to_numpy(), dtype=object),
        submit_s=np.array(table["submit_time"].to_numpy(), dtype=np.float64),
        duration_s=duration,
        num_gpus=np.array(table["num_gpus"].to_numpy(), dtype=np.int32),
        estimate_s=duration.copy(),
        requested_s=np.array(requested, dtype=np.float64),
        user=np.zeros(jobs, np.int32),
        user_names=("",),
        trace_user=trace_user,
        trace_user_names=trace_user_names,
        group=groups,
        group_names=group_names,
        gpu_type=gpu_type,
        gpu_type_names=gpu_type_names,
        model_names=tuple(config.name for config in CONFIGS),
        **config_fields(assignment.index),
        priority=np.zeros(jobs, np.int32),
        cancel_s=np.full(jobs, np.inf),
        counted=np.ones(jobs, bool),
        info=info,
    )
    # Users first: estimates from history are per user.
    return with_estimates(with_users(workload, users, seed), estimate, seed)


def _only(table: pa.Table, column: str, wanted: str, source: str) -> pa.Table:
    kept = table.filter(pc.fill_null(pc.equal(table[column], wanted), False))
    if not len(kept):
        known = tuple(sorted(v for v in pc.unique(table[column]).to_pylist() if v is not None))
        if not known:
            raise InputError(
                f"no job has {column} {wanted!r}: the log names no {column}s",
                file=source,
                field=column,
                expected=f"no {column} to be asked for",
            )
        raise InputError(
            f"no job has {column} {wanted!r}", file=source, field=column, expected=f"one of {choices(known)}"
        )
    return kept


def _codes(column: pa.ChunkedArray) -> tuple[np.ndarray, tuple[str, ...]]:
    """Indices into the sorted distinct names; -1 for null."""
    encoded = column.combine_chunks().dictionary_encode()
    names = encoded.dictionary.to_pylist()
    order = sorted(range(len(names)), key=names.__getitem__)
    rank = np.empty(len(names) + 1, np.int32)
    rank[order] = np.arange(len(names))
    rank[-1] = -1
    raw = pc.fill_null(encoded.indices, len(names)).to_numpy(zero_copy_only=False)
    return rank[raw], tuple(names[i] for i in order)
