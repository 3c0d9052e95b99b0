"""The best completion of picks already made, against trying every set of islands."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from attn_sched.agents.completion import complete
from attn_sched.cluster import Cluster
from attn_sched.simulator import Engine, EngineRule
from attn_sched.simulator import layout as at
from attn_sched.simulator.loop import reserve, restore_picks
from tests.reference.instances import clusters
from tests.reference.shapes import make_jobs

BOTH = EngineRule(order=at.AGENT, placement=at.PLACE_AGENT)


def cost(cluster: Cluster, free: np.ndarray, picked: set[int], more: set[int]) -> tuple[int, ...]:
    """Vertices touched of each level, highest first, then GPUs left over in the islands taken from."""
    islands = np.array(sorted(picked | more))
    touched = (len(np.unique(cluster.ancestor(level)[islands])) for level in range(cluster.num_levels, 0, -1))
    return *touched, int(free[islands].sum())


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_no_set_of_islands_completes_it_at_less_cost(data: st.DataObject) -> None:
    cluster = data.draw(clusters(levels=(2, 4), types=1))
    engine = Engine(cluster.with_unit(cluster.level_names[1]), [make_jobs([0], [9], [1])], BOTH, window=4)
    w = engine.view(0)
    islands = cluster.num_islands
    before = w.free[0][:islands].copy()
    total = int(before.sum())
    picked = data.draw(st.lists(st.integers(0, islands - 1), max_size=min(3, islands - 1), unique=True))
    w.si[at.N_PICKS] = len(picked)
    w.gp[: len(picked), 0] = picked
    w.gp[: len(picked), 1] = before[picked]
    restore_picks(w)
    reserve(w, 0, 0, len(picked), 1)
    need = data.draw(st.integers(1, total - int(before[picked].sum())))
    out = np.zeros(islands)
    complete(w, w.free[0], need, out)

    free = w.free[0][:islands]
    assert out.sum() == need
    assert (out <= free).all()
    assert (out[out > 0] < free[out > 0]).sum() <= 1
    rest = [island for island in range(islands) if free[island] > 0]
    least = min(
        cost(cluster, free, set(picked), set(chosen))
        for size in range(1, len(rest) + 1)
        for chosen in combinations(rest, size)
        if free[list(chosen)].sum() >= need
    )
    assert cost(cluster, free, set(picked), set(np.flatnonzero(out).tolist())) == least
