"""From columns to a Trace: the checks, drops and roundings that every reader shares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from attn_sched.errors import InputError
from attn_sched.workload.trace import SCHEMA, Provenance, Trace, make_table

MAX_SECONDS = 1e12  # beyond this no time is believable and float64 loses microseconds
MAX_GPUS = 2**31 - 1
Drop = tuple[np.ndarray, str]  # rows to leave out, and why


class TraceBuilder:
    """Collects batches of jobs, then validates and sorts them."""

    def __init__(self, path: Path, format: str, locate: Callable[[int], int], *, needs_duration: bool = True) -> None:
        """``locate`` turns a record number (0 = first job in the file) into the row to name in an error.

        ``needs_duration``: jobs whose duration is unknown are dropped as "no end time"; otherwise it stays null.
        """
        self.path = path
        self.format = format
        self.dropped: Counter[str] = Counter()
        self.notes: Counter[str] = Counter()
        self.rows = 0
        self._id_field = "job_id"
        self._locate = locate
        self._needs_duration = needs_duration
        self._batches: list[pa.Table] = []
        self._records: list[np.ndarray] = []

    def note(self, what: str, count: int) -> None:
        """Count jobs that were kept but adjusted, or deserve a warning."""
        if count:
            self.notes[what] += int(count)

    def fail(self, record: int, field: str, problem: str, expected: str | None = None) -> InputError:
        """The error for one field of one record (to be raised by the caller)."""
        return InputError(problem, file=self.path, row=self._locate(record), field=field, expected=expected)

    def add(
        self,
        first_record: int | np.ndarray,
        *,
        job_id: pa.Array,
        submit_s: np.ndarray,
        num_gpus: np.ndarray,
        duration_s: np.ndarray | None = None,
        drops: Sequence[Drop] = (),
        negative_duration: str = "drop",
        fields: tuple[str, str, str, str] = ("job_id", "submit_time", "duration", "num_gpus"),
        negative_submit: bool = False,
        **columns: Any,
    ) -> None:
        """Add the jobs ``first_record, first_record + 1, ...``.

        Args:
            first_record: Number of the first one in the file; or the number of each, where they do not follow on.
            job_id: Unique names.
            submit_s: Seconds since any origin; NaN = unknown, then the job is dropped.
            num_gpus: GPUs asked for; fractions round up, zero or unknown drops the job.
            duration_s: Seconds of running; NaN = unknown.
            drops: Rows that the format leaves out, in order of precedence; they go before the shared drops.
            negative_duration: "drop" for logs written by machines, "error" for tables prepared by hand.
            fields: Names of the four columns in the file, for errors.
            negative_submit: Whether times before the origin are legal (calendar times).
            columns: More columns of the trace's schema.
        """
        rows = len(submit_s)
        self.rows += rows
        records = first_record + np.arange(rows) if isinstance(first_record, int) else first_record
        keep = np.ones(rows, bool)

        def drop(mask: np.ndarray, why: str) -> None:
            gone = mask & keep
            count = int(gone.sum())
            if count:
                self.dropped[why] += count
                keep[gone] = False

        duration = np.full(rows, np.nan) if duration_s is None else duration_s
        self._id_field, submit_field, duration_field, gpu_field = fields
        for mask, why in drops:
            drop(mask, why)
        with np.errstate(invalid="ignore"):
            self._refuse(records, keep & (num_gpus < 0), gpu_field, num_gpus, "is negative", "a number of GPUs")
            drop(np.isnan(num_gpus) | (num_gpus == 0), "zero GPUs")
            drop(np.isnan(submit_s), "no submit time")
            if self._needs_duration:
                drop(np.isnan(duration), "no end time")
            negative = duration < 0
            if negative_duration == "error":
                self._refuse(records, keep & negative, duration_field, duration, "is negative", "seconds, 0 or more")
            drop(negative, "negative duration")
            if not negative_submit:
                self._refuse(records, keep & (submit_s < 0), submit_field, submit_s, "is negative", "0 or more")
            self._refuse(records, keep & (num_gpus > MAX_GPUS), gpu_field, num_gpus, "is too large", None)
            self._refuse(records, keep & (duration > MAX_SECONDS), duration_field, duration, "is too large", None)
            far = keep & (np.abs(submit_s) > MAX_SECONDS)
            self._refuse(records, far, submit_field, submit_s, "is too far away", None)
        index = np.flatnonzero(keep)
        if not len(index):
            return
        gpus = np.ceil(num_gpus[index] - 1e-9)
        self.note("fractional GPUs rounded up", int((gpus != num_gpus[index]).sum()))
        columns |= {"job_id": job_id, "submit_time": submit_s, "duration": duration}
        picked: dict[str, Any] = {}
        for name, value in columns.items():
            if value is not None:
                picked[name] = value.take(pa.array(index)) if isinstance(value, pa.Array) else np.asarray(value)[index]
        picked["num_gpus"] = np.maximum(gpus, 1).astype(np.int32)
        ids = picked["job_id"]
        if ids.null_count:
            at = int(index[int(np.flatnonzero(ids.is_null().to_numpy(zero_copy_only=False))[0])])
            raise self.fail(int(records[at]), self._id_field, "is empty", "a job id")
        self._batches.append(make_table(picked, len(index)))
        self._records.append(records[index])

    def _refuse(
        self, records: np.ndarray, bad: np.ndarray, field: str, values: np.ndarray, problem: str, expected: str | None
    ) -> None:
        if bad.any():
            at = int(np.argmax(bad))
            raise self.fail(int(records[at]), field, f"{values[at]:g} {problem}", expected)

    def finish(self, *, calendar: bool = False, zoned: bool = False, epoch_s: float | None = None) -> Trace:
        """Check, shift time to the first job, sort by (submit time, row).

        Args:
            calendar: Submit times are Unix seconds, so that the first one is a date.
            zoned: The log states a time zone (then the date carries +00:00).
            epoch_s: Unix time of submit time 0, where the log gives it apart.

        Raises:
            InputError: no job is left, or two jobs share an id.
        """
        if not self._batches:
            problem = "holds no job"
            if self.rows:
                why = ", ".join(f"{count} {reason}" for reason, count in self.dropped.items())
                problem = f"none of its {self.rows} jobs can be used ({why})"
            raise InputError(problem, file=self.path, expected="at least one job")
        table = pa.concat_tables(self._batches).combine_chunks()
        records = np.concatenate(self._records)
        self._batches, self._records = [], []
        self._check_unique(table["job_id"], records)
        submit = table["submit_time"].to_numpy()
        first = float(submit.min())
        order = np.argsort(submit, kind="stable")
        index = SCHEMA.get_field_index("submit_time")
        table = table.set_column(index, SCHEMA.field(index), pa.array(submit - first))
        if not np.array_equal(order, np.arange(len(order))):
            table = table.take(pa.array(order))
        epoch = None
        base = 0.0 if calendar else epoch_s
        if base is not None:
            epoch = _iso(base + first, zoned)
        return Trace(
            table,
            Provenance(self.path.name, self.format, self.rows, dict(self.dropped), dict(self.notes), epoch),
        )

    def _check_unique(self, ids: pa.ChunkedArray, records: np.ndarray) -> None:
        if pc.count_distinct(ids).as_py() == len(ids):
            return
        codes = ids.combine_chunks().dictionary_encode().indices.to_numpy()
        order = np.argsort(codes, kind="stable")
        again = np.flatnonzero(codes[order][1:] == codes[order][:-1]) + 1
        at = int(order[again].min())
        problem = f"{ids[at].as_py()[:60]!r} is there twice"
        raise self.fail(int(records[at]), self._id_field, problem, "a different id for each job")


def _iso(unix_s: float, zoned: bool) -> str | None:
    try:
        moment = datetime.fromtimestamp(unix_s, UTC)
    except (OverflowError, ValueError, OSError):
        return None
    return moment.isoformat() if zoned else moment.replace(tzinfo=None).isoformat()
