"""A run from logs to weights: its stages, what is refused before it begins, and going on after any end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attn_sched.agents.weights import load_agents
from attn_sched.errors import InputError
from attn_sched.training import pipeline
from attn_sched.training.configs import TrainingConfig, load_config
from attn_sched.training.curves import Reporter
from attn_sched.training.pipeline import Outcome, Run
from attn_sched.training.run_folder import RunFolder
from tests.training.tiny_run import tiny_config


class Stopped(Exception):
    """What ends a run in these tests."""


class Recorder:
    """Counts the calls of the functions that do the stages' work; each can be made to fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[str] = []
        self.fail: str | None = None
        for name in ("tune_rule", "make_start", "save_rule_scores", "save_start", "save_linear"):
            monkeypatch.setattr(pipeline, name, self._wrap(name, getattr(pipeline, name)))
        monkeypatch.setattr(Run, "_ppo", lambda run, *rest: self.calls.append("ppo"))

    def _wrap(self, name: str, function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls.append(name)
            if self.fail == name:
                raise Stopped
            return function(*args, **kwargs)

        return call


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    return Recorder(monkeypatch)


def run(config: TrainingConfig, folder: Path, resume: bool = False) -> Outcome:
    report = Reporter(lambda line: None)
    command = "attn-sched train --resume" if resume else "attn-sched train"
    return Run(config, RunFolder(folder), resume=resume, command=command, report=report).run()


def test_each_stage_is_done_once_whatever_ends_the_run(recorder: Recorder, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    config = tiny_config()
    sessions = [
        ("save_rule_scores", ["save_rule_scores"]),
        ("tune_rule", ["save_rule_scores", "tune_rule"]),
        ("save_linear", ["tune_rule", "save_linear"]),
        ("make_start", ["tune_rule", "save_linear", "make_start"]),
        ("save_start", ["make_start", "save_start"]),
    ]
    for number, (fail, calls) in enumerate(sessions):
        recorder.fail, recorder.calls = fail, []
        with pytest.raises(Stopped):
            run(config, folder, resume=number > 0)
        assert recorder.calls == calls
    recorder.fail, recorder.calls = None, []
    outcome = run(config, folder, resume=True)
    assert recorder.calls == ["make_start", "save_start", "ppo"]
    assert set(outcome.stages) == {"rules", "tuned", "imitation"}
    assert load_agents(folder / "imitation").card["command"] == "attn-sched train"  # the one that began the run
    recorder.calls = []
    again = run(config, folder, resume=True)
    assert recorder.calls == ["ppo"]
    assert again.rows() == outcome.rows()


def test_a_stage_that_was_not_recorded_is_done_again_to_the_same_end(recorder: Recorder, tmp_path: Path) -> None:
    config = tiny_config()
    run(config, tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    weights = {name: value.clone() for name, value in load_agents(folder.imitation).net("job").state_dict().items()}
    rule = json.loads(folder.tuned.read_text())
    folder.stages.write_text(json.dumps({"rules": folder.finished()["rules"]}))
    run(config, tmp_path / "run", resume=True)
    assert json.loads(folder.tuned.read_text())["order"] == rule["order"]
    for name, value in load_agents(folder.imitation).net("job").state_dict().items():
        assert np.array_equal(value, weights[name]), name


def test_cards_say_how_the_agents_were_made(recorder: Recorder, tmp_path: Path) -> None:
    config = tiny_config(seed=4, objective__weights=(1.0, 0.0, 0.5))
    outcome = run(config, tmp_path / "run")
    card = load_agents(tmp_path / "run" / "imitation").card
    assert card["name"] == "tiny" and card["stage"] == "imitation"
    assert card["command"] == "attn-sched train"
    assert card["seeds"] == [4]
    assert card["objective_weights"] == [1.0, 0.0, 0.5]
    assert [source["name"] for source in card["data"]] == ["synthetic-helios", "synthetic-philly"]
    assert card["clusters"] == ["nodes:2x4", "nodes:3x4"]
    assert card["budget"]["tuned_seconds"] > 0
    row = next(row for row in outcome.rows() if row["policy"].startswith("imitation"))
    assert card["scores"]["validation"]["score"] == row["score"]
    assert card["scores"]["validation"]["reference"] == outcome.rules.best
    assert card["training"]["ppo.minibatch"] == 64
    tuned = json.loads((tmp_path / "run" / "tuned.json").read_text())["card"]
    assert tuned["command"] == "attn-sched train"


def test_the_gpu_agent_alone_needs_no_tuned_rule(recorder: Recorder, tmp_path: Path) -> None:
    outcome = run(tiny_config(ppo__agents=("gpu",), order="sjf"), tmp_path / "run")
    assert "tune_rule" not in recorder.calls
    assert load_agents(tmp_path / "run" / "imitation").job is None
    assert {"rules", "imitation"} == set(outcome.stages)


def csv_trace(path: Path, jobs: int, gap: int = 60) -> Path:
    draw = np.random.default_rng(0)
    rows = [f"{k},{gap * k},{draw.choice([1, 2, 4])},{draw.integers(60, 3000)}" for k in range(jobs)]
    path.write_text("job_id,submit_time,num_gpus,duration\n" + "\n".join(rows) + "\n")
    return path


def test_a_damaged_record_of_the_data_is_told(recorder: Recorder, tmp_path: Path) -> None:
    config = tiny_config()
    run(config, tmp_path / "run")
    (tmp_path / "run" / "data.json").write_text('{"logs": []}')
    with pytest.raises(InputError, match=r"data\.json.*command"):
        run(config, tmp_path / "run", resume=True)


def test_a_log_that_changed_is_told(recorder: Recorder, tmp_path: Path) -> None:
    trace = csv_trace(tmp_path / "mine.csv", 300)
    (tmp_path / "README.md").write_text("# Mine\n- Source: the cluster next door.\n- Licence: CC-BY-4.0\n- 300 rows\n")
    config = tiny_config(data__traces=(str(trace),))
    run(config, tmp_path / "run")
    source = json.loads((tmp_path / "run" / "data.json").read_text())["logs"][0]
    assert source["notes"] == ["Source: the cluster next door.", "Licence: CC-BY-4.0"]
    assert source["jobs"] == 300 and source["bytes"] == trace.stat().st_size
    run(config, tmp_path / "run", resume=True)
    csv_trace(trace, 300, gap=61)
    with pytest.raises(InputError, match=r"mine.*changed since"):
        run(config, tmp_path / "run", resume=True)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"data__traces": ("absent.csv",)}, "absent.csv"),
        ({"data__clusters": ("nowhere",)}, "nowhere"),
        ({"data__traces": ("one.csv",)}, "job"),
        ({"data__traces": ("at-once.csv",)}, "submit"),
        ({"data__clusters": ("deep.yaml",)}, "deep"),
    ],
)
def test_nothing_is_written_before_the_input_is_known_to_be_usable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    csv_trace(Path("one.csv"), 1)
    csv_trace(Path("at-once.csv"), 200, gap=0)
    Path("deep.yaml").write_text(DEEP)
    with pytest.raises(InputError, match=said):
        run(tiny_config(**changes), Path("run"))
    assert not Path("run").exists()


DEEP = """
name: deep
levels: [gpu, node, rack, row, hall, site]
unit: node
links:
  gpu: {bandwidth_GBps: 130, latency_us: 3}
  node: {bandwidth_GBps: 12, latency_us: 5}
  rack: {bandwidth_GBps: 12, latency_us: 5}
  row: {bandwidth_GBps: 12, latency_us: 5}
  hall: {bandwidth_GBps: 12, latency_us: 5}
tree:
  - site: 1
    children:
      - hall: 2
        children:
          - row: 2
            children:
              - rack: 2
                children:
                  - {node: 2, gpus: 2}
"""


def test_more_time_may_be_given(recorder: Recorder, tmp_path: Path) -> None:
    run(tiny_config(), tmp_path / "run")
    run(tiny_config(minutes=999.0), tmp_path / "run", resume=True)
    assert load_config(tmp_path / "run" / "config.json").minutes == 999.0
