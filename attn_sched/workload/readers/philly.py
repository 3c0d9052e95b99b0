"""Microsoft Philly's cluster_job_log: a JSON array of jobs with attempts (Jeon et al., ATC '19).

GPUs are those of the first attempt that lists any. The duration is the sum of the attempts' running times, as in the
published analyses; the gaps between attempts are not running. An attempt that lacks a time adds nothing and is counted.
A job whose last attempt has no end was still running, or its end was lost: dropped as "no end time".
"""

from __future__ import annotations

import codecs
import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa

from attn_sched.errors import InputError
from attn_sched.workload.readers.base import Reader, ReadOptions
from attn_sched.workload.readers.builder import TraceBuilder
from attn_sched.workload.readers.source import Head, Source
from attn_sched.workload.trace import Trace

MISSING = (None, "", "None", "null")
BATCH = 20_000
CHUNK_CHARS = 1 << 20
MAX_JOB_CHARS = 16 << 20


def _objects(source: Source) -> Iterator[Any]:
    """The values of a JSON array (or of JSON lines), decoded one by one so that memory stays bounded."""
    decoder = json.JSONDecoder(parse_constant=_no_constant)
    count = 0
    buffer = ""
    at = 0
    want = CHUNK_CHARS
    opened = False
    text = _text(source)
    done = False
    while True:
        while at < len(buffer) and (buffer[at] in " \t\r\n," or (not opened and buffer[at] == "[")):
            opened = opened or buffer[at] == "["
            at += 1
        if at < len(buffer):
            if opened and buffer[at] == "]":
                return
            try:
                value, end = decoder.raw_decode(buffer, at)
            except (ValueError, RecursionError) as error:
                if done or len(buffer) - at > MAX_JOB_CHARS or isinstance(error, RecursionError):
                    reason = error.msg if isinstance(error, json.JSONDecodeError) else type(error).__name__
                    problem = f"the JSON is cut off or broken ({reason})"
                    raise InputError(
                        problem, file=source.path, row=count + 1, expected="a JSON object per job"
                    ) from error
            else:
                count += 1
                yield value
                at = end
                want = CHUNK_CHARS
                continue
        elif done:
            if opened:
                raise InputError("the JSON array is cut off", file=source.path, row=count + 1, expected="a closing ]")
            return
        buffer = buffer[at:]
        at = 0
        target = len(buffer) + want
        want *= 2  # so that a broken job costs a few attempts, not one per chunk
        parts = [buffer]
        size = len(buffer)
        while size < target and not done:
            more = next(text, None)
            if more is None:
                done = True
            else:
                parts.append(more)
                size += len(more)
        buffer = "".join(parts)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def _text(source: Source) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    with source.open() as stream:
        try:
            while data := stream.read(CHUNK_CHARS):
                yield decoder.decode(data)
            yield decoder.decode(b"", final=True)
        except UnicodeDecodeError as error:
            raise InputError("is not valid UTF-8", file=source.path, expected="UTF-8 text") from error


class _Job:
    """Checks one decoded value and pulls out its fields."""

    def __init__(self, value: Any, number: int, source: Source) -> None:
        self._number, self._source = number, source
        if not isinstance(value, dict):
            raise self._fail(None, f"is a {type(value).__name__}, not a job", "a JSON object")
        self._value = value
        for name in ("jobid", "attempts"):
            if name not in value:
                raise self._fail(name, "is missing", "the fields of cluster_job_log")

    def _fail(self, field: str | None, problem: str, expected: str | None = None) -> InputError:
        return InputError(problem, file=self._source.path, row=self._number + 1, field=field, expected=expected)

    def text(self, name: str) -> str | None:
        value = self._value.get(name)
        if value in MISSING:
            return None
        if not isinstance(value, str | int):
            raise self._fail(name, "is not text", "text")
        text = str(value)
        try:
            text.encode()
        except UnicodeEncodeError as error:  # a lone surrogate escape
            raise self._fail(name, "is not valid Unicode", "text") from error
        return text

    def time(self, value: Any, name: str) -> float:
        if value is None or value in MISSING:
            return np.nan
        if not isinstance(value, str):
            raise self._fail(name, f"{str(value)[:40]!r} is not a time", "YYYY-MM-DD HH:MM:SS")
        try:
            moment = datetime.fromisoformat(value.strip())
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError) as error:
            raise self._fail(name, f"{value[:40]!r} is not a time", "YYYY-MM-DD HH:MM:SS") from error

    def submitted(self) -> float:
        return self.time(self._value.get("submitted_time"), "submitted_time")

    def attempts(self) -> list[tuple[float, float, int]]:
        """(start, end, GPUs) of each."""
        value = self._value["attempts"]
        if value in MISSING:
            return []
        if not isinstance(value, list):
            raise self._fail("attempts", "is not a list", "a list of attempts")
        result = []
        for attempt in value:
            if not isinstance(attempt, dict):
                raise self._fail("attempts", "holds something that is not an attempt", "JSON objects")
            detail = attempt.get("detail")
            if detail in MISSING:
                detail = []
            if not isinstance(detail, list) or not all(isinstance(d, dict) for d in detail):
                raise self._fail("detail", "is not a list of machines", "a list of JSON objects")
            gpus = 0
            for machine in detail:
                names = machine.get("gpus") or []
                if not isinstance(names, list):
                    raise self._fail("gpus", "is not a list", "a list of GPU names")
                gpus += len(names)
            start = self.time(attempt.get("start_time"), "start_time")
            result.append((start, self.time(attempt.get("end_time"), "end_time"), gpus))
        return result


def _read(source: Source, options: ReadOptions) -> Trace:
    builder = TraceBuilder(source.path, "philly", lambda record: record + 1)
    batch: list[tuple[Any, ...]] = []
    first = 0
    for number, value in enumerate(_objects(source)):
        batch.append(_row(_Job(value, number, source), builder))
        if len(batch) == BATCH:
            _flush(builder, first, batch)
            first += len(batch)
            batch = []
    if batch:
        _flush(builder, first, batch)
    return builder.finish(calendar=True)


def _row(job: _Job, builder: TraceBuilder) -> tuple[Any, ...]:
    attempts = job.attempts()
    notes: Counter[str] = Counter()
    runs = [end - start for start, end, _ in attempts]
    whole = [run for run in runs if not np.isnan(run)]
    negative = any(run < 0 for run in whole)
    ended = bool(attempts) and not np.isnan(attempts[-1][1]) and bool(whole)
    duration = -1.0 if negative else float(sum(whole)) if ended else np.nan
    sizes = [gpus for _, _, gpus in attempts if gpus]
    if sizes and ended and not negative:
        notes["attempts without a start or an end: not in the duration"] = len(runs) - len(whole)
        notes["GPU count differs between attempts: the first one taken"] = int(len(set(sizes)) > 1)
    for what, count in notes.items():
        builder.note(what, count)
    return (
        job.text("jobid"), job.submitted(), duration, float(sizes[0]) if sizes else 0.0, not attempts,
        job.text("user"), job.text("vc"), job.text("status"),
    )  # fmt: skip


def _flush(builder: TraceBuilder, first: int, batch: list[tuple[Any, ...]]) -> None:
    ids, submit, duration, gpus, empty, users, groups, status = zip(*batch, strict=True)
    builder.add(
        first,
        job_id=pa.array(ids, pa.string()),
        submit_s=np.array(submit),
        duration_s=np.array(duration),
        num_gpus=np.array(gpus),
        drops=[(np.array(empty), "no attempts")],
        negative_submit=True,
        user=pa.array(users, pa.string()),
        group=pa.array(groups, pa.string()),
        status=pa.array(status, pa.string()),
        fields=("jobid", "submitted_time", "attempts", "attempts"),
    )


def _sniff(head: Head) -> bool:
    return head.text.lstrip()[:1] in ("[", "{") and '"jobid"' in head.text and '"attempts"' in head.text


PHILLY_READER = Reader("philly", "Microsoft Philly cluster_job_log, JSON with attempts", _sniff, _read)
