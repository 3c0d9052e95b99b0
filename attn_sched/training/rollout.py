"""Sampling: the networks act on a batch of episodes; their decisions come back in order, with exact credit.

What a decision brings about is known when the same agent is asked again in the same cluster, or the episode ends. A
decision that is still pending when a fragment is cut is held back and opens that agent's next fragment, so no reward is
lost, moved or guessed.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch

from attn_sched.agents.networks import Critic, GpuNet, JobNet
from attn_sched.agents.pair import arrays, sample
from attn_sched.agents.rewards import TERMS
from attn_sched.agents.schema import AGENTS
from attn_sched.simulator import layout as at
from attn_sched.training.batch import Ended, EpisodeBatch
from attn_sched.training.credit import gae

F4 = npt.NDArray[np.float32]
I8 = npt.NDArray[np.int64]

_DECISION = ("actions", "logp", "logits", "values")
PHASES = {"job": at.JOB_PHASE, "gpu": at.UNIT_PHASE}


@dataclass(eq=False)
class Fragment:
    """Consecutive decisions of one agent in one episode of one cluster: n of them, and what was seen after the last."""

    agent: str
    cluster: int
    episode: int
    obs: dict[str, np.ndarray]  # [n + 1, ...]; the last row: the pending decision's, or zeros where the episode ended
    actions: I8  # [n]
    logp: F4  # [n]
    logits: F4  # [n, A]
    values: F4  # [n + 1, 3] under the sampling weights; the last 0 where the episode ended
    terms: F4  # [n, 3] reward terms
    weights: F4  # [n, 3] objective weights
    terminated: bool


@dataclass(eq=False)
class Collected:
    """What one ``collect`` brought in."""

    fragments: list[Fragment]
    ended: list[Ended]
    seconds: dict[str, float]  # spent in: engine (with observations), network, rest
    decisions: dict[str, int] = field(default_factory=dict)  # of each agent, those in ``fragments``
    forced: int = 0

    def flat(self, agent: str, lam: float) -> dict[str, np.ndarray]:
        """All decisions of an agent in one stack: ``obs.NAME``, ``actions``, ``logp``, ``logits``, ``values`` f4[N, 3],
        ``weights``, and by ``credit.gae`` ``advantages`` f4[N, 3] (per term) and ``targets`` f4[N, 3].
        """
        mine = [fragment for fragment in self.fragments if fragment.agent == agent]
        if not mine:
            return {}
        stacked = {f"obs.{name}": np.concatenate([f.obs[name][:-1] for f in mine]) for name in mine[0].obs}
        for name in ("actions", "logp", "logits", "weights"):
            stacked[name] = np.concatenate([getattr(f, name) for f in mine])
        stacked["values"] = np.concatenate([f.values[:-1] for f in mine])
        stacked["advantages"] = np.concatenate([gae(f.terms, f.values, f.terminated, lam) for f in mine])
        stacked["targets"] = stacked["advantages"] + stacked["values"]
        return stacked


@dataclass(eq=False)
class _Trail:
    """Decisions of one agent in one cluster since the last cut; the last of them is pending."""

    rows: list[int] = field(default_factory=list)  # in the stack of all decisions of the agent since the last cut
    costs: list[np.ndarray] = field(default_factory=list)  # [3] at each decision, and at the end of an ended episode
    weights: np.ndarray | None = None
    episode: int = -1


class Rollout:
    """Networks acting on a batch.

    Args:
        batch: The clusters.
        nets: The networks that act, by agent; the batch's rule must ask for no other.
        critics: Their critics.
        seed: Of the actions drawn.
        greedy: Best instead of drawn actions.
    """

    def __init__(
        self,
        batch: EpisodeBatch,
        nets: dict[str, JobNet | GpuNet],
        critics: dict[str, Critic],
        seed: int,
        *,
        greedy: bool = False,
    ) -> None:
        self.batch = batch
        self.nets = nets
        self.critics = critics
        self.greedy = greedy
        self.generator = torch.Generator().manual_seed(seed)
        self._records: dict[str, list[dict[str, np.ndarray]]] = {agent: [] for agent in AGENTS}
        self._trails: dict[str, list[_Trail]] = {agent: [_Trail() for _ in range(batch.size)] for agent in AGENTS}
        self._rows = dict.fromkeys(AGENTS, 0)  # recorded since the last cut, those carried over included
        self._closed: dict[str, list[tuple[int, _Trail]]] = {agent: [] for agent in AGENTS}
        self._asked = False

    def collect(self, decisions: int) -> Collected:
        """Step all clusters until ``decisions`` decisions (forced ones not counted) were taken; cut there."""
        spent = {"engine": 0.0, "network": 0.0, "rest": 0.0}
        began = time.perf_counter()
        ended: list[Ended] = []
        taken = forced_count = 0
        while taken < decisions:
            t0 = time.perf_counter()
            if not self._asked:
                for done in self.batch.ask():
                    ended.append(done)
                    self._close(done)
                self._asked = True
            forced = self.batch.forced()
            t1 = time.perf_counter()
            actions = np.where(forced >= 0, forced, 0)
            network = 0.0
            for agent in AGENTS:
                rows = np.flatnonzero((self.batch.phases == PHASES[agent]) & (forced < 0))
                if len(rows):
                    chosen, took = self._decide(agent, rows)
                    actions[rows] = chosen
                    network += took
                    taken += len(rows)
            forced_count += int((forced >= 0).sum())
            t2 = time.perf_counter()
            self.batch.apply(actions)
            self._asked = False
            spent["engine"] += t1 - t0 + time.perf_counter() - t2
            spent["network"] += network
        fragments = self._cut()
        spent["rest"] = time.perf_counter() - began - spent["engine"] - spent["network"]
        counts = {a: sum(len(f.actions) for f in fragments if f.agent == a) for a in AGENTS}
        return Collected(fragments, ended, spent, counts, forced_count)

    @torch.no_grad()
    def _decide(self, agent: str, rows: I8) -> tuple[I8, float]:
        """Answer for ``rows`` and record it. Returns the actions and the seconds spent in the networks."""
        seen = arrays(self.batch, rows, agent)
        obs = {name: torch.from_numpy(np.ascontiguousarray(values)) for name, values in seen.items()}
        began = time.perf_counter()
        logits = self.nets[agent](obs)
        values = self.critics[agent](obs)
        assert isinstance(logits, torch.Tensor)
        picked = logits.argmax(1) if self.greedy else sample(logits, self.generator)
        logp = torch.log_softmax(logits, dim=1).gather(1, picked[:, None]).squeeze(1)
        took = time.perf_counter() - began
        self._records[agent].append(
            {
                **seen,
                "actions": picked.numpy(),
                "logp": logp.numpy(),
                "logits": logits.numpy(),
                "values": values.numpy(),
            }
        )
        for i, row in enumerate(rows, start=self._rows[agent]):
            trail = self._trails[agent][row]
            if not trail.rows:
                trail.episode = int(self.batch.episode[row])
                trail.weights = self.batch.weights[row].copy()
            trail.rows.append(i)
            trail.costs.append(self.batch.costs[row].copy())
        self._rows[agent] += len(rows)
        return picked.numpy(), took

    def _close(self, done: Ended) -> None:
        """The episode of a cluster has ended: its decisions are complete."""
        for agent in AGENTS:
            trail = self._trails[agent][done.cluster]
            if trail.rows:
                trail.costs.append(done.costs)
                self._closed[agent].append((done.cluster, trail))
                self._trails[agent][done.cluster] = _Trail()

    def _cut(self) -> list[Fragment]:
        """Fragments of all complete decisions; pending ones are carried over."""
        fragments = []
        for agent in AGENTS:
            if not self._records[agent]:
                continue
            stacked = {
                name: np.concatenate([record[name] for record in self._records[agent]])
                for name in self._records[agent][0]
            }
            for row, trail in self._closed[agent]:
                fragments.append(_fragment(agent, row, trail, stacked, terminated=True))
            open_trails = [(row, trail) for row, trail in enumerate(self._trails[agent]) if trail.rows]
            for row, trail in open_trails:
                if len(trail.rows) > 1:
                    fragments.append(_fragment(agent, row, trail, stacked, terminated=False))
            pending = np.array([trail.rows[-1] for _, trail in open_trails], dtype=np.int64)
            for place, (_, trail) in enumerate(open_trails):
                trail.rows, trail.costs = [place], trail.costs[-1:]
            self._records[agent] = [{name: values[pending] for name, values in stacked.items()}]
            self._rows[agent] = len(pending)
            self._closed[agent] = []
        return fragments


def _fragment(agent: str, cluster: int, trail: _Trail, stacked: dict[str, np.ndarray], *, terminated: bool) -> Fragment:
    """Rows of a trail out of the stack of all decisions of an agent."""
    rows = np.array(trail.rows)
    costs = np.stack(trail.costs)
    count = len(costs) - 1
    obs = {name: values[rows] for name, values in stacked.items() if name not in _DECISION}
    values = stacked["values"][rows]
    if terminated:
        values = np.concatenate([values, np.zeros((1, len(TERMS)), np.float32)])
        obs = {name: np.concatenate([seen, np.zeros_like(seen[:1])]) for name, seen in obs.items()}
    assert trail.weights is not None
    return Fragment(
        agent=agent,
        cluster=cluster,
        episode=trail.episode,
        obs=obs,
        actions=stacked["actions"][rows[:count]],
        logp=stacked["logp"][rows[:count]],
        logits=stacked["logits"][rows[:count]],
        values=values,
        terms=-np.diff(costs, axis=0).astype(np.float32),
        weights=np.repeat(trail.weights[None], count, axis=0),
        terminated=terminated,
    )
