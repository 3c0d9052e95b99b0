"""What a user's own rule sees: read-only copies, so that a rule can look at everything and change nothing."""

from __future__ import annotations

from dataclasses import dataclass

from attn_sched.cluster import Cluster
from attn_sched.simulator.layout import F8, I8
from attn_sched.workload import Workload


@dataclass(frozen=True)
class QueueView:
    """The W waiting jobs at one event, in order of submission."""

    now_s: float
    job: I8  # [W] position of each job in the workload
    submit_s: F8  # [W]
    wait_s: F8  # [W] since submission
    estimate_s: F8  # [W] estimated duration
    num_gpus: I8  # [W]
    user: I8  # [W] index in workload.user_names
    group: I8  # [W] index in workload.group_names; -1 = unknown
    priority: I8  # [W] higher is more urgent
    fits: I8  # [W] 1 if the job fits now
    best_slowdown: F8  # [W] slowdown now under topo-best-fit; inf where the job does not fit
    user_gpu_s: F8  # [U] GPU-seconds each user has had
    group_gpus: I8  # [G] GPUs each group holds now
    group_quota: F8  # [G] GPUs each group is entitled to; inf = no quota
    free_gpus: int
    workload: Workload
    cluster: Cluster


@dataclass(frozen=True)
class PlacementView:
    """One gang to place; M nodes of the cluster, all counts of the one GPU type the gang goes to."""

    now_s: float
    job: int  # position in the workload
    num_gpus: int
    priority: int
    free: I8  # [M] free GPUs of each node
    size: I8  # [M] GPUs of each node
    rack: I8  # [M] index of the vertex above the node's level
    workload: Workload
    cluster: Cluster
