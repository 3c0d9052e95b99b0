"""Whose jobs they are."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attn_sched.errors import InputError
from attn_sched.workload import build_workload, read_trace, synth, with_users
from attn_sched.workload.users import TOP_SHARE, TOP_USERS, deal_jobs, shares
from tests.shared_traces import shared_traces
from tests.workload.make import make_trace, make_workload


def top_share(gpu_seconds: np.ndarray, user: np.ndarray, count: int) -> float:
    held = np.sort(np.bincount(user, weights=gpu_seconds, minlength=count))[::-1]
    return float(held[: math.ceil(TOP_USERS * count)].sum() / held.sum())


@pytest.mark.parametrize("count", [3, 10, 20, 50, 234, 400])
def test_shares_are_as_skewed_as_published(count: int) -> None:
    size = shares(count)
    assert size.sum() == pytest.approx(1)
    assert (np.diff(size) <= 0).all()
    assert size[: math.ceil(TOP_USERS * count)].sum() == pytest.approx(TOP_SHARE, abs=1e-6)


def test_one_and_two_users() -> None:
    assert shares(1).tolist() == [1.0]
    assert shares(2).tolist() == [0.5, 0.5]


@pytest.mark.parametrize(("family", "tolerance"), [("helios", 0.05), ("philly", 0.08), ("acme", 0.12)])
def test_top_five_percent_hold_about_half(family: str, tolerance: float) -> None:
    # A single job can hold several per cent of the GPU time, and none is split between users.
    w = build_workload(synth(family, 50_000, 1), users="synthetic", seed=5)
    assert top_share(w.gpu_seconds, w.user, len(w.user_names)) == pytest.approx(0.5, abs=tolerance)
    assert w.info["users"] == "synthetic"


def test_a_log_without_users_gets_synthetic_ones_and_says_so() -> None:
    w = build_workload(read_trace(shared_traces() / "helios-venus-gpu" / "helios_trace_mar18_jun30.csv"))
    assert w.info["users"] == "synthetic (the trace names no users)"
    assert [key for key in w.info if "user" in key] == ["user", "users"], "one fact, once"
    assert top_share(w.gpu_seconds, w.user, len(w.user_names)) == pytest.approx(0.5, abs=0.02)
    assert 200 < len(w.user_names) < 300


def test_seeded() -> None:
    w = make_workload(np.arange(100.0).tolist(), [1.0] * 100)
    one, same, other = (with_users(w, "synthetic", seed) for seed in (1, 1, 2))
    assert one.user.tolist() == same.user.tolist() != other.user.tolist()


def test_per_job_and_back() -> None:
    trace = make_trace([0, 1, 2], [1, 1, 1], user=np.array(["b", "a", "b"], dtype=object))
    w = build_workload(trace, users="per-job")
    assert w.user.tolist() == [0, 1, 2]
    assert w.user_names == ("0", "1", "2")
    back = with_users(w, "trace")
    assert (back.user.tolist(), back.user_names) == ([1, 0, 1], ("a", "b"))
    assert (w.info["users"], back.info["users"]) == ("per-job", "trace")


def test_unknown() -> None:
    with pytest.raises(InputError, match="unknown users 'x'; expected one of trace, per-job, synthetic"):
        build_workload(make_trace([0], [1]), users="x")


@given(st.lists(st.floats(0, 1e6), max_size=60), st.integers(1, 30), st.integers(0, 3))
@settings(deadline=None, max_examples=100)
def test_dealing_is_within_one_job_of_the_shares(seconds: list[float], count: int, seed: int) -> None:
    weights = np.array(seconds)
    user = deal_jobs(weights, shares(count), np.random.default_rng(seed))
    assert len(user) == len(seconds)
    assert ((user >= 0) & (user < count)).all()
    if weights.sum() > 1:
        held = np.bincount(user, weights=weights, minlength=count)
        assert (np.abs(held - shares(count) * weights.sum()) <= weights.max() * 1.000001 + 1e-6).all()
