"""A trained pair of agents, and how it answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from attn_sched.agents.networks import GpuNet, JobNet
from attn_sched.agents.spec import NetworkSpec
from attn_sched.errors import InputError
from attn_sched.simulator import layout as at

I8 = npt.NDArray[np.int64]


class Seen(Protocol):
    """Observations of B clusters: ``agents.Observations``, or several of them side by side."""

    jobs: Any
    job_mask: Any
    units: Any
    unit_mask: Any
    glob: Any
    chosen: Any
    groups: Any  # [U, UNIT_GROUPS], or [B, U, UNIT_GROUPS] where clusters differ


def arrays(seen: Seen, rows: I8, agent: str) -> dict[str, np.ndarray]:
    """The observations of the clusters ``rows`` as the networks name them; copies.

    In training also ``outlook`` f4[N, O], for critics.
    """
    groups = seen.groups
    seen_by = {
        "jobs": seen.jobs[rows],
        "units": seen.units[rows],
        "unit_groups": groups[rows] if groups.ndim == 3 else np.broadcast_to(groups, (len(rows), *groups.shape)),
        "globals": seen.glob[rows],
        "action_mask": (seen.job_mask if agent == "job" else seen.unit_mask)[rows],
    }
    if agent == "gpu":
        seen_by["chosen"] = seen.chosen[rows]
    outlook = getattr(seen, "outlook", None)
    if outlook is not None:
        seen_by["outlook"] = outlook[rows]
    return seen_by


def tensors(seen: Seen, rows: I8, agent: str) -> dict[str, Tensor]:
    """``arrays`` as tensors."""
    made = {}
    for name, values in arrays(seen, rows, agent).items():
        made[name] = torch.from_numpy(np.ascontiguousarray(values)) if values.flags.writeable else torch.tensor(values)
    return made


@dataclass(eq=False)
class AgentPair:
    """Networks of the job agent and of the GPU agent; either may be missing where a rule does its part."""

    spec: NetworkSpec
    job: JobNet | None
    gpu: GpuNet | None
    card: dict[str, Any] = field(default_factory=dict)  # the model card

    @classmethod
    def fresh(cls, spec: NetworkSpec, agents: tuple[str, ...], seed: int) -> AgentPair:
        """Untrained networks. The global torch generator is left as it was."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            job = JobNet(spec) if "job" in agents else None
            gpu = GpuNet(spec) if "gpu" in agents else None
        return cls(spec, job, gpu)

    def net(self, agent: str) -> JobNet | GpuNet:
        """The network of ``"job"`` or ``"gpu"``. Raises InputError if the pair has none."""
        net = self.job if agent == "job" else self.gpu
        if net is None:
            raise InputError(f"these weights have no {agent} agent", field="policy", expected="a rule in its place")
        return net

    @torch.no_grad()
    def act(self, seen: Seen, phases: I8, generator: torch.Generator | None = None) -> I8:
        """i8[B] answers for the clusters in a job or unit phase, 0 for the others.

        The legal answer with the best score, the first of equals; with ``generator`` one drawn by the policy.

        Raises:
            InputError: the observations hold NaN, or the pair lacks the agent that is asked.
        """
        actions = np.zeros(len(phases), np.int64)
        for agent, phase in (("job", at.JOB_PHASE), ("gpu", at.UNIT_PHASE)):
            rows = np.flatnonzero(phases == phase)
            if not len(rows):
                continue
            obs = tensors(seen, rows, agent)
            check_finite(obs)
            logits = self.net(agent)(obs)
            assert isinstance(logits, Tensor)
            if generator is None:
                # Batches of other sizes round differently: scores closer than that are equals.
                picked = torch.round(logits, decimals=4).argmax(1)
            else:
                picked = sample(logits, generator)
            actions[rows] = picked.numpy()
        return actions


def check_finite(obs: dict[str, Tensor]) -> None:
    """Raise InputError if an observation holds NaN or infinity."""
    for name, values in obs.items():
        if values.is_floating_point() and not bool(torch.isfinite(values).all()):
            row = int(torch.nonzero(~torch.isfinite(values))[0, 0])
            raise InputError(
                f"the observation of decision {row} is not finite", field=name, expected="numbers, no NaN or infinity"
            )


def sample(logits: Tensor, generator: torch.Generator) -> Tensor:
    """One draw a row of the categorical distribution, int[N], by the Gumbel-max trick."""
    uniform = torch.rand(logits.shape, generator=generator).clamp_(1e-20, 1.0 - 1e-7)
    return (logits - torch.log(-torch.log(uniform))).argmax(1)
