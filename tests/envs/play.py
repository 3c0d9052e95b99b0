"""Random legal play of every face of the environment, and a record of what it gave."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from attn_sched.simulator import Schedule
from attn_sched.workload import Workload
from envs.multi_agent import SchedulingMultiAgentEnv
from envs.scheduling import env
from envs.session import Session
from envs.single_agent import SchedulingEnv
from envs.spaces import Observation

FACES = ("aec", "multi", "single")
MOST_STEPS = 20_000


@dataclass
class Record:
    """An episode: every decision with what its agent saw, and what each agent got in all."""

    session: Session
    decisions: list[tuple[str, Observation, int]] = field(default_factory=list)
    last: dict[str, Observation] = field(default_factory=dict)  # observations of the ended episode
    returns: dict[str, float] = field(default_factory=dict)
    terms: dict[str, np.ndarray] = field(default_factory=dict)
    terminated: bool = False
    truncated: bool = False

    @property
    def workload(self) -> Workload:
        assert self.session.workload is not None
        return self.session.workload

    @property
    def schedule(self) -> Schedule:
        return self.session.schedule()

    def got(self, agent: str, reward: float, terms: np.ndarray) -> None:
        """Add a reward, which its terms must explain."""
        np.testing.assert_allclose(reward, terms @ self.session.weights, rtol=1e-9, atol=1e-12)
        self.returns[agent] = self.returns.get(agent, 0.0) + reward
        self.terms[agent] = self.terms.get(agent, np.zeros(3)) + terms

    def chose(self, agent: str, seen: Observation, generator: np.random.Generator) -> int:
        """A legal action drawn at random."""
        action = int(generator.choice(np.flatnonzero(seen["action_mask"])))
        self.decisions.append((agent, seen, action))
        assert len(self.decisions) < MOST_STEPS, "an episode must end"
        return action

    def end(self, seen: dict[str, Observation], terminated: bool, truncated: bool) -> None:
        self.last, self.terminated, self.truncated = seen, terminated, truncated


def make(face: str, **arguments: Any) -> Any:
    """An environment by its face."""
    return {"aec": env, "multi": SchedulingMultiAgentEnv, "single": SchedulingEnv}[face](**arguments)


def play(face: str, environment: Any, seed: int | None = 0, choices: int = 0) -> Record:
    """One episode of ``environment``; ``choices`` seeds the actions."""
    generator = np.random.default_rng(choices)
    return {"aec": _play_aec, "multi": _play_multi, "single": _play_single}[face](environment, seed, generator)


def _play_aec(environment: Any, seed: int | None, generator: np.random.Generator) -> Record:
    environment.reset(seed=seed)
    record = Record(environment.unwrapped.session)
    last = {}
    for agent in environment.agent_iter():
        seen, reward, terminated, truncated, info = environment.last()
        record.got(agent, reward, info["reward_terms"])
        if terminated or truncated:
            last[agent] = seen
            record.end(last, terminated, truncated)
            environment.step(None)
            continue
        np.testing.assert_array_equal(info["action_mask"], seen["action_mask"])
        environment.step(record.chose(agent, seen, generator))
    assert set(last) == {"job", "gpu"}, "both agents are told of the end"
    return record


def _play_multi(environment: Any, seed: int | None, generator: np.random.Generator) -> Record:
    observations, infos = environment.reset(seed=seed)
    record = Record(environment.session)
    while True:
        assert list(observations) == list(infos)
        ((agent, seen),) = observations.items()
        np.testing.assert_array_equal(infos[agent]["action_mask"], seen["action_mask"])
        action = record.chose(agent, seen, generator)
        observations, rewards, terminated, truncated, infos = environment.step({agent: action})
        for each, reward in rewards.items():
            record.got(each, reward, infos[each]["reward_terms"])
        assert set(rewards) == set(observations) == set(infos)
        assert set(terminated) == set(truncated) == {*observations, "__all__"}
        assert len(set(terminated.values())) == len(set(truncated.values())) == 1
        if terminated["__all__"] or truncated["__all__"]:
            assert set(observations) == {"job", "gpu"}
            record.end(observations, terminated["__all__"], truncated["__all__"])
            return record


def _play_single(environment: SchedulingEnv, seed: int | None, generator: np.random.Generator) -> Record:
    seen, info = environment.reset(seed=seed)
    record = Record(environment.session)
    terminated = truncated = False
    while not (terminated or truncated):
        np.testing.assert_array_equal(info["action_mask"], seen["action_mask"])
        seen, reward, terminated, truncated, info = environment.step(record.chose("job", seen, generator))
        assert not info["illegal"]
        record.got("job", reward, info["reward_terms"])
    record.end({"job": seen}, terminated, truncated)
    return record
