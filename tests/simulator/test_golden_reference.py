"""The plain reference simulator against the numbers of other simulators (communication off), every case A to F."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from attn_sched.workload.workload import Workload
from tests.reference import Result, simulate_reference
from tests.reference.shapes import count_cluster, make_jobs, node_cluster
from tests.shared_traces import shared_traces


@dataclass(frozen=True)
class Case:
    """One line of a table: what is replayed, and the figures that must come out to every printed digit."""

    trace: str
    gpus: int
    order: str
    queueing: str = "strict"
    nodes: int = 0  # nodes of 8 with consolidated placement; 0: GPUs only counted
    jct: float | None = None
    queue: float | None = None  # JCT - duration, or the mean wait
    makespan: float | None = None
    preemptions: int | None = None
    schedule: str | None = None

    def __str__(self) -> str:
        return f"{self.trace}-{self.order}-{self.queueing}-{self.nodes}"


WEEK, DAYS, SMALL, LONG = "philly-week", "philly-3day", "tiresias60", "philly-0e4a51"

CASES = [
    # A: strict FIFO, counted
    Case(SMALL, 16, "fifo", jct=200.8167, queue=22.4, makespan=3335, schedule="tiresias-60-n4g4-count-fifo"),
    Case(DAYS, 64, "fifo", jct=1847.1493, queue=528.1925, makespan=272444),
    Case(WEEK, 96, "fifo", jct=7677.2374, queue=4224.7462, makespan=645957, schedule="tiresias-week-96-count-fifo"),
    Case(LONG, 64, "fifo", jct=595732.8321, queue=506097.5666, makespan=7461851),
    # B: FIFO with skipping, counted
    Case(SMALL, 16, "fifo", "skip", jct=190.6833, queue=12.2667, makespan=3271),
    Case(DAYS, 64, "fifo", "skip", jct=1838.2034, queue=519.2466, makespan=272444),
    Case(
        WEEK, 96, "fifo", "skip", jct=6330.7755, queue=2878.2843, makespan=645957, schedule="tiresias-week-96-count-fjf"
    ),
    Case(
        LONG,
        64,
        "fifo",
        "skip",
        jct=479243.7303,
        queue=389608.4648,
        makespan=7461851,
        schedule="tiresias-0e4a51-64-count-fjf",
    ),
    # C: SJF with skipping, counted
    Case(DAYS, 64, "sjf", "skip", jct=1624.0646, queue=305.1078),
    # D: nodes of 8, consolidated, the head blocks
    Case(
        WEEK,
        96,
        "fifo",
        nodes=12,
        jct=23372.6209,
        queue=19920.1297,
        makespan=645957,
        schedule="lucid-philly-week-12-fifo-consolidate",
    ),
    Case(DAYS, 64, "fifo", nodes=8, jct=1884.3910),
    Case(DAYS, 64, "sjf", nodes=8, jct=1689.0981),
    # E: preemptive SRTF, counted
    Case(SMALL, 16, "srtf", jct=192.1167, preemptions=4, schedule="tiresias-60-n4g4-count-shortest"),
    Case(LONG, 64, "srtf", jct=143611.9505, preemptions=913),
    Case(WEEK, 96, "srtf", jct=4200.3753, preemptions=4210, schedule="tiresias-week-96-count-shortest"),
    # F: commit and wait, without and with backfill
    Case(WEEK, 96, "fifo", "commit", queue=4224.7462),
    Case(WEEK, 96, "sjf", "commit", queue=1930.0585),
    Case(WEEK, 96, "fifo", "easy", queue=3404.4622),
    Case(WEEK, 96, "sjf", "easy", queue=1724.6655),
]


@cache
def golden_jobs(path: Path) -> Workload:
    """The jobs of a golden trace as a workload with oracle estimates."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["job_id"]) for row in rows] == list(range(len(rows)))
    duration = [float(row["duration"]) for row in rows]
    submit = [float(row["submit_time"]) for row in rows]
    return make_jobs(submit, duration, [int(row["num_gpus"]) for row in rows])


def agrees(result: Result, path: Path) -> None:
    """Every job starts, ends and is preempted as in the schedule of another simulator."""
    with path.open(newline="") as file:
        rows = sorted(csv.DictReader(file), key=lambda row: int(row["job_id"]))
    assert len(rows) == len(result.start)
    np.testing.assert_array_equal(result.start, [float(row["start"]) for row in rows])
    np.testing.assert_array_equal(result.finish, [float(row["end"]) for row in rows])
    np.testing.assert_array_equal(result.preemptions, [int(row["preemptions"]) for row in rows])


@pytest.mark.parametrize("case", CASES, ids=str)
def test_golden(case: Case) -> None:
    """Means to every printed digit, and the whole schedule where one is given."""
    folder = shared_traces() / "golden"
    jobs = golden_jobs(folder / f"{case.trace}.csv")
    result = simulate_reference(
        node_cluster(case.nodes, 8) if case.nodes else count_cluster(case.gpus),
        jobs,
        order=case.order,
        queueing=case.queueing,
        placement="best-fit" if case.nodes else "topo-best-fit",
        comm=False,
    )
    jct = result.finish - jobs.submit_s
    if case.jct is not None:
        assert round(float(jct.mean()), 4) == case.jct
    if case.queue is not None:
        assert round(float((jct - jobs.duration_s).mean()), 4) == case.queue
        np.testing.assert_array_equal(result.wait, jct - jobs.duration_s)
    if case.makespan is not None:
        assert result.finish.max() - jobs.submit_s.min() == case.makespan
    if case.preemptions is not None:
        assert int(result.preemptions.sum()) == case.preemptions
    if case.schedule is not None:
        agrees(result, folder / "schedules" / f"{case.schedule}.csv")
