"""The engine against the schedules of other simulators (communication off).

Every case A to F, to every printed digit.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from attn_sched.cluster import load_cluster
from attn_sched.policies import simulate
from attn_sched.simulator import Schedule, SimOptions
from attn_sched.workload import Workload, build_workload, read_trace
from tests.shared_traces import shared_traces

WEEK, DAYS, SMALL, LONG = "philly-week", "philly-3day", "tiresias60", "philly-0e4a51"


@dataclass(frozen=True)
class Row:
    """One row of a table of golden.md; figures that it does not give are None."""

    case: str
    trace: str
    cluster: str
    policy: str
    jct: float | None = None
    queue: float | None = None  # mean JCT - duration
    makespan: float | None = None
    preemptions: int | None = None
    schedule: str | None = None  # a file of ``schedules/``

    def __str__(self) -> str:
        return f"{self.case}-{self.trace}-{self.policy}"


ROWS = [
    Row("A", SMALL, "count:16", "fifo:strict", 200.8167, 22.4, 3335, 0, "tiresias-60-n4g4-count-fifo"),
    Row("A", DAYS, "count:64", "fifo:strict", 1847.1493, 528.1925, 272444, 0),
    Row("A", WEEK, "count:96", "fifo:strict", 7677.2374, 4224.7462, 645957, 0, "tiresias-week-96-count-fifo"),
    Row("A", LONG, "count:64", "fifo:strict", 595732.8321, 506097.5666, 7461851, 0),
    Row("B", SMALL, "count:16", "fifo:skip", 190.6833, 12.2667, 3271, 0),
    Row("B", DAYS, "count:64", "fifo:skip", 1838.2034, 519.2466, 272444, 0),
    Row("B", WEEK, "count:96", "fifo:skip", 6330.7755, 2878.2843, 645957, 0, "tiresias-week-96-count-fjf"),
    Row("B", LONG, "count:64", "fifo:skip", 479243.7303, 389608.4648, 7461851, 0, "tiresias-0e4a51-64-count-fjf"),
    Row("C", DAYS, "count:64", "sjf:skip", 1624.0646, 305.1078, None, 0),
    Row("D", WEEK, "nodes:12x8", "fifo:strict+best-fit", 23372.6209, 19920.1297, 645957, 0,
        "lucid-philly-week-12-fifo-consolidate"),
    Row("D", DAYS, "nodes:8x8", "fifo:strict+best-fit", 1884.3910),
    Row("D", DAYS, "nodes:8x8", "sjf:strict+best-fit", 1689.0981),
    Row("E", SMALL, "count:16", "srtf", 192.1167, None, None, 4, "tiresias-60-n4g4-count-shortest"),
    Row("E", LONG, "count:64", "srtf", 143611.9505, None, None, 913),
    Row("E", WEEK, "count:96", "srtf", 4200.3753, None, None, 4210, "tiresias-week-96-count-shortest"),
    Row("F", WEEK, "count:96", "fifo:commit", None, 4224.7462),
    Row("F", WEEK, "count:96", "sjf:commit", None, 1930.0585),
    Row("F", WEEK, "count:96", "fifo:easy", None, 3404.4622),
    Row("F", WEEK, "count:96", "sjf:easy", None, 1724.6655),
]  # fmt: skip


@cache
def golden_workload(path: Path) -> Workload:
    """A golden trace through the reader that users meet."""
    return build_workload(read_trace(path))


def replay(row: Row, policy: str | None = None) -> Schedule:
    """The schedule of a row, or of another policy on its trace and cluster."""
    workload = golden_workload(shared_traces() / "golden" / f"{row.trace}.csv")
    return simulate(workload, load_cluster(row.cluster), policy or row.policy, SimOptions(comm=False))


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_row(row: Row) -> None:
    """Means to four decimals, makespan, preemptions, and start.

    End and preemptions of every job where they are given.
    """
    schedule = replay(row)
    workload = schedule.workload
    jct = schedule.finish_s - workload.submit_s
    if row.jct is not None:
        assert f"{jct.mean():.4f}" == f"{row.jct:.4f}"
    if row.queue is not None:
        assert f"{(jct - workload.duration_s).mean():.4f}" == f"{row.queue:.4f}"
        np.testing.assert_array_equal(schedule.wait_s, jct - workload.duration_s)
    if row.makespan is not None:
        assert schedule.finish_s.max() - workload.submit_s.min() == row.makespan
    if row.preemptions is not None:
        assert schedule.preemptions.sum() == row.preemptions
    np.testing.assert_array_equal(schedule.held_s, workload.duration_s)
    if row.schedule is not None:
        with (shared_traces() / "golden" / "schedules" / f"{row.schedule}.csv").open(newline="") as file:
            expected = {line["job_id"]: line for line in csv.DictReader(file)}
        assert set(expected) == set(workload.job_id)
        lines = [expected[job] for job in workload.job_id]
        np.testing.assert_array_equal(schedule.start_s, [float(line["start"]) for line in lines])
        np.testing.assert_array_equal(schedule.finish_s, [float(line["end"]) for line in lines])
        np.testing.assert_array_equal(schedule.preemptions, [int(line["preemptions"]) for line in lines])


def test_every_schedule_is_used() -> None:
    """No file of ``schedules/`` is left without a row."""
    files = {path.stem for path in (shared_traces() / "golden" / "schedules").glob("*.csv")}
    assert files == {row.schedule for row in ROWS if row.schedule}


@pytest.mark.parametrize("placement", ["best-fit", "first-fit", "load-balance", "random", "tiresias-skew", "lwf"])
def test_counted_gpus_are_all_alike(placement: str) -> None:
    """On ``count:N`` every placement rule is the same, and communication costs nothing even when it is on."""
    row = ROWS[0]
    plain = replay(row)
    other = replay(row, f"{row.policy}+{placement}")
    np.testing.assert_array_equal(plain.finish_s, other.finish_s)
    with_comm = simulate(plain.workload, plain.cluster, f"{row.policy}+{placement}", SimOptions(comm=True))
    np.testing.assert_array_equal(plain.finish_s, with_comm.finish_s)
