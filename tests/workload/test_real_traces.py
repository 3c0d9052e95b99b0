"""The public logs: every job log of the collection is read with the counts its notes give."""

from __future__ import annotations

import pytest

from attn_sched.errors import InputError
from attn_sched.workload import read_trace
from tests.shared_traces import shared_traces

# File -> format, jobs kept, dropped by reason. Kept + dropped = rows of the file.
LOGS: dict[str, tuple[str, int, dict[str, int]]] = {
    "acme-kalos/trace_kalos.csv": ("acme-kalos", 500, {}),
    "acme-kalos/trace_kalos_full_rows.csv": ("acme-kalos", 5, {}),
    "acme-kalos/trace_seren_full_rows.csv": ("acme-seren", 5, {}),
    "alibaba-openb-2023/openb_pod_list_default.csv": ("openb", 6203, {"zero GPUs": 1088, "never scheduled": 861}),
    "alibaba-openb-2023/openb_pod_list_gpuspec33.csv": ("openb", 6203, {"zero GPUs": 1088, "never scheduled": 861}),
    "alibaba-pai-2020/alibaba_trace_sub_day00_31.csv": ("mirror", 27_119, {}),
    "gavel/103959.trace": ("gavel", 986, {}),
    "gavel/e13805.trace": ("gavel", 607, {}),
    "golden/philly-0e4a51.csv": ("golden", 1435, {}),
    "golden/philly-3day.csv": ("golden", 2680, {}),
    "golden/philly-week.csv": ("golden", 6201, {}),
    "golden/tiresias60.csv": ("golden", 60, {}),
    "helios-readme-rows/cluster_log.csv": ("helios", 3, {}),
    "helios-venus-2vc/cluster_log.csv": ("helios", 684, {}),
    "helios-venus-2vc/helios_venus_2vc_sep01_sep13.csv": ("helios-slice", 684, {}),
    "helios-venus-gpu/helios_trace_mar18_jun30.csv": ("mirror", 54_803, {}),
    "philly-native/cluster_job_log": ("philly", 2, {"no attempts": 1}),
    "philly-passed/philly_sep_oct.csv": ("timestamp", 51_345, {}),
    "philly-vc/trace1.csv": ("muri", 1494, {}),
    "philly-vc/trace3.csv": ("muri", 992, {}),
    **{
        f"pollux-workloads/{kind}/workload-{i}.csv": ("pollux", 160, {})
        for kind in ("workloads", "workloads-realistic")
        for i in range(1, 5)
    },
    "swf-hpc/hpc2n.swf": ("swf", 3145, {"no run time": 25}),
}


@pytest.mark.parametrize("name", LOGS)
def test_counts(name: str) -> None:
    form, kept, dropped = LOGS[name]
    trace = read_trace(shared_traces() / name)
    assert trace.provenance.format == form
    assert len(trace) == kept
    assert dict(trace.provenance.dropped) == dropped
    assert trace.provenance.rows_read == kept + sum(dropped.values())


def test_everything_else_is_refused_in_one_line() -> None:
    folder = shared_traces()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and str(path.relative_to(folder)) not in LOGS:
            with pytest.raises(InputError) as caught:
                read_trace(path)
            assert "\n" not in str(caught.value)
            assert path.name in str(caught.value)


def test_two_writings_of_the_same_jobs_agree() -> None:
    folder = shared_traces() / "helios-venus-2vc"
    official = read_trace(folder / "cluster_log.csv").table
    given = read_trace(folder / "helios_venus_2vc_sep01_sep13.csv").table
    for column in ("job_id", "user", "group", "submit_time", "duration", "num_gpus"):
        assert official[column].equals(given[column]), column


def test_golden_totals() -> None:
    for name, seconds, span, most in (
        ("philly-3day", 7_591_644, 258_664, 16),
        ("philly-week", 41_456_312, 604_503, 32),
        ("philly-0e4a51", 279_202_703, 7_363_808, 4),
    ):
        trace = read_trace(shared_traces() / "golden" / f"{name}.csv")
        gpus, duration = trace.numbers("num_gpus"), trace.numbers("duration")
        assert (gpus * duration).sum() == seconds
        assert trace.numbers("submit_time")[-1] == span
        assert gpus.max() == most


def test_official_example_sums_its_attempts() -> None:
    trace = read_trace(shared_traces() / "philly-native" / "cluster_job_log")
    # 74 s and then 2 d 5 h 39 min 42 s.
    assert trace.table["duration"].to_pylist() == [74.0 + 193_182.0, 43.0]
    assert trace.table["num_gpus"].to_pylist() == [8, 1]


def test_kalos_run_time_excludes_the_queue() -> None:
    trace = read_trace(shared_traces() / "acme-kalos" / "trace_kalos.csv")
    full = read_trace(shared_traces() / "acme-kalos" / "trace_kalos_full_rows.csv")
    assert trace.table["duration"].to_pylist()[:5] == full.table["duration"].to_pylist() == [8.0, 6.0, 70.0, 92.0, 70.0]
