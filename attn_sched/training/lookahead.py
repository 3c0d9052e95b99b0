"""Looking ahead: what each answer to a decision would cost in the end, if a linear rule took over after it.

Each is tried on a copy of the cluster, with the same jobs to come, and the rule plays the copy to the end of the
episode. What the answers differ by is theirs alone: jobs to come, which make most of what an episode costs, are the
same for all of them. This is the vine method of Schulman et al. (Trust region policy optimization, ICML 2015, section
5.2) with common random numbers; a policy that takes the best answer each time is a rollout algorithm (Bertsekas and
Castanon, Journal of Heuristics 5, 1999), which is at least as good as the rule it rests on.
"""

from __future__ import annotations

import numpy as np

from attn_sched.agents.rewards import TERMS, raw_costs
from attn_sched.choices import FAIRNESS
from attn_sched.jit import njit
from attn_sched.policies.linear import JOB_AGENT, LinearRule, follow
from attn_sched.simulator import Engine
from attn_sched.simulator import layout as at
from attn_sched.simulator.layout import F8, I8
from attn_sched.simulator.loop import apply_job
from attn_sched.simulator.state import FIELDS, world_at
from attn_sched.training.batch import EpisodeBatch


@njit
def _follow(address: int, window: I8, answer: int, weights: F8, fairness: int, out: F8) -> int:
    """Give ``answer`` in the cluster at ``address``, let the rule play on to the end, and write what all of it cost."""
    w = world_at(address, 0)
    apply_job(w, window, answer)
    phase = follow(w, window, weights)
    raw_costs(w, fairness, out)
    return phase


class Lookahead:
    """Tries answers of a job agent on copies.

    Args:
        batch: The clusters; nothing in them changes.
        rule: Plays on after the answer, with topo-best-fit.
    """

    def __init__(self, batch: EpisodeBatch, rule: LinearRule) -> None:
        self.batch = batch
        self.weights = rule.vector
        self.fairness = FAIRNESS.index(batch.fairness)
        self._copies = [
            Engine(g.shape.cluster, g.engine.workloads[:1], JOB_AGENT, g.engine.options, window=g.engine.window)
            for g in batch.groups_of
        ]

    def costs(self, row: int, answers: I8) -> F8:
        """f8[n, 3]: the normalised costs of cluster ``row``'s whole episode after each of ``answers``, i8[n].

        Raises:
            ValueError: the cluster does not wait for a job agent.
        """
        number, group = next((i, g) for i, g in enumerate(self.batch.groups_of) if g.lo <= row < g.lo + g.shape.count)
        b = row - group.lo
        if self.batch.phases[row] != at.JOB_PHASE:
            raise ValueError(f"cluster {row} is in phase {self.batch.phases[row]}")
        source, copy = group.engine.batch.arrays, self._copies[number].batch
        made = np.zeros((len(answers), len(TERMS)))
        for i, answer in enumerate(answers):
            for name, kind in FIELDS.items():
                if kind.shared:
                    continue
                if copy.arrays[name].shape[1:] != source[name].shape[1:]:
                    copy.set(name, source[name][b : b + 1].copy())
                else:
                    copy.arrays[name][0] = source[name][b]
            window = self.batch.windows[row].copy()
            phase = _follow(copy.address, window, int(answer), self.weights, self.fairness, made[i])
            if phase != at.DONE_PHASE:
                raise ValueError(f"the copy stopped at phase {phase}")
        return made / group.rewards.scales[b]
