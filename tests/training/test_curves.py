"""progress.csv, TensorBoard's curves and the log."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from attn_sched.training.curves import COLUMNS, Curves, Reporter, Row, iteration_line, iteration_row
from tests.training.events import read_curve

RESULT: dict[str, Any] = {
    "training_iteration": 3,
    "env_runners": {
        "num_env_steps_sampled": 500,
        "num_episodes_lifetime": 7.0,
        "num_agent_steps_sampled": {"job": 300, "gpu": 200},
        "sampling_seconds": {"engine": 0.5, "network": 1.0, "rest": 0.5},
        "episode_return_mean": -1.5,
        "episode_cost": {"completion": 0.9, "fairness": 1.1, "communication": 0.2},
    },
    "learners": {"job": {"entropy": 0.7, "mean_kl_loss": 0.01, "explained_variance_completion": 0.4, "vf_loss": 2.0}},
}


def row(iteration: int, **more: float) -> Row:
    return {"iteration": iteration, "decisions": 100 * iteration, "return_mean": -float(iteration), **more}


def test_an_iteration_becomes_a_row() -> None:
    found = iteration_row(RESULT, decisions=1500, seconds=12.0, took=4.0)
    assert set(found) <= set(COLUMNS)
    assert found["iteration"] == 3 and found["decisions"] == 1500
    assert found["decisions_per_s"] == 125.0
    assert (found["sampling_s"], found["learning_s"]) == (2.0, 2.0)
    assert found["cost_fairness"] == 1.1
    assert (found["job_decisions"], found["gpu_decisions"]) == (300, 200)
    assert found["job_explained_completion"] == 0.4
    assert "gpu_entropy" not in found
    line = iteration_line(found, ("job", "gpu"))
    assert line == "iteration 3 | 1,500 decisions | 125/s | return -1.50 | job: entropy 0.700 kl 0.010 explained 0.400"


def test_a_resumed_run_has_every_step_once(tmp_path: Path) -> None:
    table = tmp_path / "progress.csv"
    curves = Curves(table, tmp_path)
    for iteration in range(5):
        curves.add(row(iteration, validation_score=1.0 - 0.1 * iteration))
    curves.close()
    with open(table, "a", encoding="utf-8") as file:
        file.write("5,500,0.")  # killed while writing
    curves = Curves(table, tmp_path, iteration=2, decisions=200)
    for iteration in (3, 4, 5):
        curves.add(row(iteration, validation_score=7.0))
    curves.close()
    with open(table, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [int(one["iteration"]) for one in rows] == [0, 1, 2, 3, 4, 5]
    assert [float(one["validation_score"]) for one in rows] == [1.0, 0.9, 0.8, 7.0, 7.0, 7.0]
    assert [one["job_kl"] for one in rows] == [""] * 6
    found = read_curve(tmp_path, "validation/score")
    assert [step for step, _ in found] == [0, 100, 200, 300, 400, 500]
    assert [round(value, 3) for _, value in found] == [1.0, 0.9, 0.8, 7.0, 7.0, 7.0]


def test_a_run_that_begins_anew_drops_what_was_there(tmp_path: Path) -> None:
    curves = Curves(tmp_path / "progress.csv", tmp_path)
    curves.add(row(0))
    curves.close()
    curves = Curves(tmp_path / "progress.csv", tmp_path)
    curves.add(row(0, return_mean=5.0))
    curves.close()
    with open(tmp_path / "progress.csv", newline="", encoding="utf-8") as file:
        assert [one["return_mean"] for one in csv.DictReader(file)] == ["5.0"]
    assert read_curve(tmp_path, "run/return_mean") == [(0, 5.0)]


def test_lines_are_shown_and_kept(tmp_path: Path) -> None:
    shown: list[str] = []
    report = Reporter(shown.append)
    report.line("before there is a folder")
    report.log = tmp_path / "train.log"
    report.line("after")
    assert shown == ["before there is a folder", "after"]
    assert report.log.read_text().endswith(" after\n") and len(report.log.read_text().splitlines()) == 1
