"""What PPO can be told, in one validated place. Light: nothing here imports torch or Ray."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from attn_sched.agents.schema import AGENTS
from attn_sched.errors import InputError


@dataclass(frozen=True)
class PPOSettings:
    """The knobs of PPO. Validated when made; the defaults are a recipe that has worked.

    Raises:
        InputError: a value out of range, or one that does not go with another.
    """

    agents: tuple[str, ...] = AGENTS  # which learn; with one alone, a rule answers for the other
    clusters: int = 64  # simulated side by side
    decisions: int = 128  # of the learning agents a cluster and iteration, on average
    epochs: int = 2  # each agent's decisions are gone through exactly so often
    minibatch: int = 1024  # decisions of one agent a gradient step
    job_rate: float = 2e-4  # learning rates of Adam
    gpu_rate: float = 1e-4
    value_rate: float = 2e-4
    rate_warmup: int = 10  # iterations after the value warm-up over which the policies' rates rise from a tenth
    final_rate: float = 1.0  # share of the learning rates that is left after ``total_decisions``; linear between
    total_decisions: int = 2_000_000
    clip: float = 0.15  # of the probability ratio
    job_entropy: float = 0.002  # weight of the entropy bonus
    gpu_entropy: float = 0.0  # many picks are equally good, so any bonus soon makes the others likelier too
    gamma: float = 1.0  # discount per decision of an agent; times are in the rewards, not here
    job_lam: float = 0.97  # of generalised advantage estimation
    gpu_lam: float = 0.9  # a pick shows its effect at once, on the slowdown of its gang and of the neighbours
    advantage_clamp: float = 4.0  # standard deviations
    gradient_clip: float = 0.5  # norm, of policy and value network apart
    kl_limit: float = 0.03  # past it, the policy rests for what is left of the iteration
    value_warmup: int = 15  # iterations in which the value networks learn alone
    huber: float = 1.0  # from which error on the value loss grows linearly
    runners: int = 0  # remote sampling processes; 0: this process samples itself
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.agents or len(set(self.agents)) < len(self.agents) or not set(self.agents) <= set(AGENTS):
            raise InputError(
                f"{self.agents!r} is no choice of agents", field="agents", expected=f"some of {', '.join(AGENTS)}"
            )
        for field, least in (
            ("clusters", 1), ("decisions", 1), ("epochs", 1), ("minibatch", 1), ("total_decisions", 1),
            ("value_warmup", 0), ("rate_warmup", 0), ("runners", 0), ("seed", 0),
        ):  # fmt: skip
            value = getattr(self, field)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise InputError(f"{value!r} is out of range", field=field, expected=f"a whole number from {least} up")
        for field, low, high in (
            ("job_rate", 0.0, 1.0), ("gpu_rate", 0.0, 1.0), ("value_rate", 0.0, 1.0), ("final_rate", 0.0, 1.0),
            ("job_entropy", 0.0, 10.0), ("gpu_entropy", 0.0, 10.0), ("gamma", 0.0, 1.0),
            ("job_lam", 0.0, 1.0), ("gpu_lam", 0.0, 1.0),
        ):  # fmt: skip
            self._check_number(field, low, high, f"{low:g} to {high:g}")
        for field in ("clip", "advantage_clamp", "gradient_clip", "kl_limit", "huber"):
            self._check_number(field, math.ulp(0.0), math.inf, "above 0")

    def _check_number(self, field: str, low: float, high: float, expected: str) -> None:
        value = getattr(self, field)
        # A comparison with nan is false, so nan is refused too.
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise InputError(f"{value!r} is out of range", field=field, expected=expected)

    @property
    def iteration_decisions(self) -> int:
        """Decisions sampled an iteration, all clusters and learning agents together."""
        return self.clusters * self.decisions

    def rate(self, agent: str) -> float:
        """Learning rate of an agent's policy network at the start."""
        return {"job": self.job_rate, "gpu": self.gpu_rate}[agent]

    def entropy(self, agent: str) -> float:
        """Weight of an agent's entropy bonus."""
        return {"job": self.job_entropy, "gpu": self.gpu_entropy}[agent]

    def lam(self, agent: str) -> float:
        """Lambda of an agent's advantages."""
        return {"job": self.job_lam, "gpu": self.gpu_lam}[agent]

    def policy_rate(self, agent: str) -> float | list[list[float]]:
        """An agent's learning rate in RLlib's terms: a number, or points (decisions sampled, rate) to go between.

        Adam's first steps are as large as its rate allows, however little they rest on: at the full rate they can
        throw imitated policies far off.
        """
        rate = self.rate(agent)
        points = {0: rate}
        if self.rate_warmup:
            begins = self.value_warmup * self.iteration_decisions
            risen = begins + self.rate_warmup * self.iteration_decisions
            points = {0: 0.1 * rate, begins: 0.1 * rate, risen: rate}
        if self.final_rate < 1.0:
            points[max(self.total_decisions, 1 + max(points))] = rate * self.final_rate
        return rate if len(points) == 1 else [[place, value] for place, value in points.items()]

    @property
    def critic_rate(self) -> float | list[list[float]]:
        """The critics' learning rate in RLlib's terms."""
        if self.final_rate == 1.0:
            return self.value_rate
        return [[0, self.value_rate], [self.total_decisions, self.value_rate * self.final_rate]]

    def as_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return dataclasses.asdict(self) | {"agents": list(self.agents)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> PPOSettings:
        """The settings that ``as_dict`` gave; fields left out have their defaults.

        Raises:
            InputError: an unknown field, or a value out of range.
        """
        names = {field.name for field in dataclasses.fields(cls)}
        for name in sorted(set(values) - names):
            raise InputError(f"{name!r} is unknown", field="ppo", expected=", ".join(sorted(names)))
        given = dict(values)
        if "agents" in given:
            given["agents"] = tuple(given["agents"])
        return cls(**given)
