"""The best completion of a gang some of whose GPUs are picked already: fewest vertices level by level, then least left.

``topo-best-fit`` splits a gang that has nothing yet; here the vertices that hold picks cost nothing more. Solved
exactly, by dynamic programming up the tree: what it costs to take k GPUs below a vertex, for every k. It begins at the
islands, or where units are larger at these, since a pick takes all that a unit has.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from attn_sched.jit import njit
from attn_sched.simulator import layout as at
from attn_sched.simulator.layout import F8, I8
from attn_sched.simulator.splitting import islands_below
from attn_sched.simulator.state import World

I1 = npt.NDArray[np.int8]


@njit
def _held(w: World) -> I1:
    """i1[V]: whether any pick so far lies in or below a vertex."""
    held = np.zeros(w.ti.shape[0], np.int8)
    for i in range(w.si[at.N_PICKS]):
        v = w.gp[i, 0]
        while v >= 0 and held[v] == 0:
            held[v] = 1
            v = w.ti[v, at.PARENT]
    return held


@njit
def complete(w: World, free: I8, need: int, out: F8) -> None:
    """Add to ``out`` the GPUs of each island that complete a gang at the least cost.

    Of an island or unit all free GPUs are taken, but for one at most.

    Args:
        w: The cluster, with the picks so far.
        free: i8[V], free GPUs of the type in question, less the picks.
        need: GPUs that are to be found; there must be as many.
        out: f8[islands], added to.
    """
    vertices = w.ti.shape[0]
    held = _held(w)
    touched = np.full((vertices, need + 1), np.inf)  # weighed vertices that taking k below v touches besides those held
    left = np.full((vertices, need + 1), np.inf)  # GPUs left over in the islands or units taken from
    taken = np.zeros((vertices, need + 1), np.int64)  # of v, where its parent and elder brothers take k together
    touched[:, 0] = 0.0
    left[:, 0] = 0.0
    scale = 1.0
    lowest = max(1, w.ci[at.UNIT_LEVEL])
    for level in range(lowest, w.loff.shape[0] - 1):
        for v in range(w.loff[level], w.loff[level + 1]):
            most = min(free[v], need)
            if level == lowest:
                for k in range(1, most + 1):
                    touched[v, k] = 0.0
                    left[v, k] = -k if held[v] else free[v] - k
            else:
                for c in range(w.ti[v, at.CHILD_LO], w.ti[v, at.CHILD_HI]):
                    for k in range(most, 0, -1):  # downwards, so that what is read is of the elder brothers alone
                        for t in range(1, min(k, free[c]) + 1):
                            cost = touched[v, k - t] + touched[c, t]
                            rest = left[v, k - t] + left[c, t]
                            if cost < touched[v, k] or (cost == touched[v, k] and rest < left[v, k]):
                                touched[v, k] = cost
                                left[v, k] = rest
                                taken[c, k] = t
            if not held[v]:
                touched[v, 1:] += scale
        scale *= w.ci[at.COST_BASE]
    _take(w, free, need, lowest, taken, out)


@njit
def _take(w: World, free: I8, need: int, lowest: int, taken: I8, out: F8) -> None:
    """Follow the choices from the root down; then fill what was chosen, one after the other."""
    root = w.ti.shape[0] - 1
    wanted = np.zeros(root + 1, np.int64)
    wanted[root] = need
    rest = need
    for v in range(root, w.loff[lowest] - 1, -1):  # parents before children
        if wanted[v] == 0:
            continue
        if w.ti[v, at.LEVEL] > lowest:
            k = wanted[v]
            for c in range(w.ti[v, at.CHILD_HI] - 1, w.ti[v, at.CHILD_LO] - 1, -1):
                wanted[c] = taken[c, k]
                k -= wanted[c]
            continue
        lo, hi = islands_below(w, v)
        for island in range(lo, hi):
            count = min(free[island], rest)
            out[island] += count
            rest -= count
