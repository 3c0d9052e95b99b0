"""PPO end to end in RLlib: iterations, weights in and out, whole checkpoints, and runs that go on from them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
import torch
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModule

from attn_sched.agents.pair import AgentPair
from attn_sched.agents.schema import AGENTS
from attn_sched.agents.spec import NetworkSpec
from attn_sched.errors import InputError
from attn_sched.training import algorithm as ppo
from attn_sched.training.modules import MODULES
from tests.training.clusters import SPEC, TinySource, settings

pytestmark = pytest.mark.slow  # Ray takes ten seconds to start


@pytest.fixture(scope="module", autouse=True)
def session() -> Iterator[None]:
    with ppo.ray_session(cpus=2):
        yield
    assert not ray.is_initialized()


def build(agents: tuple[str, ...] = AGENTS, spec: NetworkSpec = SPEC, **changes: Any) -> Any:
    return ppo.build_config(settings(agents=agents, **changes), spec, TinySource(agents=agents)).build_algo()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, list[dict[str, Any]], Path]]:
    """An algorithm after two iterations, their results, and its checkpoint."""
    algorithm = build(rate_warmup=0, final_rate=0.5)
    results = [algorithm.train() for _ in range(2)]
    folder = ppo.save_checkpoint(algorithm, tmp_path_factory.mktemp("run") / "checkpoint-2")
    yield algorithm, results, folder
    algorithm.stop()


Trained = tuple[Any, list[dict[str, Any]], Path]


def learner_state(algorithm: Any) -> dict[str, Any]:
    state: dict[str, Any] = algorithm.learner_group.get_state()["learner"]
    return {key: state[key] for key in ("rl_module", "optimizer", "scheduling")}


def runner_weights(algorithm: Any) -> Any:
    return algorithm.env_runner.module.get_state()


def assert_same_pair(one: AgentPair, other: AgentPair, agents: tuple[str, ...] = AGENTS) -> None:
    for agent in agents:
        left, right = one.net(agent).state_dict(), other.net(agent).state_dict()
        assert left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def test_iterations_sample_and_learn(trained: Trained) -> None:
    algorithm, results, _ = trained
    amount = settings().iteration_decisions
    for number, result in enumerate(results, start=1):
        sampled, learned = result["env_runners"], result["learners"]
        assert amount <= sampled["num_env_steps_sampled"] < 1.5 * amount, "one round of sampling an iteration"
        assert result["training_iteration"] == number
        for agent in AGENTS:
            assert learned[agent]["num_module_steps_trained"] == 2 * sampled["num_agent_steps_sampled"][agent]
            assert 0 < learned[agent]["entropy"] < 3 and np.isfinite(learned[agent]["vf_loss"])
    assert results[1]["env_runners"]["num_env_steps_sampled_lifetime"] == sum(
        result["env_runners"]["num_env_steps_sampled"] for result in results
    )
    assert results[1]["env_runners"]["num_episodes_lifetime"] > 0 > results[1]["env_runners"]["episode_return_mean"]
    rate = results[1]["learners"]["job"]["policy_learning_rate"]
    assert 1e-4 < rate < 2e-4, "between the first and the last learning rate"
    np.testing.assert_equal(runner_weights(algorithm), learner_state(algorithm)["rl_module"])


def test_a_restored_run_stands_where_the_saved_one_stood(trained: Trained) -> None:
    algorithm, _, folder = trained
    after = []
    for _ in range(2):
        other = build(rate_warmup=0, final_rate=0.5, seed=3)
        ppo.restore_checkpoint(other, folder)
        np.testing.assert_equal(learner_state(other), learner_state(algorithm))
        np.testing.assert_equal(runner_weights(other), runner_weights(algorithm))
        result = other.train()
        assert result["training_iteration"] == 3
        before = trained[1][-1]["env_runners"]["num_env_steps_sampled_lifetime"]
        sampled = result["env_runners"]
        assert sampled["num_env_steps_sampled_lifetime"] == before + sampled["num_env_steps_sampled"]
        after.append((learner_state(other), sampled["num_env_steps_sampled"]))
        other.stop()
    np.testing.assert_equal(after[0], after[1])


def test_restoring_takes_a_run_back_too(trained: Trained) -> None:
    algorithm, _, folder = trained
    other = build(rate_warmup=0, final_rate=0.5)
    for _ in range(3):  # ahead of the checkpoint, by RLlib's count of weights too
        other.train()
    ppo.restore_checkpoint(other, folder)
    np.testing.assert_equal(runner_weights(other), runner_weights(algorithm))
    np.testing.assert_equal(learner_state(other)["rl_module"], learner_state(algorithm)["rl_module"])
    other.stop()


def test_a_checkpoint_is_written_whole_or_not_at_all(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    algorithm, _, folder = trained
    with pytest.raises(InputError, match="exists already"):
        ppo.save_checkpoint(algorithm, folder)
    with pytest.raises(InputError, match="cannot be written"):
        ppo.save_checkpoint(algorithm, tmp_path / "missing" / "checkpoint")
    save = algorithm.save_to_path

    def interrupted(path: Path) -> None:
        save(path)
        raise KeyboardInterrupt

    monkeypatch.setattr(algorithm, "save_to_path", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ppo.save_checkpoint(algorithm, tmp_path / "checkpoint")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    (tmp_path / ".checkpoint.killed.part" / "learner_group").mkdir(parents=True)
    ppo.save_checkpoint(algorithm, tmp_path / "checkpoint")
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


def test_what_is_no_checkpoint_of_this_run(trained: Trained, tmp_path: Path) -> None:
    algorithm, _, folder = trained
    with pytest.raises(InputError, match="is no checkpoint"):
        ppo.restore_checkpoint(algorithm, tmp_path)
    alone = build(("job",))
    with pytest.raises(InputError, match="holds the agents gpu, job"):
        ppo.restore_checkpoint(alone, folder)
    alone.stop()
    wide = build(spec=NetworkSpec(**{**SPEC.as_dict(), "width": 16}))
    with pytest.raises(InputError, match="does not fit these networks"):
        ppo.restore_checkpoint(wide, folder)
    wide.stop()


def test_networks_alone_from_a_checkpoint(trained: Trained) -> None:
    algorithm, _, folder = trained
    module = MultiRLModule.from_checkpoint(str(folder / "learner_group" / "learner" / "rl_module"))
    assert {agent: type(module[agent]) for agent in module.keys()} == MODULES  # noqa: SIM118 (it is no mapping)
    for agent in AGENTS:
        np.testing.assert_equal(module[agent].get_state(), learner_state(algorithm)["rl_module"][agent])


def test_pairs_go_in_and_out(trained: Trained) -> None:
    algorithm = build(value_warmup=1)
    pair = AgentPair.fresh(SPEC, AGENTS, seed=8)
    critics = {agent: algorithm.env_runner.module[agent].critic.state_dict() for agent in AGENTS}
    ppo.load_pair_into(algorithm, pair)
    assert_same_pair(ppo.pair_from(algorithm), pair)
    np.testing.assert_equal(runner_weights(algorithm), learner_state(algorithm)["rl_module"])
    for agent in AGENTS:
        for name, values in algorithm.env_runner.module[agent].critic.state_dict().items():
            assert torch.equal(values, critics[agent][name])
    algorithm.train()  # the values alone
    assert_same_pair(ppo.pair_from(algorithm), pair)
    kept = ppo.pair_from(algorithm)
    algorithm.train()
    with pytest.raises(AssertionError):
        assert_same_pair(ppo.pair_from(algorithm), pair)
    assert_same_pair(kept, pair)
    with pytest.raises(InputError, match="have no gpu agent"):
        ppo.load_pair_into(algorithm, AgentPair.fresh(SPEC, ("job",), seed=0))
    with pytest.raises(InputError, match="expected those of"):
        ppo.load_pair_into(algorithm, AgentPair.fresh(NetworkSpec(), AGENTS, seed=0))
    algorithm.stop()


def test_no_folder_is_left_behind() -> None:
    algorithm = build()
    logdir = Path(algorithm.logdir)
    assert logdir.is_dir() and Path.home() not in logdir.parents
    algorithm.stop()
    assert not logdir.exists()


@pytest.mark.parametrize("agent", AGENTS)
def test_one_agent_learns_alone(agent: str) -> None:
    algorithm = build((agent,))
    result = algorithm.train()
    assert set(result["learners"]) == {agent, "__all_modules__"}
    assert result["env_runners"]["num_agent_steps_sampled"].keys() == {agent}
    pair = ppo.pair_from(algorithm)
    assert (pair.job is not None, pair.gpu is not None) == (agent == "job", agent == "gpu")
    algorithm.stop()


def test_remote_runners(tmp_path: Path) -> None:
    algorithm = build(runners=2)
    result = algorithm.train()
    amount = settings().iteration_decisions
    assert amount <= result["env_runners"]["num_env_steps_sampled"] < 1.5 * amount
    assert result["learners"]["job"]["num_module_steps_trained"] > 0
    folder = ppo.save_checkpoint(algorithm, tmp_path / "checkpoint")
    saved = learner_state(algorithm)
    algorithm.train()
    ppo.restore_checkpoint(algorithm, folder)
    np.testing.assert_equal(learner_state(algorithm), saved)
    for state in algorithm.env_runner_group.foreach_env_runner(
        lambda runner: runner.module.get_state(), local_env_runner=False
    ):
        np.testing.assert_equal(state, saved["rl_module"])
    again = algorithm.train()
    assert again["env_runners"]["num_env_steps_sampled"] >= amount
    algorithm.stop()
