"""The best answer of a pair of agents, the same whatever batch a decision is scored in.

Scores of one decision differ in their last bits with the decisions scored beside it, since matrix products then add up
in another order: by 1e-5 in networks of the size and weights that training gives, by 3e-4 at most in networks of wild
random weights. So scores closer than ``TIE`` to the best count as equals, of which the first is taken, and a decision
with a score near that border is scored again with 64-bit numbers.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from attn_sched.agents.networks import GpuNet, JobNet
from attn_sched.simulator import layout as at
from attn_sched.simulator.layout import I8

if TYPE_CHECKING:
    from attn_sched.agents.pair import AgentPair, Seen

TIE = 1e-3  # of logits: odds of 1.001 to 1
DOUBT = 5e-4  # a score nearer than this to the border of a tie is not to be trusted
# Pairs of tokens scored at a time: attention over more does not stay in a core's cache (twice as slow on 552 units).
CELLS = 1 << 18


def best_legal(logits: Tensor, exact: Callable[[Tensor], Tensor]) -> Tensor:
    """The first of the best answers of each decision, int[N].

    Args:
        logits: f4[N, A], what may not be chosen far below the rest.
        exact: The logits f8[n, A] of the decisions with these numbers, int[n].
    """
    behind = logits.amax(1, keepdim=True) - logits
    picked = (behind < TIE - DOUBT).int().argmax(1)  # surely equal to the best; one that may be counts if it is earlier
    doubtful = torch.nonzero((behind < TIE + DOUBT).int().argmax(1) < picked)[:, 0]
    if len(doubtful):
        again = exact(doubtful)
        picked[doubtful] = (again.amax(1, keepdim=True) - again < TIE).int().argmax(1)
    return picked


def exact_scores(net: JobNet | GpuNet, obs: dict[str, Tensor], rows: Tensor) -> Tensor:
    """The logits f8[n, A] of the decisions ``rows``, int[n], of a batch, computed with 64-bit numbers."""
    some = {name: value[rows] for name, value in obs.items()}
    some = {name: value.double() if value.is_floating_point() else value for name, value in some.items()}
    logits = copy.deepcopy(net).double()(some)
    assert isinstance(logits, Tensor)
    return logits.double()


@torch.no_grad()
def greedy(pair: AgentPair, seen: Seen, phases: I8) -> I8:
    """i8[B]: the first of the best legal answers for the clusters in a job or unit phase, 0 for the others.

    Raises:
        InputError: the observations hold NaN, or the pair lacks the agent that is asked.
    """
    from attn_sched.agents.pair import check_finite, tensors

    answers = np.zeros(len(phases), np.int64)
    for agent, phase in (("job", at.JOB_PHASE), ("gpu", at.UNIT_PHASE)):
        rows = np.flatnonzero(phases == phase)
        tokens = 1 + (seen.units.shape[1] if agent == "gpu" else seen.jobs.shape[1] + 1)
        size = max(1, CELLS // tokens**2)
        for first in range(0, len(rows), size):
            part = rows[first : first + size]
            obs = tensors(seen, part, agent)
            check_finite(obs)
            answers[part] = _best(pair.net(agent), obs)
    return answers


def _best(net: JobNet | GpuNet, obs: dict[str, Tensor]) -> I8:
    logits = net(obs)
    assert isinstance(logits, Tensor)
    return np.asarray(best_legal(logits, lambda rows: exact_scores(net, obs, rows)).numpy())
