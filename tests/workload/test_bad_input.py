"""What is wrong with a file is said in one line that names the file, the line and the field."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from attn_sched.errors import InputError
from attn_sched.workload import ReadOptions, Trace, read_trace, synth, write_trace
from tests.workload import samples
from tests.workload.test_readers import zipped

Write = Callable[..., Path]
HEADER = "job_id,submit_time,num_gpus,duration\n"


def refused(path: Path, options: ReadOptions | None = None) -> InputError:
    with pytest.raises(InputError) as caught:
        read_trace(path, options)
    error = caught.value
    assert "\n" not in str(error)
    assert error.file == str(path)
    return error


@pytest.mark.parametrize(
    ("body", "row", "field", "problem"),
    [
        ("0,0,1,5\n1,nan,1,5\n", 3, "submit_time", "'nan' is not a finite number"),
        ("0,0,1,5\n1,1,1,inf\n", 3, "duration", "'inf' is not a finite number"),
        ("0,0,1,5\n\n1,-2,1,5\n", 4, "submit_time", "-2 is negative"),
        ("# note\n0,0,1,5\n1,2,1,-5\n", 4, "duration", "-5 is negative"),
        ("0,0,1,5\n1,2,-1,5\n", 3, "num_gpus", "-1 is negative"),
        ("0,0,1,5\n1,2,NaN,5\n", 3, "num_gpus", "'NaN' is not a finite number"),
        ("0,0,1,5\n1,2,x,5\n", 3, "num_gpus", "'x' is not a number"),
        ("0,0,1,5\n1,,1,5\n", 3, "submit_time", "is empty"),
        ("0,0,1,5\n,3,1,5\n", 3, "job_id", "is empty"),
        ("0,0,1,5\n1,3,1,5\n0,4,1,5\n", 4, "job_id", "'0' is there twice"),
        ("0,0,1,5\n1,1_0,1,5\n", 3, "submit_time", "'1_0' is not a number"),
        ("0,0,1,5\n1,1e300,1,5\n", 3, "submit_time", "is too far away"),
        ("0,0,1e10,5\n", 2, "num_gpus", "is too large"),
        ("0,0,1,5\n1,3,1\n", 3, None, "the row has 3 columns"),
        ("0,0,1,5\n1,3,1,5,6\n", 3, None, "the row has 5 columns"),
    ],
)
def test_broken_rows(body: str, row: int, field: str | None, problem: str, write: Write) -> None:
    error = refused(write(HEADER + body))
    assert (error.row, error.field) == (row, field)
    assert problem in error.problem


def test_the_line_is_found_in_later_blocks(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    from attn_sched.workload.readers import source

    monkeypatch.setattr(source, "BLOCK_BYTES", 64)
    body = "".join(f"{i},{i},1,5\n" for i in range(100))
    for bad, problem in (
        ("x,y,1,5\n", "'y'"),
        ("1,2,3\n", "3 columns"),
        ("7,3,1,5\n", "twice"),
        ("é\xff,1,1", "columns"),
    ):
        error = refused(write(HEADER + "\n" + body + bad + body.replace(",1,5", ",2,6")))
        assert error.row == 103
        assert problem in error.problem
    error = refused(write((HEADER + body).encode() + b"\xff,1,1,1\n"))
    assert error.row == 102
    assert "UTF-8" in error.problem
    error = refused(write((HEADER + body).encode() + b"a\0,1,1,1\n"))
    assert error.row == 102
    assert "binary" in error.problem


@pytest.mark.parametrize(
    ("name", "old", "new", "row", "field"),
    [
        ("helios", "2020-06-09 18:41:31", "2020-06-31 18:41:31", 3, "submit_time"),
        ("helios", "249", "soon", 3, "duration"),
        ("helios-slice", "5836000000", "x", 5, "submit_time"),
        ("mirror", "5.5", "-5.5", 3, "arrival_s"),
        ("pai", "400.0,600.0", "x,600.0", 1, "end_time"),
        ("openb", "0,500,100", ",500,100", 3, "creation_time"),
        ("acme-seren", ",117,", ",nan,", 2, "duration"),
        ("acme-kalos", ",19,", ",x,", 3, "duration"),
        ("gavel", "60.5", "NaN", 2, "arrival_time"),
        ("tiresias", "147", "-147", 3, "duration"),
        ("muri", "4472936", "four", 3, "duration"),
        ("pollux", "110", "-110", 3, "time"),
        ("swf", "552.5", "nan", 5, "run"),
        ("sacct", "2024-03-01T08:10:00", "2024-03-32T08:10:00", 6, "submit"),
        ("timestamp", "2017-10-09 06:13:03", "2017-10-09 25:13:03", 3, "timestamp"),
        ("csv", "2500", "-1", 3, "runtime_ms"),
        ("philly", "2017-10-07 00:59:00", "yesterday", 2, "submitted_time"),
        ("philly", '"2017-10-07 02:00:00", "end_time": null', '7, "end_time": null', 4, "start_time"),
    ],
)
def test_broken_rows_of_every_format(name: str, old: str, new: str, row: int, field: str, write: Write) -> None:
    text = samples.SAMPLES[name]
    assert old in text
    error = refused(write(text.replace(old, new, 1)))
    assert (error.row, error.field) == (row, field)


def test_duplicate_ids_name_the_files_own_column(write: Write) -> None:
    error = refused(write(samples.OPENB.replace("p1,", "p0,")))
    assert (error.row, error.field) == (3, "name")


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment\n", HEADER, "[]"])
def test_empty(text: str, write: Write) -> None:
    refused(write(text))


def test_a_log_whose_jobs_are_all_dropped_says_why(write: Write) -> None:
    error = refused(write(HEADER + "0,0,0,5\n1,0,0,5\n"))
    assert "none of its 2 jobs can be used (2 zero GPUs)" in error.problem


def test_philly_broken_json(write: Write) -> None:
    cut = samples.PHILLY[: len(samples.PHILLY) // 2]
    assert "cut off or broken" in refused(write(cut)).problem
    assert "array is cut off" in refused(write(samples.PHILLY.rstrip("]"))).problem
    assert refused(write(samples.PHILLY[:-1] + ", 7]")).row == 5
    assert "is missing" in refused(write(samples.PHILLY[:-1] + ', {"jobid": "x"}]')).problem
    deep = samples.PHILLY[:-1] + "," + "[" * 100_000
    assert refused(write(deep)).row == 5


def test_folder_missing_file_and_device(tmp_path: Path) -> None:
    assert "is a directory" in refused(tmp_path).problem
    assert "no such file" in refused(tmp_path / "nothing").problem
    if os.path.exists("/dev/null"):
        assert "not a regular file" in refused(Path("/dev/null")).problem


def test_no_permission(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(samples.GOLDEN)
    path.chmod(0)
    if os.access(path, os.R_OK):  # root reads everything: let the system call refuse instead

        def refuse(*args: object, **kwargs: object) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(Path, "open", refuse)
    assert "no permission" in refused(path).problem


@pytest.mark.parametrize("magic", [b"BZh91AY", b"\xfd7zXZ\0\0", b"\x28\xb5\x2f\xfd\x04", b"7z\xbc\xaf\x27\x1c"])
def test_unsupported_packings_are_named(magic: bytes, write: Write) -> None:
    assert "unpack it first" in str(refused(write(magic + b"....")))


def test_truncated_and_damaged_archives(write: Write) -> None:
    packed = gzip.compress(samples.HELIOS.encode() * 50)
    assert "truncated" in refused(write(packed[:-20])).problem
    damaged = bytearray(packed)
    damaged[len(packed) // 2] ^= 0xFF
    refused(write(bytes(damaged)))
    archive = zipped({"a": samples.HELIOS})
    refused(write(archive[:-30]))
    assert "no job logs" in refused(write(zipped({"a": "x", "b": "y"}))).problem


def test_binary_garbage(write: Write) -> None:
    assert "binary data" in refused(write(bytes(range(256)) * 20)).problem
    assert "is of no known format" in refused(write("hello\n")).problem


def test_truncated_parquet(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    write_trace(synth("helios", 500, 0), path)
    whole = path.read_bytes()
    for size in (4, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        assert "truncated or damaged Parquet" in refused(path).problem


def test_parquet_of_other_columns(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "x"

    def save(**columns: object) -> Path:
        pq.write_table(pa.table(columns), path)
        return path

    good = {"job_id": ["a", "b"], "submit_time": [0.0, 1.0], "num_gpus": [1, 2]}
    assert len(read_trace(save(**good))) == 2
    assert refused(save(job_id=["a"], submit_time=[0.0])).field == "num_gpus"
    assert refused(save(**good | {"submit_time": ["x", "y"]})).field == "submit_time"
    error = refused(save(**good | {"submit_time": [0.0, float("nan")]}))
    assert (error.row, error.field) == (2, "submit_time")
    assert refused(save(**good | {"num_gpus": [1, None]})).row == 2
    assert refused(save(**good | {"job_id": ["a", "a"]})).row == 2
    assert refused(save(**good | {"duration": [1.0, -1.0]})).field == "duration"


def test_nothing_half_written(tmp_path: Path) -> None:
    trace: Trace = synth("pai", 10, 0)
    with pytest.raises(InputError, match="does not exist"):
        write_trace(trace, tmp_path / "no" / "x.parquet")
    with pytest.raises(InputError, match="is a directory"):
        write_trace(trace, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_needed_column_that_is_there_twice(write: Write) -> None:
    error = refused(write("job_id,submit_time,num_gpus,duration,num_gpus,note,note\n0,0,1,5,2,,\n"))
    assert error.field == "num_gpus" and error.row == 1 and "columns 3 and 5" in error.problem
    assert len(read_trace(write("job_id,submit_time,num_gpus,duration,note,note\n0,0,1,5,,\n"))) == 1
