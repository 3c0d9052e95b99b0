"""From traces to windows: what is cut out of which log, and whether logs overlap."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np

from attn_sched.cluster import Cluster, load_cluster
from attn_sched.errors import InputError
from attn_sched.simulator import fit_to_cluster
from attn_sched.workload import Workload, build_workload, read_trace
from attn_sched.workload.episodes import period, period_windows
from benchmarks.results.plan import Cell, Log

NAMES = frozenset({"name", "description", "info", "job_id"})  # fields of workload and cluster that decide nothing
SEED = 0  # of synthetic users and of the networks that jobs train: training's too


@dataclass(frozen=True)
class WindowFacts:
    """What a reader must know of a cell's windows."""

    windows: int
    jobs: int  # that each counts
    short_warmups: int  # windows that fewer jobs run before than they count
    too_large: int  # jobs of the part that the cluster cannot run, left out
    synthetic_users: bool


class Material:
    """Logs, clusters and windows, each made once.

    Args:
        traces: The folder of logs.
    """

    def __init__(self, traces: Path) -> None:
        self.traces = traces
        self._logs: dict[str, tuple[Workload, str | None]] = {}
        self._clusters: dict[str, Cluster] = {}
        self._parts: dict[tuple[str, str, str], Workload] = {}
        self._recent: tuple[Cell, list[Workload]] | None = None

    def check(self, logs: Sequence[Log]) -> None:
        """Raise InputError if the file of a log is missing."""
        for log in logs:
            if not (self.traces / log.path).exists():
                raise InputError("does not exist", file=self.traces / log.path, field="TRACES", expected="a job log")

    def _read(self, log: Log) -> tuple[Workload, str | None]:
        if log.path not in self._logs:
            trace = read_trace(self.traces / log.path)
            self._logs[log.path] = build_workload(trace, seed=SEED), trace.provenance.epoch
        return self._logs[log.path]

    def log(self, log: Log) -> Workload:
        """All jobs of a log. Raises InputError."""
        return self._read(log)[0]

    def clock(self, log: Log) -> datetime | None:
        """Calendar time of the first job of a log; None where nobody knows it."""
        text = log.clock or self._read(log)[1]
        return None if text is None else datetime.fromisoformat(text)

    def cluster(self, name: str) -> Cluster:
        """A cluster by preset or file. Raises InputError."""
        if name not in self._clusters:
            self._clusters[name] = load_cluster(name)
        return self._clusters[name]

    def _raw_part(self, cell: Cell) -> Workload:
        """The part of the log, divided before jobs are left out, as for training: the same jobs on every cluster."""
        return self.log(cell.log) if cell.log.whole else period(self.log(cell.log), cell.part)

    def part(self, cell: Cell) -> Workload:
        """The part of the log that the windows of a cell are cut from, fitted to the cluster. Raises InputError."""
        key = (cell.log.path, cell.cluster, cell.part)
        if key not in self._parts:
            self._parts[key] = fit_to_cluster(self._raw_part(cell), self.cluster(cell.cluster))
        return self._parts[key]

    def windows(self, cell: Cell) -> list[Workload]:
        """The windows of a cell, side by side, evenly spread over the part. Raises InputError."""
        if self._recent is None or self._recent[0] != cell:
            gpus = self.cluster(cell.cluster).num_gpus
            self._recent = cell, period_windows(self.part(cell), gpus, cell.load, cell.most, cell.jobs)
        return self._recent[1]

    def facts(self, cell: Cell) -> WindowFacts:
        """About the windows of a cell. Raises InputError."""
        windows = self.windows(cell)
        return WindowFacts(
            windows=len(windows),
            jobs=cell.jobs,
            short_warmups=sum(window.info["window"]["warmup"] < cell.jobs for window in windows),
            too_large=len(self._raw_part(cell)) - len(self.part(cell)),
            synthetic_users="synthetic" in str(windows[0].info["users"]),
        )

    def digest(self, cell: Cell) -> str:
        """Hash of all that a replay of the cell depends on besides policy and options."""
        digest = hashlib.sha256()
        parts: list[Cluster | Workload] = [self.cluster(cell.cluster), *self.windows(cell)]
        for part in parts:
            for field in dataclasses.fields(part):
                value = getattr(part, field.name)
                if field.name in NAMES:
                    continue
                digest.update(field.name.encode())
                if isinstance(value, np.ndarray):
                    digest.update(f"{value.dtype}{value.shape}".encode())
                    digest.update(np.ascontiguousarray(value).data)
                else:
                    digest.update(repr(value).encode())
        return digest.hexdigest()


@dataclass(frozen=True)
class Overlap:
    """Test jobs of one log that another log has in a part that training sees."""

    log: str
    test_jobs: int
    other: str
    part: str  # train or validation
    shared: int  # jobs of the same second and size: by chance too, so at most so many


def overlaps(material: Material, logs: Sequence[Log]) -> list[Overlap]:
    """Jobs of a log's test part that stand in a training or validation part of another log, where there are any.

    Logs are compared whose calendar times are known; a job is taken for the same if it was submitted in the same second
    and has as many GPUs.
    """
    found = []
    known = {log: clock for log in logs if not log.whole and (clock := material.clock(log)) is not None}

    def marks(log: Log, part: str) -> list[tuple[int, int]]:
        jobs = period(material.log(log), part)
        start = (known[log] - datetime(2000, 1, 1, tzinfo=known[log].tzinfo)).total_seconds()
        seconds = np.round(start + jobs.submit_s).astype(np.int64)
        return list(zip(seconds.tolist(), jobs.num_gpus.tolist(), strict=True))

    for log in known:
        test = marks(log, "test")
        for other in known:
            if other == log:
                continue
            for part in ("train", "validation"):
                there = set(marks(other, part))
                shared = sum(mark in there for mark in test)
                if shared:
                    found.append(Overlap(log.key, len(test), other.key, part, shared))
    return found
