"""Fitting the critics to returns of agents that do not change meanwhile: a baseline that PPO can start from."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from attn_sched.agents.networks import Critic
from attn_sched.agents.pair import AgentPair
from attn_sched.agents.schema import AGENTS
from attn_sched.seeding import stream
from attn_sched.training.batch import EpisodeBatch
from attn_sched.training.credit import explained_variance
from attn_sched.training.rollout import Fragment, Rollout

F4 = npt.NDArray[np.float32]

PART = 5_000  # decisions between two cuts while collecting
JUDGED = 10  # one cluster in so many is kept to judge the fit by


def gradient_step(loss: Tensor, net: torch.nn.Module, optimiser: torch.optim.Optimizer, clip: float) -> None:
    """One step down ``loss``, the norm of the gradient at most ``clip``."""
    optimiser.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), clip)
    optimiser.step()


def fit_critics(
    batch: EpisodeBatch,
    pair: AgentPair,
    critics: Mapping[str, Critic],
    decisions: int,
    *,
    epochs: int = 6,
    minibatch: int = 512,
    rate: float = 1e-3,
    huber: float = 1.0,
    gradient_clip: float = 1.0,
    seed: int = 0,
) -> dict[str, float]:
    """Fit critics in place to the returns of the pair's drawn decisions.

    Only episodes that ended while decisions were collected count, where there are any: what others are still to bring
    would have to be guessed.

    Args:
        batch: Clusters whose rule asks for the agents that ``pair`` has, no others.
        pair: The agents that act; they do not change.
        critics: Of its agents.
        decisions: To collect, of both agents together.
        epochs: Over all of them.
        minibatch: Decisions a gradient step.
        rate: Of Adam; falls to a tenth.
        huber: From which error on the loss grows linearly.
        gradient_clip: Norm.
        seed: Fixes draws and minibatches.

    Returns:
        ``explained.AGENT``: the share of the variance of the weighted returns that each critic explains, on clusters
        that it was not fitted to.
    """
    agents = [agent for agent in AGENTS if getattr(pair, agent) is not None]
    nets = {agent: pair.net(agent) for agent in agents}
    rollout = Rollout(batch, nets, {agent: critics[agent] for agent in agents}, seed)
    fragments: list[Fragment] = []
    parts = max(1, round(decisions / PART))
    for _ in range(parts):
        fragments += rollout.collect(-(-decisions // parts)).fragments
    metrics = {}
    for agent in agents:
        mine = whole_episodes([fragment for fragment in fragments if fragment.agent == agent])
        if mine:
            fit = CriticFit(critics[agent], mine, stream(seed, f"critic:{agent}"))
            fit.learn(epochs, minibatch, rate, huber, gradient_clip)
            metrics[f"explained.{agent}"] = fit.explained()
    return metrics


def whole_episodes(fragments: list[Fragment]) -> list[Fragment]:
    """The fragments of episodes that ended; all, if none did."""
    ended = {fragment.episode for fragment in fragments if fragment.terminated}
    return [fragment for fragment in fragments if fragment.episode in ended] or fragments


class CriticFit:
    """One critic and the decisions it is fitted to.

    Args:
        critic: Changed in place.
        fragments: Of one agent; see ``returns``.
        generator: Orders minibatches.
    """

    def __init__(self, critic: Critic, fragments: list[Fragment], generator: np.random.Generator) -> None:
        self.critic = critic
        self.fragments = fragments
        self.generator = generator
        self.rows = {
            name: torch.from_numpy(np.concatenate([fragment.obs[name][:-1] for fragment in fragments]))
            for name in fragments[0].obs
        }
        critic.inputs.fit(self.rows)
        self.weights = np.concatenate([fragment.weights for fragment in fragments])
        clusters = np.concatenate([np.full(len(fragment.actions), fragment.cluster) for fragment in fragments])
        # Whole clusters: neighbouring decisions of one episode would tell each other's returns.
        judged = clusters % JUDGED == 0
        self.judged = np.flatnonzero(judged)
        self.train = np.flatnonzero(~judged) if not judged.all() else self.judged.copy()

    def learn(self, epochs: int, minibatch: int, rate: float, huber: float, clip: float) -> None:
        """Go through the decisions ``train`` so many times; see ``fit_critics``."""
        optimiser = torch.optim.Adam(self.critic.parameters(), lr=rate)
        for epoch in range(epochs):
            # Where an episode goes on behind the last fragment, the critic itself says what is to come.
            targets = torch.from_numpy(returns(self.critic, self.fragments))
            optimiser.param_groups[0]["lr"] = rate * (0.1 + 0.9 * (1.0 - epoch / epochs))
            self.generator.shuffle(self.train)
            for first in range(0, len(self.train), minibatch):
                part = torch.from_numpy(self.train[first : first + minibatch])
                values = self.critic({name: some[part] for name, some in self.rows.items()})
                loss = torch.nn.functional.huber_loss(values, targets[part], delta=huber)
                gradient_step(loss, self.critic, optimiser, clip)

    def explained(self) -> float:
        """Share of the variance of the weighted returns that is explained, on the clusters kept apart."""
        if not len(self.judged):
            return 0.0
        part = torch.from_numpy(self.judged)
        weights = self.weights[self.judged]
        values = _values(self.critic, {name: some[part] for name, some in self.rows.items()})
        true = returns(self.critic, self.fragments)[self.judged]
        shares = explained_variance((true * weights).sum(1, keepdims=True), (values * weights).sum(1, keepdims=True))
        return float(shares[0])


@torch.no_grad()
def _values(critic: Critic, rows: Mapping[str, Tensor], size: int = 1024) -> F4:
    count = len(rows["globals"])
    parts = [
        critic({name: values[first : first + size] for name, values in rows.items()}).numpy()
        for first in range(0, count, size)
    ]
    return np.concatenate(parts)


def returns(critic: Critic, fragments: list[Fragment]) -> F4:
    """Undiscounted sum of each reward term from every decision to the end of its episode, f4[N, 3].

    Fragments of one agent; those of one episode follow one another in the list. Behind an episode's last fragment,
    unless it ended there, the critic's value stands for what is to come.
    """
    last = {fragment.episode: fragment for fragment in fragments}.values()
    cut = [fragment for fragment in last if not fragment.terminated]
    ahead: dict[int, np.ndarray] = {}
    if cut:
        seen = {name: torch.from_numpy(np.stack([f.obs[name][-1] for f in cut])) for name in cut[0].obs}
        for fragment, value in zip(cut, _values(critic, seen), strict=True):
            ahead[fragment.episode] = value.astype(np.float64)
    made = []
    for fragment in reversed(fragments):
        behind = ahead.get(fragment.episode, np.zeros(fragment.terms.shape[1]))
        sums = np.cumsum(fragment.terms[::-1].astype(np.float64), axis=0)[::-1] + behind
        ahead[fragment.episode] = sums[0]
        made.append(sums.astype(np.float32))
    return np.concatenate(made[::-1])
