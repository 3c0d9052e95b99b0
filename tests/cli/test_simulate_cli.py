"""``attn-sched simulate`` and what all commands share: one line for wrong input, status 2, nothing half-written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from attn_sched import __version__
from attn_sched.cli import COMMANDS, main
from attn_sched.errors import InputError
from attn_sched.evaluation.registry import METRICS, TIMING_KEYS
from attn_sched.evaluation.setup import WorkloadSpec, parse_window
from attn_sched.files import atomic_write, check_target

THREE = "job_id,submit_time,num_gpus,duration\na,0,2,100\nb,10,4,50\nc,20,1,20\n"


@pytest.fixture
def three(tmp_path: Path) -> Path:
    path = tmp_path / "three.csv"
    path.write_text(THREE)
    return path


@pytest.fixture
def many(tmp_path: Path) -> Path:
    draw = np.random.default_rng(5)
    submit = np.cumsum(draw.integers(1, 60, 120))
    rows = [f"{k},{submit[k]},{draw.choice([1, 2, 4, 8, 16])},{draw.integers(1, 600)}" for k in range(120)]
    path = tmp_path / "many.csv"
    path.write_text("job_id,submit_time,num_gpus,duration\n" + "\n".join(rows) + "\n")
    return path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def told(*arguments: object) -> dict[str, object]:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    assert result.stdout.count("\n") == 1
    values = json.loads(result.stdout)
    assert isinstance(values, dict)
    return values


def refused(*arguments: object) -> str:
    """The one line of a refusal."""
    result = run(*arguments)
    assert result.exit_code == 2, (result.exit_code, result.output, result.exception)
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1 and result.stderr.startswith("attn-sched: error: ")
    return result.stderr


def test_json_is_one_object_with_the_promised_keys(three: Path) -> None:
    values = told("simulate", three, "--cluster", "count:4", "--policy", "fifo+first-fit")
    promised = "jobs jct_mean_s wait_mean_s makespan_s preemptions comm_overhead jain_user wait_p99_s excess_mean_s"
    assert {*promised.split(), "jobs_per_s", "dropped"} <= set(values)
    assert {metric.key for metric in METRICS} <= set(values)
    assert values["jobs"] == 3
    assert values["jct_mean_s"] == pytest.approx(130)
    assert values["wait_mean_s"] == pytest.approx(220 / 3)
    assert values["makespan_s"] == pytest.approx(170)
    assert values["dropped"] == {}


def test_too_large_jobs_are_counted_by_reason(three: Path) -> None:
    values = told("simulate", three, "--cluster", "count:2", "--policy", "fifo+first-fit")
    assert values["jobs"] == 2
    dropped = values["dropped"]
    assert isinstance(dropped, dict) and list(dropped.values()) == [1]
    clipped = told("simulate", three, "--cluster", "count:2", "--policy", "fifo+first-fit", "--oversized", "clip")
    assert clipped["jobs"] == 3
    assert "b" in refused(
        "simulate", three, "--cluster", "count:2", "--policy", "fifo+first-fit", "--oversized", "refuse"
    )


def test_table_names_every_metric(three: Path) -> None:
    result = CliRunner(env={"COLUMNS": "200"}).invoke(
        main, ["simulate", str(three), "--cluster", "count:4", "--policy", "fifo+first-fit"]
    )
    assert result.exit_code == 0, result.output
    for metric in METRICS:
        assert metric.key in result.stdout
    assert result.stderr == ""


def test_out_writes_one_row_a_job(three: Path, tmp_path: Path) -> None:
    out = tmp_path / "schedule.parquet"
    assert run("simulate", three, "--cluster", "count:4", "--policy", "fifo+first-fit", "--out", out).exit_code == 0
    table = pq.read_table(out)
    assert table["start_s"].to_pylist() == [0, 100, 150]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["schedule.parquet", "three.csv"]


def test_options_reach_the_replay(many: Path) -> None:
    base = ("simulate", many, "--cluster", "dgx64", "--policy", "sjf+topo-best-fit")
    plain = told(*base, "--comm", "off")
    assert plain["comm_overhead"] == pytest.approx(1)
    spread = told("simulate", many, "--cluster", "eth64", "--policy", "fifo+load-balance")
    assert isinstance(spread["comm_overhead"], float) and spread["comm_overhead"] > 1
    window = told(*base, "--window", "40:100", "--warmup", "0", "--load", "0.8", "--load-by", "stretch")
    assert window["jobs"] == 60
    assert told(*base, "--users", "per-job")["users"] == 120
    busy = told(*base, "--load", "3", "--starved-after", "60")
    assert isinstance(busy["starved_jobs"], int) and busy["starved_jobs"] > 0


def test_equal_calls_give_equal_numbers(many: Path) -> None:
    call = (
        "simulate",
        many,
        "--cluster",
        "dgx64",
        "--policy",
        "random+random",
        "--estimate",
        "lognormal(1)",
        "--seed",
        4,
    )
    first, second = told(*call), told(*call)
    assert {**first, **dict.fromkeys(TIMING_KEYS)} == {**second, **dict.fromkeys(TIMING_KEYS)}


@pytest.mark.parametrize(
    ("extra", "say"),
    [
        (("--load", "0"), "load"),
        (("--load", "-1"), "load"),
        (("--load", "nan"), "load"),
        (("--load", "inf"), "load"),
        (("--load", "much"), "--load"),
        (("--window", "5"), "window"),
        (("--window", "2:2"), "window"),
        (("--window", "3:1"), "window"),
        (("--window", "-1:2"), "window"),
        (("--window", "a:b"), "window"),
        (("--window", "0:4"), "B <= 3"),
        (("--window", "0:2", "--warmup", "-1"), "warmup"),
        (("--warmup", "1"), "--window A:B"),
        (("--restart-cost", "-1"), "restart-cost"),
        (("--restart-cost", "nan"), "restart-cost"),
        (("--max-wait", "-5"), "max-wait"),
        (("--starved-after", "-5"), "starved-after"),
        (("--estimate", "crystal-ball"), "estimate"),
        (("--estimate", "lognormal(x)"), "estimate"),
        (("--estimate", "lognormal(-1)"), "estimate"),
        (("--estimate", "requested"), "estimate"),
        (("--users", "mine"), "users"),
        (("--group", "nobody"), "nobody"),
        (("--oversized", "shrink"), "oversized"),
        (("--contention", "max"), "contention"),
        (("--comm", "maybe"), "comm"),
        (("--allreduce", "tree"), "allreduce"),
        (("--load-by", "magic"), "load-by"),
        (("--seed", "-1"), "seed"),
        (("--policy", "fifo+hopscotch"), "hopscotch"),
        (("--policy", "wish+first-fit"), "wish"),
        (("--policy", "fifo+first-fit+hold(0.5,1)"), "0.5"),
        (("--policy", ""), "policy"),
        (("--cluster", "atlantis"), "atlantis"),
        (("--cluster", "count:0"), "count:0"),
        (("--cluster", "nodes:2x"), "nodes:2x"),
        (("--out", "/nonexistent/x.parquet"), "/nonexistent"),
        (("--nonsense",), "--nonsense"),
        (("surplus",), "surplus"),
    ],
)
def test_wrong_values_end_with_one_line(three: Path, tmp_path: Path, extra: tuple[str, ...], say: str) -> None:
    given = {"--cluster": "count:4", "--policy": "fifo+first-fit", "--out": str(tmp_path / "out.parquet")}
    given = {option: value for option, value in given.items() if option not in extra}
    line = refused("simulate", three, *[part for pair in given.items() for part in pair], *extra)
    assert say in line
    assert [path.name for path in tmp_path.iterdir()] == ["three.csv"]


@pytest.mark.parametrize("make", ["missing", "folder", "empty", "binary", "heading", "truncated"])
def test_unreadable_traces_end_with_one_line(tmp_path: Path, make: str) -> None:
    path = tmp_path / "trace"
    if make == "folder":
        path.mkdir()
    elif make == "empty":
        path.write_bytes(b"")
    elif make == "binary":
        path.write_bytes(bytes(range(256)) * 40)
    elif make == "heading":
        path.write_text("job_id,submit_time,num_gpus,duration\n")
    elif make == "truncated":
        path.write_bytes(b"PAR1" + b"\0" * 50)
    assert "trace" in refused("simulate", path, "--cluster", "count:4", "--policy", "fifo+first-fit")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_trace_without_permission(three: Path) -> None:
    three.chmod(0)
    assert "three.csv" in refused("simulate", three, "--cluster", "count:4", "--policy", "fifo+first-fit")


def test_nothing_fits(three: Path) -> None:
    text = refused("simulate", three, "--cluster", "count:2", "--policy", "fifo+first-fit", "--group", "g")
    assert "group" in text
    three.write_text("job_id,submit_time,num_gpus,duration\na,0,9,1\n")
    assert "no job can be replayed" in refused("simulate", three, "--cluster", "count:2", "--policy", "fifo+first-fit")


def test_out_that_is_a_folder_is_refused_before_the_work(three: Path, tmp_path: Path) -> None:
    assert "directory" in refused(
        "simulate", three, "--cluster", "count:4", "--policy", "fifo+first-fit", "--out", tmp_path
    )
    check_target(None, "out")
    # Found out in advance is what would be found out in the end.
    for wrong in (tmp_path, tmp_path / "no" / "x", tmp_path / ("x" * 300)):
        with pytest.raises(InputError) as early:
            check_target(wrong)
        with pytest.raises(InputError) as late, atomic_write(wrong):
            pass
        assert str(early.value) == str(late.value)
    with pytest.raises(InputError, match="field 'out'"):
        check_target(tmp_path, "out")
    check_target(tmp_path / "fine", "out")
    assert [path.name for path in tmp_path.iterdir()] == ["three.csv"]


def test_missing_options_and_unknown_commands_are_one_line() -> None:
    assert "--cluster" in refused("simulate", "x.csv", "--policy", "fifo")
    assert "teleport" in refused("teleport")
    assert "--bogus" in refused("--bogus")


def test_version_and_help() -> None:
    assert __version__ in run("--version").stdout
    text = run("--help").stdout
    for name in COMMANDS:
        assert name in text
    assert "--restart-cost" in run("simulate", "--help").stdout


def test_interrupt_ends_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(given: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("attn_sched.cli.simulate.gather", stop)
    result = run("simulate", "x.csv", "--cluster", "count:4", "--policy", "fifo")
    assert result.exit_code == 130
    assert result.stderr.strip() == "interrupted"


def test_a_full_disk_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(given: object) -> None:
        raise OSError(28, "No space left on device", "x.parquet")

    monkeypatch.setattr("attn_sched.cli.simulate.gather", full)
    assert "x.parquet: No space left" in refused("simulate", "x.csv", "--cluster", "count:4", "--policy", "fifo")


@pytest.mark.parametrize(
    ("error", "say"),
    [
        (MemoryError(), "not enough memory\n"),
        (MemoryError("Unable to allocate 8 GiB"), "not enough memory: Unable to allocate 8 GiB"),
        (RecursionError("maximum recursion depth exceeded"), "nested too deep"),
    ],
)
@pytest.mark.parametrize("command", ["simulate", "compare"])
def test_what_python_runs_out_of_is_one_line(
    monkeypatch: pytest.MonkeyPatch, command: str, error: Exception, say: str
) -> None:
    def run_out(given: object) -> None:
        raise error

    monkeypatch.setattr(f"attn_sched.cli.{command}.gather", run_out)
    names = "--policy" if command == "simulate" else "--policies"
    assert say in refused(command, "x.csv", "--cluster", "count:4", names, "fifo")


def test_options_offer_what_their_owners_take() -> None:
    from attn_sched import choices

    text = run("simulate", "--help").stdout
    for words in (choices.USERS, choices.LOAD_BY, choices.LATER, choices.OVERSIZED, choices.CONTENTION):
        assert f"[{'|'.join(words)}]" in text


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"estimate": "oracle or history"}, "estimate"),
        ({"estimate": "lognormal(-1)"}, "estimate"),
        ({"users": "mine"}, "users"),
        ({"oversized": "shrink"}, "oversized"),
        ({"load_by": "magic"}, "load-by"),
        ({"later": "never"}, "later"),
        ({"later": "steady", "load_by": "thin"}, "later"),
        ({"seed": -1}, "seed"),
    ],
)
def test_a_wrong_specification_is_told_when_it_is_made(wrong: dict[str, object], field: str) -> None:
    with pytest.raises(InputError, match=f"field '{field}'"):
        WorkloadSpec(**wrong)  # type: ignore[arg-type]


def test_a_thinned_window_counts_all_its_jobs_and_tells_its_load(many: Path) -> None:
    base = ("simulate", many, "--cluster", "dgx64", "--policy", "sjf+topo-best-fit", "--window", "40:70")
    values = told(*base, "--load", "0.3", "--load-by", "thin")
    assert values["jobs"] == 30
    workload = values["workload"]
    assert isinstance(workload, dict)
    off = abs(workload["load_achieved"] - 0.3) > 0.015
    assert bool(workload["load_note"]) == off
    assert ("load note" in run(*base, "--load", "0.3", "--load-by", "thin").stdout) == off


def test_light_commands_do_not_load_the_engine() -> None:
    code = (
        "import sys; from attn_sched.cli import main; "
        "[main([*command, '--help'], standalone_mode=False) for command in "
        "([], ['simulate'], ['compare'], ['traces', 'synth'], ['clusters'], ['policies'])]; "
        "heavy = {'numba', 'numpy', 'pyarrow', 'torch', 'ray', 'matplotlib'} & set(sys.modules); "
        "sys.exit(repr(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_windows_as_text() -> None:
    assert parse_window("3:10") == (3, 10)


def test_outputs_replace_nothing_that_is_read(three: Path, tmp_path: Path) -> None:
    cluster, link, pipe = tmp_path / "own.yaml", tmp_path / "link.csv", tmp_path / "pipe"
    cluster.write_text("levels: [gpu]\ntree: [{gpu: 4}]\n")
    link.symlink_to(three)
    os.mkfifo(pipe)
    before = {path.name: path.lstat().st_mtime_ns for path in tmp_path.iterdir()}
    base = ("simulate", three, "--cluster", cluster, "--policy", "fifo")
    for out, say in (
        (three, "is the trace itself"),
        (tmp_path / "." / ".." / tmp_path.name / "three.csv", "is the trace itself"),
        (link, "is the trace itself"),
        (cluster, "is the description of the cluster"),
        (pipe, "is no regular file"),
        ("", "no file is named"),
    ):
        assert say in refused(*base, "--out", out)
    assert three.read_text() == THREE
    assert {path.name: path.lstat().st_mtime_ns for path in tmp_path.iterdir()} == before


def test_an_older_result_may_be_replaced(three: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    for _ in range(2):
        assert run("simulate", three, "--cluster", "count:4", "--policy", "fifo", "--out", out).exit_code == 0
    assert len(pq.read_table(out)) == 3


def test_pipes_are_never_targets(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(InputError, match="no regular file"), atomic_write(pipe):
        raise AssertionError("not reached")
    assert pipe.is_fifo()


@pytest.mark.parametrize(("given", "fine"), [("1e9", True), ("1.1e9", False), ("inf", False)])
@pytest.mark.parametrize("option", ["--restart-cost", "--max-wait", "--starved-after"])
def test_seconds_have_a_bound(three: Path, option: str, given: str, fine: bool) -> None:
    call = ("simulate", three, "--cluster", "count:4", "--policy", "fifo", option, given)
    if fine:
        assert run(*call).exit_code == 0
    else:
        assert "at least 0 and at most 1e9" in refused(*call)


@pytest.mark.parametrize("load", ["0.0009", "1001", "1e300"])
def test_loads_have_bounds(three: Path, load: str) -> None:
    call = ("simulate", three, "--cluster", "count:4", "--policy", "fifo", "--load", load)
    assert "from 0.001 to 1000" in refused(*call)


def test_a_long_policy_is_told_short(three: Path) -> None:
    line = refused("simulate", three, "--cluster", "count:4", "--policy", "x" * 10_000)
    assert len(line) < 250 and "10,000 characters" in line


def test_a_log_without_groups_says_so(three: Path) -> None:
    line = refused("simulate", three, "--cluster", "count:4", "--policy", "fifo", "--group", "vc1")
    assert "the log names no groups" in line
