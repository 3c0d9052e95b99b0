"""Splitting a gang below a vertex of the tree: fewest vertices level by level, then least left over."""

from __future__ import annotations

import numpy as np

from attn_sched.jit import njit
from attn_sched.simulator import layout as at
from attn_sched.simulator.layout import I8
from attn_sched.simulator.state import World

LARGE = np.int64(1) << 62


@njit
def add_pick(pk: I8, size: int, island: int, count: int) -> int:
    """Append (island, GPUs) to the picks; returns how many there are then."""
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
def islands_below(w: World, vertex: int) -> tuple[int, int]:
    """The islands below a vertex (itself, if it is one): they are numbered lo .. hi - 1."""
    lo = vertex
    hi = vertex + 1
    for _ in range(w.ti[vertex, at.LEVEL] - 1):
        lo = w.ti[lo, at.CHILD_LO]
        hi = w.ti[hi - 1, at.CHILD_HI]
    return lo, hi


@njit
def _take_whole(w: World, fr: I8, vertex: int, size: int) -> int:
    """Pick every free GPU below ``vertex``; returns the new pick count."""
    lo, hi = islands_below(w, vertex)
    for v in range(lo, hi):
        if fr[v] > 0:
            size = add_pick(w.pk, size, v, fr[v])
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
    return add_pick(w.pk, size, vertex, rest)
