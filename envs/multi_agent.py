"""The environment for RLlib (new API stack). Register it by name: no class of this package belongs in a checkpoint."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from ray.rllib.env.multi_agent_env import MultiAgentEnv
from ray.rllib.utils.typing import MultiAgentDict

from attn_sched.agents.rewards import TERMS
from attn_sched.agents.schema import AGENTS
from attn_sched.errors import InputError
from envs.session import BOTH_AGENTS, F8, Session
from envs.settings import check_render_mode, make_settings

NAME = "attn-sched"


def register(name: str = NAME) -> str:
    """Make the environment known to RLlib as ``name``, which is returned: ``config.environment(register(), ...)``.

    ``env_config`` holds the constructor's arguments, but for ``seed``: set that with ``config.debugging(seed=...)``,
    from which RLlib gives each of its copies another one. Set ``disable_env_checking=True``: RLlib's check samples
    actions without their mask.
    """
    from ray.tune.registry import register_env

    register_env(name, _create)
    return name


def _create(env_config: Mapping[str, Any]) -> SchedulingMultiAgentEnv:
    known = set(inspect.signature(make_settings).parameters) | {"render_mode"}
    for name in env_config:
        if name not in known:
            raise InputError(
                f"unknown argument {name!r}", field="env_config", expected=f"some of {', '.join(sorted(known))}"
            )
    if env_config.get("seed") is not None:
        raise InputError(
            "all copies of the environment would play the same episodes",
            field="seed",
            expected="none in env_config: use config.debugging(seed=...)",
        )
    return SchedulingMultiAgentEnv(**env_config)


class SchedulingMultiAgentEnv(MultiAgentEnv):
    """Two agents schedule one cluster in turn: "job" picks a waiting job or holds, "gpu" places its gang.

    Agents, observations (names, dtypes, shapes, padding) and actions are those of ``envs.scheduling.raw_env``.

    Dictionaries: ``reset`` and ``step`` return the observation of the acting agent alone, and ``step`` takes its action
    alone. With an observation goes the agent's reward since it was last observed (nothing is lost: what the other
    agent's decisions cost meanwhile is in it) and its info: "action_mask" and "reward_terms" (float64[3]: completion,
    fairness, communication, unweighted). An agent's first observation carries what was spent before it; RLlib
    leaves that out of its episodes, as no action of the agent led to it.

    Endings: the last step returns an observation and a reward for *both* agents, and says terminated (every counted job
    has ended; observations are all zero) or truncated (``max_decisions``) for both and for "__all__".

    Args:
        render_mode: "ansi" or None, as for ``raw_env``.
        arguments: As ``envs.settings.make_settings`` takes them.

    Raises:
        InputError: an argument cannot be used.

    Example:
        >>> from envs.multi_agent import SchedulingMultiAgentEnv
        >>> scheduling = SchedulingMultiAgentEnv(cluster="nodes:2x4", episodes={"jobs": 10}, window=4)
        >>> observations, infos = scheduling.reset(seed=0)
        >>> done = {"__all__": False}
        >>> while not done["__all__"]:
        ...     actions = {agent: int(seen["action_mask"].argmax()) for agent, seen in observations.items()}
        ...     observations, rewards, done, truncated, infos = scheduling.step(actions)
        >>> sorted(observations), sorted(rewards)
        (['gpu', 'job'], ['gpu', 'job'])
    """

    def __init__(self, render_mode: str | None = None, **arguments: Any) -> None:
        self.metadata = {"render_modes": ["ansi"]}
        self.render_mode = check_render_mode(render_mode)
        self.session = Session(make_settings(**arguments), BOTH_AGENTS)
        self.observation_spaces = dict(self.session.observation_spaces.items())
        self.action_spaces = dict(self.session.action_spaces.items())
        self.agents = list(AGENTS)
        self.possible_agents = list(AGENTS)
        super().__init__()

    # RLlib's dictionaries stand in place of the values that Gymnasium, of which RLlib's class is one, knows.
    def reset(  # type: ignore[override]
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[MultiAgentDict, MultiAgentDict]:
        """Begin the next episode; with ``seed``, the first of those that it gives. ``options`` are not used.

        Raises:
            InputError: the source of episodes gave one that the cluster cannot run.
        """
        self.session.begin(seed)
        super().reset(seed=seed)
        self._pending: dict[str, F8] = {agent: np.zeros(len(TERMS)) for agent in AGENTS}
        observations, _, infos = self._observed([self.session.agent])
        return observations, infos

    def step(  # type: ignore[override]
        self, action_dict: MultiAgentDict
    ) -> tuple[MultiAgentDict, MultiAgentDict, MultiAgentDict, MultiAgentDict, MultiAgentDict]:
        """Take the action of the agent that was observed.

        Raises:
            InputError: an action is missing, not legal or another agent's; nothing has changed then.
        """
        session = self.session
        if session.awaiting and list(action_dict) != [session.agent]:
            raise InputError(
                f"actions of {', '.join(map(repr, action_dict)) or 'nobody'}",
                expected=f"one of {session.agent!r} alone",
            )
        terms = session.step(action_dict.get(session.agent))
        for agent in AGENTS:
            self._pending[agent] = self._pending[agent] + terms
        observations, rewards, infos = self._observed(AGENTS if session.ended else [session.agent])
        every = (*observations, "__all__")
        return (
            observations,
            rewards,
            dict.fromkeys(every, session.terminated),
            dict.fromkeys(every, session.truncated),
            infos,
        )

    def render(self) -> str | None:  # type: ignore[override]  # RLlib says None where Gymnasium says what is rendered
        """The last decision and the state it led to, as a line; None without a render mode."""
        return None if self.render_mode is None else self.session.describe()

    def _observed(self, agents: Sequence[str]) -> tuple[MultiAgentDict, MultiAgentDict, MultiAgentDict]:
        """Observations, rewards since the last ones and infos of ``agents``."""
        observations: MultiAgentDict = {}
        rewards: MultiAgentDict = {}
        infos: MultiAgentDict = {}
        for agent in agents:
            terms, self._pending[agent] = self._pending[agent], np.zeros(len(TERMS))
            observations[agent] = self.session.observe(agent)
            rewards[agent] = self.session.reward(terms)
            infos[agent] = {"action_mask": self.session.mask(agent), "reward_terms": terms}
        return observations, rewards, infos
