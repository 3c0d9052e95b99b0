"""Looking ahead: what each answer to a decision would cost in the end, if a linear rule took over after it.

Each is tried on a copy of the cluster, with the same jobs to come; the rule plays the copy to the end of the episode,
and ``topo-best-fit`` places, from the rest of a gang on that is being placed. What the answers differ by is theirs
alone: jobs to come, which make most of what an episode costs, are the same for all of them. This is the vine method of
Schulman et al. (Trust region policy optimization, ICML 2015, section 5.2) with common random numbers; a policy that
takes the best answer each time is a rollout algorithm (Bertsekas and Castanon, Journal of Heuristics 5, 1999), which is
at least as good as the rule it rests on.

The best answer to what is going to happen is not the best one to give: nobody knows what is going to happen. So
futures can be imagined: the jobs still to come arrive in another order and rhythm, each time another.
"""

from __future__ import annotations

import numpy as np

from attn_sched.agents.rewards import TERMS, raw_costs
from attn_sched.agents.teaching import I1, rule_picks
from attn_sched.choices import FAIRNESS
from attn_sched.errors import InputError
from attn_sched.jit import njit
from attn_sched.policies.linear import JOB_AGENT, LinearRule, follow
from attn_sched.simulator import Engine
from attn_sched.simulator import layout as at
from attn_sched.simulator.layout import F8, I8
from attn_sched.simulator.loop import apply_job, apply_unit
from attn_sched.simulator.state import FIELDS, Batch, world_at
from attn_sched.training.batch import EpisodeBatch

HORIZON = 64  # jobs of an imagined future; more change little in what answers differ by, and cost three times as long


@njit
def _imagine(address: int, jobs: I8, gaps: I8, horizon: int) -> None:
    """Give the cluster at ``address`` another future: of its jobs to come, in the order of the permutation ``jobs``
    i8[n], the first ``horizon`` arrive, and none after them; the times between them are taken in the order ``gaps``
    i8[n - 1].
    """
    w = world_at(address, 0)
    first = w.si[at.NEXT_ARRIVAL]
    count = jobs.shape[0]
    floats = w.jf[first : first + count].copy()
    integers = w.ji[first : first + count].copy()
    time = floats[0, at.SUBMIT] if count > 0 else 0.0
    for i in range(count):
        w.jf[first + i] = floats[jobs[i]]
        w.ji[first + i] = integers[jobs[i]]
        w.jf[first + i, at.SUBMIT] = time
        if i + 1 < count:
            time += floats[gaps[i] + 1, at.SUBMIT] - floats[gaps[i], at.SUBMIT]
    for i in range(horizon, count):
        w.si[at.COUNTED_LEFT] -= w.ji[first + i, at.COUNTED]
    w.si[at.N_JOBS] = first + min(count, horizon)


@njit
def _follow(address: int, window: I8, units: I8, answer: int, picks: I1, weights: F8, fairness: int, out: F8) -> int:
    """Give ``answer`` in the cluster at ``address``, let the rule play on to the end, and write what all of it cost.

    ``window`` i8[K] and ``picks`` i1[U] are overwritten. Returns the phase it stopped at.
    """
    w = world_at(address, 0)
    if w.si[at.PHASE] == at.JOB_PHASE:
        apply_job(w, window, answer)
    else:
        apply_unit(w, units[answer])
        while w.si[at.PHASE] == at.UNIT_PHASE:
            rule_picks(w, units, picks)
            apply_unit(w, units[picks.argmax()])
    phase = follow(w, window, weights)
    raw_costs(w, fairness, out)
    return phase


class Lookahead:
    """Tries answers of agents on copies.

    Args:
        batch: The clusters; nothing in them changes.
        rule: Plays on after the answer.
    """

    def __init__(self, batch: EpisodeBatch, rule: LinearRule) -> None:
        self.batch = batch
        self.weights = rule.vector
        self.fairness = FAIRNESS.index(batch.fairness)
        self._copies = [
            Engine(g.shape.cluster, g.engine.workloads[:1], JOB_AGENT, g.engine.options, window=g.engine.window)
            for g in batch.groups_of
        ]

    def costs(self, row: int, answers: I8, draws: np.random.Generator | None = None, horizon: int = HORIZON) -> F8:
        """f8[n, 3]: the normalised costs of cluster ``row``'s whole episode after each of ``answers``, i8[n].

        Args:
            row: A cluster that waits for an agent.
            answers: Legal ones of that agent: window indices, K to hold, or units.
            draws: Imagines the future, the same for all answers; None: what is going to happen.
            horizon: Jobs of an imagined future. Costs are those up to the end of the last of them, so only what answers
                differ by means anything.

        Raises:
            ValueError: the cluster does not wait for an agent.
            InputError: a future is to be imagined where jobs are cancelled: who is, and when, goes by their numbers.
        """
        number, group = next((i, g) for i, g in enumerate(self.batch.groups_of) if g.lo <= row < g.lo + g.shape.count)
        b = row - group.lo
        if self.batch.phases[row] not in (at.JOB_PHASE, at.UNIT_PHASE):
            raise ValueError(f"cluster {row} is in phase {self.batch.phases[row]}")
        copy = self._copies[number].batch
        _take(group.engine.batch.arrays, b, copy)
        if draws is not None:
            if (copy.arrays["cq"] >= 0).any():
                raise InputError("jobs are cancelled", field="workload", expected="none, to imagine other futures")
            si = copy.arrays["si"][0]
            to_come = int(si[at.N_JOBS] - si[at.NEXT_ARRIVAL])
            _imagine(copy.address, draws.permutation(to_come), draws.permutation(max(0, to_come - 1)), horizon)
        moving = [copy.arrays[name] for name, kind in FIELDS.items() if not kind.shared]
        kept = [array.copy() for array in moving]
        units = group.engine.units
        picks = np.zeros(len(units), np.int8)
        made = np.zeros((len(answers), len(TERMS)))
        for i, answer in enumerate(answers):
            if i:
                for array, values in zip(moving, kept, strict=True):
                    np.copyto(array, values)
            window = self.batch.windows[row].copy()
            phase = _follow(copy.address, window, units, int(answer), picks, self.weights, self.fairness, made[i])
            if phase != at.DONE_PHASE:
                raise ValueError(f"the copy stopped at phase {phase}")
        return made / group.rewards.scales[b]


def _take(source: dict[str, np.ndarray], b: int, copy: Batch) -> None:
    """Make the only cluster of ``copy`` like cluster ``b`` of ``source``."""
    for name, kind in FIELDS.items():
        if kind.shared:
            continue
        if copy.arrays[name].shape[1:] != source[name].shape[1:]:
            copy.set(name, source[name][b : b + 1].copy())
        else:
            copy.arrays[name][0] = source[name][b]
