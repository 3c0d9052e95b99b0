"""Slurm's accounting as ``sacct --parsable2`` or ``--parsable`` prints it: a header, ``|`` between unquoted cells.

Columns are found by sacct's own names, in any order and case (``man sacct``, "Job Accounting Fields"). A job is what
has an allocation of its own: steps are passed over, array tasks and the parts of a heterogeneous job are jobs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from attn_sched.errors import InputError
from attn_sched.gres import gres_gpus
from attn_sched.workload.readers.base import Reader, ReadOptions
from attn_sched.workload.readers.csvtable import MISSING, Block, read_csv
from attn_sched.workload.readers.simple import csv_builder
from attn_sched.workload.readers.source import Head, Source, split_header
from attn_sched.workload.trace import Trace

COMMAND = (
    "sacct --allusers --allocations --parsable2 --starttime 2025-01-01 "
    "--format=JobID,User,Account,State,Submit,Eligible,Start,End,ElapsedRaw,Timelimit,NNodes,ReqTRES,AllocTRES"
)
# What needs a column, and the names it may have, best first.
NEEDED: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("JobID", ("jobid", "jobidraw")),
    ("State", ("state",)),
    ("Submit", ("submit",)),
    ("ElapsedRaw", ("elapsedraw", "elapsed", "start")),  # the start goes with an end
    ("AllocTRES", ("alloctres", "reqtres", "allocgres", "reqgres")),
)
USED = frozenset(
    {
        "jobid", "jobidraw", "user", "account", "group", "partition", "cluster", "state", "submit", "eligible", "start",
        "end", "elapsed", "elapsedraw", "timelimit", "timelimitraw", "reqtres", "alloctres", "reqgres", "allocgres",
        "nnodes",
    }
)  # fmt: skip
UNSET = (*MISSING, "Unknown", "unknown", "UNKNOWN", "NONE", "N/A", "n/a", "(null)")
NO_LIMIT = frozenset({"unlimited", "partition_limit", "invalid", "not_set"})
WAITING = frozenset({"PENDING", "CONFIGURING", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"})
RUNNING = frozenset({"RUNNING", "SUSPENDED", "COMPLETING", "STAGE_OUT", "SIGNALING", "STOPPED", "RESIZING"})
_TIME = re.compile(r"(?:(\d{1,9})-)?(\d{1,9})(?::(\d{1,4}))?(?::(\d{1,4})(?:\.\d{1,9})?)?")
_COUNT = re.compile(r"\d{1,9}")

T = TypeVar("T")


@dataclass(frozen=True)
class Gpus:
    """What one cell says of GPUs."""

    total: int = 0  # GPUs named for the whole job
    a_node: int = 0  # GPUs named for each node
    types: str | None = None  # joined by "|"


# ---- cells ----


def seconds(text: str) -> float | None:
    """``[D-]HH:MM:SS`` in seconds, and the other forms of ``sbatch --time``: minutes, ``MM:SS``, ``D-HH``, ``D-HH:MM``.

    NaN for a limit that is none, None for anything else.
    """
    if text.lower() in NO_LIMIT:
        return np.nan
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    days, *parts = match.groups()
    given = [int(part) for part in parts if part is not None]
    if days is not None:  # the first number is of hours
        hours, minutes, rest = [*given, 0, 0][:3]
    elif len(given) == 1:
        hours, minutes, rest = 0, given[0], 0
    else:
        hours, minutes, rest = [0, *given][-3:]
    return int(days or 0) * 86_400.0 + hours * 3600.0 + minutes * 60.0 + rest


def tres_gpus(text: str) -> Gpus | None:
    """GPUs of ``billing=8,cpu=8,gres/gpu:a100=8,gres/gpu=8``; None where that is no list of counts.

    The untyped count includes the typed ones; where it is left out, they are added up.
    """
    untyped: int | None = None
    typed: dict[str, int] = {}
    for part in filter(None, text.split(",")):
        name, equals, value = part.partition("=")
        if not equals:
            return None
        kind, colon, gpu_type = name.partition(":")
        if kind.lower() != "gres/gpu":
            continue
        if not _COUNT.fullmatch(value):
            return None
        if colon:
            typed[gpu_type] = typed.get(gpu_type, 0) + int(value)
        else:
            untyped = int(value)
    total = sum(typed.values()) if untyped is None else untyped
    return Gpus(total=total, types="|".join(name for name, count in typed.items() if count and name) or None)


def node_gpus(text: str) -> Gpus | None:
    """GPUs of a list of generic resources; None where that is none."""
    entries = gres_gpus(text)
    if entries is None:
        return None
    types = dict.fromkeys(entry.gpu_type for entry in entries if entry.gpu_type is not None and entry.count)
    return Gpus(
        total=sum(entry.count for entry in entries if entry.per_job),
        a_node=sum(entry.count for entry in entries if not entry.per_job),
        types="|".join(types) or None,
    )


def _by_value(block: Block, name: str, parse: Callable[[str], T | None], expected: str) -> tuple[list[T], np.ndarray]:
    """Each different cell parsed once, and for each row which one it has; -1 = a missing cell."""
    cells = block.text(name)
    encoded = cells.dictionary_encode()
    parsed: list[T] = []
    codes = np.array(pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False))
    for code, text in enumerate(encoded.dictionary.to_pylist()):
        value = parse(text)
        if value is None:
            shown = text if len(text) <= 60 else text[:57] + "..."
            raise block.fail(int(np.argmax(codes == code)), name, f"{shown!r} is not understood", expected)
        parsed.append(value)
    return parsed, codes


def _seconds(block: Block, name: str) -> np.ndarray:
    parsed, codes = _by_value(block, name, seconds, "[days-]hours:minutes:seconds")
    return np.array([*parsed, np.nan])[codes]


def _moment(block: Block, name: str) -> tuple[np.ndarray, bool]:
    """Unix seconds and whether they have a zone; ``SLURM_TIME_FORMAT=%s`` makes sacct print the seconds themselves."""
    known = block.text(name).drop_null()
    if len(known) and known[0].as_py().isdecimal():
        return block.number(name, required=False), True
    return block.time(name, required=False)


# ---- rows ----


class _Jobs:
    """The columns that a trace is made of, from blocks of rows."""

    def __init__(self, header: Sequence[str], source: Source) -> None:
        self.header = frozenset(header)
        self.source = source
        self.id = "jobid" if "jobid" in self.header else "jobidraw"
        self.zoned = False
        self.blocks: list[dict[str, Any]] = []

    def first(self, *names: str) -> str | None:
        """The first of these columns that is there."""
        return next((name for name in names if name in self.header), None)

    def add(self, block: Block) -> None:
        """Take the rows of a block that are jobs."""
        ids = block.text(self.id)
        step = pc.match_substring(ids, ".")
        again = pc.equal(pc.utf8_lower(ids), self.id)  # the header, where outputs were put one after the other
        block = block.where(~np.array(pc.fill_null(pc.or_(step, again), False).to_numpy(zero_copy_only=False)))
        if not len(block):
            return
        times: dict[str, np.ndarray] = {}
        for name in ("submit", "eligible", "start", "end"):
            times[name] = np.full(len(block), np.nan)
            if name in self.header:
                times[name], zoned = _moment(block, name)
                self.zoned = self.zoned or zoned
        duration = self._duration(block, times)
        states, codes = _by_value(block, "state", lambda text: text.split()[0].rstrip("+").upper(), "a state")
        state = np.array([*states, None], dtype=object)[codes]
        gpus, types, empty = self._gpus(block)
        with np.errstate(invalid="ignore"):
            # Older versions give a job that was cancelled while it waited a start, but no allocation.
            unstarted = np.isnan(times["start"]) if "start" in self.header else np.zeros(len(block), bool)
            unstarted = (unstarted | empty) & ~(duration > 0)
        group = self.first("account", "group", "partition")
        self.blocks.append(
            {
                "row": block.rows,
                "job_id": block.text(self.id),
                "cluster": block.text("cluster") if "cluster" in self.header else pa.nulls(len(block), pa.string()),
                "submit": times["submit"],
                "eligible": times["eligible"],
                "start": times["start"],
                "duration": duration,
                "gpus": gpus,
                "types": types,
                "waiting": np.isin(state, list(WAITING)),
                "running": np.isin(state, list(RUNNING)),
                "unstarted": unstarted,
                "requested_time": self._limit(block),
                "user": block.text("user") if "user" in self.header else pa.nulls(len(block), pa.string()),
                "group": block.text(group) if group is not None else pa.nulls(len(block), pa.string()),
                "status": pa.array(state, pa.string()),
            }
        )

    def _duration(self, block: Block, times: dict[str, np.ndarray]) -> np.ndarray:
        """Seconds of running: what Slurm counted (without suspension), else from start to end."""
        duration = times["end"] - times["start"]
        if "elapsed" in self.header:
            counted = _seconds(block, "elapsed")
            duration = np.where(np.isnan(counted), duration, counted)
        if "elapsedraw" in self.header:
            counted = block.number("elapsedraw", required=False)
            duration = np.where(np.isnan(counted), duration, counted)
        return duration

    def _limit(self, block: Block) -> np.ndarray:
        if "timelimit" in self.header:
            return _seconds(block, "timelimit")
        if "timelimitraw" in self.header:  # minutes
            return _seconds(block, "timelimitraw")
        return np.full(len(block), np.nan)

    def _gpus(self, block: Block) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """GPUs of each job, the types it asked for (else got), and whether it is known to have got nothing at all."""
        nodes = np.ones(len(block))
        if "nnodes" in self.header:
            nodes = np.nan_to_num(block.number("nnodes", required=False), nan=1.0)
        gpus = np.zeros(len(block))
        named = {"alloc": np.full(len(block), None, dtype=object), "req": np.full(len(block), None, dtype=object)}
        asked = np.zeros(len(block), bool)
        empty = np.zeros(len(block), bool)
        for name in ("alloctres", "allocgres", "reqtres", "reqgres"):
            if name not in self.header:
                continue
            parse, expected = (
                (tres_gpus, "a list such as cpu=8,gres/gpu=2")
                if name.endswith("tres")
                else (node_gpus, "a list such as gpu:a100:2")
            )
            parsed, codes = _by_value(block, name, parse, expected)
            parsed.append(Gpus())  # of missing cells
            found = np.array([value.total for value in parsed])[codes]
            found = found + np.array([value.a_node for value in parsed])[codes] * nodes
            kinds = np.array([value.types for value in parsed], dtype=object)[codes]
            side = "alloc" if name.startswith("alloc") else "req"
            named[side] = np.where((named[side] == None) & (found > 0), kinds, named[side])  # noqa: E711
            gpus = np.where(gpus > 0, gpus, found)
            if side == "req":
                asked |= found > 0
            if name == "alloctres":
                empty = codes < 0
        return gpus, np.where(asked, named["req"], named["alloc"]), empty

    def column(self, name: str) -> Any:
        """One column of all blocks."""
        parts = [block[name] for block in self.blocks]
        return pa.concat_arrays(parts) if isinstance(parts[0], pa.Array) else np.concatenate(parts)


def _repeated(ids: pa.Array, user: pa.Array, submit: np.ndarray) -> np.ndarray:
    """Records of a job that a later one replaces, as sacct itself shows jobs without ``--duplicates``."""
    encoded = ids.dictionary_encode()
    if len(encoded.dictionary) == len(ids):
        return np.zeros(len(ids), bool)
    codes = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False)
    owner = pc.fill_null(user.dictionary_encode().indices, -1).to_numpy(zero_copy_only=False)
    # A number that another user's job bears too has come round again: no requeue, so it stays and is told.
    order = np.lexsort((np.arange(len(ids)), np.nan_to_num(submit, nan=-np.inf), owner, codes))
    same = (codes[order][1:] == codes[order][:-1]) & (owner[order][1:] == owner[order][:-1]) & (codes[order][1:] >= 0)
    result = np.zeros(len(ids), bool)
    result[order[:-1][same]] = True
    return result


def _read(source: Source, options: ReadOptions) -> Trace:
    head = source.head()
    header = split_header(head.lines[0], "|") if head.lines else ()
    _check(head, header, source)
    jobs = _Jobs(header, source)
    builder = csv_builder(source, "sacct")
    try:
        for block in read_csv(source, only=USED, delimiter="|", quoted=False, missing=UNSET):
            jobs.add(block)
    except InputError as error:
        if "jobname" in header and error.problem.startswith("the row has"):
            expected = f"{error.expected}: a job's name may hold a '|', so leave JobName out of --format"
            raise InputError(error.problem, file=error.file, row=error.row, expected=expected) from error
        raise
    if not jobs.blocks:
        return builder.finish()  # says that there is none
    ids, clusters = jobs.column("job_id"), jobs.column("cluster")
    if len(pc.unique(clusters.drop_null())) > 1:
        ids = pc.binary_join_element_wise(pc.fill_null(clusters, ""), ids, "/")
    user, submit, gpus, types = (jobs.column(name) for name in ("user", "submit", "gpus", "types"))
    repeated = _repeated(ids, user, submit)
    waiting, running, unstarted = (jobs.column(name) for name in ("waiting", "running", "unstarted"))
    # Waiting for a dependency, a begin time or a release is not waiting for the scheduler.
    eligible = np.fmin(jobs.column("eligible"), jobs.column("start"))
    eligible = np.where(np.isnan(jobs.column("eligible")), np.nan, eligible)
    kept = ~(repeated | waiting | running | unstarted) & (gpus > 0)
    with np.errstate(invalid="ignore"):
        builder.note("eligible later than submitted: arrives then", int((kept & (eligible > submit)).sum()))
    several = pc.fill_null(pc.match_substring(pa.array(types, pa.string()), "|"), False)
    builder.note("GPUs of several types: taken as alternatives", int((kept & np.array(several)).sum()))
    hetero = np.array(pc.fill_null(pc.match_substring(ids, "+"), False))
    builder.note("parts of heterogeneous jobs: each a job of its own", int((kept & hetero).sum()))
    builder.add(
        jobs.column("row"),
        job_id=ids,
        submit_s=np.where(np.isnan(submit), np.nan, np.fmax(submit, eligible)),
        duration_s=jobs.column("duration"),
        num_gpus=gpus,
        drops=[
            (repeated, "earlier record of a job listed again"),
            (waiting, "still waiting"),
            (running, "still running"),
            (unstarted, "never started"),
        ],
        negative_submit=True,
        requested_time=jobs.column("requested_time"),
        user=user,
        group=jobs.column("group"),
        gpu_type=pa.array(types, pa.string()),
        status=jobs.column("status"),
        fields=(
            jobs.id,
            "submit",
            jobs.first("elapsedraw", "elapsed", "end") or "",
            jobs.first("alloctres", "reqtres", "allocgres", "reqgres") or "",
        ),
    )
    return builder.finish(calendar=True, zoned=jobs.zoned)


# ---- headers ----


def _check(head: Head, header: Sequence[str], source: Source) -> None:
    """InputError unless the columns will do; it says which sacct command gives those that do."""
    expected = f"the output of: {COMMAND}"
    if _for_people(head):
        raise InputError("is a table of sacct for people, with cells cut short", file=source.path, expected=expected)
    if _headless(head):
        raise InputError("has no header", file=source.path, row=1, expected=f"no --noheader in {COMMAND}")
    missing = [what for what, names in NEEDED if not any(name in header for name in names)]
    if "ElapsedRaw" not in missing and not {"elapsedraw", "elapsed"} & set(header) and "end" not in header:
        missing.append("End")
    tres = {"alloctres", "reqtres"} & set(header)
    if not missing and not tres and "nnodes" not in header:
        missing.append("NNodes")  # counts of GRES are of one node
    if missing:
        raise InputError(
            f"has no column {', '.join(missing)}", file=source.path, field=missing[0].lower(), expected=expected
        )


def _for_people(head: Head) -> bool:
    if len(head.lines) < 2 or "|" in head.lines[0]:
        return False
    return "jobid" in head.lines[0].lower().split() and re.fullmatch(r"[- ]{8,}", head.lines[1]) is not None


def _headless(head: Head) -> bool:
    cells = head.lines[0].split("|") if head.lines else []
    stamps = sum(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", cell) is not None for cell in cells)
    return len(cells) > 3 and stamps > 0


def _sniff(head: Head) -> bool:
    if not head.lines:
        return False
    names = split_header(head.lines[0], "|")
    return (len(names) > 1 and len(USED & set(names)) >= 3) or _for_people(head) or _headless(head)


SACCT_READER = Reader("sacct", "Slurm's sacct --parsable2", _sniff, _read)
