"""What policies are told."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attn_sched.errors import InputError
from attn_sched.workload import build_workload, check_estimate, read_trace, with_estimates
from attn_sched.workload.estimates import FIRST_GUESS_S, history
from tests.shared_traces import shared_traces
from tests.workload.make import make_trace, make_workload


def test_oracle() -> None:
    w = with_estimates(make_workload([0, 1], [5, 7]), "oracle")
    assert w.estimate_s.tolist() == [5, 7]
    assert w.info["estimates"] == "oracle"


def test_lognormal() -> None:
    w = make_workload(np.arange(20_000.0).tolist(), [100.0] * 20_000)
    noisy = with_estimates(w, "lognormal(0.5)", seed=3)
    log = np.log(noisy.estimate_s / 100)
    assert np.mean(log) == pytest.approx(0, abs=0.02)
    assert np.std(log) == pytest.approx(0.5, rel=0.03)
    assert noisy.info["estimates"] == "lognormal(0.5)"
    np.testing.assert_array_equal(with_estimates(w, "lognormal(0.5)", seed=3).estimate_s, noisy.estimate_s)
    assert (with_estimates(w, "lognormal(0.5)", seed=4).estimate_s != noisy.estimate_s).any()
    np.testing.assert_array_equal(with_estimates(w, "lognormal(0)").estimate_s, w.duration_s)


def test_requested_falls_back_to_history() -> None:
    trace = make_trace([0, 10, 20], [5, 5, 5], requested_time=[np.nan, 60.0, np.nan])
    w = build_workload(trace, estimate="requested")
    assert w.estimate_s.tolist() == [FIRST_GUESS_S, 60.0, 5.0]
    assert w.info["estimate_notes"] == {"no requested time: history used": 2}
    with pytest.raises(InputError, match="names no requested times"):
        build_workload(make_trace([0], [1]), estimate="requested")


def test_requested_in_a_real_log() -> None:
    w = build_workload(read_trace(shared_traces() / "swf-hpc" / "hpc2n.swf"), estimate="requested")
    assert (w.estimate_s == w.requested_s).mean() > 0.99
    # Users ask for more than they use.
    assert np.median(w.estimate_s / np.maximum(w.duration_s, 1)) > 1


def test_history_by_hand() -> None:
    users = np.array(["a", "a", "b", "b", "a", "a"], dtype=object)
    w = build_workload(
        make_trace([0, 10, 20, 30, 40, 50], [10, 30, 2, 1, 1, 9], user=users), users="trace", estimate="history"
    )
    # At 10 a's first has just ended; at 20 b has none, so all users'; at 40 a's first two have ended.
    assert w.estimate_s.tolist() == pytest.approx([FIRST_GUESS_S, 10, 10, 2, (10 + 30) / 2, (10 + 30 + 1) / 3])


def slow_history(submit: np.ndarray, duration: np.ndarray, user: np.ndarray) -> list[float]:
    result = []
    for i in range(len(submit)):
        ended = [j for j in range(len(submit)) if submit[j] + duration[j] <= submit[i] and j < i]
        own = [duration[j] for j in ended if user[j] == user[i]]
        everyone = [duration[j] for j in ended]
        result.append(float(np.mean(own)) if own else float(np.mean(everyone)) if everyone else FIRST_GUESS_S)
    return result


@given(
    st.lists(
        st.tuples(st.integers(0, 8), st.integers(0, 12), st.sampled_from(["a", "b", "c"])), min_size=1, max_size=30
    )
)
@settings(deadline=None, max_examples=200)
def test_history_equals_the_definition(jobs: list[tuple[int, int, str]]) -> None:
    submit = np.cumsum([gap for gap, _, _ in jobs]).astype(float)
    duration = np.array([d for _, d, _ in jobs], dtype=float)
    w = make_workload(
        (submit - submit[0]).tolist(), duration.tolist(), user=np.array([u for _, _, u in jobs], dtype=object)
    )
    assert history(w).tolist() == pytest.approx(slow_history(w.submit_s, duration, w.user))


@pytest.mark.parametrize(
    "spec",
    [
        "",
        "exact",
        "lognormal",
        "lognormal()",
        "lognormal(-1)",
        "lognormal(1e9)",
        "lognormal(e)",
        "lognormal(1.2.3)",
        "lognormal(SIGMA)",
        "oracle(1)",
        "requested or history",
    ],
)
def test_unknown(spec: str) -> None:
    with pytest.raises(InputError, match=r"field 'estimate'.*expected .*(oracle|such as lognormal)"):
        with_estimates(make_workload([0], [1]), spec)
    with pytest.raises(InputError, match="field 'estimate'"):
        check_estimate(spec)


@pytest.mark.parametrize(
    ("spec", "parts"),
    [
        ("oracle", ("oracle", 0)),
        (" history ", ("history", 0)),
        ("requested", ("requested", 0)),
        ("lognormal( 0.5 )", ("lognormal", 0.5)),
    ],
)
def test_specifications_taken_apart(spec: str, parts: tuple[str, float]) -> None:
    assert check_estimate(spec) == parts
