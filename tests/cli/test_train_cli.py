"""``attn-sched train``: what it refuses, what it shows, a whole run, and one that is killed and goes on."""

from __future__ import annotations

import csv
import json
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from attn_sched.agents.cards import read_card
from attn_sched.cli import main
from attn_sched.training.configs import ABLATIONS, NAMES, load_config
from attn_sched.training.pipeline import Run
from attn_sched.training.run_folder import RunFolder, read_object
from tests.training.events import read_curve
from tests.training.tiny_run import arguments, tiny_config

ROOT = Path(__file__).resolve().parents[2]


def run(*given: object) -> Result:
    return CliRunner(env={"COLUMNS": "200"}).invoke(main, ["train", *[str(one) for one in given]])


def refused(result: Result) -> str:
    """The one line of a refusal."""
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    return lines[0]


def test_help_is_light_and_names_what_there_is() -> None:
    code = (
        "import sys; from attn_sched.cli import main\n"
        "try: main(['train', '--help'])\n"
        "except SystemExit: pass\n"
        "print('LOADED', sorted({m.split('.')[0] for m in sys.modules} & {'torch', 'ray', 'cma', 'numba'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert "LOADED []" in done.stdout, done.stdout + done.stderr
    text = " ".join(done.stdout.split())
    assert all(name in text for name in (*NAMES, *ABLATIONS))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "no folder is named"),
        (["--resume"], "no folder is named"),
        (["--out", "{new}", "--config", "huge"], "unknown configuration 'huge'; expected one of quick, medium, full"),
        (["--out", "{new}", "--traces", "absent.csv"], "absent.csv: no such file"),
        (["--out", "{new}", "--cluster", "nowhere"], "nowhere"),
        (["--out", "{new}", "--set", "ppo.clap=1"], "there is no key 'ppo.clap'; expected one of ppo.agents, ppo.clu"),
        (["--out", "{new}", "--set", "ppo.clip"], "KEY=VALUE"),
        (["--out", "{new}", "--set", "ppo.seed=1"], "there is no key 'ppo.seed'"),
        (["--out", "{new}", "--weights", "1,2"], "'1,2' has 2 values; expected 3"),
        (["--out", "{new}", "--weights", "0,0,0"], "rewards nothing"),
        (["--out", "{new}", "--agents", "cpu"], "no choice of agents"),
        (["--out", "{new}", "--ablate", "no-luck"], "unknown part 'no-luck'; expected one of no-attention"),
        (["--out", "{new}", "--minutes", "nan"], "no time"),
        (["--out", "{new}", "--seed", "-1"], "negative"),
        (["--out", "{new}", "--seed", "x"], "not a valid integer"),
        (["--out", "{used}"], "is not empty"),
        (["--out", "{used}", "--resume"], "holds no training run"),
        (["--out", "{file}"], "is no folder"),
    ],
)
def test_refusals_are_one_line_and_leave_nothing(tmp_path: Path, given: list[str], said: str) -> None:
    used = tmp_path / "used"
    used.mkdir()
    (used / "notes.txt").write_text("mine")
    places = {"{new}": tmp_path / "new", "{used}": used, "{file}": used / "notes.txt"}
    line = refused(run(*[places.get(one, one) for one in given]))
    assert said in line
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["notes.txt", "used"]


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attn_sched.cli.train.NEEDED", ("json", "no_such_package"))
    line = refused(run("--out", tmp_path / "new", "--config", "quick"))
    assert "training needs no_such_package; expected pip install 'attentive-sched[train]'" in line


def test_a_run_is_not_begun_twice_nor_resumed_as_another(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.create(tiny_config())
    assert "--resume to go on" in refused(run("--out", folder.path))
    assert "field 'ppo.clip': was started with 0.15, not 0.3" in refused(
        run("--out", folder.path, "--resume", "--set", "ppo.clip=0.3")
    )
    assert "'name': was started with tiny, not quick" in refused(
        run("--out", folder.path, "--resume", "--config", "quick")
    )
    folder.config.write_text("{")
    assert "no whole JSON" in refused(run("--out", folder.path, "--resume"))


def shown(*given: object) -> dict[str, str]:
    result = run("--show", *given)
    assert result.exit_code == 0, result.output
    return dict(line.split("=", 1) for line in result.stdout.splitlines())


def test_show_prints_every_value_as_set_takes_it() -> None:
    values = shown("--config", "medium", "--weights", "2,1,0", "--cluster", "dgx64", "--agents", "gpu", "--seed", "7",
                   "--minutes", "3", "--ablate", "no-hold", "--ablate", "no-fairness", "--traces", "a.csv,b.csv",
                   "--set", "ppo.total_decisions=2e6")  # fmt: skip
    assert values["name"] == "medium"
    assert values["objective.weights"] == "2.0,1.0,0.0"
    assert values["objective.off"] == "fairness"
    assert values["data.clusters"] == "dgx64"
    assert values["data.traces"] == "a.csv,b.csv"
    assert values["ppo.agents"] == "gpu"
    assert (values["seed"], values["minutes"]) == ("7", "3.0")
    assert values["network.hold"] == "false"
    assert values["ppo.total_decisions"] == "2000000"
    again = shown(*[part for key, value in values.items() for part in ("--set", f"{key}={value}")])
    assert again == values


@pytest.mark.parametrize("begun", [True, False])
def test_ctrl_c_before_ppo_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begun: bool) -> None:
    def interrupt(run: Run) -> None:
        if begun:
            run.report.log = tmp_path / "train.log"
        raise KeyboardInterrupt

    monkeypatch.setattr(Run, "run", interrupt)
    result = run("--out", tmp_path / "run", "--config", "quick")
    assert result.exit_code == 130
    assert result.stderr == (f"interrupted; go on with: attn-sched train --resume --out {tmp_path / 'run'}\n" * begun)


# Whole runs


def start(*given: object) -> subprocess.Popen[str]:
    code = "from attn_sched.cli import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", code, *[str(one) for one in given]],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str], timeout: float = 240) -> tuple[int, str, str]:
    try:
        out, err = process.communicate(timeout=timeout)
    finally:
        process.kill()
    return process.returncode, out, err


def wait_for(process: subprocess.Popen[str], folder: RunFolder, iteration: int) -> None:
    """Until there is a checkpoint of an iteration or a later one."""
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()
        if folder.checkpoints.is_dir() and (folder.last_checkpoint() or 0) >= iteration:
            return
        time.sleep(0.02)
    raise AssertionError("no checkpoint was written")


def rows(folder: RunFolder) -> list[dict[str, str]]:
    with open(folder.progress, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def validation_steps(folder: RunFolder) -> list[int]:
    return [step for step, _ in read_curve(folder.path, "validation/score")]


@pytest.mark.slow
def test_a_run_from_logs_to_weights(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    code, out, err = finish(start(*arguments("--out", str(folder.path), "--json")))
    assert code == 0, err
    outcome = json.loads(out)
    names = [row["policy"] for row in outcome["policies"]]
    assert names[:3] == ["best agents", "imitation (start)", "tuned rule"]
    assert set(names[3:]) == {"sjf+topo-best-fit", "fifo+first-fit"}
    best = outcome["policies"][0]["score"]
    assert best <= outcome["policies"][1]["score"]
    assert outcome["stages"]["ppo"]["stopped"] == "decisions"
    card = read_card(folder.best / "tiny.json")
    assert card["scores"]["validation"]["score"] == best
    assert card["iteration"] == outcome["stages"]["ppo"]["best_iteration"]
    found = rows(folder)
    assert [int(row["iteration"]) for row in found] == list(range(len(found)))
    assert min(float(row["validation_score"]) for row in found if row["validation_score"]) == best
    assert validation_steps(folder)[0] == 0
    assert "iteration 1 |" in folder.log.read_text()
    # The agents replay a log, as any rule does.
    trace = tmp_path / "mine.csv"
    trace.write_text("job_id,submit_time,num_gpus,duration\n" + "".join(f"{k},{9 * k},2,60\n" for k in range(20)))
    played = CliRunner().invoke(
        main, ["simulate", str(trace), "--cluster", "nodes:2x4", "--policy", f"agents:{folder.best}", "--json"]
    )
    assert played.exit_code == 0, played.output
    # What is finished is not done again.
    code, out, err = finish(start("train", "--resume", "--out", folder.path, "--json"))
    assert code == 0, err
    assert "this run is finished" in err
    assert json.loads(out) == outcome


class _Caught(Exception):
    """Ends a run in this process once its state is known."""


def resumed_state(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, Any], Any]:
    """RLlib's learner state and the state of the run, right after the last checkpoint was taken up."""
    from attn_sched.training.curves import Reporter
    from attn_sched.training.ppo_stage import PPOStage

    caught: list[tuple[dict[str, Any], Any]] = []

    def catch(stage: PPOStage, algorithm: Any, curves: Any) -> None:
        caught.append((algorithm.learner_group.get_state()["learner"], stage.state))
        raise _Caught

    with monkeypatch.context() as patch:
        patch.setattr(PPOStage, "_iterate", catch)
        with pytest.raises(_Caught):
            report = Reporter(lambda line: None)
            Run(load_config(folder.config), folder, resume=True, command="", report=report).run()
    return caught[0]


def equal(one: Any, other: Any) -> bool:
    """Whether two nested states hold the same values."""
    if isinstance(one, dict):
        return set(one) == set(other) and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(equal(a, b) for a, b in zip(one, other, strict=True))
    if hasattr(one, "shape"):
        return np.array_equal(np.asarray(one), np.asarray(other))
    return bool(one == other)


@pytest.mark.slow
def test_a_killed_run_goes_on_from_its_last_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RunFolder(tmp_path / "run")
    process = start(*arguments("--out", str(folder.path), "--set", "ppo.total_decisions=5000"))
    wait_for(process, folder, 4)
    time.sleep(0.3)
    process.send_signal(signal.SIGKILL)
    assert finish(process)[0] == -signal.SIGKILL

    number = folder.last_checkpoint()
    assert number is not None and number >= 4
    before = read_object(folder.checkpoint_state(number))
    learner = folder.checkpoint(number) / "learner_group" / "learner"
    saved = pickle.loads((learner / "state.pkl").read_bytes())
    weights = {
        agent: pickle.loads((learner / "rl_module" / agent / "module_state.pkl").read_bytes())
        for agent in ("job", "gpu")
    }
    state, run_state = resumed_state(folder, monkeypatch)
    assert set(state["rl_module"]) == set(weights)
    assert equal(weights, state["rl_module"])
    assert equal(saved["optimizer"], state["optimizer"]) and saved["optimizer"]
    for key in ("iteration", "decisions", "best_score", "best_iteration", "best_cells", "without_better"):
        assert getattr(run_state, key) == before[key], key
    card = read_card(folder.best / "tiny.json")
    assert card["scores"]["validation"]["score"] == before["best_score"]

    code, _, err = finish(start("train", "--resume", "--out", folder.path))
    assert code == 0, err
    assert f"going on from the checkpoint after iteration {number}" in err
    for stage in ("rules", "tuned rule:", "imitation:"):
        assert stage not in err.split("going on")[0], "a finished stage was done again"
    found = rows(folder)
    assert [int(row["iteration"]) for row in found] == list(range(len(found)))
    assert len(found) > number + 3
    decisions = [int(row["decisions"]) for row in found]
    assert decisions == sorted(decisions) and decisions[number] == before["decisions"]
    steps = validation_steps(folder)
    assert len(steps) == len(set(steps)) and steps == sorted(steps)
    last = read_object(folder.checkpoint_state(folder.last_checkpoint() or 0))
    assert last["best_score"] <= before["best_score"]
    assert last["history"][: len(before["history"])] == before["history"]


@pytest.mark.slow
def test_ctrl_c_writes_a_checkpoint_and_says_how_to_go_on(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    given = ("--set", "ppo.total_decisions=100000", "--set", "checkpoint_every=50", "--set", "validation.every=50")
    process = start(*arguments("--out", str(folder.path), *given))
    deadline = time.monotonic() + 240
    while not (folder.progress.exists() and len(rows(folder)) > 3):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    code, out, err = finish(process)
    assert code == 130, err
    assert out == ""
    assert err.splitlines()[-1] == f"interrupted; go on with: attn-sched train --resume --out {folder.path}"
    number = folder.last_checkpoint()
    assert number is not None and number >= 3
    assert int(rows(folder)[-1]["iteration"]) == number
