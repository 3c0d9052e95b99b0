"""What PPO starts from: agents that imitate, and critics that know what becomes of them; made, kept, and taken up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from attn_sched.agents.networks import Critic
from attn_sched.agents.pair import AgentPair
from attn_sched.agents.spec import NetworkSpec
from attn_sched.agents.weights import load_agents, save_agents
from attn_sched.errors import InputError
from attn_sched.files import atomic_write
from attn_sched.policies.linear import LinearRule
from attn_sched.seeding import stream
from attn_sched.training.configs import TrainingConfig
from attn_sched.training.imitation import imitate
from attn_sched.training.source import DataSource

CRITICS = "critics.safetensors"  # beside the agents of the imitation stage; only PPO needs them


@dataclass(frozen=True, eq=False)
class Start:
    """Agents and the critics of those that learn."""

    pair: AgentPair
    critics: dict[str, Critic]


def data_source(config: TrainingConfig) -> DataSource:
    """Where the clusters of a run come from, for imitation and PPO alike."""
    return DataSource(
        config.data,
        config.engine_rule,
        config.episodes,
        window=config.network.window,
        weights=config.objective.draw,
        fairness=config.objective.fairness,
    )


def make_start(
    config: TrainingConfig, rule: LinearRule | None, progress: Callable[[int], None]
) -> tuple[Start, dict[str, float]]:
    """Imitate a linear rule (the job agent) and topo-best-fit (the GPU agent).

    Args:
        config: Of the run.
        rule: None where no job agent learns.
        progress: Told the rounds done.

    Returns:
        What PPO starts from, and how well it imitates (``imitation.imitate``).
    """
    torch.set_num_threads(1)
    seeds = stream(config.seed, "start").integers(1 << 31, size=2 + len(config.agents))
    pair = AgentPair.fresh(config.network, config.agents, int(seeds[0]))
    critics = {agent: _critic(config.network, int(seed)) for agent, seed in zip(config.agents, seeds[2:], strict=True)}
    batch = data_source(config)(config.ppo.clusters, int(seeds[1]))
    metrics = imitate(
        batch,
        pair,
        critics,
        rule,
        config.imitation,
        config.seed,
        progress=lambda stage, number, told: progress(number + 1),
    )
    return Start(pair, critics), {name: float(value) for name, value in metrics.items()}


def _critic(spec: NetworkSpec, seed: int) -> Critic:
    """An untrained critic. The global torch generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Critic(spec)


def save_start(start: Start, target: Path) -> None:
    """Write the critics, then the agents with their card, which says that both are whole.

    Args:
        start: What to write.
        target: Of the agents, without suffix, as ``save_agents`` takes it.
    """
    from safetensors.torch import save

    tensors = {
        f"{agent}.{name}": value.detach().cpu().contiguous()
        for agent, critic in start.critics.items()
        for name, value in critic.state_dict().items()
    }
    with atomic_write(target.with_name(CRITICS)) as part:
        part.write_bytes(save(tensors))
    save_agents(start.pair, target)


def load_start(folder: Path) -> Start:
    """What ``save_start`` wrote to a folder. Raises InputError if it is missing or damaged."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    pair = load_agents(folder)
    path = folder / CRITICS
    critics = {agent: Critic(pair.spec) for agent in pair.card["agents"]}
    try:
        tensors = load(path.read_bytes())
        for agent, critic in critics.items():
            own = {name: tensors[f"{agent}.{name}"] for name in critic.state_dict()}
            critic.load_state_dict(own)
    except (OSError, SafetensorError, KeyError, RuntimeError, ValueError) as error:
        raise InputError(f"holds no critics: {error}", file=path, expected="a file of a training run") from None
    return Start(pair, critics)


def critic_states(critics: Mapping[str, Critic]) -> dict[str, dict[str, np.ndarray]]:
    """Agent -> the critic's parameters as an RLModule names them."""
    return {
        agent: {f"critic.{name}": value.detach().cpu().numpy() for name, value in critic.state_dict().items()}
        for agent, critic in critics.items()
    }


def load_critics_into(algorithm: Any, critics: Mapping[str, Critic]) -> None:
    """Let an algorithm's critics start from these; ``algorithm.load_pair_into`` passes them on to the runners."""
    states = critic_states(critics)

    def load(learner: Any) -> None:
        for agent, state in states.items():
            learner.module[agent].set_state(state)

    for outcome in algorithm.learner_group.foreach_learner(load):
        outcome.get()
