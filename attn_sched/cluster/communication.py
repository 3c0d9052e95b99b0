"""The cost of a gradient all-reduce and of an iteration, as scalar functions for use inside compiled kernels.

Symbols are those of the specification: ``n`` GPUs, ``S`` gradient bytes, ``alpha`` the latency of one step, ``share``
the bytes/s per direction a job gets on its tightest link (may be inf), ``tau`` compute seconds an iteration, ``phi``
the share of ``tau`` that can hide communication.
"""

from __future__ import annotations

from attn_sched.jit import njit


@njit
def ring_bytes(n: int, grad_bytes: float) -> float:
    """Bytes that each member sends in a ring all-reduce, ``2(n-1)/n S``; 0 for ``n <= 1``.

    n-1 steps of reduce-scatter and n-1 of all-gather, each of S/n bytes (Patarasuk and Yuan, J. Parallel Distrib.
    Comput. 2009).
    """
    if n <= 1:
        return 0.0
    return 2.0 * (n - 1) / n * grad_bytes


@njit
def ring_time(n: int, alpha: float, share: float, grad_bytes: float) -> float:
    """Seconds of a ring all-reduce, ``2(n-1) alpha + 2(n-1)/n S/share``; 0 for ``n <= 1``."""
    if n <= 1:
        return 0.0
    moved = ring_bytes(n, grad_bytes)
    # Nothing to send takes no time even where a saturated link has nothing left to give.
    transfer = moved / share if moved > 0.0 else 0.0
    return 2.0 * (n - 1) * alpha + transfer


@njit
def hierarchical_intra_time(local: int, alpha_gpu: float, share_gpu: float, grad_bytes: float) -> float:
    """Seconds of the part of a hierarchical all-reduce inside islands, ``2(m-1) a0 + 2(m-1)/m S/C_gpu``.

    ``local`` (m) is the most GPUs that the job has in one island.
    """
    return ring_time(local, alpha_gpu, share_gpu, grad_bytes)


@njit
def hierarchical_inter_time(groups: int, alpha: float, share: float, grad_bytes: float) -> float:
    """Seconds of the part between islands, ``2(N-1) aL + 2(N-1)/N S/share`` for a job on ``groups`` (N) islands.

    An island's S bytes leave over its uplink whether one GPU sends them or each of its GPUs a slice (rails), so
    ``share`` is the tightest among links above islands.
    """
    return ring_time(groups, alpha, share, grad_bytes)


@njit
def hierarchical_time(
    local: int, alpha_gpu: float, share_gpu: float, groups: int, alpha: float, share: float, grad_bytes: float
) -> float:
    """Seconds of a two-level all-reduce: a ring inside each island, then one between islands."""
    inside = hierarchical_intra_time(local, alpha_gpu, share_gpu, grad_bytes)
    return inside + hierarchical_inter_time(groups, alpha, share, grad_bytes)


@njit
def iteration_time(compute_s: float, overlap: float, comm_s: float) -> float:
    """Seconds of one iteration, ``tau + max(0, t_comm - phi tau)``."""
    return compute_s + max(0.0, comm_s - overlap * compute_s)


@njit
def slowdown(iteration_s: float, best_s: float) -> float:
    """``max(1, t_iter / t_iter(best))``; 1 where the best iteration takes no time at all."""
    if best_s <= 0.0:
        return 1.0
    return max(1.0, iteration_s / best_s)
