"""Credit: against a loop that follows the definition, closed forms, and cuts anywhere in an episode."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attn_sched.training.credit import explained_variance, following_values, gae, gae_rows, standardise


def by_definition(terms: np.ndarray, values: np.ndarray, terminated: bool, lam: float, gamma: float) -> np.ndarray:
    """Sum over later decisions of (gamma lambda)^l times what surprised there, term by term."""
    n = len(terms)
    advantages = np.zeros(terms.shape)
    for row in range(n):
        for k in range(terms.shape[1]):
            for later in range(row, n):
                after = 0.0 if terminated and later == n - 1 else float(values[later + 1, k])
                surprise = float(terms[later, k]) + gamma * after - float(values[later, k])
                advantages[row, k] += (gamma * lam) ** (later - row) * surprise
    return advantages


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=5),
    lam=st.floats(0.0, 1.0),
    gamma=st.sampled_from([1.0, 0.9]),
)
def test_many_fragments_equal_the_definition(seed: int, lengths: list[int], lam: float, gamma: float) -> None:
    generator = np.random.default_rng(seed)
    fragments = [
        (generator.normal(size=(n, 3)).astype(np.float32), generator.normal(size=(n + 1, 3)).astype(np.float32))
        for n in lengths
    ]
    ended = generator.random(len(lengths)) < 0.5
    advantages = gae_rows(
        np.concatenate([terms for terms, _ in fragments]),
        np.concatenate([values[:-1] for _, values in fragments]),
        np.concatenate([following_values(values, bool(e)) for (_, values), e in zip(fragments, ended, strict=True)]),
        lengths,
        lam,
        gamma,
    )
    expected = np.concatenate(
        [by_definition(*fragment, bool(e), lam, gamma) for fragment, e in zip(fragments, ended, strict=True)]
    )
    np.testing.assert_allclose(advantages, expected, rtol=1e-4, atol=1e-5)


def test_closed_forms() -> None:
    terms = np.array([[1.0, -2.0], [0.5, 4.0], [0.25, 8.0]], np.float32)
    values = np.array([[3.0, 1.0], [5.0, 1.0], [7.0, 1.0], [9.0, 1.0]], np.float32)
    # lambda 1, gamma 1: the return that followed, plus the last value, less the value.
    returns = np.cumsum(terms[::-1], axis=0)[::-1]
    np.testing.assert_allclose(gae(terms, values, False, 1.0), returns + values[-1] - values[:-1])
    # An ended episode: the last value counts for nothing.
    np.testing.assert_allclose(gae(terms, values, True, 1.0), returns - values[:-1])
    # lambda 0: one step ahead.
    np.testing.assert_allclose(gae(terms, values, False, 0.0), terms + values[1:] - values[:-1])
    # Values that are exact leave nothing to credit, whatever lambda.
    exact = np.concatenate([returns, np.zeros((1, 2), np.float32)])
    for lam in (0.0, 0.5, 1.0):
        np.testing.assert_allclose(gae(terms, exact, True, lam), 0.0, atol=1e-6)


def test_a_cut_with_exact_values_changes_nothing() -> None:
    generator = np.random.default_rng(3)
    terms = generator.normal(size=(40, 3)).astype(np.float32)
    exact = np.concatenate([np.cumsum(terms[::-1], axis=0)[::-1], np.zeros((1, 3))]).astype(np.float32)
    values = exact.copy()
    values[5] += 1.0  # a wrong value inside the first part, so that there is something to credit
    whole = gae(terms, values, True, 0.9)
    first = gae(terms[:17], values[:18], False, 0.9)
    second = gae(terms[17:], values[17:], True, 0.9)
    np.testing.assert_allclose(np.concatenate([first, second]), whole, atol=1e-5)
    assert np.abs(whole).max() > 0.5


def test_shapes_that_do_not_go_together() -> None:
    rows = np.zeros((4, 3), np.float32)
    with pytest.raises(ValueError, match="3 rows do not go together"):
        gae_rows(rows, rows, rows, [1, 2], 0.9)
    with pytest.raises(ValueError, match="do not go together"):
        gae_rows(rows, rows[:, :2], rows, [4], 0.9)


def test_standardise() -> None:
    advantages = np.array([[1.0, 0.0], [0.0, 2.0], [-1.0, 2.0], [0.0, 0.0]], np.float32)
    weights = np.array([[1.0, 1.0], [1.0, 0.5], [2.0, 0.5], [1.0, 3.0]], np.float32)
    total = np.array([1.0, 1.0, -1.0, 0.0])
    expected = (total - total.mean()) / total.std()
    np.testing.assert_allclose(standardise(advantages, weights, 4.0), expected, rtol=1e-6)
    assert np.abs(standardise(advantages, weights, 0.5)).max() == 0.5
    np.testing.assert_array_equal(standardise(np.ones((5, 2), np.float32), np.ones((5, 2), np.float32), 4.0), 0.0)
    assert standardise(advantages[:0], weights[:0], 4.0).shape == (0,)


def test_explained_variance() -> None:
    targets = np.array([[0.0, 0.0, 5.0], [1.0, 2.0, 5.0], [2.0, 4.0, 5.0]], np.float32)
    values = np.array([[0.0, 2.0, 1.0], [1.0, 2.0, 2.0], [2.0, 2.0, 3.0]], np.float32)
    np.testing.assert_allclose(explained_variance(targets, values), [1.0, 0.0, 0.0])
