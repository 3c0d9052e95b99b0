"""Learned policies on the command line: replayed, compared, listed, explained, and refused in one line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from attn_sched.agents import cards
from attn_sched.cli import main
from attn_sched.evaluation.registry import TIMING_KEYS
from attn_sched.policies.linear import save_linear, sjf_rule
from tests.agents.tiny import save_tiny


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    draw = np.random.default_rng(5)
    submit = np.cumsum(draw.integers(1, 60, 60))
    rows = [f"k{k},{submit[k]},{draw.choice([1, 2, 4, 8, 16])},{draw.integers(1, 600)}" for k in range(60)]
    path = tmp_path_factory.mktemp("trace") / "many.csv"
    path.write_text("job_id,submit_time,num_gpus,duration\n" + "\n".join(rows) + "\n")
    return path


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(cards, "checkpoints_folder", lambda: tmp_path)
    save_tiny(tmp_path, "pair")
    save_linear(sjf_rule(), tmp_path / "tuned.json")
    return tmp_path


def run(*arguments: object, columns: int = 160) -> Result:
    return CliRunner(env={"COLUMNS": str(columns)}).invoke(main, [str(argument) for argument in arguments])


def told(*arguments: object) -> dict[str, object]:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    values = json.loads(result.stdout)
    assert isinstance(values, dict)
    return values


def refused(*arguments: object) -> str:
    result = run(*arguments)
    assert result.exit_code == 2, (result.exit_code, result.output, result.exception)
    assert result.stdout == "" and result.stderr.count("\n") == 1
    return result.stderr


BASE = ("--cluster", "dgx64")
DEEP = """
name: deep
description: five levels above the nodes, root included
levels: [gpu, node, shelf, rack, row, hall]
links:
  gpu: {bandwidth_GBps: 100}
  node: {bandwidth_GBps: 12}
  shelf: {bandwidth_GBps: 11}
  rack: {bandwidth_GBps: 10}
  row: {bandwidth_GBps: 9}
  hall: {bandwidth_GBps: 8}
tree:
  - {hall: 2, children: [{row: 1, children: [{rack: 1, children: [{shelf: 1, children: [{node: 2, gpus: 2}]}]}]}]}
"""


@pytest.mark.usefixtures("shelf")
def test_simulate_and_compare_take_them_like_rules(trace: Path) -> None:
    names = ("agents:pair", "fifo+agents:pair", "agents:pair+best-fit", "tuned", "tuned+agents:pair")
    cells = told("compare", trace, *BASE, "--policies", ",".join(("sjf", *names)))["cells"]
    assert isinstance(cells, list)
    by_policy = {cell["policy"]: cell for cell in cells}
    for name in names:
        alone = told("simulate", trace, *BASE, "--policy", name)
        assert alone["policy"] == name
        for key in ("jct_mean_s", "wait_p99_s", "comm_overhead", "jain_user"):
            assert by_policy[name][key] == alone[key] and key not in TIMING_KEYS
    assert len({by_policy[name]["jct_mean_s"] for name in names}) > 3


@pytest.mark.usefixtures("shelf")
def test_list_shows_them() -> None:
    rows = json.loads(run("policies", "list", "--json").stdout)
    assert [row["name"] for row in rows if row["kind"] == "learned"] == ["agents:pair", "tuned"]
    table = run("policies", "list").stdout
    assert "agents:pair" in table and "agents:NAME" in table


def test_paths_are_taken_as_they_are(trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_tiny(tmp_path, "mine")
    monkeypatch.chdir(tmp_path)
    results = [
        told("simulate", trace, *BASE, "--policy", f"fifo+agents:{name}")
        for name in ("mine.json", "./mine", f"{tmp_path}/mine.safetensors")
    ]
    assert results[0]["jct_mean_s"] == results[1]["jct_mean_s"] == results[2]["jct_mean_s"]


@pytest.mark.usefixtures("shelf")
def test_explained_as_a_table(trace: Path) -> None:
    result = run("simulate", trace, *BASE, "--policy", "agents:pair", "--explain", 1)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].startswith("Decision 1 of agents:pair after ") and "the job agent" in lines[0]
    assert lines[1].startswith("state: queue ")
    for word in ("HOLD", "k0", "rack0/node0", "probability", "attention", "best_slowdown", "free_share"):
        assert word in result.stdout, word
    assert " *" in result.stdout and result.stderr == ""
    unit = run("simulate", trace, *BASE, "--policy", "fifo+agents:pair", "--explain", 3, columns=80)
    assert "the GPU agent takes rack" in " ".join(unit.stdout.split()) and "job k2: wait" in unit.stdout
    assert max(map(len, unit.stdout.splitlines())) <= 80


@pytest.mark.usefixtures("shelf")
def test_explained_as_json(trace: Path) -> None:
    values = told("simulate", trace, *BASE, "--policy", "fifo+agents:pair", "--explain", 3)
    assert (values["policy"], values["decision"], values["agent"], values["placing"]) == (
        "fifo+agents:pair",
        3,
        "gpu",
        "k2",
    )
    candidates = values["candidates"]
    assert isinstance(candidates, list) and sum(c["probability"] for c in candidates) == pytest.approx(1)
    chosen = [c["name"] for c in candidates if c["action"] == values["choice"]]
    assert chosen == [values["chosen"]]


@pytest.mark.parametrize(
    ("extra", "say"),
    [
        (("--explain", "0"), "--explain"),
        (("--explain", "99999"), "there is no decision 99,999; expected at most"),
        (("--explain", "1", "--out", "s.parquet"), "leaves no schedule"),
        (("--explain", "1", "--policy", "sjf"), "has no agents to explain"),
        (("--policy", "agents:nobody"), "no agents 'nobody'; expected one of pair, or the path"),
        (("--policy", "agents:pair+hold(2,1)"), "decides itself when to hold"),
    ],
)
@pytest.mark.usefixtures("shelf")
def test_wrong_values_end_with_one_line(trace: Path, extra: tuple[str, ...], say: str) -> None:
    given = () if "--policy" in extra else ("--policy", "fifo+agents:pair")
    assert say in refused("simulate", trace, *BASE, *given, *extra)


def test_bad_weights_are_told_before_the_trace_is_read(tmp_path: Path, shelf: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text("no log at all\n")
    weights = shelf / "pair.safetensors"
    data = weights.read_bytes()
    weights.write_bytes(data[:-1])
    for command, option in (("simulate", "--policy"), ("compare", "--policies")):
        assert "pair.safetensors: is truncated" in refused(command, log, *BASE, option, "agents:pair")
    weights.write_bytes(data)
    card = json.loads((shelf / "pair.json").read_text())
    (shelf / "pair.json").write_text(json.dumps({**card, "features_version": 0}))
    assert "'features_version': 0 is not the version" in refused("simulate", log, *BASE, "--policy", "agents:pair")
    (shelf / "pair.json").write_text(json.dumps(card))
    (tmp_path / "deep.yaml").write_text(DEEP)
    for command, option in (("simulate", "--policy"), ("compare", "--policies")):
        line = refused(command, log, "--cluster", tmp_path / "deep.yaml", option, "agents:pair")
        assert "has 5 levels above its placement unit 'node'" in line
