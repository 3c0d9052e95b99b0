"""``attn-sched traces``."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from attn_sched.cli import main
from attn_sched.cli.traces import traces
from attn_sched.errors import InputError
from attn_sched.workload import FAMILIES, read_trace
from tests.workload import samples


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(traces, arguments)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log"
    path.write_text(samples.HELIOS)
    return path


def test_info(log: Path) -> None:
    result = run("info", str(log))
    assert result.exit_code == 0
    for text in (
        "helios",
        "3 of 6 rows",
        "1 zero GPUs",
        "1 negative duration",
        "2020-06-09T18:41:01",
        "GPUs asked for",
    ):
        assert text in result.output
    assert "Traceback" not in result.output


def test_info_json(log: Path) -> None:
    data = json.loads(run("info", str(log), "--json").output)
    assert data["jobs"] == 3
    assert data["format"] == "helios"
    assert data["dropped"] == {"zero GPUs": 1, "no end time": 1, "negative duration": 1}
    assert data["groups"] == 2


@pytest.mark.parametrize("name", sorted(samples.SAMPLES))
def test_info_of_every_format(name: str, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(samples.SAMPLES[name])
    assert name in run("info", str(path)).output


def test_convert(log: Path, tmp_path: Path) -> None:
    out = tmp_path / "x.parquet"
    result = run("convert", str(log), "--out", str(out))
    assert "3 jobs (helios) written to" in result.output
    assert "3 of 6 left out" in result.output
    assert read_trace(out).table.equals(read_trace(log).table)
    run("convert", str(log), "--out", str(out), "--draw-models", "--seed", "1")
    assert read_trace(out).table["model"].null_count == 0


def test_convert_with_a_map(tmp_path: Path) -> None:
    path, out = tmp_path / "log", tmp_path / "x.parquet"
    path.write_text("when,took,cards\n0,90,2\n")
    run("convert", str(path), "--map", "submit_time=when,duration=took:min,num_gpus=cards", "--out", str(out))
    assert read_trace(out).table["duration"].to_pylist() == [5400.0]


def test_convert_a_part(tmp_path: Path) -> None:
    whole, out = tmp_path / "whole.parquet", tmp_path / "last.parquet"
    run("synth", "--family", "helios", "--jobs", "400", "--out", str(whole))
    result = run("convert", str(whole), "--part", "test", "--out", str(out))
    assert "200 jobs" in result.output and "200 not in the test part" in result.output
    assert read_trace(out).table["job_id"].to_pylist() == read_trace(whole).table["job_id"].to_pylist()[200:]
    assert json.loads(run("info", str(out), "--json").output)["dropped"] == {"not in the test part": 200}
    assert run("convert", str(whole), "--part", "last", "--out", str(out)).exit_code == 2
    short = tmp_path / "short.csv"
    short.write_text("job_id,submit_time,num_gpus,duration\na,0,1,9\n")
    with pytest.raises(InputError, match="its train part holds no job"):
        run("convert", str(short), "--part", "train", "--out", str(out))
    assert len(read_trace(out)) == 200


def test_synth(tmp_path: Path) -> None:
    out = tmp_path / "x.parquet"
    result = run("synth", "--family", "acme", "--jobs", "300", "--seed", "2", "--out", str(out))
    assert "300 jobs (synthetic)" in result.output
    assert len(read_trace(out)) == 300
    assert all(family in run("synth", "--help").output for family in FAMILIES)


def test_wrong_input_is_left_to_the_top_command(log: Path, tmp_path: Path) -> None:
    out = str(tmp_path / "x.parquet")
    for arguments in (
        ("info", str(tmp_path)),
        ("info", str(tmp_path / "none")),
        ("info", str(log), "--format", "nope"),
        ("info", str(log), "--map", "nope"),
        ("convert", str(log), "--out", str(tmp_path / "no" / "x")),
        ("synth", "--family", "nope", "--jobs", "3", "--out", out),
        ("synth", "--family", "pai", "--jobs", "0", "--out", out),
        ("synth", "--family", "pai", "--jobs", "3", "--seed", "-1", "--out", out),
    ):
        with pytest.raises(InputError):
            run(*arguments)
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_outputs_replace_nothing_that_is_read(log: Path, tmp_path: Path) -> None:
    table, pipe = tmp_path / "throughputs.csv", tmp_path / "pipe"
    table.write_text("gpu_type,job_type,scale_factor,steps_per_second\n")
    os.mkfifo(pipe)
    for out in (log, table, pipe):
        with pytest.raises(InputError, match="replace"):
            run("convert", str(log), "--out", str(out), "--throughputs", str(table))
    with pytest.raises(InputError, match="replace"):
        run("synth", "--family", "pai", "--jobs", "3", "--out", str(pipe))
    assert log.read_text() == samples.HELIOS and pipe.is_fifo()


def test_an_empty_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no file is named"):
        run("info", "")


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (
            samples.SACCT.replace("Submit|", "Comment|"),
            "has no column Submit; expected the output of: sacct --allusers",
        ),
        (samples.SACCT.replace("00:01:00|00:30:00", "soon|00:30:00"), "row 6, field 'elapsed': 'soon'"),
        (samples.SACCT.partition("\n")[2], "row 1: has no header"),
        (samples.SACCT.replace("gres/gpu", "gres/fpga"), "none of its 10 jobs can be used"),
    ],
)
def test_a_broken_sacct_is_told_in_one_line(text: str, part: str, tmp_path: Path) -> None:
    path = tmp_path / "sacct.txt"
    path.write_text(text)
    for arguments in (("info", str(path)), ("convert", str(path), "--out", str(tmp_path / "x.parquet"))):
        result = CliRunner().invoke(main, ["traces", *arguments])
        assert result.exit_code == 2 and result.stdout == ""
        assert part in result.stderr and len(result.stderr.splitlines()) == 1
    assert [file.name for file in tmp_path.iterdir()] == ["sacct.txt"]


def test_info_counts_types_not_wishes(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("submit_time,duration,num_gpus,gpu_type\n0,9,1,T4|P100\n1,9,1,P100\n2,9,1,\n")
    assert json.loads(run("info", str(path), "--json").output)["gpu_types"] == 2
