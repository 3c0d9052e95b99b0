"""Values worked out by hand on three jobs, and properties that hold for any schedule."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attn_sched.evaluation.fairness import active_user_steps, gini, jain, mean_active_users, mean_by_user
from attn_sched.evaluation.metrics import evaluate
from attn_sched.evaluation.outcomes import counted_outcomes
from attn_sched.evaluation.registry import BY_KEY, METRICS
from tests.evaluation.hand import fifo, pool

# On 4 GPUs: a runs 0-100; b (all 4 GPUs) waits for it, 100-150; c, submitted at 20, waits for b, 150-170.
THREE = [(0.0, 100.0, 2, 0), (10.0, 50.0, 4, 1), (20.0, 20.0, 1, 0)]

job_lists = st.lists(
    st.tuples(
        st.floats(0, 1000).map(lambda x: round(x, 3)),
        st.floats(0, 500).map(lambda x: round(x, 3)),
        st.integers(1, 4),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=30,
).map(sorted)


def value(values: dict[str, float | int | None], key: str) -> float:
    number = values[key]
    assert number is not None
    return number


def test_three_jobs_by_hand() -> None:
    values = evaluate(fifo(THREE))
    expected = {
        "jobs": 3,
        "users": 2,
        "unfinished": 0,
        "cancelled": 0,
        "jct_mean_s": (100 + 140 + 150) / 3,
        "jct_p50_s": 140,
        "jct_p95_s": 149,
        "jct_p99_s": 149.8,
        "jct_max_s": 150,
        "wait_mean_s": (0 + 90 + 130) / 3,
        "wait_p50_s": 90,
        "wait_max_s": 130,
        "excess_mean_s": 220 / 3,
        "makespan_s": 170,
        "bounded_slowdown_mean": (1 + 2.8 + 7.5) / 3,
        "user_worst_bounded_slowdown": (1 + 7.5) / 2,
        "jain_user": (4.25 + 2.8) ** 2 / (2 * (4.25**2 + 2.8**2)),
        "gini_user": (4.25 - 2.8) / (2 * (4.25 + 2.8)),
        "wait_variance_s2": np.var([0, 90, 130]),
        "starved_jobs": 0,
        "comm_overhead": 1,
        "slowdown_mean": 1,
        "cross_rack_share": None,
        "allocated_utilisation": (200 + 200 + 20) / (4 * 170),
        "useful_utilisation": (200 + 200 + 20) / (4 * 170),
        "preemptions": 0,
        "jobs_replayed": 3,
        "jobs_per_s": 6,
        "decisions_per_s": 6,
        "decision_p50_s": None,
    }
    for key, number in expected.items():
        assert values[key] == (None if number is None else pytest.approx(number)), key


def test_finish_time_ratio_by_hand() -> None:
    # User 0 is active 0-170 (a, then c), user 1 10-150. A of a: (100 + 90)/100; of b: 2; of c: (150 + 130)/150.
    jobs = counted_outcomes(fifo(THREE))
    active = np.array([1.9, 2.0, 280 / 150])
    np.testing.assert_allclose(jobs.active_users, active)
    share = np.maximum(1, np.array([2, 4, 1]) * active / 4)
    np.testing.assert_allclose(jobs.rho, np.array([100, 140, 150]) / (np.array([100, 50, 20]) * share))
    assert evaluate(fifo(THREE))["rho_over_1_share"] == pytest.approx(2 / 3)


@pytest.mark.parametrize("users", [1, 2, 3, 4])
def test_equal_users_have_the_closed_form_ratio(users: int) -> None:
    """m users, each one job of all N GPUs and d seconds at time 0, run one after another: rho_k = A_k^-1 times k."""
    values = counted_outcomes(fifo([(0.0, 60.0, 4, user) for user in range(users)]))
    for k in range(1, users + 1):
        # While job k is there (k d seconds) the number of users falls from m by one every d seconds.
        mean = sum(users - i for i in range(k)) / k
        assert values.rho[k - 1] == pytest.approx(k / mean)


def test_a_lone_job_has_ratio_one_and_is_no_victim() -> None:
    values = evaluate(fifo([(0.1, 33.3, 3, 0)]))
    assert values["rho_mean"] == pytest.approx(1)
    assert values["rho_over_1_share"] == 0


def test_only_counted_jobs_count_but_all_are_seen() -> None:
    values = evaluate(fifo(THREE, counted=[False, True, True]))
    assert values["jobs"] == 2
    assert values["jct_mean_s"] == pytest.approx(145)
    assert values["makespan_s"] == pytest.approx(160)
    assert values["jobs_replayed"] == 3
    # From 10 to 170 the uncounted job still holds its 2 GPUs for 90 s.
    assert values["allocated_utilisation"] == pytest.approx((180 + 200 + 20) / (4 * 160))


def test_unfinished_and_cancelled_jobs_leave_the_means_alone() -> None:
    schedule = fifo(THREE)
    schedule.finish_s[2] = np.nan
    values = evaluate(schedule)
    assert (values["jobs"], values["unfinished"], values["cancelled"]) == (2, 1, 0)
    assert values["jct_mean_s"] == pytest.approx(120)
    schedule.cancelled[2] = True
    schedule.workload.cancel_s[2] = 90.0
    values = evaluate(schedule)
    assert (values["unfinished"], values["cancelled"]) == (0, 1)
    # User 0 left at 100 with its finished job, so b saw two users for 90 of its 140 s.
    assert counted_outcomes(schedule).active_users[1] == pytest.approx((2 * 90 + 50) / 140)


def test_nothing_finished_gives_nulls_not_nan() -> None:
    schedule = fifo(THREE)
    schedule.finish_s[:] = np.nan
    values = evaluate(schedule)
    assert values["jobs"] == 0
    assert values["jct_mean_s"] is None
    json.dumps(values, allow_nan=False)


def test_zero_durations_neither_divide_nor_count_as_slow() -> None:
    values = evaluate(fifo([(0.0, 0.0, 1, 0), (0.0, 0.0, 4, 1)]))
    json.dumps(values, allow_nan=False)
    assert values["bounded_slowdown_mean"] == 1
    assert values["slowdown_mean"] is None
    assert values["comm_overhead"] is None


def test_slow_placements_show_as_overhead_and_lost_use() -> None:
    schedule = fifo(THREE, slowdown=1.25)
    values = evaluate(schedule)
    assert values["comm_overhead"] == pytest.approx(1.25)
    assert values["slowdown_mean"] == pytest.approx(1.25)
    assert value(values, "useful_utilisation") == pytest.approx(value(values, "allocated_utilisation") / 1.25)
    halved = evaluate(fifo(THREE, slowdown=1.25, useful_fraction=np.full(3, 0.5)))
    assert value(halved, "useful_utilisation") == pytest.approx(value(values, "allocated_utilisation") / 2.5)


def test_gangs_across_racks() -> None:
    cluster = pool(islands=4, gpus=1, levels=("gpu", "node", "rack"))
    values = evaluate(fifo(THREE, cluster=cluster, level=np.array([1, 2, 0])))
    assert values["cross_rack_share"] == pytest.approx(1 / 2)  # two gangs, one over a rack's uplink


def test_utilisation_without_segments_is_the_same() -> None:
    with_segments, without = evaluate(fifo(THREE)), evaluate(fifo(THREE, segments=False))
    assert without["allocated_utilisation"] == pytest.approx(with_segments["allocated_utilisation"])


def test_starved_jobs_and_fragmentation() -> None:
    schedule = fifo(THREE, fragmented_gpu_s=340.0)
    assert evaluate(schedule, starved_after_s=90)["starved_jobs"] == 1
    assert evaluate(schedule)["fragmentation"] == pytest.approx(0.5)


def test_fragmentation_spans_the_counted_jobs() -> None:
    # Counted from the arrival at 10 s to the last counted finish at 170 s, on 4 GPUs.
    schedule = fifo(THREE, counted=[False, True, True], fragmented_gpu_s=320.0)
    assert schedule.fragmented_from_s == 10
    assert evaluate(schedule)["fragmentation"] == pytest.approx(320 / (4 * 160))
    # An uncounted job that ends later does not stretch the span.
    longer = fifo([*THREE, (30.0, 5000.0, 1, 0)], counted=[True, True, True, False], fragmented_gpu_s=340.0)
    assert evaluate(longer)["fragmentation"] == pytest.approx(0.5)


def test_decision_latency_percentiles() -> None:
    values = evaluate(fifo(THREE, decision_latency_s=np.linspace(0, 1, 101)))
    assert values["decision_p50_s"] == pytest.approx(0.5)
    assert values["decision_p99_s"] == pytest.approx(0.99)


@given(st.lists(st.floats(0, 1e12), min_size=1, max_size=50))
def test_jain_and_gini_stay_in_range(values: list[float]) -> None:
    x = np.array(values)
    assert 0 < jain(x) <= 1
    assert 0 <= gini(x) < 1


@given(st.floats(1e-6, 1e9), st.integers(1, 40))
def test_equal_values_are_perfectly_fair(x: float, m: int) -> None:
    assert jain(np.full(m, x)) == pytest.approx(1)
    assert gini(np.full(m, x)) == pytest.approx(0, abs=1e-12)


def test_one_user_with_everything_is_least_fair() -> None:
    x = np.array([0.0, 0.0, 0.0, 8.0])
    assert jain(x) == pytest.approx(1 / 4)
    assert gini(x) == pytest.approx(3 / 4)
    assert math.isnan(jain(np.empty(0))) and math.isnan(gini(np.empty(0)))


def test_mean_by_user_skips_absent_users() -> None:
    np.testing.assert_allclose(mean_by_user(np.array([1.0, 3.0, 5.0]), np.array([0, 0, 7])), [2, 5])


@settings(deadline=None)
@given(job_lists)
def test_littles_law(jobs: list[tuple[float, float, int, int]]) -> None:
    """With each job its own user, the integral of active users is the sum of completion times."""
    schedule = fifo(jobs)
    submit, finish = schedule.workload.submit_s, schedule.finish_s
    at, count = active_user_steps(np.arange(len(jobs)), submit, finish)
    assert float((np.diff(at) * count[:-1]).sum()) == pytest.approx(float((finish - submit).sum()), abs=1e-6)
    span = mean_active_users(np.arange(len(jobs)), submit, finish, np.array([0.0]), np.array([finish.max() + 1]))
    outcomes = counted_outcomes(schedule)
    total = float(outcomes.jct_s.sum()) / (finish.max() + 1)
    assert span[0] == pytest.approx(max(total, 1.0))


@settings(deadline=None)
@given(job_lists)
def test_active_users_match_a_direct_count(jobs: list[tuple[float, float, int, int]]) -> None:
    schedule = fifo(jobs)
    user, submit, finish = schedule.workload.user, schedule.workload.submit_s, schedule.finish_s
    outcomes = counted_outcomes(schedule)
    cuts = np.unique(np.concatenate([submit, finish]))
    middle = (cuts[1:] + cuts[:-1]) / 2
    active = np.array([len({u for u, s, f in zip(user, submit, finish, strict=True) if s <= t < f}) for t in middle])
    for k in range(len(jobs)):
        inside = (middle > submit[k]) & (middle < finish[k])
        if finish[k] - submit[k] > 1e-6:
            expected = float((np.diff(cuts) * active)[inside].sum()) / (finish[k] - submit[k])
            assert outcomes.active_users[k] == pytest.approx(expected, rel=1e-6)


@settings(deadline=None)
@given(job_lists)
def test_any_schedule_gives_finite_numbers_in_range(jobs: list[tuple[float, float, int, int]]) -> None:
    values = evaluate(fifo(jobs))
    json.dumps(values, allow_nan=False)
    assert list(values) == [metric.key for metric in METRICS]
    assert 0 < value(values, "jain_user") <= 1
    assert 0 <= value(values, "gini_user") < 1
    assert (
        value(values, "jct_p50_s")
        <= value(values, "jct_p95_s")
        <= value(values, "jct_p99_s")
        <= value(values, "jct_max_s")
    )
    if values["allocated_utilisation"] is not None:
        assert value(values, "useful_utilisation") <= value(values, "allocated_utilisation") + 1e-12 <= 1 + 1e-9


def test_floors_are_those_of_the_engine() -> None:
    from attn_sched.simulator import layout

    jobs = counted_outcomes(fifo([(0.0, 0.25, 1, 0), (0.0, 0.25, 4, 1)]))
    np.testing.assert_allclose(jobs.rho[0], 0.25 / layout.MIN_ESTIMATE)
    slow = counted_outcomes(fifo([(0.0, 60.0, 4, 0), (0.0, 1.0, 4, 1)]))
    assert slow.bounded_slowdown[1] == pytest.approx(61 / layout.SLOWDOWN_FLOOR)


def test_definitions_say_what_is_measured() -> None:
    assert "suspension" not in BY_KEY["restarts"].definition and "failure" in BY_KEY["restarts"].definition
    assert "event" in BY_KEY["decision_p50_s"].definition and "Python" in BY_KEY["decision_p50_s"].definition


def test_every_metric_is_documented() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "metrics.md").read_text()
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| `")
    ]
    documented = {row[0].strip("`"): row for row in rows}
    assert list(documented) == [metric.key for metric in METRICS]
    for key, row in documented.items():
        metric = BY_KEY[key]
        assert row[1:] == [metric.unit, metric.better, metric.definition], key


def test_many_jobs() -> None:
    """A third of a million jobs: nothing overflows, nothing is done job by job in Python."""
    size = 300_000
    generator = np.random.default_rng(0)
    submit = np.sort(generator.uniform(0, 1e7, size))
    schedule = fifo([(0.0, 1.0, 1, 0)])
    load = schedule.workload
    load.submit_s, load.duration_s = submit, generator.exponential(1000, size)  # type: ignore[misc]
    load.num_gpus, load.user = np.ones(size, np.int32), generator.integers(0, 500, size).astype(np.int32)  # type: ignore[misc]
    load.counted, load.cancel_s = np.ones(size, bool), np.full(size, np.inf)  # type: ignore[misc]
    schedule.wait_s, schedule.held_s = generator.exponential(100, size), load.duration_s
    schedule.start_s = submit + schedule.wait_s
    schedule.finish_s = schedule.start_s + load.duration_s
    schedule.seg_job, schedule.seg_count = np.arange(size, dtype=np.int32), np.ones(size, np.int32)
    schedule.seg_start, schedule.seg_end = schedule.start_s, schedule.finish_s
    schedule.useful_fraction = np.ones(size)
    schedule.preemptions = schedule.restarts = schedule.level = np.zeros(size, np.int32)
    schedule.cancelled = np.zeros(size, bool)
    values = evaluate(schedule)
    assert values["jobs"] == size
    assert values["wait_mean_s"] == pytest.approx(schedule.wait_s.mean())
    assert values["comm_overhead"] == pytest.approx(1.0)
