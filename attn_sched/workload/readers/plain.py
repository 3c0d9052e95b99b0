"""Any comma-separated table with a header: columns by a map, or by common names.

A map gives for each trace field ``column`` or ``column:unit``. Units of time: ns, us, ms, s, min, h, d; a column of
calendar times is recognised by its first value. ``start_time`` and ``end_time`` may stand for a duration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from attn_sched.errors import InputError
from attn_sched.workload.readers.alibaba import is_number
from attn_sched.workload.readers.base import Reader, ReadOptions
from attn_sched.workload.readers.csvtable import Block, read_csv
from attn_sched.workload.readers.simple import csv_builder, row_ids
from attn_sched.workload.readers.source import Head, Source, split_header
from attn_sched.workload.trace import Trace

UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
MAP_EXAMPLE = "submit_time=COLUMN,duration=COLUMN,num_gpus=COLUMN"
TIMES = ("submit_time", "duration", "start_time", "end_time", "requested_time")
FIELDS = ("job_id", *TIMES, "num_gpus", "user", "group", "gpu_type", "model", "status")
# Names in use for each field, best first; compared in lower case, without "_" and "-" and with the unit cut off.
SYNONYMS: dict[str, tuple[str, ...]] = {
    "job_id": ("jobid", "job", "id", "jobname", "name", "jobnumber"),
    "submit_time": (
        "submittime", "submit", "submitted", "submittedtime", "submitat", "submittedat", "arrival", "arrivaltime",
        "createtime", "creationtime", "createdat", "queuedat", "timesubmit", "timestamp",
    ),
    "duration": (
        "duration", "runtime", "servicetime", "service", "run", "elapsed", "elapsedtime", "walltime", "jobduration",
        "exectime", "executiontime", "jobruntime",
    ),
    "start_time": ("starttime", "start", "startedat", "started"),
    "end_time": ("endtime", "end", "finishtime", "endedat", "completiontime", "finishedat"),
    "requested_time": ("requestedtime", "timelimit", "requestedwalltime", "walltimelimit", "reqtime", "timerequested"),
    "num_gpus": (
        "numgpus", "gpus", "numgpu", "gpunum", "gpucount", "ngpus", "gpu", "reqgpus", "gpusrequested", "requestedgpus",
        "allocgpus", "gpureq", "numaccelerators", "numchips",
    ),
    "user": ("user", "username", "userid", "uid", "owner"),
    "group": (
        "group", "vc", "tenant", "queue", "partition", "account", "project", "cluster", "groupid", "virtualcluster",
        "team",
    ),
    "gpu_type": ("gputype", "gpumodel", "gpuspec", "acceleratortype"),
    "model": ("model", "modelname", "application", "workload", "network", "jobtype"),
    "status": ("status", "state", "finalstatus", "jobstate", "exitstatus"),
}  # fmt: skip
_SUFFIXES = {
    **{unit: unit for unit in ("ns", "us", "ms", "s", "min", "h")},
    **dict.fromkeys(("sec", "secs", "second", "seconds"), "s"),
    **dict.fromkeys(("mins", "minutes"), "min"),
    **dict.fromkeys(("hr", "hrs", "hours"), "h"),
    "days": "d",
}


@dataclass(frozen=True)
class Column:
    """Where a field stands."""

    name: str  # in the table, lower case
    unit: float | None  # seconds; None = the column name or s


def parse_map(text: str) -> dict[str, str]:
    """``submit_time=when:ms,num_gpus=gpus`` as a dictionary.

    Raises:
        InputError: the text has another form.
    """
    result: dict[str, str] = {}
    for part in text.split(","):
        name, equals, column = part.partition("=")
        if not equals or not name.strip() or not column.strip():
            raise InputError(f"{part!r} is not FIELD=COLUMN", field="map", expected=MAP_EXAMPLE)
        if name.strip() in result:
            raise InputError(f"names {name.strip()} twice", field="map", expected=MAP_EXAMPLE)
        result[name.strip()] = column.strip()
    return result


def _stem(name: str) -> tuple[str, float | None]:
    """A column name without separators and unit, and the unit."""
    parts = name.replace("-", "_").replace(" ", "_").replace("(", "_").replace(")", "").split("_")
    parts = [part for part in parts if part]
    unit = None
    if len(parts) > 1 and parts[-1] in _SUFFIXES:
        unit = UNITS[_SUFFIXES[parts.pop()]]
    return "".join(parts), unit


def guess_columns(header: tuple[str, ...]) -> dict[str, Column]:
    """Fields recognised by the common names of columns."""
    result: dict[str, Column] = {}
    taken: set[str] = set()
    stems = [(name, *_stem(name)) for name in header]
    for field, words in SYNONYMS.items():
        for word in words:
            match = next(((n, u) for n, stem, u in stems if stem == word and n not in taken), None)
            if match is not None:
                result[field] = Column(match[0], match[1] if field in TIMES else None)
                taken.add(match[0])
                break
    return result


def _mapped(column_map: Mapping[str, str], header: tuple[str, ...], source: Source) -> dict[str, Column]:
    result = {}
    for field, target in column_map.items():
        if field not in FIELDS:
            raise InputError(f"unknown field {field!r}", field="map", expected=f"one of {', '.join(FIELDS)}")
        name, unit = target.strip().lower(), None
        if name not in header and ":" in name:
            name, _, suffix = name.rpartition(":")
            if field not in TIMES or suffix not in UNITS:
                raise InputError(
                    f"{target!r} has no known unit", field="map", expected=f"one of {', '.join(UNITS)} on a time"
                )
            unit = UNITS[suffix]
        if name not in header:
            problem = f"the column {target!r} of the map is missing"
            raise InputError(problem, file=source.path, field=field, expected=f"one of {', '.join(header[:20])}")
        result[field] = Column(name, unit)
    return result


def _missing(columns: Mapping[str, Column]) -> list[str]:
    lacks = [field for field in ("submit_time", "num_gpus") if field not in columns]
    if "duration" not in columns and not {"start_time", "end_time"} <= set(columns):
        lacks.append("duration")
    return lacks


def _sniff(head: Head) -> bool:
    return len(head.header) >= 3 and not _missing(guess_columns(head.header))


def looks_like_table(head: Head) -> bool:
    """Whether the first line seems to be a header."""
    return len(head.header) > 1 and not any(map(is_number, head.header))


def _read(source: Source, options: ReadOptions) -> Trace:
    lines = source.head().lines
    header = split_header(lines[0]) if lines else ()
    columns = guess_columns(header)
    if options.column_map is not None:
        # What the map names wins; the rest is still recognised, unless it would use a mapped column twice.
        mapped = _mapped(options.column_map, header, source)
        used = {column.name for column in mapped.values()}
        columns = {k: v for k, v in columns.items() if v.name not in used} | mapped
        if "duration" not in mapped and {"start_time", "end_time"} <= set(mapped):
            columns.pop("duration", None)
    lacks = _missing(columns)
    if lacks:
        raise InputError(
            f"no column for {', '.join(lacks)} among {', '.join(header[:20]) or 'none'}",
            file=source.path, field=lacks[0], expected="a column map such as " + MAP_EXAMPLE,
        )  # fmt: skip
    builder = csv_builder(source, "csv")
    calendar: dict[str, bool] = {}
    zoned = False
    names = {field: column.name for field, column in columns.items()}
    for block in read_csv(source, only=names.values()):
        if not calendar:
            calendar = {field: _is_calendar(block, columns[field]) for field in TIMES if field in columns}
            _check_clocks(calendar, source)
        times = {}
        for field in calendar:
            required = field in ("submit_time", "duration")
            times[field], has_zone = _time(block, columns[field], calendar[field], required=required)
            zoned = zoned or has_zone
        duration = times["duration"] if "duration" in times else times["end_time"] - times["start_time"]
        builder.add(
            block.first,
            job_id=block.text(names["job_id"]) if "job_id" in names else row_ids(block),
            submit_s=times["submit_time"],
            duration_s=duration,
            num_gpus=block.number(names["num_gpus"]),
            negative_duration="error" if "duration" in times else "drop",
            negative_submit=calendar["submit_time"],
            requested_time=times.get("requested_time"),
            fields=(
                names.get("job_id", "row"), names["submit_time"], names.get("duration", names.get("end_time", "")),
                names["num_gpus"],
            ),
            **{f: block.text(names[f]) for f in ("user", "group", "gpu_type", "model", "status") if f in names},
        )  # fmt: skip
    return builder.finish(calendar=calendar.get("submit_time", False), zoned=zoned)


def _is_calendar(block: Block, column: Column) -> bool:
    known = block.text(column.name).drop_null()
    if not len(known) or column.unit is not None:
        return False
    text = known[0].as_py()
    return len(text) >= 10 and text[4] == "-" and text[7] == "-"


def _check_clocks(calendar: Mapping[str, bool], source: Source) -> None:
    for field in ("duration", "requested_time"):
        if calendar.get(field):
            raise InputError("holds calendar times", file=source.path, field=field, expected="seconds")
    if "start_time" in calendar and "end_time" in calendar and calendar["start_time"] != calendar["end_time"]:
        raise InputError(
            "start and end are on different clocks", file=source.path, field="end_time", expected="one kind"
        )


def _time(block: Block, column: Column, calendar: bool, *, required: bool) -> tuple[np.ndarray, bool]:
    if calendar:
        return block.time(column.name, required=required)
    unit = 1.0 if column.unit is None else column.unit
    return block.number(column.name, required=required, unit=unit), False


PLAIN_READER = Reader("csv", "any CSV with a header: common column names, or a column map", _sniff, _read)
