"""Training configurations: those with a name, ablations, files, and what is refused."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attn_sched.agents.rewards import TERMS
from attn_sched.errors import InputError
from attn_sched.simulator import layout as at
from attn_sched.training.configs import (
    ABLATIONS,
    HIDDEN,
    NAMES,
    Objective,
    ablate,
    load_config,
    named_config,
    save_config,
)
from attn_sched.training.overrides import difference
from tests.training.tiny_run import tiny_config


@pytest.mark.parametrize("name", NAMES)
def test_named_configurations_are_valid_and_survive_a_file(name: str, tmp_path: Path) -> None:
    config = named_config(name)
    assert config.name == name
    save_config(config, tmp_path / "config.json")
    assert load_config(tmp_path / "config.json") == config


def test_quick_asks_for_less_than_medium_and_that_for_less_than_full() -> None:
    quick, medium, full = (named_config(name) for name in ("quick", "medium", "full"))
    assert quick.minutes < 10 and quick.minutes < medium.minutes < full.minutes
    assert quick.ppo.total_decisions < medium.ppo.total_decisions < full.ppo.total_decisions


def test_an_unknown_name_lists_the_known() -> None:
    with pytest.raises(InputError, match="quick, medium"):
        named_config("huge")


@pytest.mark.parametrize("name", ABLATIONS)
def test_an_ablation_leaves_one_thing_out(name: str) -> None:
    config = named_config("full")
    changed = config.with_values(ablate(config, [name]))
    keys = difference(config.flat(), changed.flat())
    assert len(keys) == 1
    left_out = name.removeprefix("no-")
    if left_out in TERMS:
        assert changed.objective.off == (left_out,)
        assert changed.objective.effective[TERMS.index(left_out)] == 0
    else:
        assert changed.flat()[keys[0]] is False


def test_ablations_add_up() -> None:
    config = named_config("quick")
    changed = config.with_values(ablate(config, ["no-fairness", "no-hold", "no-communication"]))
    assert changed.objective.effective == (1.0, 0.0, 0.0)
    assert not changed.network.hold
    with pytest.raises(InputError, match="rewards nothing"):
        config.with_values(ablate(config, [f"no-{term}" for term in TERMS]))


def test_weights_are_the_given_ones_or_drawn_with_the_same_sum() -> None:
    objective = Objective(weights=(1.0, 0.5, 0.25), share=0.5, off=("fairness",))
    draw = pickle.loads(pickle.dumps(objective.draw))  # RLlib pickles it
    generator = np.random.default_rng(1)
    drawn = np.array([draw(generator) for _ in range(400)])
    assert (drawn[:, 1] == 0).all() and (drawn >= 0).all()
    assert np.allclose(drawn.sum(1), 1.25)
    given = (drawn == [1.0, 0.0, 0.25]).all(1)
    assert 150 < given.sum() < 250
    assert drawn[~given, 0].min() < 0.1 and drawn[~given, 0].max() > 1.15


def test_who_learns_decides_the_engine_rule() -> None:
    both = tiny_config().engine_rule
    assert (both.order, both.placement) == (at.AGENT, at.PLACE_AGENT)
    job = tiny_config(ppo__agents=("job",), placement="contention").engine_rule
    assert (job.order, job.placement) == (at.AGENT, at.LEAST_CONTENTION)
    gpu = tiny_config(ppo__agents=("gpu",), order="sjf:easy+hold(1.5,0.5)").engine_rule
    assert (gpu.order, gpu.placement, gpu.queueing, gpu.theta) == (at.STATIC, at.PLACE_AGENT, at.EASY, 1.5)
    assert gpu.keys is not None


def test_parts_share_seed_and_window() -> None:
    config = tiny_config(seed=5, episodes__jobs=30)
    assert config.ppo_settings.seed == 5
    assert config.tune_settings.window == config.network.window
    assert config.tune_settings.episodes.jobs == 30
    assert not set(config.flat()) & HIDDEN


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("name", "a/b", "cannot name agents"),
        ("name", "", "cannot name agents"),
        ("seed", -1, "negative"),
        ("minutes", float("nan"), "no time"),
        ("minutes", 0.0, "no time"),
        ("checkpoint_every", 0, "1 or more"),
        ("ppo.clusters", 1, "2 or more"),
        ("ppo.clip", 0.0, "'ppo.clip'"),
        ("order", "srtf", "cannot do an agent's part"),
        ("order", "nonsense", "there is no ordering 'nonsense'"),
        ("order", "sjf+best-fit", "nothing can follow"),
        ("placement", "nonsense", "there is no placement 'nonsense'"),
        ("validation.rules", (), "hand-written"),
        ("validation.rules", ("sjf+nowhere",), "there is no placement 'nowhere'"),
        ("validation.loads", (), "no loads"),
        ("validation.loads", (float("nan"),), "no loads"),
        ("validation.windows", 0, "1 or more"),
        ("objective.weights", (float("nan"), 0.0, 1.0), "no weight"),
        ("objective.share", 1.5, "no share"),
        ("objective.fairness", "luck", "unknown term"),
        ("data.clusters", (), "at least one cluster"),
        ("network.heads", 3, "'network.width'"),
    ],
)
def test_values_that_will_not_do_are_refused(key: str, value: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        tiny_config().with_values({key: value})


def test_a_damaged_file_is_told(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    save_config(tiny_config(), path)
    whole = path.read_text()
    for change, said in (
        (lambda text: text[:-30], "no whole JSON"),
        (lambda text: text.replace('"seed"', '"sead"'), "sead"),
        (lambda text: text.replace('"version": 1', '"version": 9'), "version 1"),
        (lambda text: json.dumps({**json.loads(text), "values": 3}), "lacks values"),
        (lambda text: text.replace('"ppo.clip": 0.15', '"ppo.clip": -1'), "'ppo.clip'"),
        (lambda text: text.replace('"ppo.clip": 0.15', '"ppo.clip": "x"'), "'ppo.clip'"),
    ):
        changed = change(whole)
        assert changed != whole
        path.write_text(changed)
        with pytest.raises(InputError, match=said):
            load_config(path)
    with pytest.raises(InputError, match="cannot be read"):
        load_config(tmp_path / "absent.json")


def test_the_manual_tells_the_named_configurations_as_they_are() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "training.md").read_text(encoding="utf-8")
    cells = {
        row[1].strip(): [cell.strip() for cell in row[2:-1]]
        for line in text.splitlines()
        if len(row := line.split("|")) == 6
    }
    configs = [named_config(name) for name in ("quick", "medium", "full")]
    assert cells["minutes at most"] == [f"{config.minutes:g}" for config in configs]
    assert cells["decisions of PPO"] == [f"{config.ppo.total_decisions / 1e6:g} million" for config in configs]
    assert cells["networks"] == [
        f"width {config.network.width}, {config.network.layers} layer{'s' * (config.network.layers > 1)}"
        for config in configs
    ]
    for name in ABLATIONS:
        assert f"`{name}`" in text
