"""How the engine's state lies in memory: a few arrays per cluster, with named columns.

A job's fields stand side by side in one row, since what touches a job touches several of them. Which arrays there are,
and how kernels reach them, is in ``state.py``.

Units: seconds, bytes, bytes/s. Padding: jobs past a cluster's own workload have status ``ABSENT``.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

F8 = npt.NDArray[np.float64]
I4 = npt.NDArray[np.int32]
I8 = npt.NDArray[np.int64]

# ---- ti[V, :]: the tree. Vertices stand islands first, level by level, root last; children of a vertex are contiguous.
# NODE: the vertex's own ancestor at the node level, -1 above it.
PARENT, CHILD_LO, CHILD_HI, LEVEL, NODE = range(5)
TI_COLUMNS = 5
# ---- tf[V, :]
CAPACITY, LATENCY, GPU_CAPACITY, GPU_LATENCY = range(4)  # uplink of the vertex; uplink of each GPU (islands only)
TF_COLUMNS = 4

# ---- jf[J, :]: a job's floats
SUBMIT, DURATION, ESTIMATE, KEY, DEADLINE = range(5)  # KEY: smallest starts first; DEADLINE: of its patience, or lease
GRAD, COMPUTE, OVERLAP, BEST_ITER, CANCEL = range(5, 10)  # BEST_ITER: seconds per iteration ideally placed and alone
START, FINISH, WAITED, QUEUED_AT, HELD = range(10, 15)  # START: first one; WAITED, HELD: closed intervals only
LEFT, RATE, SYNCED, SHARE, ALPHA = range(15, 20)  # LEFT: ideal seconds of work left at time SYNCED, done at RATE <= 1
ACTIVE_0, RAN_AT = range(20, 22)  # integral of active users at submission; when the running interval began
INTRA = 22  # hierarchical all-reduce: seconds spent inside islands
JF_COLUMNS = 23

# ---- ji[J, :]: a job's integers
GPUS, USER, TYPES, CLASS, FIT = range(5)  # TYPES: bit mask of allowed GPU types
STATUS, POS, RPOS, TPOS, PREV, NEXT = range(5, 11)  # places in the class heap, finish heap, timer heap; queue links
# CROSSED: highest level crossed; PLACED: GPU type; ISLANDS used now; LIVE: last seen by a preemptive pass; CHECKPOINTS
# that failures have sent the job back to.
ENTRY, CROSSED, PREEMPTIONS, RESTARTS, PLACED, COUNTED, SKEWED, ISLANDS, LIVE, CHECKPOINTS = range(11, 21)
JI_COLUMNS = 21

# values of STATUS
ABSENT, FUTURE, WAITING, RUNNING, DONE, CANCELLED = range(6)

# ---- en[E, :]: one entry per (running job, vertex it touches); pooled, linked per job and per link
E_JOB, E_VERTEX, E_COUNT, E_NEXT, E_LPREV, E_LNEXT, E_SEG = range(7)
EN_COLUMNS = 7

# ---- lk[V, :]: jobs that cross the uplink of a vertex
L_JOBS, L_HEAD = range(2)

# ---- cl[C, :]: queue classes: jobs that fit, and are held, alike
C_BASE, C_FRESH, C_RIPE, C_FIT = range(4)  # segment of the heaps; sizes of the two heaps; index in fi
# ---- fi[F, :], ff[F, :]: fit classes (GPU count, allowed types) and the cached best placement among what is free now
F_GPUS, F_TYPES, F_VERSION, F_FITS, F_CROSSED = range(5)
FI_COLUMNS = 5
# ---- ff[F, :], pf[:]: what a placement meets on its way
# SPAN: islands; MOST: GPUs in the fullest one.
P_SHARE, P_ALPHA, P_GPU_SHARE, P_GPU_ALPHA, P_SPAN, P_MOST, P_CROSSED = range(7)
P_COLUMNS = 7

# ---- uf[U, :], ui[U, :]: users
# GPU-seconds used; of finished jobs: sums of bounded slowdowns and of running times.
U_GPU_TIME, U_SYNCED, U_SLOWDOWNS, U_HELD = range(4)
UF_COLUMNS = 4
U_GPUS, U_WAITING, U_RUNNING, U_FINISHED = range(4)

# ---- sf[:]: scalars. PICK_WORST: slowdown of the job being placed, were its gang scattered. Of jobs that have ended:
# DONE_EXCESS, time in the system beyond the work done. COMM_PENALTY: see ``loop._charge``.
(
    NOW,
    ACTIVE_INTEGRAL,
    FRAGMENTED,
    ALLOCATED,
    TIMER,
    SHADOW,
    SYSTEM_INTEGRAL,
    WAIT_SUM,
    WAIT_INTEGRAL,
    JAIN_SUM,
    JAIN_SQUARES,
    GUARD_SHADOW,
    ALL_HELD,
    COUNT_FROM,
    PICK_SLOWDOWN,
    PICK_WORST,
    DONE_EXCESS,
    COMM_PENALTY,
) = range(18)
SF_COLUMNS = 18
# ---- si[:]
(
    NEXT_ARRIVAL,
    N_FINISH,
    N_TIMERS,
    N_WAITING,
    Q_HEAD,
    Q_TAIL,
    E_FREE,
    PICKED,
    PHASE,
    COUNTED_LEFT,
    DECISIONS,
    EVENTS,
    VERSION,
    NEXT_CHANGE,
    N_SEGMENTS,
    ACTIVE,
    N_RUNNING,
    N_LIVE,
    N_PICKS,
    PICK_JOB,
    PICK_TYPE,
    PICK_LEFT,
    HELD_NOW,
    STAMP,
    N_JOBS,
    JAIN_USERS,
    N_CANCELS,
    N_TOUCHED,
    RUNNING_GPUS,
    ASKED,
    GUARD_NEXT,
    SCANNED,
    SCANNED_TAIL,
    GUARD_EPOCH,
    GUARD_JOB,
    ALL_FINISHED,
    PICK_LEVEL,
) = range(37)
SI_COLUMNS = 37

# values of PHASE and of what the loop returns
DONE_PHASE, JOB_PHASE, UNIT_PHASE, NEED_SPACE, KEYS_PHASE, PLACE_PHASE = range(6)

# ---- cf[:]: options, floats
THETA, MAX_WAIT, RESTART_COST, CHECKPOINT, THRESHOLD_1, THRESHOLD_2, LEASE = range(7)
CF_COLUMNS = 7
# ---- ci[:]: options, integers
(
    ORDER,
    QUEUEING,
    PLACEMENT,
    HOLD,
    COMM,
    CONTENTION,
    ALLREDUCE,
    GUARD,
    RECORD,
    NODE_LEVEL,
    UNIT_LEVEL,
    TOP_LEVEL,
    N_TYPES,
    SINGLE_EVENTS,
    COST_BASE,
    PREEMPT,
    CLASSED,
    IN_ORDER,
) = range(18)
CI_COLUMNS = 18

# ORDER
STATIC, HRRN, WFP3, UNICEP, USER_FAIR, FTF, CALLED, AGENT, QSSF = range(9)
# PREEMPT
NO_PREEMPTION, SRTF, SRSF, TIRESIAS, THEMIS = range(5)
# QUEUEING
STRICT, SKIP, COMMIT, EASY = range(4)
# PLACEMENT
(
    TOPO_BEST_FIT,
    BEST_FIT,
    FIRST_FIT,
    LOAD_BALANCE,
    RANDOM,
    SKEW,
    LEAST_WORKLOAD,
    LEAST_CONTENTION,
    PLACE_CALLED,
    PLACE_AGENT,
    FULLEST,
) = range(11)
# CONTENTION, ALLREDUCE
NONE, EQUAL, MAXMIN = range(3)
RING, HIERARCHICAL = range(2)

# Plain numbers in a call make numba compile another copy of the callee; named ones do not.
FIRST = 0  # base of a heap of its own, first pick
NOBODY = -1
WEIGH, APPLY = range(2)

MIN_ESTIMATE = 1.0  # rules and ratios use max(d, 1 s)
SLOWDOWN_FLOOR = 10.0  # bounded slowdown divides by max(d, 10 s)
FIRST_GUESS = 3600.0  # what a job is thought to take while none has ended: one hour
