"""What a GPU agent would pick if it did as ``topo-best-fit`` does: targets for imitation.

The rule places a gang at once, an agent unit by unit. A pick takes what the gang still needs of a unit, or all it has:
so the rule's units can be picked in any order that leaves one it takes in part to the end. And of placements that are
equally good to the rule it takes the one with the lowest numbers, which an agent that sees a set of units cannot know:
where units are islands, picks that lead to an equal (or better) one are as right.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from attn_sched.agents.completion import complete
from attn_sched.jit import njit
from attn_sched.simulator import layout as at
from attn_sched.simulator.engine import Ask, Engine
from attn_sched.simulator.layout import I8
from attn_sched.simulator.loop import single_free, unit_free, unit_type
from attn_sched.simulator.placement import choose_type, topo_best_fit
from attn_sched.simulator.splitting import islands_below
from attn_sched.simulator.state import World, world_at

I1 = npt.NDArray[np.int8]


@njit
def _add(w: World, row: I8, island: int, count: int) -> None:
    """Add free GPUs of an island to free counts i8[V]."""
    v = island
    while v >= 0:
        row[v] += count
        v = w.ti[v, at.PARENT]


@njit
def _before_picks(w: World, gpu_type: int) -> I8:
    """The free counts i8[V] of a type before the gang being placed took any."""
    before = w.free[gpu_type].copy()
    for i in range(w.si[at.N_PICKS]):
        _add(w, before, w.gp[i, 0], w.gp[i, 1])
    return before


@njit
def _settle_units(w: World) -> None:
    """Where units are larger than islands: a pick that took as much of a unit as was planned there is as planned,
    though the engine may have taken it in other islands of the unit.
    """
    for i in range(w.si[at.N_PICKS]):
        v = w.gp[i, 0]
        while w.ti[v, at.LEVEL] < w.ci[at.UNIT_LEVEL]:
            v = w.ti[v, at.PARENT]
        lo, hi = islands_below(w, v)
        if w.vf[lo:hi].sum() == 0.0:
            w.vf[lo:hi] = 0.0


@njit
def _plan(w: World, gpu_type: int) -> None:
    """GPUs the gang being placed should still get of each island, in ``vf``.

    That is what is left of the rule's placement of the whole gang, if all picks so far are in it; else the best
    completion of the picks.
    """
    w.vf[:] = 0.0
    picks = w.si[at.N_PICKS]
    size = topo_best_fit(w, _before_picks(w, gpu_type), w.ji[w.si[at.PICK_JOB], at.GPUS])
    for i in range(size):
        w.vf[w.pk[i, 0]] = w.pk[i, 1]
    for i in range(picks):
        w.vf[w.gp[i, 0]] -= w.gp[i, 1]
    _settle_units(w)
    follows = True
    for i in range(picks):
        follows = follows and w.vf[w.gp[i, 0]] >= 0.0
    if not follows:
        w.vf[:] = 0.0
        complete(w, w.free[gpu_type], w.si[at.PICK_LEFT], w.vf)


@njit
def _quality(w: World, before: I8) -> tuple[float, int, int]:
    """What ``topo-best-fit`` weighs of a placement, the GPUs of each island in ``vf``: smaller is better.

    How many vertices of each level it touches, what is left free in the vertex that holds it, and in its islands.
    """
    w.si[at.STAMP] += 1
    stamp = w.si[at.STAMP]
    islands = w.loff[2] - w.loff[1]
    touched = 0.0
    left = 0
    used = 0
    for island in range(islands):
        if w.vf[island] > 0.0:
            used += 1
            left += before[island] - int(w.vf[island])
            scale = 1.0
            v = island
            while v >= 0 and w.sv[v, 2] != stamp:
                w.sv[v, 2] = stamp
                touched += scale
                scale *= w.ci[at.COST_BASE]
                v = w.ti[v, at.PARENT]
    # The lowest vertex that holds them all: go up while it has brothers that are touched.
    level = 1
    first = -1
    while True:
        count = 0
        for v in range(w.loff[level], w.loff[level + 1]):
            if w.sv[v, 2] == stamp:
                count += 1
                first = v
        if count == 1:
            break
        level += 1
    return touched, before[first], left


@njit
def _mark_as_good(w: World, units: I8, gpu_type: int, out: I1) -> None:
    """Mark the units that lead to one no worse than the placement planned in ``vf``; units are single islands.

    It can be better: the rule takes whole parts of the tree first, which is not always what touches least of it.
    """
    before = _before_picks(w, gpu_type)
    picks = w.si[at.N_PICKS]
    first = w.si[at.PICK_TYPE] < 0
    left = w.si[at.PICK_LEFT]
    for i in range(picks):
        w.vf[w.gp[i, 0]] += w.gp[i, 1]
    aim = _quality(w, before)
    for u in range(units.shape[0]):
        v = units[u]
        if out[u] or unit_free(w, v) == 0 or (first and unit_type(w, v) != gpu_type):
            continue
        row = w.free[gpu_type].copy()
        take = min(row[v], left)
        _add(w, row, v, -take)
        w.gp[picks, 0] = v
        w.gp[picks, 1] = take
        w.si[at.N_PICKS] = picks + 1
        w.vf[:] = 0.0
        for i in range(picks + 1):
            w.vf[w.gp[i, 0]] += w.gp[i, 1]
        if take < left:
            complete(w, row, left - take, w.vf)
        w.si[at.N_PICKS] = picks
        found = _quality(w, before)
        out[u] = found[0] < aim[0] or (found[0] == aim[0] and found[1] <= aim[1] and found[2] <= aim[2])


@njit
def rule_picks(w: World, units: I8, out: I1) -> None:
    """Mark in ``out[U]`` the units that the rule would pick next for the gang being placed.

    A marked unit is legal, belongs to the rule's placement of what the gang still needs (or, where units are islands,
    to one no worse), and picking it takes as many GPUs there as the rule does. Where units are single GPUs, those of
    an island are alike, and all its free ones are marked. There is always one, but for a first pick on a cluster with
    GPUs of several types in one unit: it may be impossible to get there the type that the rule takes.
    """
    out[:] = 0
    gpu_type = w.si[at.PICK_TYPE]
    first = gpu_type < 0
    if first:
        job = w.si[at.PICK_JOB]
        gpu_type = choose_type(w, w.ji[job, at.TYPES], w.ji[job, at.GPUS])
    _plan(w, gpu_type)
    left = w.si[at.PICK_LEFT]
    single = w.ci[at.UNIT_LEVEL] == 0
    for u in range(units.shape[0]):
        v = units[u]
        if unit_free(w, v) == 0 or not single_free(w, units, u) or (first and unit_type(w, v) != gpu_type):
            continue
        lo, hi = islands_below(w, v)
        wanted = 0.0
        for island in range(lo, hi):
            wanted += w.vf[island]
        if wanted > 0.0 and (single or wanted == min(w.free[gpu_type, v], left)):
            out[u] = 1
    if w.ci[at.UNIT_LEVEL] == 1:
        _mark_as_good(w, units, gpu_type, out)


@njit
def _all_picks(address: int, phases: I8, units: I8, out: I1) -> None:
    for b in range(phases.shape[0]):
        if phases[b] == at.UNIT_PHASE:
            rule_picks(world_at(address, b), units, out[b])
        else:
            out[b] = 0


def picks_of_rule(engine: Engine, ask: Ask) -> I1:
    """i1[B, U]: the units that ``topo-best-fit`` would pick, of every cluster that waits for a GPU agent; else 0."""
    out = np.zeros((len(ask.phases), len(engine.units)), np.int8)
    _all_picks(engine.batch.address, ask.phases, engine.units, out)
    return out
