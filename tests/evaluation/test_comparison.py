"""The plan, its cells, and the table they are saved as."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attn_sched.errors import InputError
from attn_sched.evaluation.comparison import WAIT_GRID_S, Comparison, ComparisonPlan
from attn_sched.evaluation.registry import BY_KEY, METRICS, TIMING_KEYS
from attn_sched.evaluation.results import METADATA_KEY, provenance, rows, to_arrow, write_results
from attn_sched.evaluation.statistics import Estimate
from attn_sched.evaluation.summary import summary
from tests.evaluation.hand_comparison import comparison


@given(st.integers(1, 12), st.integers(1, 300), st.integers(0, 5000))
def test_windows_lie_inside_and_apart_where_they_can(windows: int, size: int, spare: int) -> None:
    jobs = size + spare
    plan = ComparisonPlan(("fifo",), windows=windows, window_jobs=size)
    if windows > spare + 1:
        with pytest.raises(InputError, match=f"at most {spare + 1}"):
            plan.bounds(jobs)
        return
    bounds = plan.bounds(jobs)
    assert len(set(bounds)) == windows
    starts = [bound[0] for bound in bounds if bound is not None]
    assert all(
        bound is not None and 0 <= bound[0] < bound[1] <= jobs and bound[1] - bound[0] == size for bound in bounds
    )
    if jobs >= windows * size:
        assert all(later - earlier >= size for earlier, later in pairwise(starts))
    if jobs >= (windows + 1) * size:
        assert starts[0] >= size, "there is room to warm up the first window"


def test_whole_trace_without_windows() -> None:
    assert ComparisonPlan(("fifo",)).bounds(10) == [None]


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"policies": ()}, "policies"),
        ({"policies": ("fifo", "fifo")}, "policies"),
        ({"loads": (0.0,)}, "loads"),
        ({"loads": (-1.0,)}, "loads"),
        ({"loads": (math.nan,)}, "loads"),
        ({"loads": (math.inf,)}, "loads"),
        ({"loads": (0.5, 0.5)}, "loads"),
        ({"windows": 0}, "windows"),
        ({"windows": 2, "window_jobs": 0}, "window-jobs"),
        ({"windows": 2, "warmup": -1}, "warmup"),
        ({"warmup": 5}, "warmup"),
        ({"reference": "sjf"}, "reference"),
    ],
)
def test_a_wrong_plan_names_its_field(wrong: dict[str, object], field: str) -> None:
    with pytest.raises(InputError, match=f"field '{field}'"):
        ComparisonPlan(**{"policies": ("fifo",), **wrong})  # type: ignore[arg-type]


def test_windows_longer_than_the_trace_are_refused() -> None:
    with pytest.raises(InputError, match="at most 100"):
        ComparisonPlan(("fifo",), windows=1).bounds(100)


def test_cells_pool_windows_as_the_registry_says() -> None:
    cell = comparison().cells[0]
    assert cell.estimates["jobs"].value == 240 and cell.estimates["jobs"].low is None
    assert cell.estimates["jct_max_s"].value == max(float(value or 0) for value in cell.series("jct_max_s"))
    mean = cell.estimates["jct_mean_s"]
    assert mean.value == pytest.approx(np.mean([float(value or 0) for value in cell.series("jct_mean_s")]))
    assert mean.low is not None and mean.low < mean.value
    assert math.isnan(cell.estimates["cross_rack_share"].value)


def test_one_replay_has_batch_means_of_its_own_value() -> None:
    cell = comparison(windows=None, size=1500).cells[0]
    estimate = cell.estimates["jct_mean_s"]
    assert estimate.value == cell.windows[0].values["jct_mean_s"]
    assert estimate.low is not None and estimate.high is not None and estimate.low < estimate.value < estimate.high
    assert cell.estimates["wait_p99_s"].low is None


def test_differences_are_to_the_reference_and_the_best_is_found() -> None:
    result = comparison()
    first, second = result.cells
    assert second.difference(first, "comm_overhead").value == pytest.approx(0.05)
    assert first.difference(first, "jct_mean_s").value == 0
    assert result.best(None, BY_KEY["jct_mean_s"]) == {"fifo"}
    assert result.best(None, BY_KEY["jobs"]) == set()
    assert result.best(None, BY_KEY["preemptions"]) == set(), "all equal: no best"


def test_the_fastest_on_this_machine_is_not_called_the_best() -> None:
    result = comparison()
    values = iter((1.0, 2.0) * len(TIMING_KEYS))
    for key in sorted(TIMING_KEYS):
        for cell in result.cells:
            cell.estimates[key] = Estimate(next(values))
        assert result.best(None, BY_KEY[key]) == set()


def placed(bounds: list[tuple[int, int]], **info: object) -> Comparison:
    """A comparison whose windows count these jobs."""
    result = comparison(windows=len(bounds))
    cells = []
    for cell in result.cells:
        windows = (
            replace(window, bounds=place, info={**window.info, "window": {"warmup": min(40, place[0])}, **info})
            for window, place in zip(cell.windows, bounds, strict=True)
        )
        cells.append(replace(cell, windows=tuple(windows)))
    return replace(result, cells=tuple(cells))


def test_overlapping_windows_are_told() -> None:
    apart, overlapping = placed([(40, 80), (80, 120)]), placed([(40, 80), (79, 119)])
    assert not apart.windows_overlap and apart.caveats == []
    assert overlapping.windows_overlap
    assert overlapping.caveats == ["windows overlap: intervals are too narrow"]
    assert provenance(overlapping)["windows_overlap"] is True and provenance(apart)["windows_overlap"] is False
    assert provenance(overlapping)["caveats"] == overlapping.caveats
    assert not comparison(windows=None).windows_overlap


def test_a_short_warm_up_is_told() -> None:
    assert placed([(8, 48), (48, 88)]).caveats == ["the first window warms up with 8 jobs instead of 40"]
    few = placed([(0, 40), (10, 50), (60, 100)]).caveats
    assert "the first 2 windows warm up with 0 to 10 jobs instead of 40" in few


def test_a_missed_load_is_told() -> None:
    result = placed([(40, 80), (80, 120)], load_note="missed", load_achieved=0.61)
    plan = replace(result.plan, loads=(0.5,))
    result = replace(result, plan=plan, cells=tuple(replace(cell, load=0.5) for cell in result.cells))
    assert result.caveats == ["load 0.5 is missed by more than 5 % in 2 of 2 windows: 0.61 to 0.61 is offered"]


def test_the_distribution_of_waits_counts_all_windows() -> None:
    cell = comparison().cells[0]
    assert cell.wait_cdf[-1] == 1
    assert (np.diff(cell.wait_cdf) >= 0).all()
    assert len(cell.wait_cdf) == len(WAIT_GRID_S)


def test_saved_table_round_trips(tmp_path: Path) -> None:
    result = comparison(loads=(0.7, 0.9))
    write_results(result, tmp_path / "cells.parquet")
    table = pq.read_table(tmp_path / "cells.parquet")
    assert table.num_rows == 4
    for metric in METRICS:
        assert {metric.key, f"{metric.key}_low", f"{metric.key}_high"} <= set(table.column_names)
    row = table.to_pylist()[1]
    assert (row["policy"], row["load"], row["reference"], row["windows"]) == ("slower", 0.7, "fifo", 6)
    assert len(row["by_window"]) == 6
    assert row["jct_mean_s_diff"] > 0
    note = json.loads(table.schema.metadata[METADATA_KEY])
    assert note["trace"] == "hand" and note["options"] == {"comm": True}


def test_equal_comparisons_are_equal_to_the_last_bit() -> None:
    assert to_arrow(comparison()).equals(to_arrow(comparison()))


def test_rows_hold_no_nan() -> None:
    json.dumps(rows(comparison(windows=None)), allow_nan=False)


def test_summary_says_who_wins_and_how_surely() -> None:
    text = " ".join(summary(comparison(("slower", "fifo")), None))
    assert "soonest under slower" in text  # the first stretches by nothing
    reverse = comparison()
    text = " ".join(summary(reverse, None))
    assert "fifo" in text and "95 % interval" in text
    single = " ".join(summary(comparison(("fifo",)), None))
    assert "under every policy alike" in single or "soonest" in single
