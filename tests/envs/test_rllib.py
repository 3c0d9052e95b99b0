"""RLlib's own PPO trains on the environment, and no class of it gets into checkpoints."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.env.multi_agent_env_runner import MultiAgentEnvRunner
from ray.rllib.utils.typing import MultiAgentDict

from attn_sched.agents.schema import AGENTS
from attn_sched.agents.spec import NetworkSpec
from attn_sched.training.algorithm import module_of, ray_session
from attn_sched.training.modules import AgentModule, module_spec
from envs.multi_agent import NAME, SchedulingMultiAgentEnv, register

ENV_CONFIG: dict[str, Any] = {
    "cluster": "nodes:2x4",
    "episodes": {"jobs": 8, "loads": [1.0, 2.0]},
    "window": 4,
    "weights": "random",
    "max_decisions": 25,
    "options": {"contention": "equal"},
}


@pytest.fixture(scope="module")
def session() -> Iterator[None]:
    with ray_session(cpus=1):
        yield


def config() -> PPOConfig:
    spec = NetworkSpec(window=4, width=8, heads=1, layers=1, feedforward=8, critic_width=8)
    made = PPOConfig()
    made.environment(register(), env_config=dict(ENV_CONFIG), disable_env_checking=True)
    made.env_runners(num_env_runners=0, num_envs_per_env_runner=2, rollout_fragment_length=64)
    made.training(train_batch_size_per_learner=128, minibatch_size=32, num_epochs=1)
    made.multi_agent(policies=set(AGENTS), policy_mapping_fn=module_of)
    made.rl_module(
        rl_module_spec=MultiRLModuleSpec(rl_module_specs={agent: module_spec(agent, spec) for agent in AGENTS})
    )
    made.debugging(seed=3, log_level="ERROR")
    return made


@pytest.fixture(scope="module")
def algorithm(session: None) -> Iterator[Algorithm]:
    built = config().build_algo()
    yield built
    built.stop()


@pytest.mark.slow
def test_ppo_trains_an_iteration(algorithm: Algorithm) -> None:
    before = {agent: weights(algorithm, agent) for agent in AGENTS}
    result = algorithm.train()
    runners = result["env_runners"]
    assert runners["num_env_steps_sampled"] >= 128
    assert np.isfinite(runners["episode_return_mean"]) and runners["episode_return_mean"] < 0
    for agent in AGENTS:
        assert np.isfinite(result["learners"][agent]["total_loss"])
        assert any((new != old).any() for new, old in zip(weights(algorithm, agent), before[agent], strict=True))


def weights(algorithm: Algorithm, agent: str) -> list[np.ndarray]:
    """The values of an agent's module as they are now."""
    module = algorithm.get_module(agent)
    assert isinstance(module, AgentModule)
    return [values.detach().numpy().copy() for values in module.parameters()]


@pytest.mark.slow
def test_episodes_cut_anywhere_lose_no_reward(session: None) -> None:
    """What RLlib's runner books for an agent, in fragments, is what the environment gives it from its first action on.

    The episodes are played again, with the actions that RLlib's hold, by environments of the same seeds.
    """
    runner = MultiAgentEnvRunner(config=config())
    actions: dict[str, dict[str, list[int]]] = {}
    rewards: dict[str, dict[str, list[float]]] = {}
    first: dict[str, np.ndarray] = {}  # objective weights: drawn for each episode, so they tell which one it is
    whole: set[str] = set()
    while len(whole) < 8:
        for part in runner.sample(num_timesteps=7):
            for name, own in part.agent_episodes.items():
                agent = str(name)
                first.setdefault(part.id_, own.get_observations(0)["globals"][-3:])
                actions.setdefault(part.id_, {}).setdefault(agent, []).extend(own.get_actions().tolist())
                rewards.setdefault(part.id_, {}).setdefault(agent, []).extend(own.get_rewards().tolist())
            if part.is_done:
                whole.add(part.id_)
    played = []
    assert runner._seed is not None
    for copy in range(2):
        environment = SchedulingMultiAgentEnv(**ENV_CONFIG)
        for number in range(20):
            begun, _ = environment.reset(seed=runner._seed + copy if number == 0 else None)
            weights = environment.session.weights.astype(np.float32)
            found = [name for name in whole if np.array_equal(first[name], weights)]
            if not found:
                break
            played.append(found[0])
            expected = replay(environment, begun, actions[found[0]])
            for agent in AGENTS:
                np.testing.assert_allclose(rewards[found[0]][agent], expected[agent], rtol=1e-5, atol=1e-7)
    assert sorted(played) == sorted(whole)


def replay(
    environment: SchedulingMultiAgentEnv, observations: MultiAgentDict, actions: dict[str, list[int]]
) -> dict[str, list[float]]:
    """The rewards that each agent gets for its actions; the one before its first action is none of them."""
    waiting = {agent: iter(own) for agent, own in actions.items()}
    got: dict[str, list[float]] = {agent: [] for agent in AGENTS}
    acted: set[str] = set()
    done = False
    while not done:
        agent = environment.session.agent
        assert list(observations) == [agent]
        acted.add(agent)
        observations, rewards, terminated, truncated, _ = environment.step({agent: next(waiting[agent])})
        for each, reward in rewards.items():
            if each in acted:
                got[str(each)].append(reward)
        done = terminated["__all__"] or truncated["__all__"]
    assert all(next(own, None) is None for own in waiting.values())
    return got


@pytest.mark.slow
def test_checkpoints_name_the_environment_but_hold_none_of_its_classes(algorithm: Algorithm, tmp_path: Path) -> None:
    algorithm.save_to_path(tmp_path / "saved")
    contents = [path.read_bytes() for path in (tmp_path / "saved").rglob("*") if path.is_file()]
    assert any(NAME.encode() in content for content in contents)
    assert not any(re.search(rb"(?<![\w.])envs\.\w", content) for content in contents)
