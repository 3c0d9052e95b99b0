"""``attn-sched compare``: tables, files, and refusals."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from attn_sched.cli import main
from attn_sched.cli.compare import parse_loads
from attn_sched.errors import InputError
from attn_sched.evaluation.registry import TIMING_KEYS

BASE = ("--cluster", "dgx64", "--policies", "fifo+first-fit,sjf+topo-best-fit+hold(1.5,0.5)")


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    draw = np.random.default_rng(5)
    submit = np.cumsum(draw.integers(1, 90, 400))
    rows = [f"{k},{submit[k]},{draw.choice([1, 2, 4, 8, 16])},{draw.integers(1, 900)}" for k in range(400)]
    path = tmp_path_factory.mktemp("compare") / "many.csv"
    path.write_text("job_id,submit_time,num_gpus,duration\n" + "\n".join(rows) + "\n")
    return path


def run(*arguments: object) -> Result:
    return CliRunner(env={"COLUMNS": "220"}).invoke(main, ["compare", *[str(argument) for argument in arguments]])


def cells(*arguments: object) -> list[dict[str, object]]:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)["cells"]
    assert isinstance(found, list)
    for cell in found:
        for key in list(cell):
            if key.removesuffix("_low").removesuffix("_high") in TIMING_KEYS:
                del cell[key]
        for window in cell["by_window"]:
            for timing in TIMING_KEYS:
                del window[timing]
    return found


def test_table_marks_the_best(trace: Path) -> None:
    result = run(trace, *BASE, "--loads", "0.6,1.2")
    assert result.exit_code == 0, result.output
    assert "Offered load 0.6" in result.stdout and "Offered load 1.2" in result.stdout
    assert "sjf+topo-best-fit+hold(1.5,0.5)" in result.stdout
    assert " *" in result.stdout
    assert result.stderr == ""


def test_files_are_written_and_agree(trace: Path, tmp_path: Path) -> None:
    report, out = tmp_path / "report.html", tmp_path / "cells.parquet"
    result = run(trace, *BASE, "--windows", 5, "--window-jobs", 60, "--report", report, "--out", out)
    assert result.exit_code == 0, result.output
    page = report.read_text()
    assert "many" in page and "sjf+topo-best-fit+hold(1.5,0.5)" in page and "attn-sched" in page
    table = pq.read_table(out).to_pylist()
    assert [row["policy"] for row in table] == ["fifo+first-fit", "sjf+topo-best-fit+hold(1.5,0.5)"]
    assert all(
        row["jobs"] == 300 and row["jct_mean_s_low"] <= row["jct_mean_s"] <= row["jct_mean_s_high"] for row in table
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cells.parquet", "report.html"]


def test_one_replay_of_the_whole_trace_agrees_with_simulate(trace: Path) -> None:
    cell = cells(trace, *BASE)[0]
    call = ["simulate", str(trace), "--cluster", "dgx64", "--policy", "fifo+first-fit", "--json"]
    alone = json.loads(CliRunner().invoke(main, call).stdout)
    for key in ("jobs", "jct_mean_s", "wait_p99_s", "jain_user", "rho_mean", "allocated_utilisation"):
        assert cell[key] == alone[key], key


def test_deterministic_and_the_same_in_several_processes(trace: Path) -> None:
    call = (
        trace,
        "--cluster",
        "dgx64",
        "--policies",
        "random+random,fifo+first-fit",
        "--windows",
        3,
        "--window-jobs",
        50,
    )
    once = cells(*call)
    assert once == cells(*call)
    assert once == cells(*call, "--jobs", 2)


def test_reference_can_be_chosen(trace: Path) -> None:
    found = cells(trace, *BASE, "--reference", "sjf+topo-best-fit+hold(1.5,0.5)")
    assert {cell["reference"] for cell in found} == {"sjf+topo-best-fit+hold(1.5,0.5)"}
    assert found[1]["jct_mean_s_diff"] == 0


@pytest.mark.parametrize(
    ("extra", "say"),
    [
        (("--policies", "fifo+first-fit,wish+first-fit"), "wish"),
        (("--policies", "fifo+first-fit,fifo+first-fit"), "twice"),
        (("--policies", ""), "polic"),
        (("--policies", "sjf+first-fit+hold(0.2,1)"), "0.2"),
        (("--loads", "0.5,0"), "loads"),
        (("--loads", "0.5,,1"), "loads"),
        (("--loads", "high"), "loads"),
        (("--windows", "0"), "windows"),
        (("--windows", "2", "--window-jobs", "0"), "window-jobs"),
        (("--windows", "2", "--window-jobs", "401"), "at most 400"),
        (("--warmup", "5"), "--windows"),
        (("--windows", "2", "--warmup", "-5"), "warmup"),
        (("--reference", "ljf"), "ljf"),
        (("--jobs", "0"), "--jobs"),
        (("--policies", "fifo+first-fit,srtf+first-fit", "--max-wait", "60"), "max-wait"),
        (("--restart-cost", "-1"), "restart-cost"),
        (("--cluster", "atlantis"), "atlantis"),
        (("--group", "nobody"), "nobody"),
        (("--report", "/nonexistent/r.html"), "/nonexistent"),
    ],
)
def test_wrong_values_end_with_one_line_and_no_file(
    trace: Path, tmp_path: Path, extra: tuple[str, ...], say: str
) -> None:
    given = {
        "--cluster": "dgx64",
        "--policies": "fifo+first-fit",
        "--report": str(tmp_path / "r.html"),
        "--out": str(tmp_path / "o.parquet"),
    }
    given = {option: value for option, value in given.items() if option not in extra}
    result = run(trace, *[part for pair in given.items() for part in pair], *extra)
    assert result.exit_code == 2, (result.output, result.exception)
    assert result.stdout == "" and result.stderr.count("\n") == 1
    assert say in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_missing_trace_is_one_line(tmp_path: Path) -> None:
    result = run(tmp_path / "gone.csv", *BASE)
    assert result.exit_code == 2 and result.stderr.count("\n") == 1 and "gone.csv" in result.stderr


def test_overlapping_windows_are_allowed_and_told(trace: Path) -> None:
    call = (trace, *BASE, "--windows", 6, "--window-jobs", 100)
    told = "windows overlap: intervals are too narrow"
    short = "the first 2 windows warm up with 0 to 60 jobs instead of 100"
    result = run(*call)
    assert result.exit_code == 0, result.output
    assert told in result.stdout and short in result.stdout
    found = json.loads(run(*call, "--json").stdout)
    assert found["windows_overlap"] is True and told in found["caveats"]
    apart = json.loads(run(trace, *BASE, "--windows", 3, "--window-jobs", 100, "--json").stdout)
    assert apart["windows_overlap"] is False and apart["caveats"] == []


def test_thinned_windows_count_as_many_jobs(trace: Path) -> None:
    plain = json.loads(run(trace, *BASE, "--windows", 2, "--window-jobs", 60, "--loads", "0.2", "--json").stdout)
    call = (trace, *BASE, "--windows", 2, "--window-jobs", 60, "--loads", "0.2", "--load-by", "thin", "--json")
    result = run(*call)
    assert result.exit_code == 0, result.output
    thinned = json.loads(result.stdout)
    assert [cell["jobs"] for cell in thinned["cells"]] == [cell["jobs"] for cell in plain["cells"]] == [120, 120]
    for window in thinned["cells"][0]["by_window"]:
        assert window["last"] - window["first"] > 60, "counted jobs lie among those left out"


def test_max_wait_says_what_it_refuses() -> None:
    assert "refuses the whole comparison" in " ".join(run("--help").output.split())


def test_loads_as_text() -> None:
    assert parse_loads(None) == (None,)
    assert parse_loads("0.5, 1") == (0.5, 1.0)
    with pytest.raises(InputError):
        parse_loads("0.5;1")


def test_outputs_replace_neither_the_trace_nor_each_other(trace: Path, tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_bytes(trace.read_bytes())
    both = tmp_path / "both.png"
    for extra, say in (
        (("--out", both, "--report", both), "too"),
        (("--out", both, "--png", tmp_path / ".." / tmp_path.name / "both.png"), "too"),
        (("--report", log), "the trace itself"),
        (("--png", tmp_path / "x.txt"), ".png"),
        (("--window-jobs", "50"), "--windows N"),
        (("--loads", ","), "lacks a load"),
        (("--loads", "0.5,2000"), "1000"),
        (("--policies", "fifo," + "y" * 10_000), "10,000 characters"),
    ):
        given = () if "--policies" in extra else ("--policies", "fifo")
        result = run(log, "--cluster", "dgx64", *given, *extra)
        assert result.exit_code == 2 and result.stdout == "" and result.stderr.count("\n") == 1, result.output
        assert say in result.stderr and len(result.stderr) < 400
        assert [path.name for path in tmp_path.iterdir()] == ["log.csv"]
    assert log.read_bytes() == trace.read_bytes()


def test_columns_left_out_are_told(trace: Path) -> None:
    call = ["compare", str(trace), "--cluster", "dgx64", "--policies", "fifo,sjf"]
    narrow = CliRunner(env={"COLUMNS": "80"}).invoke(main, call).stdout
    assert "more columns have no room here; --json, --report and --out have all" in narrow
    assert max(map(len, narrow.splitlines())) <= 80
    assert "no room" not in CliRunner(env={"COLUMNS": "220"}).invoke(main, call).stdout


def test_picture(trace: Path, tmp_path: Path) -> None:
    png = tmp_path / "x.png"
    assert run(trace, *BASE, "--png", png).exit_code == 0
    assert png.read_bytes().startswith(b"\x89PNG")
