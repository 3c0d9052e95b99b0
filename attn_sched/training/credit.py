"""Credit: how much better each decision turned out than expected, per reward term.

Generalised advantage estimation (Schulman et al. 2016, eq. 16) on fragments of episodes. Time counts an agent's own
decisions, and every reward row is complete: it holds all that happened between a decision and the agent's next one. So
cutting an episode anywhere changes nothing but the value that stands for what lies behind the cut.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from attn_sched.jit import njit

F4 = npt.NDArray[np.float32]
I8 = npt.NDArray[np.int64]


@njit
def _backward(terms: F4, values: F4, following: F4, ends: I8, gamma: float, lam: float, out: F4) -> None:
    """Advantages out f4[N, T] of fragments that lie one after the other; fragment i ends before row ends[i]."""
    first = 0
    for i in range(ends.shape[0]):
        for k in range(terms.shape[1]):
            ahead = 0.0
            for row in range(ends[i] - 1, first - 1, -1):
                surprise = terms[row, k] + gamma * following[row, k] - values[row, k]
                ahead = surprise + gamma * lam * ahead
                out[row, k] = ahead
        first = ends[i]


def gae_rows(terms: F4, values: F4, following: F4, lengths: Sequence[int] | I8, lam: float, gamma: float = 1.0) -> F4:
    """Advantages of many fragments that lie one after the other; value targets are advantages + values.

    Args:
        terms: f4[N, T] reward terms of each decision.
        values: f4[N, T] values of the observations that were decided on.
        following: f4[N, T] values of the next observations of the same agent; 0 where the episode ended.
        lengths: rows of each fragment, in order; their sum is N.
        lam: 0 trusts the values (one step ahead), 1 the rewards (up to the end of the fragment).
        gamma: discount per decision of the agent.

    Returns:
        Advantages f4[N, T].

    Raises:
        ValueError: the shapes do not go together.
    """
    terms, values, following = (np.ascontiguousarray(rows, dtype=np.float32) for rows in (terms, values, following))
    ends: I8 = np.cumsum(np.asarray(lengths, dtype=np.int64))
    rows = int(ends[-1]) if len(ends) else 0
    if terms.ndim != 2 or not terms.shape == values.shape == following.shape or rows != len(terms):
        raise ValueError(
            f"terms {terms.shape}, values {values.shape}, following {following.shape}, {rows} rows do not go together"
        )
    advantages = np.empty_like(terms)
    _backward(terms, values, following, ends, float(gamma), float(lam), advantages)
    return advantages


def gae(terms: F4, values: F4, terminated: bool, lam: float, gamma: float = 1.0) -> F4:
    """Advantages of one fragment; value targets are advantages + values.

    Args:
        terms: f4[n, T] reward terms of each decision.
        values: f4[n + 1, T] values of its observations and of the one after the last decision.
        terminated: whether the episode ended with the last decision; the last value is then taken as 0.
        lam: as in :func:`gae_rows`.
        gamma: as in :func:`gae_rows`.

    Returns:
        Advantages f4[n, T].
    """
    return gae_rows(terms, values[:-1], following_values(values, terminated), [len(terms)], lam, gamma)


def following_values(values: F4, terminated: bool) -> F4:
    """f4[n, T] of f4[n + 1, T]: the value of what came after each decision, 0 after an episode's last."""
    following = np.array(values[1:], dtype=np.float32)
    if terminated and len(following):
        following[-1] = 0.0
    return following


def standardise(advantages: F4, weights: F4, clamp: float) -> F4:
    """What the policy learns from, f4[N]: the weighted sum of the terms' advantages, with mean 0 and deviation 1 over
    all rows, clamped to +-``clamp``.

    Args:
        advantages: f4[N, T] by term.
        weights: f4[N, T] objective weights that held for each decision.
        clamp: in standard deviations; guards against single rare outcomes.
    """
    total = np.sum(advantages.astype(np.float64) * weights, axis=1)
    if len(total) == 0:
        return total.astype(np.float32)
    # Advantages that differ by rounding alone tell nothing: they stay near 0 rather than be blown up.
    spread = max(float(total.std()), 1e-8)
    return np.clip((total - total.mean()) / spread, -clamp, clamp).astype(np.float32)


def explained_variance(targets: F4, values: F4) -> npt.NDArray[np.float64]:
    """Share of the targets' variance that the values explain, f8[T] of f4[N, T] each; 0 where targets do not vary."""
    targets64, errors = targets.astype(np.float64), targets.astype(np.float64) - values
    spread = targets64.var(axis=0)
    shares: npt.NDArray[np.float64] = np.zeros(targets.shape[1])
    varies = spread > 1e-12
    shares[varies] = 1.0 - errors.var(axis=0)[varies] / spread[varies]
    return shares
