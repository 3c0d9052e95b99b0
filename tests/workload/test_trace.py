"""Traces as tables and as files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from attn_sched.workload import Provenance, Trace, read_trace, synth, write_trace
from attn_sched.workload.describe import describe
from attn_sched.workload.trace import SCHEMA, make_table
from tests.workload.make import make_trace


def test_parquet_round_trip(tmp_path: Path) -> None:
    trace = synth("helios", 1000, 3)
    write_trace(trace, tmp_path / "any name")
    again = read_trace(tmp_path / "any name")
    assert again.table.equals(trace.table)
    assert again.table.schema.equals(SCHEMA)
    assert again.provenance == trace.provenance
    assert again.name == trace.name


def test_a_part_of_a_stored_trace_starts_at_zero(tmp_path: Path) -> None:
    trace = synth("helios", 1000, 3)
    write_trace(Trace(trace.table.slice(500), trace.provenance), tmp_path / "x")
    part = read_trace(tmp_path / "x")
    assert part.numbers("submit_time")[0] == 0
    later = np.datetime64(part.provenance.epoch) - np.datetime64(trace.provenance.epoch)
    assert later == np.timedelta64(int(trace.numbers("submit_time")[500]), "s")


def test_provenance_json() -> None:
    provenance = Provenance("x.csv", "golden", 7, {"zero GPUs": 2}, {"note": 1}, "2020-01-01T00:00:00")
    assert Provenance.from_json(provenance.to_json()) == provenance
    for text in ("[]", "{}", "7", '{"source": "x", "format": "y", "rows_read": null}'):
        with pytest.raises(ValueError, match="not a"):
            Provenance.from_json(text)


@pytest.mark.parametrize(
    ("source", "name"),
    [("trace1.csv", "trace1"), ("a.b.csv.gz", "a.b"), ("cluster_job_log", "cluster_job_log"), (".csv", ".csv")],
)
def test_name(source: str, name: str) -> None:
    assert Trace(make_table({}, 0), Provenance(source, "csv", 0)).name == name


def test_nulls_become_nan_and_none() -> None:
    trace = make_trace([0, 1], [5, np.nan], user=np.array(["a", None], dtype=object))
    assert np.isnan(trace.numbers("duration")).tolist() == [False, True]
    assert trace.strings("user").tolist() == ["a", None]
    assert trace.has("user")
    assert not trace.has("group")


def test_describe() -> None:
    data = describe(make_trace([0, 10, 20], [10, 20, np.nan], [1, 4, 1]))
    assert data["jobs"] == 3
    assert data["span_s"] == 20
    assert data["gpu_seconds"] == 90
    assert data["average_gpus_busy"] == 4.5
    assert data["duration_unknown"] == 1
    assert [row["jobs"] for row in data["gpu_mix"]] == [2, 1]
    assert data["gpu_mix"][1]["gpu_time_share"] == pytest.approx(80 / 90)
    assert data["users"] is None
    one = describe(make_trace([0], [np.nan]))
    assert one["average_gpus_busy"] is None
    assert one["duration_s"] is None
