"""Releasing: the weights of a run under their role's name, with test scores and licences in the card."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from attn_sched.agents.weights import load_agents, save_agents
from attn_sched.errors import InputError
from benchmarks.results import release
from benchmarks.results.entrants import Field
from benchmarks.results.release import scores_on_test, with_licences
from tests.agents.tiny import tiny_pair
from tests.benchmarks.small import made_up, small_plan, stored

SOURCE = {"name": "one", "source": "one.csv", "notes": ["Source: somewhere", "Licence: CC-BY-4.0"]}


def scores(agents: tuple[float, ...] = (50.0, 70.0, 60.0)) -> Any:
    return made_up(
        {
            "sjf+topo-best-fit": {"": stored([7200.0, 7200.0, 7200.0])},
            "fifo+best-fit": {"": stored([9000.0, 9000.0, 9000.0])},
            "agents:full": {"": stored([60.0 * value for value in agents])},
        }
    )


def runs(folder: Path, **card: Any) -> Path:
    (folder / "full" / "best").mkdir(parents=True)
    pair = tiny_pair(("job", "gpu"), 1)
    pair.card = {"name": "run", "command": "attn-sched train", "seeds": [0], "scores": {"validation": 0.7}, **card}
    save_agents(pair, folder / "full" / "best")
    return folder


def test_a_release_says_what_it_is_worth(tmp_path: Path) -> None:
    source = runs(tmp_path / "runs", data=[SOURCE], scores={"validation": 0.7, "test": None})
    (card,) = release.release(scores(), source, ["full"], tmp_path)
    assert card.name == "full.json" and (tmp_path / "full.safetensors").exists()
    made, before = load_agents(card), load_agents(source / "full" / "best")
    assert made.card["name"] == "full" and made.card["weights"]["sha256"] == before.card["weights"]["sha256"]
    assert made.card["scores"]["validation"] == 0.7 and made.card["data"][0]["licence"] == "Licence: CC-BY-4.0"
    told = made.card["scores"]["test"]
    assert told["reference"] == "sjf+topo-best-fit" and told["score"] == 0.5
    assert set(told["cells"].values()) == {0.5} and len(told["cells"]) == 4


def test_nothing_is_released_without_results_or_licence(tmp_path: Path) -> None:
    plan = small_plan()
    rules = {"sjf+topo-best-fit": {"": stored([1.0] * 3)}}
    absent = made_up({**rules, "agents:full": {plan.cells[0].name: stored([1.0] * 3)}}, plan)
    with pytest.raises(InputError, match="has no results in one on nodes:2x4"):
        scores_on_test(absent, "agents:full")
    with pytest.raises(InputError, match="'one' name no licence"):
        with_licences([{**SOURCE, "notes": ["Source: somewhere"]}])
    with pytest.raises(InputError, match="'best' is none of them"):
        release.release(scores(), tmp_path, ["best"], tmp_path)


def test_results_of_other_weights_are_not_taken(tmp_path: Path) -> None:
    source = runs(tmp_path / "runs", data=[SOURCE], scores={"validation": 0.7, "test": None})
    known = scores()
    found = {"full": load_agents(source / "full" / "best").card}
    known.field = Field(known.field.entrants, (), found)
    assert release.release(known, source, ["full"], tmp_path)
    found["full"] = {**found["full"], "weights": {"sha256": "another"}}
    with pytest.raises(InputError, match="other weights than the run's full"):
        release.release(known, source, ["full"], tmp_path)


def test_a_licence_that_is_said_stays() -> None:
    assert with_licences([{**SOURCE, "licence": "MIT"}])[0]["licence"] == "MIT"


def test_the_command_says_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert release.main([str(tmp_path), "full", "--runs", str(tmp_path / "none")]) == 2
    assert "error: " in capsys.readouterr().err
