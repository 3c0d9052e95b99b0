"""The job agent alone, for libraries that know Gymnasium: a placement rule gives the jobs their GPUs."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from attn_sched.agents.rewards import TERMS
from attn_sched.choices import check_choice
from attn_sched.errors import InputError
from attn_sched.policies.names import DEFAULT_PLACEMENT
from attn_sched.policies.registry import PLACEMENTS
from attn_sched.simulator import EngineRule
from attn_sched.simulator import layout as at
from envs.session import F8, JOB, Session
from envs.settings import check_render_mode, make_settings
from envs.spaces import Observation

RAISE, HOLD = ON_ILLEGAL = ("raise", "hold")


class SchedulingEnv(gymnasium.Env[Observation, int]):
    """An agent picks a waiting job or holds; a placement rule gives the job its GPUs.

    Observation: a dictionary of padded arrays, names, dtypes and shapes as in ``envs.session.Session`` (without
    "chosen").

    Action: 0 .. K-1, a place in the window ("jobs"), or K to hold, which lets time run to the next event.
    ``action_mask`` (int8[K + 1], in the observation and in the info) says which are legal; at least one is.

    Reward: minus the weighted growth of the three costs from the decision to the next one. ``info["reward_terms"]``
    (float64[3]: completion, fairness, communication, unweighted) are the same by term.

    Endings: terminated once every counted job has ended (the observation is all zero then), truncated after
    ``max_decisions``.

    Args:
        placement: The rule that places gangs, one of the built-in placements of policies.
        on_illegal: What becomes of an action that the mask forbids. "raise": InputError, and nothing changes. "hold":
            it holds, or where that is not legal either starts the oldest job that may start; ``info["illegal"]`` is
            True then. For checkers and libraries that know no masks.
        render_mode: "ansi": ``render`` returns the last decision and the state it led to, as a line; or None.
        arguments: As ``envs.settings.make_settings`` takes them.

    Raises:
        InputError: an argument cannot be used.

    Example:
        >>> from envs.single_agent import SchedulingEnv
        >>> scheduling = SchedulingEnv(cluster="nodes:2x4", episodes={"jobs": 10}, window=4)
        >>> observation, info = scheduling.reset(seed=0)
        >>> terminated = False
        >>> while not terminated:
        ...     action = int(observation["action_mask"].argmax())
        ...     observation, reward, terminated, truncated, info = scheduling.step(action)
        >>> float(scheduling.session.schedule().finish_s.min()) > 0
        True
    """

    def __init__(
        self,
        placement: str = DEFAULT_PLACEMENT,
        on_illegal: str = RAISE,
        render_mode: str | None = None,
        **arguments: Any,
    ) -> None:
        self.metadata = {"render_modes": ["ansi"], "render_fps": 1}
        self.render_mode = check_render_mode(render_mode)
        self.on_illegal = check_choice(on_illegal, ON_ILLEGAL, "on_illegal", "treatment")
        rule = PLACEMENTS.get(placement)
        if rule.called is not None:
            raise InputError(f"{placement!r} is a rule in Python", field="placement", expected="a built-in placement")
        self.session = Session(make_settings(**arguments), EngineRule(order=at.AGENT, placement=rule.code))
        self.observation_space = self.session.observation_spaces[JOB]
        self.action_space = self.session.action_spaces[JOB]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin the next episode; with ``seed``, the first of those that it gives. ``options`` are not used.

        Raises:
            InputError: the source of episodes gave one that the cluster cannot run.
        """
        self.session.begin(seed)
        super().reset(seed=seed)
        return self.session.observe(JOB), self._info(np.zeros(len(TERMS)), False)

    def step(self, action: int) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Take an action.

        Raises:
            InputError: it is not legal, or with ``on_illegal="hold"`` not even in the action space; nothing has changed
            then.
        """
        session = self.session
        illegal = False
        if self.on_illegal == HOLD and session.awaiting and self.action_space.contains(action):
            mask = session.mask(JOB)
            illegal = not mask[action]
            if illegal:
                action = session.settings.window if mask[-1] else int(mask.argmax())
        terms = session.step(action)
        info = self._info(terms, illegal)
        return session.observe(JOB), session.reward(terms), session.terminated, session.truncated, info

    def render(self) -> str | None:  # type: ignore[override]
        """The last decision and the state it led to, as a line; None without a render mode."""
        return None if self.render_mode is None else self.session.describe()

    def _info(self, terms: F8, illegal: bool) -> dict[str, Any]:
        return {"action_mask": self.session.mask(JOB), "reward_terms": terms, "illegal": illegal}
