"""Means over cells: by hand, and intervals that are as wide as they should be."""

from __future__ import annotations

import math

import numpy as np
import pytest

from attn_sched.evaluation.statistics import Estimate, RatioCell, mean_of_ratios, student_t


def cell(top: list[float], bottom: list[float], group: str = "", least: float = 0.0) -> RatioCell:
    return RatioCell(np.array(top), np.array(bottom), group, least)


def test_by_hand() -> None:
    cells = [cell([1, 2, 3], [2, 2, 2], "a"), cell([8, 4], [2, 4], "b")]
    assert mean_of_ratios(cells).value == pytest.approx((6 / 6 + 12 / 6) / 2)


def test_a_unit_without_a_value_is_left_out() -> None:
    assert mean_of_ratios([cell([1, math.nan, 3], [2, 5, 2])]).value == pytest.approx(4 / 4)
    assert mean_of_ratios([cell([1, 7, 3], [2, math.nan, 2])]).value == pytest.approx(4 / 4)


def test_the_floor_is_a_mean() -> None:
    assert mean_of_ratios([cell([3, 3], [0, 2], least=2.0)]).value == pytest.approx(6 / 4)
    assert mean_of_ratios([cell([3, 3], [0, 2], least=0.5)]).value == pytest.approx(6 / 2)


def test_no_cells_and_nothing_to_divide_by() -> None:
    assert math.isnan(mean_of_ratios([]).value)
    assert math.isinf(mean_of_ratios([cell([1.0], [0.0])]).value)


def test_too_few_units_give_no_interval() -> None:
    assert mean_of_ratios([cell([1, 2], [1, 1], "a"), cell([1, 2], [1, 1], "b")]) == Estimate(1.5)
    lonely = [cell([1, 2, 3, 4, 5], [1] * 5, "a"), cell([2], [1], "b")]
    assert mean_of_ratios(lonely) == Estimate(2.5)
    three = mean_of_ratios([cell([1, 2, 3], [1, 1, 1], "a"), cell([1, 3, 5], [1, 1, 1], "b")])
    assert three.low is not None and three.high is not None
    assert three.low < three.value == 2.5 < three.high


def test_cells_of_a_group_are_drawn_together() -> None:
    values = np.random.default_rng(3).exponential(1.0, 20)
    ones = np.ones(20)
    one = mean_of_ratios([RatioCell(values, ones, "a")])
    twice = mean_of_ratios([RatioCell(values, ones, "a"), RatioCell(values, ones, "a")])
    apart = mean_of_ratios([RatioCell(values, ones, "a"), RatioCell(values, ones, "b")])
    assert twice.low == pytest.approx(one.low) and twice.high == pytest.approx(one.high)
    assert one.low is not None and one.high is not None and apart.low is not None and apart.high is not None
    assert apart.high - apart.low == pytest.approx((one.high - one.low) / math.sqrt(2), rel=0.15)


def test_a_mean_has_students_interval() -> None:
    values = np.random.default_rng(5).normal(10.0, 2.0, 12)
    found = mean_of_ratios([RatioCell(values, np.ones(12))])
    half = student_t(12) * values.std(ddof=1) / math.sqrt(12)
    assert found.low == pytest.approx(values.mean() - half, abs=0.2 * half)
    assert found.high == pytest.approx(values.mean() + half, abs=0.2 * half)


def test_coverage_over_groups_of_few_units() -> None:
    draw = np.random.default_rng(11)
    hits = 0
    for trial in range(300):
        cells = [RatioCell(draw.normal(mean, 1, n), np.ones(n), f"{n}") for mean, n in ((1, 3), (2, 5), (6, 8))]
        found = mean_of_ratios(cells, seed=trial % 20)
        assert found.low is not None and found.high is not None
        hits += found.low <= 3 <= found.high
    assert 0.89 <= hits / 300 <= 0.99


def test_same_seed_same_interval() -> None:
    cells = [cell([1, 5, 3, 2, 4], [1] * 5)]
    assert mean_of_ratios(cells, seed=1) == mean_of_ratios(cells, seed=1)
    assert mean_of_ratios(cells, seed=1) != mean_of_ratios(cells, seed=2)


def test_what_does_not_go_together() -> None:
    with pytest.raises(ValueError, match="no pairs"):
        cell([1, 2], [1])
    with pytest.raises(ValueError, match="3 and 2 units"):
        mean_of_ratios([cell([1, 2, 3], [1, 1, 1], "a"), cell([1, 2], [1, 1], "a")])
