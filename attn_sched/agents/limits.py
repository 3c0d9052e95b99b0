"""Which clusters the features can describe."""

from __future__ import annotations

from attn_sched.agents.schema import MAX_LEVEL, UNIT_GROUPS
from attn_sched.cluster import Cluster
from attn_sched.errors import InputError


def check_depth(cluster: Cluster) -> None:
    """Raise InputError for a tree deeper than the features can tell apart.

    Two units that have no group in common meet farther up than the highest group; that can be one level only. A job's
    best placement crosses at most the level below the root.
    """
    unit = max(1, cluster.unit_level)
    above = cluster.num_levels - unit
    if above > UNIT_GROUPS:
        raise InputError(
            f"{cluster.name} has {above} levels above its placement unit {cluster.level_name(cluster.unit_level)!r}",
            field="cluster",
            expected=f"at most {UNIT_GROUPS}, root included, for agents: a flatter tree, or a placement unit higher up",
        )
    if cluster.num_levels - 1 > MAX_LEVEL:
        raise InputError(
            f"{cluster.name} has {cluster.num_levels} levels above the GPUs",
            field="cluster",
            expected=f"at most {MAX_LEVEL + 1}, root included, for agents",
        )
