"""What PPO starts from, on disk and in an algorithm."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from attn_sched.agents.networks import Critic
from attn_sched.errors import InputError
from attn_sched.policies.linear import sjf_rule
from attn_sched.training.modules import MODULES
from attn_sched.training.start import CRITICS, Start, load_critics_into, load_start, make_start, save_start
from tests.training.tiny_run import tiny_config


@pytest.fixture(scope="module")
def made() -> tuple[Start, dict[str, float], list[int]]:
    rounds: list[int] = []
    start, metrics = make_start(tiny_config(), sjf_rule(1.5), rounds.append)
    return start, metrics, rounds


def same(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    left, right = one.state_dict(), other.state_dict()
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def test_it_depends_on_the_seed_alone(made: tuple[Start, dict[str, float], list[int]]) -> None:
    start, metrics, rounds = made
    assert rounds[:2] == [1, 2]
    torch.manual_seed(99)
    again, told = make_start(tiny_config(), sjf_rule(1.5), lambda done: None)
    assert told == metrics
    for agent in ("job", "gpu"):
        assert same(start.pair.net(agent), again.pair.net(agent)) and same(start.critics[agent], again.critics[agent])
    other, _ = make_start(tiny_config(seed=1), sjf_rule(1.5), lambda done: None)
    assert not same(start.pair.net("job"), other.pair.net("job"))


def test_it_survives_the_disk(made: tuple[Start, dict[str, float], list[int]], tmp_path: Path) -> None:
    start = made[0]
    save_start(start, tmp_path / "tiny")
    loaded = load_start(tmp_path)
    for agent in ("job", "gpu"):
        assert same(start.pair.net(agent), loaded.pair.net(agent)) and same(start.critics[agent], loaded.critics[agent])
    path = tmp_path / CRITICS
    whole = path.read_bytes()
    for damaged in (whole[:100], whole[: len(whole) // 2], b""):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match="holds no critics"):
            load_start(tmp_path)
    path.unlink()
    with pytest.raises(InputError, match="holds no critics"):
        load_start(tmp_path)


def test_one_agent_alone_has_one_critic() -> None:
    start, metrics = make_start(tiny_config(ppo__agents=("gpu",), order="sjf"), None, lambda done: None)
    assert start.pair.job is None and set(start.critics) == {"gpu"}
    assert "agreement.gpu" in metrics and "agreement.job" not in metrics


def test_an_algorithm_takes_up_the_critics_and_nothing_else(made: tuple[Start, dict[str, float], list[int]]) -> None:
    start = made[0]
    spec = tiny_config().network
    modules: dict[str, Any] = {
        agent: MODULES[agent](model_config={"spec": spec.as_dict()}, observation_space=None, action_space=None)
        for agent in ("job", "gpu")
    }
    before = {agent: [value.clone() for value in module.net.state_dict().values()] for agent, module in modules.items()}
    learner = SimpleNamespace(module=modules)

    def foreach_learner(function: Any) -> list[Any]:
        function(learner)
        return [SimpleNamespace(get=lambda: None)]

    load_critics_into(SimpleNamespace(learner_group=SimpleNamespace(foreach_learner=foreach_learner)), start.critics)
    for agent, module in modules.items():
        assert isinstance(module.critic, Critic) and same(module.critic, start.critics[agent])
        after = module.net.state_dict().values()
        assert all(np.array_equal(one, other) for one, other in zip(before[agent], after, strict=True))
