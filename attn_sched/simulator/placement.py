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
from attn_sched.simulator.state import World

LARGE = np.int64(1) << 62


@njit
def _add(pk: I8, size: int, island: int, count: int) -> int:
    pk[size, 0] = island
    pk[size, 1] = count
    return size + 1


@njit
def _scale(w: World, level: int) -> int:
    """Weight of a vertex of ``level`` in a cost.

    One more vertex of a level outweighs any number of vertices below it.
    """
    scale = np.int64(1)
    for _ in range(level - 1):
        scale *= w.ci[at.COST_BASE]
    return scale


@njit
def _whole_cost(w: World, fr: I8, vertex: int) -> int:
    """Cost of taking every free GPU below ``vertex``."""
    ti = w.ti
    level = ti[vertex, at.LEVEL]
    cost = np.int64(0)
    lo = vertex
    hi = vertex + 1
    while True:  # the vertices of a level below one vertex are contiguous
        used = np.int64(0)
        for v in range(lo, hi):
            if fr[v] > 0:
                used += 1
        cost += used * _scale(w, level)
        if level == 1:
            return cost
        lo = ti[lo, at.CHILD_LO]
        hi = ti[hi - 1, at.CHILD_HI]
        level -= 1


@njit
def _take_whole(w: World, fr: I8, vertex: int, size: int) -> int:
    """Pick every free GPU below ``vertex``; returns the new pick count."""
    lo = vertex
    hi = vertex + 1
    for _ in range(w.ti[vertex, at.LEVEL] - 1):
        lo = w.ti[lo, at.CHILD_LO]
        hi = w.ti[hi - 1, at.CHILD_HI]
    for v in range(lo, hi):
        if fr[v] > 0:
            size = _add(w.pk, size, v, fr[v])
    return size


@njit
def _flat_cost(w: World, fr: I8, vertex: int, need: int) -> int:
    """``split_cost`` for a vertex whose children are islands."""
    w.si[at.STAMP] += 1
    stamp = w.si[at.STAMP]
    rest = need
    used = np.int64(0)
    while True:
        most = np.int64(-1)
        for c in range(w.ti[vertex, at.CHILD_LO], w.ti[vertex, at.CHILD_HI]):
            if w.sv[c, 2] != stamp:
                if fr[c] >= rest:
                    return w.ci[at.COST_BASE] + used + 1
                if most < 0 or fr[c] > fr[most]:
                    most = c
        w.sv[most, 2] = stamp
        used += 1
        rest -= fr[most]


_VERTEX, _REST, _CURSOR, _BEST, _BEST_COST, _MOST, _COST, _STAMP = range(8)


@njit
def _open(w: World, frame: I8, vertex: int, need: int) -> None:
    w.si[at.STAMP] += 1
    frame[_VERTEX] = vertex
    frame[_REST] = need
    frame[_CURSOR] = w.ti[vertex, at.CHILD_LO]
    frame[_BEST] = -1
    frame[_BEST_COST] = 0
    frame[_MOST] = -1
    frame[_COST] = _scale(w, w.ti[vertex, at.LEVEL])
    frame[_STAMP] = w.si[at.STAMP]


@njit
def _weigh(frame: I8, fr: I8, child: int, cost: int) -> None:
    """Keep ``child`` if it is the better place for the rest: lower cost, then fewer free GPUs, then lower index."""
    best = frame[_BEST]
    if best < 0 or cost < frame[_BEST_COST] or (cost == frame[_BEST_COST] and fr[child] < fr[best]):
        frame[_BEST] = child
        frame[_BEST_COST] = cost


@njit
def split_cost(w: World, fr: I8, vertex: int, need: int) -> int:
    """What ``split`` would use, as one number that orders candidates by vertices used, highest level first.

    A stack of frames, not recursion: numba cannot cache recursive functions (its issue 6061).
    """
    level = w.ti[vertex, at.LEVEL]
    if level == 1:
        return np.int64(1)
    if level == 2:
        return _flat_cost(w, fr, vertex, need)
    if need == fr[vertex]:
        return _whole_cost(w, fr, vertex)
    frames = np.empty((level, 8), dtype=np.int64)
    depth = 0
    _open(w, frames[0], vertex, need)
    while True:
        frame = frames[depth]
        rest = frame[_REST]
        below = -1
        for c in range(frame[_CURSOR], w.ti[frame[_VERTEX], at.CHILD_HI]):
            if w.sv[c, 2] == frame[_STAMP] or fr[c] == 0:
                continue
            if fr[c] < rest:
                if frame[_MOST] < 0 or fr[c] > fr[frame[_MOST]]:
                    frame[_MOST] = c
            elif fr[c] == rest:
                _weigh(frame, fr, c, _whole_cost(w, fr, c))
            elif w.ti[c, at.LEVEL] == 1:
                _weigh(frame, fr, c, np.int64(1))
            elif w.ti[c, at.LEVEL] == 2:
                _weigh(frame, fr, c, _flat_cost(w, fr, c, rest))
            else:
                below = c
                break
        if below >= 0:
            frame[_CURSOR] = below  # its cost comes back here
            depth += 1
            _open(w, frames[depth], below, rest)
            continue
        if frame[_BEST] < 0:  # no child has room for the rest: take the largest whole and look again
            most = frame[_MOST]
            frame[_COST] += _whole_cost(w, fr, most)
            frame[_REST] -= fr[most]
            w.sv[most, 2] = frame[_STAMP]
            frame[_CURSOR] = w.ti[frame[_VERTEX], at.CHILD_LO]
            frame[_MOST] = -1
            continue
        cost = frame[_COST] + frame[_BEST_COST]
        if depth == 0:
            return cost
        depth -= 1
        frame = frames[depth]
        _weigh(frame, fr, frame[_CURSOR], cost)
        frame[_CURSOR] += 1


@njit
def split(w: World, fr: I8, vertex: int, need: int, size: int) -> int:
    """Pick ``need`` <= fr[vertex] GPUs below ``vertex``: fewest vertices level by level, then least left over.

    Greedy where the exact answer is a packing problem: while no child has room for the rest, the child with most free
    GPUs is taken whole. Appends to ``pk`` and returns the new pick count.
    """
    ti = w.ti
    rest = need
    while ti[vertex, at.LEVEL] > 1:
        if rest == fr[vertex]:
            return _take_whole(w, fr, vertex, size)
        w.si[at.STAMP] += 1
        stamp = w.si[at.STAMP]
        best = np.int64(-1)
        while best < 0:
            best_cost = LARGE
            most = np.int64(-1)
            for c in range(ti[vertex, at.CHILD_LO], ti[vertex, at.CHILD_HI]):
                if w.sv[c, 2] == stamp or fr[c] == 0:
                    continue
                if fr[c] >= rest:
                    cost = split_cost(w, fr, c, rest)
                    if cost < best_cost or (cost == best_cost and fr[c] < fr[best]):
                        best = c
                        best_cost = cost
                elif most < 0 or fr[c] > fr[most]:
                    most = c
            if best < 0:
                size = _take_whole(w, fr, most, size)
                rest -= fr[most]
                w.sv[most, 2] = stamp
        vertex = best
    return _add(w.pk, size, vertex, rest)


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
def node_size(w: World, gpu_type: int) -> int:
    """GPUs of the largest node of a type."""
    level = w.ci[at.NODE_LEVEL]
    largest = 0
    for v in range(w.loff[level], w.loff[level + 1]):
        largest = max(largest, w.cap[gpu_type, v])
    return largest


@njit
def best_fit_fits(w: World, fr: I8, gpu_type: int, need: int) -> bool:
    """Whether the consolidated rule can place the gang (golden.md, case D)."""
    level = w.ci[at.NODE_LEVEL]
    largest = node_size(w, gpu_type)
    if largest == 0:
        return False
    if need <= largest:
        for v in range(w.loff[level], w.loff[level + 1]):
            if fr[v] >= need:
                return True
        return False
    whole = need // largest
    rest = need % largest
    free_nodes = 0
    rest_fits = False
    for v in range(w.loff[level], w.loff[level + 1]):
        if fr[v] == largest:
            free_nodes += 1
        elif rest > 0 and fr[v] >= rest:
            rest_fits = True
    if rest == 0:
        return free_nodes >= whole
    return free_nodes > whole or (free_nodes == whole and rest_fits)


@njit
def best_fit(w: World, fr: I8, gpu_type: int, need: int) -> int:
    """A gang that fits a node goes whole into the fullest node with room.

    A larger one takes whole nodes and one for the rest.
    """
    if not best_fit_fits(w, fr, gpu_type, need):
        return 0
    level = w.ci[at.NODE_LEVEL]
    largest = node_size(w, gpu_type)
    size = np.int64(0)
    w.si[at.STAMP] += 1
    # ``split`` stamps only vertices below nodes, so this stamp of whole nodes survives it.
    stamp = w.si[at.STAMP]
    rest = need
    if need > largest:
        for v in range(w.loff[level], w.loff[level + 1]):
            if rest >= largest and fr[v] == largest:
                size = split(w, fr, v, largest, size)
                w.sv[v, 2] = stamp
                rest -= largest
    if rest > 0:
        best = np.int64(-1)
        for v in range(w.loff[level], w.loff[level + 1]):
            if fr[v] >= rest and w.sv[v, 2] != stamp and (best < 0 or fr[v] < fr[best]):
                best = v
        size = split(w, fr, best, rest, size)
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
            size = _add(w.pk, size, v, w.sv[v, 0])
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
