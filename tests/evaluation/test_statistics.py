"""Intervals: reproducible, about right, and honest where there is too little."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attn_sched.evaluation.statistics import (
    Estimate,
    batch_means,
    block_sums,
    bootstrap_mean,
    paired_batch_difference,
    paired_difference,
    student_t,
)


def test_same_seed_same_interval_other_seed_other() -> None:
    values = list(np.random.default_rng(0).exponential(10, 12))
    assert bootstrap_mean(values, seed=1) == bootstrap_mean(values, seed=1)
    assert bootstrap_mean(values, seed=1) != bootstrap_mean(values, seed=2)


@given(st.lists(st.floats(-1e6, 1e6), min_size=5, max_size=30))
def test_the_mean_lies_in_its_interval_and_the_interval_in_the_data(values: list[float]) -> None:
    estimate = bootstrap_mean(values)
    assert estimate.value == pytest.approx(np.mean(values), abs=1e-6)
    assert estimate.low is not None and estimate.high is not None
    assert estimate.low <= estimate.value <= estimate.high
    assert min(values) - 1e-6 <= estimate.low and estimate.high <= max(values) + 1e-6


def test_coverage_of_a_normal_mean() -> None:
    draw = np.random.default_rng(7)
    hits = 0
    for trial in range(300):
        estimate = bootstrap_mean(draw.normal(5, 2, 10), seed=trial)
        assert estimate.low is not None and estimate.high is not None
        hits += estimate.low <= 5 <= estimate.high
    assert 0.90 <= hits / 300 <= 0.99


@pytest.mark.parametrize(("units", "t"), [(5, 2.776445), (11, 2.228139), (31, 2.042272), (4001, 1.960551)])
def test_students_t_as_in_tables(units: int, t: float) -> None:
    assert student_t(units) == pytest.approx(t, abs=1e-5)


def test_too_few_windows_give_no_interval() -> None:
    assert bootstrap_mean([1.0, 2.0, 3.0, 4.0]) == Estimate(2.5)
    assert math.isnan(bootstrap_mean([]).value)
    assert math.isnan(bootstrap_mean([None, None]).value)


def test_windows_without_a_value_are_left_out() -> None:
    assert bootstrap_mean([1.0, None, 3.0]).value == 2


def test_pairing_removes_what_windows_share() -> None:
    heavy = np.random.default_rng(1).exponential(1000, 10)
    better = list(heavy - 5)
    apart = bootstrap_mean(better)
    assert apart.low is not None and apart.high is not None and apart.high - apart.low > 100
    gap = paired_difference(better, list(heavy))
    assert gap.low == pytest.approx(-5) and gap.high == pytest.approx(-5)
    assert gap.excludes_zero
    assert not paired_difference(list(heavy), list(heavy)).excludes_zero
    with pytest.raises(ValueError):
        paired_difference([1.0], [1.0, 2.0])


def test_blocks_cover_every_job_once() -> None:
    np.testing.assert_array_equal(block_sums(np.ones(600)), [256, 344])
    np.testing.assert_array_equal(block_sums(np.ones(100)), [100])
    np.testing.assert_array_equal(block_sums(np.ones(512)), [256, 256])
    assert block_sums(np.empty(0)).size == 0


def test_batch_means_are_wider_than_pretending_independence() -> None:
    draw = np.random.default_rng(3)
    walk = np.repeat(draw.exponential(100, 40), 128)  # neighbours share their wait
    estimate = batch_means(block_sums(walk), block_sums(np.ones_like(walk)))
    assert estimate.value == pytest.approx(walk.mean())
    assert estimate.low is not None and estimate.high is not None
    naive = 2 * 1.96 * walk.std() / math.sqrt(walk.size)
    assert estimate.high - estimate.low > 4 * naive


def test_paired_batches_resample_the_same_blocks() -> None:
    draw = np.random.default_rng(3)
    waits = np.repeat(draw.exponential(100, 20), 256)
    ones = block_sums(np.ones_like(waits))
    gap = paired_batch_difference((block_sums(waits + 3), ones), (block_sums(waits), ones))
    assert gap.low == pytest.approx(3) and gap.high == pytest.approx(3)
    assert math.isnan(paired_batch_difference((ones, ones * 0), (ones, ones)).value)
