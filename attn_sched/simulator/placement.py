"""Placement rules: which islands a gang gets, given what is free.

A rule writes (island, GPUs) pairs to ``pk`` and returns how many, or 0 where it cannot place the gang. ``fr`` is the
row of free counts per vertex of one GPU type, so a rule never mixes types. What a rule calls a node is a vertex of the
level ``NODE_LEVEL``.
"""

from __future__ import annotations

import numpy as np

from attn_sched.jit import njit
from attn_sched.simulator import layout as at
from attn_sched.simulator.layout import I8
from attn_sched.simulator.splitting import LARGE, add_pick, split, split_cost
from attn_sched.simulator.state import World


@njit
def topo_best_fit(w: World, fr: I8, need: int) -> int:
    """Fewest racks, then nodes, then least left over, ties to the lowest index; may split a gang."""
    levels = w.loff.shape[0] - 2
    for level in range(1, levels + 1):
        best = np.int64(-1)
        best_cost = LARGE
        for v in range(w.loff[level], w.loff[level + 1]):
            if fr[v] >= need:
                cost = np.int64(1)
                if level > 1 and level < levels:
                    cost = split_cost(w, fr, v, need)
                if best < 0 or cost < best_cost or (cost == best_cost and fr[v] < fr[best]):
                    best = v
                    best_cost = cost
        if best >= 0:
            return split(w, fr, best, need, at.FIRST)
    return 0


@njit
def _largest_below(w: World, gpu_type: int, bound: int) -> int:
    """GPUs of the largest node of a type that is smaller than ``bound``; 0 if there is none."""
    level = w.ci[at.NODE_LEVEL]
    largest = np.int64(0)
    for v in range(w.loff[level], w.loff[level + 1]):
        if w.cap[gpu_type, v] < bound:
            largest = max(largest, w.cap[gpu_type, v])
    return largest


@njit
def _mark_whole_nodes(w: World, fr: I8, gpu_type: int, need: int) -> int:
    """Stamp the wholly free nodes that a gang larger than any node takes; returns the GPUs left for one more node.

    Largest nodes first. Smaller ones serve only where the cluster has too few of the larger, busy or not. -1 if too few
    are wholly free. The stamp is ``STAMP``.
    """
    level = w.ci[at.NODE_LEVEL]
    lo = w.loff[level]
    hi = w.loff[level + 1]
    w.si[at.STAMP] += 1
    stamp = w.si[at.STAMP]
    size = _largest_below(w, gpu_type, LARGE)
    if need <= size:
        return need
    rest = need
    while rest > 0 and size > 0:
        have = 0
        for v in range(lo, hi):
            if w.cap[gpu_type, v] == size:
                have += 1
        want = min(rest // size, have)
        for v in range(lo, hi):
            if want > 0 and w.cap[gpu_type, v] == size and fr[v] == size:
                w.sv[v, 2] = stamp
                rest -= size
                want -= 1
        if want > 0:
            return -1
        for v in range(lo, hi):
            if w.cap[gpu_type, v] >= rest and w.sv[v, 2] != stamp:
                return rest  # a node that could hold the rest is left
        size = _largest_below(w, gpu_type, size)
    return rest if rest == 0 else -1


@njit
def _fullest_with_room(w: World, fr: I8, rest: int, stamp: int) -> int:
    """The unstamped node with fewest free GPUs that has ``rest``, lowest index; -1 if there is none."""
    level = w.ci[at.NODE_LEVEL]
    best = np.int64(-1)
    for v in range(w.loff[level], w.loff[level + 1]):
        if fr[v] >= rest and w.sv[v, 2] != stamp and (best < 0 or fr[v] < fr[best]):
            best = v
    return best


@njit
def best_fit_fits(w: World, fr: I8, gpu_type: int, need: int) -> bool:
    """Whether the consolidated rule can place the gang (golden.md, case D)."""
    rest = _mark_whole_nodes(w, fr, gpu_type, need)
    return rest == 0 or (rest > 0 and _fullest_with_room(w, fr, rest, w.si[at.STAMP]) >= 0)


@njit
def best_fit(w: World, fr: I8, gpu_type: int, need: int) -> int:
    """A gang that fits a node goes whole into the fullest node with room.

    A larger one takes wholly free nodes and one node for the rest. Returns the picks made, 0 if it cannot be placed.
    """
    rest = _mark_whole_nodes(w, fr, gpu_type, need)
    stamp = w.si[at.STAMP]
    last = np.int64(-1)
    if rest > 0:
        last = _fullest_with_room(w, fr, rest, stamp)
    if rest < 0 or (rest > 0 and last < 0):
        return 0
    level = w.ci[at.NODE_LEVEL]
    size = np.int64(0)
    # ``split`` stamps only vertices below nodes, so the stamp of whole nodes survives it.
    for v in range(w.loff[level], w.loff[level + 1]):
        if w.sv[v, 2] == stamp:
            size = split(w, fr, v, fr[v], size)
    if rest > 0:
        size = split(w, fr, last, rest, size)
    return size


@njit
def scattered(w: World, fr: I8, need: int) -> int:
    """One GPU after another from the islands in turn, from both ends inwards.

    No rule for operators: the placement that a learned one is measured against.
    """
    islands = w.loff[2] - w.loff[1]
    each = np.int64(0)  # every island gives so many, if it has them ...
    given = np.int64(0)
    while True:
        more = np.int64(0)
        for v in range(islands):
            if fr[v] > each:
                more += 1
        if more == 0 or given + more > need:
            break
        given += more
        each += 1
    rest = need - given  # ... and the first of those that have more give one more
    size = np.int64(0)
    for i in range(islands):
        v = i // 2 if i % 2 == 0 else islands - 1 - i // 2
        take = min(fr[v], each)
        if rest > 0 and fr[v] > each:
            take += 1
            rest -= 1
        if take > 0:
            size = add_pick(w.pk, size, v, take)
    return size


@njit
def first_fit(w: World, fr: I8, need: int) -> int:
    """Nodes by index, each as far as it goes."""
    level = w.ci[at.NODE_LEVEL]
    size = np.int64(0)
    for v in range(w.loff[level], w.loff[level + 1]):
        if need == 0:
            break
        take = min(fr[v], need)
        if take > 0:
            size = split(w, fr, v, take, size)
            need -= take
    return size


@njit
def load_balance(w: World, fr: I8, need: int) -> int:
    """Always the emptiest node, GPU by GPU: spreads a gang as far as it can be spread."""
    level = w.ci[at.NODE_LEVEL]
    lo = w.loff[level]
    hi = w.loff[level + 1]
    for v in range(lo, hi):
        w.sv[v, 0] = 0
    for _ in range(need):
        best = np.int64(-1)
        most = np.int64(0)
        for v in range(lo, hi):
            left = fr[v] - w.sv[v, 0]
            if left > most:
                best = v
                most = left
        w.sv[best, 0] += 1
    size = np.int64(0)
    for v in range(lo, hi):
        if w.sv[v, 0] > 0:
            size = split(w, fr, v, w.sv[v, 0], size)
            w.sv[v, 0] = 0
    return size


@njit
def _lightest_first(w: World, fr: I8, need: int) -> int:
    """Nodes by their weight in ``vf``, each as far as it goes; ties to the lowest index."""
    level = w.ci[at.NODE_LEVEL]
    size = np.int64(0)
    w.si[at.STAMP] += 1
    stamp = w.si[at.STAMP]
    while need > 0:
        best = np.int64(-1)
        for v in range(w.loff[level], w.loff[level + 1]):
            if fr[v] > 0 and w.sv[v, 2] != stamp and (best < 0 or w.vf[v] < w.vf[best]):
                best = v
        w.sv[best, 2] = stamp
        take = min(fr[best], need)
        size = split(w, fr, best, take, size)
        need -= take
    return size


@njit
def fullest_first(w: World, fr: I8, need: int) -> int:
    """Fill fragments: nodes by fewest free GPUs, each as far as it goes."""
    level = w.ci[at.NODE_LEVEL]
    for v in range(w.loff[level], w.loff[level + 1]):
        w.vf[v] = fr[v]
    return _lightest_first(w, fr, need)


@njit
def _next_random(w: World, below: int) -> int:
    """A number in [0, below) from the kernel's own stream (splitmix64, Steele et al., OOPSLA 2014)."""
    w.rng[0] += np.uint64(0x9E3779B97F4A7C15)
    z = w.rng[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return np.int64(z >> np.uint64(1)) % below


@njit
def random_free(w: World, fr: I8, need: int) -> int:
    """GPUs drawn uniformly among the free ones."""
    islands = w.loff[2]
    free = np.int64(0)
    for v in range(islands):
        w.sv[v, 0] = 0
        free += fr[v]
    for _ in range(need):
        draw = _next_random(w, free)
        free -= 1
        for v in range(islands):
            left = fr[v] - w.sv[v, 0]
            if draw < left:
                w.sv[v, 0] += 1
                break
            draw -= left
    size = np.int64(0)
    for v in range(islands):
        if w.sv[v, 0] > 0:
            size = add_pick(w.pk, size, v, w.sv[v, 0])
            w.sv[v, 0] = 0
    return size


@njit
def least_workload(w: World, fr: I8, need: int) -> int:
    """Nodes with the least remaining work of running jobs first (after LWF-kappa of Wang et al., arXiv:2002.10105)."""
    level = w.ci[at.NODE_LEVEL]
    lo = w.loff[level]
    hi = w.loff[level + 1]
    for v in range(lo, hi):
        w.vf[v] = 0.0
    for i in range(w.si[at.N_FINISH]):
        job = w.fh[i]
        left = max(0.0, remaining_estimate(w, job))
        e = w.ji[job, at.ENTRY]
        while e >= 0:
            v = w.en[e, at.E_VERTEX]
            if w.ti[v, at.LEVEL] == 1:
                w.vf[w.ti[v, at.NODE]] += left * w.en[e, at.E_COUNT]
            e = w.en[e, at.E_NEXT]
    return _lightest_first(w, fr, need)


@njit
def remaining_estimate(w: World, job: int) -> float:
    """Ideal seconds of work a running or suspended job has left by its estimate; negative once it runs past it."""
    left = w.jf[job, at.LEFT]
    if w.ji[job, at.STATUS] == at.RUNNING:
        left -= (w.sf[at.NOW] - w.jf[job, at.SYNCED]) * w.jf[job, at.RATE]
    return estimated_left(w, job, left)


@njit
def estimated_left(w: World, job: int, left: float) -> float:
    """Ideal seconds of work left by the job's estimate when ``left`` are in truth.

    The same, to the last bit, if it is right.
    """
    if w.jf[job, at.ESTIMATE] == w.jf[job, at.DURATION]:
        return left
    return w.jf[job, at.ESTIMATE] - (w.jf[job, at.DURATION] - left)


@njit
def fits(w: World, fr: I8, gpu_type: int, need: int) -> bool:
    """Whether the placement rule in force can place ``need`` GPUs of one type among ``fr``."""
    if fr[fr.shape[0] - 1] < need:
        return False
    if w.ci[at.PLACEMENT] == at.BEST_FIT:
        return best_fit_fits(w, fr, gpu_type, need)
    return True


@njit
def choose_type(w: World, types: int, need: int) -> int:
    """The GPU type a gang goes to (-1: none fits now).

    Fewest racks, nodes and GPUs left over under topo-best-fit, lowest index.
    """
    n_types = w.ci[at.N_TYPES]
    if n_types == 1:
        return 0 if (types & 1) and fits(w, w.free[0], 0, need) else -1
    best = np.int64(-1)
    best_racks = 0
    best_nodes = 0
    best_left = np.int64(0)
    candidates = 0
    for t in range(n_types):
        if (types >> t) & 1 and fits(w, w.free[t], t, need):
            candidates += 1
            best = t
    if candidates <= 1:
        return best
    best = np.int64(-1)
    for t in range(n_types):
        if (types >> t) & 1 and fits(w, w.free[t], t, need):
            size = topo_best_fit(w, w.free[t], need)
            racks, nodes, left = _span(w, w.free[t], size, need)
            better = best < 0 or racks < best_racks
            if not better and racks == best_racks:
                better = nodes < best_nodes or (nodes == best_nodes and left < best_left)
            if better:
                best = t
                best_racks = racks
                best_nodes = nodes
                best_left = left
    return best


@njit
def _span(w: World, fr: I8, size: int, need: int) -> tuple[int, int, int]:
    """Top-level vertices and nodes that the picks touch, and the free GPUs they leave in those nodes."""
    w.si[at.STAMP] += 1
    stamp = w.si[at.STAMP]
    top = w.ci[at.TOP_LEVEL]
    racks = 0
    nodes = 0
    left = np.int64(-need)
    for i in range(size):
        v = w.pk[i, 0]
        node = w.ti[v, at.NODE]
        if w.sv[node, 2] != stamp:
            w.sv[node, 2] = stamp
            nodes += 1
            left += fr[node]
        while w.ti[v, at.LEVEL] < top:
            v = w.ti[v, at.PARENT]
        if v == node:  # the top level is the node level: already counted
            continue
        if w.sv[v, 2] != stamp:
            w.sv[v, 2] = stamp
            racks += 1
    return racks, nodes, left
