"""The AEC environment, in PettingZoo's manner: ``env()`` is ``raw_env`` wrapped to enforce the order of calls."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv
from pettingzoo.utils.wrappers import OrderEnforcingWrapper

from attn_sched.agents.rewards import TERMS
from attn_sched.agents.schema import AGENTS, FEATURES_VERSION
from envs.session import BOTH_AGENTS, Session
from envs.settings import check_render_mode, make_settings
from envs.spaces import Observation


def env(**arguments: Any) -> OrderEnforcingWrapper[str, Observation, int | None]:
    """The environment as it should be used: ``raw_env`` with misuse of the order of calls caught.

    PettingZoo's wrapper that ends a game at an illegal move is left out: an illegal action raises an error that says
    what is legal, and changes nothing.
    """
    return OrderEnforcingWrapper(raw_env(**arguments))


class raw_env(AECEnv[str, Observation, int | None]):
    """Two agents schedule one cluster in turn: "job" picks a waiting job or holds, "gpu" places its gang.

    Agents: the job agent is asked whenever a job of the window may start; once it has picked one, the GPU agent is
    asked for a placement unit until the gang is complete; then the job agent is asked again. The turns are not even:
    ``agent_selection`` (``agent_iter``) says whose it is. Where a starvation guard decides, the job agent is passed
    over.

    Observation: a dictionary of padded arrays, names, dtypes and shapes as in ``envs.session.Session``; the same for
    both agents, but for "chosen", which the GPU agent alone has. ``observe`` may be called for either agent at any
    time; the mask of the one that is not asked is all zero.

    Actions: "job": 0 .. K-1, a place in the window ("jobs"), or K to hold, which lets time run to the next event.
    "gpu": 0 .. U-1, a placement unit, which gives all of its free GPUs that the gang still needs (of single GPUs:
    one). ``action_mask`` (int8, in the observation and in ``infos``) says which are legal; at least one is. Another one
    raises InputError.

    Rewards: both agents get the same, minus the weighted growth of the three costs from the decision to the next one
    of either agent. ``infos[agent]["reward_terms"]`` (float64[3]: completion, fairness, communication, unweighted) are
    what ``last()`` returns as reward, by term.

    Endings: terminated for both agents once every counted job has ended (observations are all zero then), truncated
    for both after ``max_decisions``.

    Args:
        render_mode: "ansi": ``render`` returns the last decision and the state it led to, as a line; or None.
        arguments: As ``envs.settings.make_settings`` takes them.

    Raises:
        InputError: an argument cannot be used.

    Example:
        >>> from envs.scheduling import env
        >>> scheduling = env(cluster="nodes:2x4", episodes={"families": ["philly"], "jobs": 10}, window=4)
        >>> scheduling.reset(seed=0)
        >>> scheduling.agent_selection, scheduling.observe("job")["jobs"].shape
        ('job', (4, 23))
        >>> for agent in scheduling.agent_iter():
        ...     observation, reward, terminated, truncated, info = scheduling.last()
        ...     done = terminated or truncated
        ...     scheduling.step(None if done else int(observation["action_mask"].argmax()))
        >>> scheduling.agents
        []
    """

    def __init__(self, render_mode: str | None = None, **arguments: Any) -> None:
        super().__init__()
        self.metadata = {
            "name": f"scheduling_v{FEATURES_VERSION}",
            "render_modes": ["ansi"],
            "is_parallelizable": False,
        }
        self.render_mode = check_render_mode(render_mode)
        self.session = Session(make_settings(**arguments), BOTH_AGENTS)
        self.possible_agents = list(AGENTS)
        self.observation_spaces = dict(self.session.observation_spaces)
        self.action_spaces = dict(self.session.action_spaces)

    def observation_space(self, agent: str) -> spaces.Space[Observation]:
        """The space of what ``agent`` sees."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Space[int | None]:
        """The space of what ``agent`` may answer."""
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Begin the next episode; with ``seed``, the first of those that it gives. ``options`` are not used.

        Raises:
            InputError: the source of episodes gave one that the cluster cannot run.
        """
        self.session.begin(seed)
        self.agents = list(self.possible_agents)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self._terms = {agent: np.zeros(len(TERMS)) for agent in self.agents}
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self._skip_agent_selection = None
        self._select()

    def step(self, action: int | None) -> None:
        """Take the action of ``agent_selection``; of an agent that has ended: None.

        Raises:
            InputError: the action is not legal; nothing has changed then.
        """
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        terms = self.session.step(action)
        self._cumulative_rewards[agent] = 0.0
        self._terms[agent] = np.zeros(len(TERMS))
        for each in self.agents:
            self.rewards[each] = self.session.reward(terms)
            self._terms[each] = self._terms[each] + terms
        self._accumulate_rewards()
        self.terminations = dict.fromkeys(self.agents, self.session.terminated)
        self.truncations = dict.fromkeys(self.agents, self.session.truncated)
        self._select()

    def observe(self, agent: str) -> Observation:
        """What ``agent`` sees now."""
        return self.session.observe(agent)

    def render(self) -> str | None:
        """The last decision and the state it led to, as a line; None without a render mode."""
        return None if self.render_mode is None else self.session.describe()

    def close(self) -> None:
        """Nothing is held open."""

    def _select(self) -> None:
        self.agent_selection = self.session.agent
        self.infos = {
            agent: {"action_mask": self.session.mask(agent), "reward_terms": self._terms[agent]}
            for agent in self.agents
        }
