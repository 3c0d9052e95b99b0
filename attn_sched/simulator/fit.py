"""Which jobs a cluster can run at all: oversized means unplaceable even when it is empty, GPU types included."""

from __future__ import annotations

import numpy as np

from attn_sched.cluster import Cluster
from attn_sched.errors import InputError
from attn_sched.simulator.world import type_capacity, type_masks
from attn_sched.workload import Workload

OVERSIZED = ("drop", "clip", "refuse")
REASON = "larger than the cluster"
TYPE_REASON = "GPU type not in the cluster"


def largest_placeable(workload: Workload, cluster: Cluster) -> np.ndarray:
    """GPUs the empty cluster can give each job, i8[J]: all of its largest allowed type.

    It is 0 where it has none of the types named.
    """
    masks = type_masks(workload, cluster)
    largest = np.zeros(len(workload.num_gpus), dtype=np.int64)
    for t, gpus in enumerate(type_capacity(cluster)[:, -1]):
        largest = np.maximum(largest, np.where((masks >> t) & 1, gpus, 0))
    return largest


def refusal(workload: Workload, cluster: Cluster, job: int, largest: int) -> str:
    """What is said of a job that asks for more GPUs than the cluster can give it."""
    asked = f"job {workload.job_id[job]} asks for {workload.num_gpus[job]} GPUs"
    return f"{asked}, {cluster.name} can give it {largest}"


def fit_to_cluster(workload: Workload, cluster: Cluster, oversized: str = "drop") -> Workload:
    """Drop, clip or refuse the jobs that ``cluster`` could never place; counts go to ``info``.

    ``clip`` sets the GPU count to the largest placeable and keeps the duration; a job whose GPU types the cluster lacks
    is dropped all the same.

    Raises:
        InputError: unknown treatment, or ``refuse`` with an oversized job, which is named.
    """
    if oversized not in OVERSIZED:
        raise InputError(f"unknown treatment {oversized!r}", field="oversized", expected=" | ".join(OVERSIZED))
    largest = largest_placeable(workload, cluster)
    too_large = workload.num_gpus > largest
    no_type = largest == 0
    if oversized == "refuse" and too_large.any():
        job = int(np.flatnonzero(too_large)[0])
        raise InputError(
            refusal(workload, cluster, job, int(largest[job])),
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
