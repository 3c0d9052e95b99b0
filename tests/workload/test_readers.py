"""Every format: found by content, read exactly, quirks included."""

from __future__ import annotations

import gzip
import io
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from attn_sched.errors import InputError
from attn_sched.workload import ReadOptions, Trace, build_workload, read_trace, write_trace
from attn_sched.workload.readers import ALL, READERS, plain
from tests.workload import samples

ROOT = Path(__file__).resolve().parents[2]
Load = Callable[..., Trace]


def rows(trace: Trace) -> list[tuple[str, float, float | None, int]]:
    table = trace.table
    return list(
        zip(*(table[name].to_pylist() for name in ("job_id", "submit_time", "duration", "num_gpus")), strict=True)
    )


def test_names_are_unique_and_complete() -> None:
    assert len(READERS) == len(ALL)
    assert set(samples.SAMPLES) | {"parquet"} == set(READERS)


@pytest.mark.parametrize("name", samples.SAMPLES)
def test_recognised_by_content(name: str, load: Load) -> None:
    trace = load(samples.SAMPLES[name])
    assert trace.provenance.format == name
    assert len(trace) + sum(trace.provenance.dropped.values()) == trace.provenance.rows_read
    submit = trace.numbers("submit_time")
    assert submit[0] == 0
    assert (np.diff(submit) >= 0).all()


@pytest.mark.parametrize("name", samples.SAMPLES)
def test_dos_lines_mark_blank_lines_and_compression_change_nothing(name: str, load: Load) -> None:
    text = samples.SAMPLES[name]
    plainly = load(text)
    for content in (
        b"\xef\xbb\xbf" + text.encode(),
        text.replace("\n", "\r\n").encode(),
        text.encode() + b"\n\n   \n\n",
        gzip.compress(text.encode()),
        zipped({"inside/whatever.bin": text}),
        zipped({"README": "not a log", "the log": text}),
    ):
        other = load(content)
        assert other.table.equals(plainly.table)
        assert other.provenance == plainly.provenance


def zipped(files: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return buffer.getvalue()


def test_zip_with_two_logs_is_refused(load: Load) -> None:
    with pytest.raises(InputError, match="holds 2 job logs among 2 files"):
        load(zipped({"a": samples.GOLDEN, "b": samples.MIRROR}))
    forced = ReadOptions(format="mirror")
    assert load(zipped({"a": samples.GOLDEN, "b": samples.MIRROR}), forced).provenance.format == "mirror"


def test_philly(load: Load) -> None:
    trace = load(samples.PHILLY)
    # The sum of the attempts, not the span; the first attempt's GPUs.
    assert rows(trace) == [("app_3", 0.0, 30.0, 1), ("app_1", 120.0, 60.0 + 3600.0, 2)]
    assert trace.provenance.dropped == {"no attempts": 1, "no end time": 1}
    assert trace.provenance.notes == {
        "attempts without a start or an end: not in the duration": 1,
        "GPU count differs between attempts: the first one taken": 1,
    }
    assert trace.provenance.epoch == "2017-10-07T00:58:00"
    assert trace.table["user"].to_pylist() == [None, "u1"]
    assert trace.table["group"].to_pylist() == ["vc2", "vc1"]


@pytest.mark.parametrize("missing", ['"None"', '""', "null"])
def test_philly_missing_times_in_any_spelling(missing: str, load: Load) -> None:
    trace = load(samples.PHILLY.replace('"None"', missing))
    assert trace.provenance.notes["attempts without a start or an end: not in the duration"] == 1


def test_philly_json_lines(load: Load) -> None:
    import json

    lines = "\n".join(json.dumps(job) for job in json.loads(samples.PHILLY))
    assert load(lines).table.equals(load(samples.PHILLY).table)


def test_helios(load: Load) -> None:
    trace = load(samples.HELIOS)
    assert rows(trace) == [("11", 0.0, 60.0, 1), ("12", 30.0, 249.0, 4), ("13", 40.0, 600.0, 2)]
    assert trace.provenance.dropped == {"zero GPUs": 1, "no end time": 1, "negative duration": 1}
    assert trace.provenance.epoch == "2020-06-09T18:41:01"


def test_helios_slice_is_in_microseconds(load: Load) -> None:
    trace = load(samples.HELIOS_SLICE)
    assert rows(trace) == [("7", 0.0, 24.5, 16), ("8", 1.0, 100.0, 8)]
    # The limit column copies the true duration: taking it for a request would leak it.
    assert not trace.has("requested_time")
    assert trace.table["group"].to_pylist() == ["vcA", "vcB"]


def test_mirror(load: Load) -> None:
    trace = load(samples.MIRROR)
    assert rows(trace) == [("3#0", 0.0, 172800.0, 32), ("4#1", 5.5, 10.0, 8)]
    assert list(trace.provenance.notes.values()) == [1]


def test_pai(load: Load) -> None:
    trace = load(samples.PAI)
    assert rows(trace) == [("aaa/tensorflow#0", 0.0, 300.0, 2), ("ddd/worker#4", 100.0, 60.0, 9)]
    assert trace.provenance.dropped == {
        "zero GPUs": 1,
        "negative duration": 1,
        "no end time": 1,
        "never scheduled": 1,
    }
    assert trace.provenance.notes["fraction of a GPU per instance rounded up"] == 2
    assert trace.table["gpu_type"].to_pylist() == ["T4", None]


def test_pai_with_header(load: Load) -> None:
    header = "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type\n"
    assert load(header + samples.PAI).table.equals(load(samples.PAI).table)


def test_openb(load: Load) -> None:
    trace = load(samples.OPENB)
    assert rows(trace) == [("p1", 0.0, 400.0, 2), ("p0", 10.0, 980.0, 1)]
    assert trace.provenance.dropped == {"zero GPUs": 1, "never scheduled": 1}
    assert trace.provenance.notes["fractional GPUs rounded up"] == 1
    assert trace.table["gpu_type"].to_pylist() == ["G2|V100M16", None]


def test_acme_seren_and_kalos_durations(load: Load) -> None:
    seren = load(samples.ACME_SEREN)
    assert rows(seren) == [("1", 0.0, 117.0, 8)]
    assert seren.provenance.dropped == {"zero GPUs": 1, "never scheduled": 1}
    assert seren.provenance.epoch == "2023-02-28T16:18:22+00:00"
    # Kalos: 18 s and 19 s include 10 s and 13 s of queueing.
    assert rows(load(samples.ACME_KALOS)) == [("dlc1", 0.0, 8.0, 64), ("dlc2", 1.0, 6.0, 32)]


def test_gavel_durations_need_throughputs(load: Load, write: Callable[..., Path]) -> None:
    alone = load(samples.GAVEL)
    assert rows(alone) == [("0", 0.0, None, 2), ("1", 60.5, None, 1), ("2", 70.0, None, 4)]
    with pytest.raises(InputError, match="cannot be replayed"):
        build_workload(alone)
    table = write(samples.THROUGHPUTS, "speeds")
    beside = load(samples.GAVEL)  # found in the folder by its columns
    given = load(samples.GAVEL, ReadOptions(throughputs=table))
    # 1000 steps at 50/s; 500 at 5/s; 300 at 4 x 3/s.
    assert rows(beside) == rows(given) == [("0", 0.0, 20.0, 2), ("1", 60.5, 100.0, 1), ("2", 70.0, 25.0, 4)]
    assert given.provenance.notes["throughput scaled linearly from fewer workers"] == 1
    assert given.table["model"].to_pylist()[1] == "A3C"


def test_later_gavel_layouts(load: Load) -> None:
    assert rows(load(samples.GAVEL_LATER)) == [("0", 0.0, None, 2), ("1", 60.5, None, 1)]
    assert rows(load(samples.SHOCKWAVE)) == [("0", 0.0, 345.5, 2), ("1", 12.5, 99.0, 1)]
    extended = "".join(line + "\t1.0\textra\n" for line in samples.GAVEL.splitlines())
    assert rows(load(extended)) == rows(load(samples.GAVEL))


def test_gavel_mapped_throughputs_must_be_a_table(load: Load, write: Callable[..., Path]) -> None:
    with pytest.raises(InputError, match="no throughput table"):
        load(samples.GAVEL, ReadOptions(throughputs=write(samples.GOLDEN, "x")))
    with pytest.raises(InputError, match="no speed on v100"):
        load(samples.GAVEL, ReadOptions(throughputs=write(samples.THROUGHPUTS.replace("v100", "z"), "x")))


def test_tiresias_seconds_and_muri_milliseconds(load: Load) -> None:
    tiresias = load(samples.TIRESIAS)
    assert rows(tiresias) == [("1", 0.0, 164.0, 8), ("2", 30.5, 147.0, 2)]
    assert tiresias.table["model"].to_pylist() == ["vgg16", "resnet50"]
    muri = load(samples.MURI)
    assert rows(muri) == [("0", 0.0, 2868.0, 1), ("1", 201694.0, 4472.936, 8)]
    assert not muri.has("model")  # made up by its authors


def test_pollux_converts_but_cannot_be_replayed(load: Load, tmp_path: Path) -> None:
    trace = load(samples.POLLUX)
    assert rows(trace) == [("cifar10-0", 0.0, None, 6), ("ncf-1", 3.0, None, 1)]
    write_trace(trace, tmp_path / "x.parquet")
    again = read_trace(tmp_path / "x.parquet")
    assert again.table.equals(trace.table)
    with pytest.raises(InputError, match=r"cannot be replayed: its format \(pollux\) gives no durations"):
        build_workload(again)


def test_swf(load: Load) -> None:
    trace = load(samples.SWF)
    assert rows(trace) == [("1", 0.0, 31405.0, 30), ("2", 8.0, 552.5, 4)]
    assert trace.provenance.dropped == {"no run time": 1}
    assert trace.provenance.epoch == "1970-01-12T13:46:40+00:00"
    assert trace.table["requested_time"].to_pylist() == [37980.0, None]
    assert trace.table["status"].to_pylist() == ["completed", "failed"]
    assert trace.table["user"].to_pylist() == ["1", "2"]


def test_timestamp(load: Load) -> None:
    trace = load(samples.TIMESTAMP)
    assert rows(trace) == [("1", 0.0, 2951.0, 2), ("0", 2932.0, 66.0, 1)]
    assert trace.provenance.epoch == "2017-10-09T06:13:03"
    assert trace.table["group"].to_pylist() == ["6214e9", "11cb48"]


def test_golden_keeps_the_order_of_equal_times(load: Load) -> None:
    assert rows(load(samples.GOLDEN)) == [("0", 0.0, 67.0, 1), ("1", 600.0, 68.0, 1), ("2", 600.0, 7205.0, 8)]


class TestPlain:
    def test_common_names(self, load: Load) -> None:
        trace = load(samples.PLAIN)
        assert rows(trace) == [("b", 0.0, 2.5, 3), ("a", 10.0, 1.5, 1)]
        assert trace.provenance.notes == {"fractional GPUs rounded up": 1}
        assert trace.table["user"].to_pylist() == ["bob", "ann"]
        assert trace.table["group"].to_pylist() == [None, "q1"]
        assert trace.provenance.epoch == "2021-01-01T00:00:00"

    def test_map_with_units(self, load: Load) -> None:
        text = "when,long,cards\n2,1,4\n1,3,1\n"
        column_map = plain.parse_map("submit_time=when:h,duration=long:min,num_gpus=CARDS")
        assert rows(load(text, ReadOptions(column_map=column_map))) == [("1", 0.0, 180.0, 1), ("0", 3600.0, 60.0, 4)]

    def test_start_and_end_make_a_duration(self, load: Load) -> None:
        text = "id,submit_time,start_time,end_time,gpus\nx,5,10,30,1\ny,5,,,1\nz,5,9,8,1\n"
        trace = load(text)
        assert rows(trace) == [("x", 0.0, 20.0, 1)]
        assert trace.provenance.dropped == {"no end time": 1, "negative duration": 1}

    def test_unknown_columns_say_what_to_do(self, load: Load) -> None:
        with pytest.raises(InputError, match=r"columns \(a, b, c\) are not recognised as a job log; .*column map"):
            load("a,b,c\n1,2,3\n")
        with pytest.raises(InputError, match="no column for submit_time"):
            load("a,b,c\n1,2,3\n", ReadOptions(column_map={"num_gpus": "a"}))
        with pytest.raises(InputError, match="'nope' of the map is missing"):
            load("a,b,c\n1,2,3\n", ReadOptions(column_map={"num_gpus": "nope"}))
        with pytest.raises(InputError, match="unknown field 'color'"):
            load("a,b,c\n1,2,3\n", ReadOptions(column_map={"color": "a"}))
        with pytest.raises(InputError, match="has no known unit"):
            load("a,b,c\n1,2,3\n", ReadOptions(column_map={"duration": "a:weeks"}))

    @pytest.mark.parametrize("text", ["", "duration", "a=b,a=c", "=x", "x="])
    def test_bad_maps(self, text: str) -> None:
        with pytest.raises(InputError, match="map"):
            plain.parse_map(text)

    def test_blocks_join_without_a_seam(self, tmp_path: Path) -> None:
        # 60,000 rows cross no block border of 8 MiB; shrink the block instead of writing a huge file.
        from attn_sched.workload.readers import source

        path = tmp_path / "log"
        body = "".join(f"j{i},{i},{i % 8 + 1},{i % 100 + 1}\n" for i in range(60_000))
        path.write_text("job_id,submit_time,num_gpus,duration\n" + body)
        whole = read_trace(path)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(source, "BLOCK_BYTES", 1000)
            assert read_trace(path).table.equals(whole.table)
        assert len(whole) == 60_000


def test_forced_format(load: Load) -> None:
    assert load(samples.GOLDEN, ReadOptions(format="csv")).provenance.format == "csv"
    with pytest.raises(InputError, match=r"unknown trace format 'x'; expected one of acme-kalos, "):
        load(samples.GOLDEN, ReadOptions(format="x"))
    with pytest.raises(InputError, match="does not go with format 'golden'"):
        load(samples.GOLDEN, ReadOptions(format="golden", column_map={"duration": "a"}))
    with pytest.raises(InputError, match="none of the columns of this format"):
        load("a,b\n1,2\n", ReadOptions(format="golden"))
    with pytest.raises(InputError, match=r"field 'submit_time': the column is missing"):
        load("job_id,b\n1,2\n", ReadOptions(format="golden"))


@pytest.mark.parametrize(
    ("header", "what"),
    [
        ("gpu_type,job_type,scale_factor,steps_per_second\n", "throughputs"),
        ("sn,cpu_milli,memory_mib,gpu,model\na,1,1,2,P100\n", "a list of nodes"),
        ("machineId, number of GPUs, single GPU mem\nm0,2, 12GB\n", "a list of machines"),
        ("7399,T4,96,512,2\n75c5,CPU,96,512,0\n", "a list of machines"),
        ("job_id,start,end\n1,2,3\n", "a schedule"),
        ("date,vcA,total\n2020-04-01,8,8\n", "GPUs per virtual cluster"),
    ],
)
def test_tables_that_are_no_logs_are_named(header: str, what: str, load: Load) -> None:
    with pytest.raises(InputError, match=f"is .*{what}.*, not a job log"):
        load(header)


@pytest.mark.slow
def test_a_million_rows_in_bounded_memory(tmp_path: Path) -> None:
    """Ten times the rows, read in a process of its own, add less than 450 bytes a row to its peak memory."""
    script = (
        "import sys\n"
        "from attn_sched.workload import read_trace\n"
        "from benchmarks.memory import peak_memory\n"
        "print(len(read_trace(sys.argv[1])), peak_memory())\n"
    )
    peaks = {}
    for rows in (100_000, 1_000_000):
        path = tmp_path / f"{rows}.csv"
        with path.open("w") as file:
            file.write("job_id,submit_time,num_gpus,duration,user\n")
            file.writelines(f"job-{i},{i},{i % 8 + 1},{i % 1000 + 1},u{i % 97}\n" for i in range(rows))
        done = subprocess.run(
            [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True, cwd=ROOT
        )
        count, peaks[rows] = map(int, done.stdout.split())
        assert count == rows
    assert peaks[1_000_000] < 1_000_000_000
    assert (peaks[1_000_000] - peaks[100_000]) / 900_000 < 450
