"""Building a workload, its load, windows and splits."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attn_sched.errors import InputError
from attn_sched.workload import (
    SPLIT,
    Workload,
    build_workload,
    offered_load,
    read_trace,
    scale_load,
    split,
    synth,
    thin_window,
    window,
)
from tests.shared_traces import shared_traces
from tests.workload.make import make_trace, make_workload


def objects(*values: str | None) -> np.ndarray:
    return np.array(values, dtype=object)


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    """Random ones with some work and some span."""
    jobs = draw(st.integers(3, 40))
    gaps = draw(st.lists(st.floats(0, 1e4), min_size=jobs - 1, max_size=jobs - 1))
    duration = draw(st.lists(st.floats(0, 1e5), min_size=jobs, max_size=jobs))
    gpus = draw(st.lists(st.integers(1, 64), min_size=jobs, max_size=jobs))
    gaps[0] += 1.0
    duration[0] += 1.0
    return make_workload(np.concatenate(([0.0], np.cumsum(gaps))).tolist(), duration, gpus)


class TestBuild:
    def test_fields(self) -> None:
        trace = make_trace(
            [0, 1, 2],
            [10, 20, 30],
            [1, 2, 4],
            user=objects("b", None, "a"),
            group=objects("g", "g", None),
            gpu_type=objects(None, "T4|P100", "V100"),
            requested_time=[np.nan, 60.0, np.nan],
        )
        w = build_workload(trace)
        assert len(w) == 3
        assert w.job_id.tolist() == ["0", "1", "2"]
        assert w.submit_s.dtype == w.duration_s.dtype == w.estimate_s.dtype == np.float64
        assert w.num_gpus.dtype == w.user.dtype == w.group.dtype == w.model.dtype == w.priority.dtype == np.int32
        assert w.trace_user.tolist() == [1, -1, 0]
        assert w.user_names == ("a", "b", "(unknown)")
        assert w.user.tolist() == [1, 2, 0]
        assert (w.group.tolist(), w.group_names) == ([0, 0, -1], ("g",))
        assert (w.gpu_type.tolist(), w.gpu_type_names) == ([-1, 0, 1], ("T4|P100", "V100"))
        assert w.gpu_seconds.tolist() == [10, 40, 120]
        assert w.counted.all()
        assert np.isinf(w.cancel_s).all()
        assert ((w.overlap >= 0) & (w.overlap <= 1)).all()
        assert (w.grad_bytes > 0).all() and (w.compute_s > 0).all()
        assert w.skewed.dtype == bool
        assert w.info["estimates"] == "oracle"
        assert w.info["users"] == "trace"
        json.dumps(w.info)

    def test_group_and_user(self) -> None:
        trace = make_trace([0, 1, 2], [1, 1, 1], user=objects("a", "b", "b"), group=objects("x", "x", "y"))
        assert build_workload(trace, group="x").job_id.tolist() == ["0", "1"]
        assert build_workload(trace, user="b").job_id.tolist() == ["1", "2"]
        assert build_workload(trace, user="b", group="x").job_id.tolist() == ["1"]
        with pytest.raises(InputError, match="no job has group 'z'; expected one of x, y"):
            build_workload(trace, group="z")
        with pytest.raises(InputError, match="no job has user 'a'"):
            build_workload(trace, group="y", user="a")
        with pytest.raises(InputError, match="the log names no groups"):
            build_workload(make_trace([0], [1]), group="z")

    def test_unknown_durations_are_dropped_and_counted(self) -> None:
        w = build_workload(make_trace([0, 1, 2], [1, np.nan, 3]))
        assert w.job_id.tolist() == ["0", "2"]
        assert w.info["dropped"] == {"unknown duration": 1}
        with pytest.raises(InputError, match="cannot be replayed"):
            build_workload(make_trace([0], [np.nan]))

    def test_does_not_share_memory_with_the_trace(self) -> None:
        trace = make_trace([0, 1], [1, 2])
        w = build_workload(trace)
        w.estimate_s[:] = 0
        assert w.duration_s.tolist() == [1, 2]

    def test_select_and_replace(self) -> None:
        w = make_workload([0, 1, 2], [1, 2, 3])
        assert w.select(np.array([2, 0])).duration_s.tolist() == [3, 1]
        assert w.select(w.duration_s > 1).job_id.tolist() == ["1", "2"]
        changed = w.replace(priority=np.array([1, 2, 3], np.int32), info={"x": 1})
        assert changed.info["x"] == 1
        assert changed.info["estimates"] == "oracle"
        with pytest.raises(ValueError, match="priority has 2 entries"):
            w.replace(priority=np.zeros(2, np.int32))


class TestLoad:
    def test_definition(self) -> None:
        w = make_workload([0, 50, 100], [10, 20, 30], [1, 2, 3])
        assert offered_load(w, 10) == pytest.approx((10 + 40 + 90) / (10 * 100))

    @given(workloads(), st.integers(1, 512), st.floats(0.01, 3.0))
    @settings(deadline=None, max_examples=60)
    def test_stretching_is_exact(self, w: Workload, gpus: int, load: float) -> None:
        scaled = scale_load(w, gpus, load)
        assert offered_load(scaled, gpus) == pytest.approx(load, rel=1e-9)
        assert scaled.info["load"] == load
        assert scaled.info["load_by"] == "stretch"
        assert scaled.info["load_before"] == pytest.approx(offered_load(w, gpus))
        # One factor for all gaps; nothing else moves.
        factor = (scaled.submit_s[-1] - scaled.submit_s[0]) / (w.submit_s[-1] - w.submit_s[0])
        np.testing.assert_allclose(np.diff(scaled.submit_s), np.diff(w.submit_s) * factor, rtol=1e-6, atol=1e-6)
        np.testing.assert_array_equal(scaled.duration_s, w.duration_s)

    @given(workloads(), st.floats(0.05, 1.0), st.integers(0, 5))
    @settings(deadline=None, max_examples=60)
    def test_thinning_keeps_times_and_order(self, w: Workload, share: float, seed: int) -> None:
        now = offered_load(w, 8)
        thin = scale_load(w, 8, now * share, by="thin", seed=seed)
        assert set(thin.job_id) <= set(w.job_id)
        assert thin.submit_s[0] == w.submit_s[0] and thin.submit_s[-1] == w.submit_s[-1]
        assert (np.diff(thin.submit_s) >= 0).all()
        # As near as one job allows, unless the first and the last alone are too much.
        ends = w.gpu_seconds[0] + w.gpu_seconds[-1]
        span = 8 * (w.submit_s[-1] - w.submit_s[0])
        if ends / span <= now * share:
            assert abs(thin.info["load_achieved"] - now * share) <= w.gpu_seconds.max() / span / 2 + 1e-9
        again = scale_load(w, 8, now * share, by="thin", seed=seed)
        assert again.job_id.tolist() == thin.job_id.tolist()

    def test_thinning_a_real_size(self) -> None:
        w = build_workload(synth("helios", 20_000, 0))
        now = offered_load(w, 1000)
        thin = scale_load(w, 1000, now / 3, by="thin", seed=1)
        assert thin.info["load_achieved"] == pytest.approx(now / 3, rel=0.03)
        assert len(thin) == pytest.approx(len(w) / 3, rel=0.2)

    def test_thinning_cannot_raise(self) -> None:
        w = make_workload([0, 50, 100], [10, 20, 30])
        with pytest.raises(InputError, match="thinning cannot raise the load"):
            scale_load(w, 1, 5.0, by="thin")

    def test_window_and_warm_up_set_the_factor_for_all(self) -> None:
        w = make_workload(np.arange(100.0).tolist(), np.linspace(1, 500, 100).tolist())
        part = window(w, 20, 40)
        scaled = scale_load(part, 4, 0.8)
        assert scaled.info["load_achieved"] == pytest.approx(0.8)
        # Warm-up 0..19 and window 20..39, later jobs stretched alike.
        work, span = w.gpu_seconds[0:40].sum(), 39.0
        factor = work / (4 * span) / 0.8
        np.testing.assert_allclose(scaled.submit_s, part.submit_s * factor)
        with pytest.raises(InputError, match="a thinned window counts fewer jobs"):
            scale_load(part, 4, scaled.info["load_before"] / 2, by="thin")

    def test_cancellations_move_along(self) -> None:
        w = make_workload([0, 50, 100], [10, 20, 30]).replace(cancel_s=np.array([np.inf, 55.0, np.inf]))
        scaled = scale_load(w, 1, offered_load(w, 1) / 2)
        assert scaled.cancel_s.tolist() == [math.inf, 105.0, math.inf]

    @pytest.mark.parametrize(
        ("gpus", "load", "by", "message"),
        [
            (1, 0.0, "stretch", "0.0 is no load"),
            (1, math.nan, "stretch", "nan is no load"),
            (1, -1.0, "stretch", "no load"),
            (0, 0.5, "stretch", "0 GPUs"),
            (1, 0.5, "squeeze", "unknown way to scale the load 'squeeze'; expected one of stretch, thin"),
        ],
    )
    def test_refusals(self, gpus: int, load: float, by: str, message: str) -> None:
        with pytest.raises(InputError, match=message):
            scale_load(make_workload([0, 1], [1, 1]), gpus, load, by=by)

    def test_no_span_and_no_work(self) -> None:
        with pytest.raises(InputError, match="all its jobs are submitted at once"):
            scale_load(make_workload([5, 5], [1, 1]), 1, 0.5)
        with pytest.raises(InputError, match="its jobs take no time"):
            scale_load(make_workload([0, 5], [0, 0]), 1, 0.5)
        with pytest.raises(InputError, match="there is no job"):
            scale_load(make_workload([0, 5], [0, 0]).select(np.array([], dtype=int)), 1, 0.5)

    def test_a_load_missed_is_noted(self) -> None:
        w = make_workload([0, 10, 20, 30], [100, 1, 1, 100])
        assert scale_load(w, 10, 0.3).info["load_note"] is None
        # The two that stay offer 200 / 300 already.
        missed = scale_load(w, 10, 0.3, by="thin")
        assert missed.info["load_note"] == "0.6667 is offered, 0.3 was asked for"


@pytest.fixture(scope="module")
def log() -> Workload:
    return build_workload(synth("philly", 20_000, 3))


class TestThinnedWindow:
    GPUS = 64

    @pytest.mark.parametrize(("first", "last"), [(256, 512), (9_000, 9_256), (19_744, 20_000), (0, 256)])
    @pytest.mark.parametrize("share", [0.9, 0.5, 0.2])
    def test_it_counts_as_many_jobs_at_the_load(self, log: Workload, first: int, last: int, share: float) -> None:
        before = window(log, first, last)
        load = offered_load(before, self.GPUS) * share
        part = thin_window(log, first, last, self.GPUS, load, seed=2)
        assert int(part.counted.sum()) == last - first
        counted = np.flatnonzero(part.counted)
        assert (np.diff(counted) == 1).all()
        assert counted[0] == min(first, 256), "the warm-up is as long as before"
        achieved = offered_load(part, self.GPUS)
        assert part.info["load_achieved"] == achieved
        assert part.info["load_before"] == pytest.approx(offered_load(before, self.GPUS))
        told = part.info["load_note"]
        assert (told is None) == (abs(achieved - load) <= 0.05 * load)
        if told is None:
            assert achieved == pytest.approx(load, rel=0.05)
        # Nothing but leaving jobs out.
        position = {job: k for k, job in enumerate(log.job_id)}
        at = np.array([position[job] for job in part.job_id])
        assert (np.diff(at) > 0).all()
        np.testing.assert_array_equal(part.submit_s, log.submit_s[at])
        place = part.info["window"]
        assert (place["first"], place["last"]) == (at[counted[0]], at[counted[-1]] + 1)

    def test_most_windows_reach_the_load(self, log: Workload) -> None:
        reached = 0
        for first in range(512, 19_000, 2_000):
            load = offered_load(window(log, first, first + 256), self.GPUS) / 2
            part = thin_window(log, first, first + 256, self.GPUS, load)
            reached += part.info["load_note"] is None
        assert reached >= 8, "of 10; a single job may weigh more than 5 %"

    def test_all_jobs_give_the_plain_window(self, log: Workload) -> None:
        plain = window(log, 4_000, 4_256)
        part = thin_window(log, 4_000, 4_256, self.GPUS, offered_load(plain, self.GPUS) * (1 - 1e-12))
        assert part.job_id.tolist() == plain.job_id.tolist()
        assert part.info["window"] == plain.info["window"]

    def test_seeded(self, log: Workload) -> None:
        load = offered_load(window(log, 5_000, 5_100), 8) / 3
        one, same, other = (thin_window(log, 5_000, 5_100, 8, load, seed=seed).job_id.tolist() for seed in (1, 1, 2))
        assert one == same != other

    def test_refusals(self, log: Workload) -> None:
        load = offered_load(window(log, 5_000, 5_100), 8)
        with pytest.raises(InputError, match="thinning cannot raise the load"):
            thin_window(log, 5_000, 5_100, 8, load * 1.01)
        with pytest.raises(InputError, match="no load"):
            thin_window(log, 5_000, 5_100, 8, 0.0)
        with pytest.raises(InputError, match="is no window"):
            thin_window(log, 19_950, 20_050, 8, load)

    def test_the_smallest_logs(self) -> None:
        w = make_workload([0, 10, 20], [5, 5, 5])
        part = thin_window(w, 0, 3, 1, 0.2, warmup=0)
        assert len(part) == 3 and part.info["load_note"] is not None
        alone = thin_window(make_workload([0, 10, 20, 30], [5, 9, 5, 9]), 1, 2, 1, 0.5)
        assert alone.counted.sum() == 1


class TestWindow:
    @given(st.data())
    @settings(deadline=None, max_examples=60)
    def test_jobs_and_flags(self, data: st.DataObject) -> None:
        w = make_workload(np.arange(50.0).tolist(), [1.0] * 50)
        first = data.draw(st.integers(0, 49))
        last = data.draw(st.integers(first + 1, 50))
        warmup = data.draw(st.none() | st.integers(0, 60))
        part = window(w, first, last, warmup)
        before = min(first, last - first if warmup is None else warmup)
        assert part.job_id.tolist() == w.job_id[first - before :].tolist()
        assert part.job_id[part.counted].tolist() == w.job_id[first:last].tolist()
        assert part.info["window"] == {"first": first, "last": last, "warmup": before}
        assert w.counted.all()

    @pytest.mark.parametrize(("first", "last"), [(-1, 3), (3, 3), (4, 3), (0, 51)])
    def test_refusals(self, first: int, last: int) -> None:
        w = make_workload(np.arange(50.0).tolist(), [1.0] * 50)
        with pytest.raises(InputError, match=f"{first}:{last} is no window of 50 jobs"):
            window(w, first, last)
        with pytest.raises(InputError, match="warm-up"):
            window(w, 1, 2, -1)


class TestSplit:
    @given(workloads())
    @settings(deadline=None, max_examples=60)
    def test_parts_are_a_partition_by_time(self, w: Workload) -> None:
        ids: list[str] = []
        span = w.submit_s[-1] - w.submit_s[0]
        for part, (low, high) in SPLIT.items():
            try:
                piece = split(w, part)
            except InputError as error:
                assert "holds no job" in str(error)
                continue
            ids += piece.job_id.tolist()
            share = (piece.submit_s - w.submit_s[0]) / span
            assert (share >= low - 1e-9).all() and (share <= high + 1e-9).all()
            assert piece.info["split"] == part
        assert ids == w.job_id.tolist()

    def test_shares(self) -> None:
        w = make_workload(np.arange(10_000.0).tolist(), [1.0] * 10_000)
        assert [round(len(split(w, part)) / 100) for part in SPLIT] == [60, 15, 25]
        with pytest.raises(InputError, match="unknown part 'dev'; expected one of train, validation, test"):
            split(w, "dev")


def test_a_real_trace() -> None:
    trace = read_trace(shared_traces() / "helios-venus-gpu" / "helios_trace_mar18_jun30.csv")
    w = build_workload(trace)
    # sum(n d) / span = 432.184 GPUs.
    assert offered_load(w, 1) == pytest.approx(432.184, abs=1e-3)
    assert offered_load(scale_load(window(w, 10_000, 10_256), 64, 0.9), 64) == pytest.approx(0.9)
