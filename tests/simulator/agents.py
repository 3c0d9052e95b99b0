"""Agents for tests of the steppable engine: what they may answer, and ones that imitate rules."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from attn_sched.simulator import Ask, Engine
from attn_sched.simulator import layout as at
from attn_sched.simulator.loop import hold_legal, job_legal, single_free, unit_free
from attn_sched.simulator.placement import choose_type, topo_best_fit

Choose = Callable[[Engine, int, Ask], int]


def legal(engine: Engine, b: int, ask: Ask) -> list[int]:
    """The legal answers of cluster ``b``, from the masks that agents are shown."""
    w = engine.view(b)
    window = ask.windows[b]
    if ask.phases[b] == at.JOB_PHASE:
        actions = [i for i, job in enumerate(window) if job >= 0 and job_legal(w, int(job))]
        return [*actions, len(window)] if hold_legal(w) else actions
    if ask.phases[b] == at.UNIT_PHASE:
        numbers = range(len(engine.units))
        return [u for u in numbers if single_free(w, engine.units, u) and unit_free(w, int(engine.units[u])) > 0]
    return []


def play(engine: Engine, choose: Choose) -> int:
    """Answer until every cluster is done; returns the number of rounds."""
    rounds = 0
    while not (ask := engine.ask()).done:
        rounds += 1
        assert rounds < 100_000, "an episode must end"
        actions = np.zeros(len(engine.workloads), dtype=np.int64)
        for b, phase in enumerate(ask.phases):
            if phase != at.DONE_PHASE:
                actions[b] = choose(engine, b, ask)
        engine.apply(actions)
    return rounds


class Imitator:
    """Answers what a rule would do: jobs by a static key (ties to the earliest), GPUs by topo-best-fit."""

    def __init__(self, keys: list[np.ndarray]) -> None:
        self.keys = keys  # one array a cluster, by job
        self.plans: dict[tuple[int, int], dict[int, int]] = {}  # GPUs still to be picked, by unit vertex

    def __call__(self, engine: Engine, b: int, ask: Ask) -> int:
        return self.job(engine, b, ask) if ask.phases[b] == at.JOB_PHASE else self.unit(engine, b, ask)

    def job(self, engine: Engine, b: int, ask: Ask) -> int:
        window = ask.windows[b]
        actions = [a for a in legal(engine, b, ask) if a < len(window)]
        return min(actions, key=lambda a: (self.keys[b][window[a]], window[a]))

    def unit(self, engine: Engine, b: int, ask: Ask) -> int:
        """topo-best-fit takes all free GPUs of every unit but one: that one comes last, as a pick takes all it can."""
        w = engine.view(b)
        job, need = int(w.si[at.PICK_JOB]), int(w.ji[w.si[at.PICK_JOB], at.GPUS])
        if w.si[at.N_PICKS] == 0:
            kind = choose_type(w, int(w.ji[job, at.TYPES]), need)
            above = engine.cluster.ancestor(max(1, engine.cluster.unit_level))
            plan: dict[int, int] = {}
            for island, count in w.pk[: topo_best_fit(w, w.free[kind], need)].tolist():
                plan[int(above[island])] = plan.get(int(above[island]), 0) + count
            self.plans[b, job] = plan
        plan = self.plans[b, job]
        free = w.free.sum(axis=0)  # the clusters imitated on have one GPU type
        vertex = min((v for v, count in plan.items() if count), key=lambda v: (free[v] != plan[v], v))
        plan[vertex] -= 1 if engine.cluster.unit_level == 0 else plan[vertex]
        return next(u for u in legal(engine, b, ask) if engine.units[u] == vertex)
