"""Which jobs a cluster can run at all: oversized means unplaceable even when it is empty, GPU types included."""

from __future__ import annotations

import numpy as np

from attn_sched.choices import OVERSIZED, check_choice
from attn_sched.cluster import Cluster
from attn_sched.errors import InputError
from attn_sched.simulator.world import largest_placeable
from attn_sched.simulator.world import too_large as told
from attn_sched.workload import Workload

REASON = "larger than the cluster"
TYPE_REASON = "GPU type not in the cluster"


def fit_to_cluster(workload: Workload, cluster: Cluster, oversized: str = "drop") -> Workload:
    """Drop, clip or refuse the jobs that ``cluster`` could never place; counts go to ``info``.

    ``clip`` sets the GPU count to the largest placeable and keeps the duration; a job whose GPU types the cluster lacks
    is dropped all the same.

    Raises:
        InputError: unknown treatment, or ``refuse`` with an oversized job, which is named.
    """
    check_choice(oversized, OVERSIZED, "oversized", "treatment")
    largest = largest_placeable(workload, cluster)
    too_large = workload.num_gpus > largest
    no_type = largest == 0
    if oversized == "refuse" and too_large.any():
        job = int(np.flatnonzero(too_large)[0])
        raise InputError(
            told(workload, cluster, job, int(largest[job])),
            file=workload.name,
            field="num_gpus",
            expected="jobs that fit the empty cluster, or --oversized drop | clip",
        )
    info = dict(workload.info)
    held = info.get("dropped")
    dropped = dict(held) if isinstance(held, dict) else {}
    if oversized == "clip":
        clip = too_large & ~no_type
        if clip.any():
            notes = info.get("notes")
            info["notes"] = {**(notes if isinstance(notes, dict) else {}), "clipped to the cluster": int(clip.sum())}
            workload = workload.replace(num_gpus=np.where(clip, largest, workload.num_gpus).astype(np.int32))
        leave = no_type
    else:
        leave = too_large
    for reason, mask in ((REASON, leave & ~no_type), (TYPE_REASON, leave & no_type)):
        if mask.any():
            dropped[reason] = dropped.get(reason, 0) + int(mask.sum())
    info["dropped"] = dropped
    return (workload.select(np.flatnonzero(~leave)) if leave.any() else workload).replace(info=info)
