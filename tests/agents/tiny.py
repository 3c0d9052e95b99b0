"""Tiny networks of random weights, and files of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from attn_sched.agents.pair import AgentPair
from attn_sched.agents.spec import NetworkSpec
from attn_sched.agents.weights import save_agents

BOTH = ("job", "gpu")


def tiny_pair(agents: tuple[str, ...] = BOTH, seed: int = 0, spread: float = 0.3, **spec: Any) -> AgentPair:
    """Networks with weights of some size, so that their scores differ and they do not hold all the time."""
    made = AgentPair.fresh(
        NetworkSpec(**{"window": 8, "width": 16, "layers": 1, "feedforward": 16, **spec}), agents, seed
    )
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for agent in agents:
            for weight in made.net(agent).parameters():
                weight.add_(spread * torch.randn(weight.shape, generator=generator))
    return made


def save_tiny(folder: Path, name: str = "tiny", agents: tuple[str, ...] = BOTH, **changes: Any) -> str:
    """The path, as text, of the card of a tiny pair in ``folder``."""
    return str(save_agents(tiny_pair(agents, **changes), folder / name))
