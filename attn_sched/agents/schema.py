"""Names, order and scaling of the features. A change of meaning or order needs a new ``FEATURES_VERSION``.

Everything is scaled to about [-1, 1]. Times and bytes span many orders of magnitude and enter as logarithms:
``log1p(seconds) / log1p(week)``, ``log2(GPUs) / 10``, ``log10(bytes / MB) / 4``; slowdowns as ``1 - 1 / slowdown``.
"""

from __future__ import annotations

FEATURES_VERSION = 2

AGENTS = ("job", "gpu")  # the job agent picks a waiting job or holds; the GPU agent picks units for its gang

MAX_LEVEL = (
    5  # one-hot places for the level a job can be placed at: inside one island, across islands, nodes, racks, ...
)

JOB_FEATURES = (
    "wait",  # seconds since submission, log
    "estimate",  # estimated duration, log
    "wait_over_estimate",  # log1p(ratio) / 5
    "gpus",  # log2
    "grad_bytes",  # log10 of megabytes
    "comm_over_compute",  # of the ideal placement: 1 - compute / iteration
    "fits",  # 1 if the placement rule (or some pick of units) can place it now
    *(
        f"best_level_{level}" for level in range(MAX_LEVEL + 1)
    ),  # highest level its best placement now crosses; none if unfit
    "best_slowdown",  # under topo-best-fit now, with contention; 1 if it does not fit
    "user_gpu_share",  # its user's running GPUs over all running GPUs
    "user_slowdown",  # log ratio of its user's mean bounded slowdown to the mean over users
    "user_pending",  # its user's waiting jobs, log
    "age_rank",  # 1 for the oldest of the window, 0 for the newest
    "until_fits",  # seconds until enough GPUs should be free for it, by estimates, log; 0 if enough are free now
    "time_lost",  # what best_slowdown now adds to its estimated duration in seconds, log; 0 if it does not fit
    "gpus_of_cluster",  # share of all GPUs that it needs
    "length_rank",  # share of the window's other jobs that are estimated to be shorter; equals count half
    "area_rank",  # the same by estimate times GPUs
)

UNIT_FEATURES = (
    "free_share",  # free GPUs over its GPUs
    "wholly_free",  # 1 if all of it is free
    "next_release",  # seconds until a running job frees something in it, by estimates, log; 0 if nothing runs in it
    "until_free",  # seconds until all of it is free, by estimates, log
    "picked_here",  # GPUs of the gang being placed already picked in it, over the gang
    "picked_in_rack",  # the same for the vertex above it
    "uplink_jobs",  # running jobs that cross its uplink, log
    "rack_uplink_jobs",  # the same for the vertex above it
    "marginal_slowdown",  # of the picks so far with this unit added; 0 while no gang is being placed
    "completes",  # 1 if it can take all that the gang still needs
    "fill",  # share of its free GPUs that the gang still needs, at most 1; 0 while no gang is being placed
    "rack_fill",  # the same of the vertex above it
    "rack_completes",  # 1 if the vertex above it can take all that the gang still needs
)

GLOBAL_FEATURES = (
    "queue",  # waiting jobs, log
    "free_share",  # free GPUs over all
    "asked",  # GPUs the window asks for over all GPUs, log
    "mean_wait",  # of waiting jobs, log
    "max_wait",  # of waiting jobs, log
    "jain",  # index over users' mean bounded slowdowns so far; 1 while none has finished
    "need",  # GPUs the gang being placed still needs, log2; 0 for the job agent
    "weight_completion",  # objective weights
    "weight_fairness",
    "weight_communication",
)

# Columns of the ids of a unit's groups, from near to far: itself (for single GPUs: their island), the vertex above it
# and the one above that. Two units are as far apart as groups in which they differ.
UNIT_GROUPS = 3

# What the critics see in training and the agents never do: what is still to come of an episode, and what its rewards
# are divided by. Without it most of what a return varies by is out of a critic's sight. Zeros outside of episodes.
OUTLOOK_FEATURES = (
    "to_come",  # share of the episode's jobs that are still to arrive
    "arrivals_end",  # seconds until the last arrival, log
    "load_to_come",  # work still to arrive over what the cluster can do until the last arrival, log1p
    "next_load",  # the same of the next 16 arrivals
    "running",  # seconds of work left in running jobs on all GPUs, log
    "completion_scale",  # reference cost per job, log
    "fairness_scale",
    "communication_scale",
    "costs_completion",  # of the episode so far, in units of the reference
    "costs_fairness",
)
