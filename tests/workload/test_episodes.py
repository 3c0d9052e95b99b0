"""Parts of logs for training and testing, their windows, and randomly changed episodes."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attn_sched.choices import PARTS
from attn_sched.errors import InputError
from attn_sched.workload import (
    SPLIT,
    Trace,
    Workload,
    build_workload,
    offered_load,
    read_trace,
    synth,
    write_trace,
)
from attn_sched.workload.catalogue import CONFIGS
from attn_sched.workload.episodes import (
    SHORT_LOG,
    SHORT_SPLIT,
    EpisodeSource,
    EpisodeSpec,
    period,
    period_windows,
    trace_period,
)
from attn_sched.workload.windows import spread_windows
from tests.workload.make import make_workload

GPUS = 64
SAME = EpisodeSpec(
    jobs=50, loads=(0.8, 0.8), estimate_share=0, redraw_models=False, time_scale=(1.0, 1.0), gpu_share=0.0
)


@pytest.fixture(scope="module")
def logs() -> list[Workload]:
    made = [build_workload(synth(family, 600, seed=3)) for family in ("helios", "philly")]
    return [log.replace(num_gpus=np.minimum(log.num_gpus, GPUS)) for log in made]


def changed(**changes: Any) -> EpisodeSpec:
    return replace(SAME, **changes)


def positions(episode: Workload, pool: Workload) -> np.ndarray:
    """Where the episode's jobs stand in the pool."""
    place = {name: i for i, name in enumerate(pool.job_id)}
    return np.array([place[name] for name in episode.job_id])


@pytest.mark.parametrize("jobs", [40, 700, SHORT_LOG - 1, SHORT_LOG])
def test_every_job_is_in_exactly_one_part(jobs: int) -> None:
    # Many equal submit times, so that borders fall among them.
    submit = np.sort(np.random.default_rng(jobs).integers(0, jobs // 3, jobs)).astype(float)
    log = make_workload(submit.tolist(), [1.0] * jobs)
    parts = {part: period(log, part) for part in SPLIT}
    assert sorted(np.concatenate([part.job_id for part in parts.values()]).tolist()) == sorted(log.job_id.tolist())
    assert parts["train"].submit_s[-1] <= parts["validation"].submit_s[0] <= parts["test"].submit_s[0]


def test_short_logs_are_divided_by_count_and_long_ones_by_time() -> None:
    # Nearly all jobs come at the end of the time.
    short = make_workload([0.0, *np.linspace(90, 100, 999)], [1.0] * 1000)
    assert [len(period(short, part)) for part in SHORT_SPLIT] == [350, 150, 500]
    long = make_workload([0.0, *np.linspace(90, 100, SHORT_LOG - 1)], [1.0] * SHORT_LOG)
    assert [len(period(long, part)) for part in ("train", "test")] == [1, SHORT_LOG - 1]


def test_unknown_and_empty_parts_are_refused(logs: list[Workload]) -> None:
    with pytest.raises(InputError, match="unknown part"):
        period(logs[0], "holdout")
    with pytest.raises(InputError, match="holds no job"):
        period(make_workload([0.0], [1.0]), "validation")


@given(st.integers(1, 400), st.integers(1, 12), st.integers(1, 60), st.integers(0, 80))
def test_spread_windows_stay_inside_and_apart(jobs: int, count: int, size: int, warmup: int) -> None:
    if size > jobs or count > jobs - size + 1:
        with pytest.raises(InputError):
            spread_windows(jobs, count, size, warmup)
        return
    windows = spread_windows(jobs, count, size, warmup)
    assert len(set(windows)) == count
    assert all(first >= 0 and last <= jobs and last - first == size for first, last in windows)
    if warmup + size * count <= jobs:
        assert windows[0][0] >= warmup
        assert all(later[0] >= earlier[1] for earlier, later in pairwise(windows))


def test_windows_of_a_part_hold_nothing_else_and_offer_the_load(logs: list[Workload]) -> None:
    part = period(logs[0], "test")
    windows = period_windows(part, GPUS, 0.95, 4, 50, later_windows=1)
    assert len(windows) == 4
    for cut in windows:
        assert cut.counted.sum() == 50
        assert set(cut.job_id) <= set(part.job_id)
        assert offered_load(cut, GPUS) == pytest.approx(0.95)
        counted = np.flatnonzero(cut.counted)
        assert len(cut) - counted[-1] - 1 <= 50  # later jobs
    assert np.flatnonzero(windows[1].counted)[0] == 50  # warmed up by as many
    counted_jobs = np.concatenate([cut.job_id[cut.counted] for cut in windows])
    assert len(set(counted_jobs)) == len(counted_jobs)


def test_fewer_windows_where_the_part_is_short(logs: list[Workload]) -> None:
    part = period(logs[0], "validation")  # 90 jobs
    (one,) = period_windows(part, GPUS, 0.9, 20, 80, warmup=0)
    assert one.counted.sum() == 80
    assert one.counted[0]
    with pytest.raises(InputError, match="do not fit"):
        period_windows(part, GPUS, 0.9, 20, 100)


def test_an_unchanged_episode_is_a_window_of_a_log_at_the_load(logs: list[Workload]) -> None:
    source = EpisodeSource(logs, GPUS, SAME)
    seen = set()
    for seed in range(20):
        episode = source.draw(np.random.default_rng(seed))
        pool = next(log for log in logs if log.name == episode.name)
        at = positions(episode, pool)
        assert np.array_equal(at, np.arange(at[0], at[0] + 50))
        for name in ("duration_s", "num_gpus", "estimate_s", "grad_bytes", "model"):
            assert np.array_equal(getattr(episode, name), getattr(pool, name)[at])
        assert [episode.user_names[u] for u in episode.user] == [pool.user_names[u] for u in pool.user[at]]
        gaps, own = np.diff(pool.submit_s[at]), np.diff(episode.submit_s)
        assert np.allclose(own, gaps * (own.sum() / gaps.sum()))
        assert episode.submit_s[0] == 0.0
        assert episode.counted.all()
        assert offered_load(episode, GPUS) == pytest.approx(0.8)
        seen.add((episode.name, at[0]))
    assert {name for name, _ in seen} == {log.name for log in logs}
    assert len(seen) > 15


def test_every_change_is_drawn_as_the_spec_says(logs: list[Workload]) -> None:
    source = EpisodeSource(
        logs, GPUS, EpisodeSpec(jobs=50, loads=(0.6, 1.1), estimate_sigma=0.3, gpu_share=0.4, time_scale=(0.5, 4.0))
    )
    loads, noisy, scaled, times, models = [], 0, 0, [], []
    for seed in range(200):
        episode = source.draw(np.random.default_rng(seed))
        pool = next(log for log in logs if log.name == episode.name)
        at = positions(episode, pool)
        loads.append(offered_load(episode, GPUS))
        times.append(float(np.median(episode.duration_s / pool.duration_s[at])))
        assert np.allclose(episode.duration_s, pool.duration_s[at] * times[-1])
        noise = np.log(episode.estimate_s / episode.duration_s)
        if np.ptp(noise) > 1e-9:
            noisy += 1
            assert 0.15 < noise.std() < 0.5
        factor = episode.info["episode"]["gpu_factor"]
        scaled += factor != 1.0
        expected = np.clip(np.ceil(pool.num_gpus[at] * factor), 1, GPUS)
        assert np.array_equal(episode.num_gpus, expected)
        models.append(episode.model)
        for job in range(len(episode)):
            config = CONFIGS[episode.model[job]]
            assert episode.grad_bytes[job] == config.grad_bytes
            assert config.network.distributed or episode.num_gpus[job] == 1
    assert 0.6 <= min(loads) < 0.65
    assert 1.05 < max(loads) <= 1.1 + 1e-9
    assert 0.5 <= min(times) < 0.6
    assert 3.0 < max(times) <= 4.0
    assert 70 <= noisy <= 130
    assert 50 <= scaled <= 110
    assert len({tuple(model) for model in models}) == 200


def test_gpu_counts_never_exceed_what_a_job_can_get(logs: list[Workload]) -> None:
    largest = [np.where(np.arange(len(log)) % 2, 4, GPUS) for log in logs]
    source = EpisodeSource(logs, GPUS, changed(gpu_share=1.0, gpu_factors=(8.0,)), largest=largest)
    for seed in range(10):
        episode = source.draw(np.random.default_rng(seed))
        number = next(i for i, log in enumerate(logs) if log.name == episode.name)
        assert np.all(episode.num_gpus <= largest[number][positions(episode, logs[number])])


def test_the_same_generator_gives_the_same_episode(logs: list[Workload]) -> None:
    source = EpisodeSource(logs, GPUS, EpisodeSpec(jobs=50))
    one, two = (source.draw(np.random.default_rng(5)) for _ in range(2))
    for name in ("submit_s", "duration_s", "estimate_s", "num_gpus", "model", "user"):
        assert np.array_equal(getattr(one, name), getattr(two, name))
    assert one.info == two.info


def test_times_of_cancelled_jobs_are_scaled_too() -> None:
    log = make_workload([100.0, 110.0, 120.0, 130.0], [10.0] * 4, [32] * 4)
    log = log.replace(
        cancel_s=np.array([np.inf, 115.0, 125.0, np.inf]), requested_s=np.array([np.nan, 20.0, 40.0, 20.0])
    )
    source = EpisodeSource([log], GPUS, changed(time_scale=(2.0, 2.0)))
    drawn = (source.draw(np.random.default_rng(seed)) for seed in range(60))
    episode = next(episode for episode in drawn if episode.job_id[0] == "1")
    assert episode.duration_s.tolist() == [20.0, 20.0]
    assert episode.requested_s.tolist() == [40.0, 80.0]
    # The load stretches gaps, but a user's patience is what it was, at twice the time scale.
    assert (episode.cancel_s - episode.submit_s).tolist() == pytest.approx([10.0, 10.0])


def test_of_short_logs_half_is_taken() -> None:
    log = make_workload([0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0], [10.0] * 7)
    source = EpisodeSource([log], GPUS, SAME)
    drawn = [source.draw(np.random.default_rng(seed)) for seed in range(60)]
    assert {len(episode) for episode in drawn} == {3}
    assert {str(episode.job_id[0]) for episode in drawn} == {"0", "1", "2", "3", "4"}
    assert len(EpisodeSource([log.select(np.arange(3))], GPUS, SAME).draw(np.random.default_rng(0))) == 2


def test_logs_without_work_or_time_are_refused() -> None:
    unusable: tuple[tuple[list[float], list[float]], ...] = (
        ([5.0, 5.0], [1.0, 1.0]),
        ([0.0, 5.0], [0.0, 0.0]),
        ([0.0], [1.0]),
    )
    for submit, duration in unusable:
        with pytest.raises(InputError, match="no episode can be cut"):
            EpisodeSource([make_workload(submit, duration)], GPUS)
    with pytest.raises(InputError, match="no log"):
        EpisodeSource([], GPUS)
    burst = make_workload([0.0] * 500 + [9.0], [1.0] * 501)
    with pytest.raises(InputError, match="submitted at once"):
        EpisodeSource([burst], GPUS, changed(jobs=2)).draw(np.random.default_rng(4))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("jobs", 1),
        ("loads", (1.0, 0.5)),
        ("loads", (0.0, 0.5)),
        ("loads", (0.5, float("nan"))),
        ("time_scale", (-1.0, 1.0)),
        ("estimate_share", 1.5),
        ("estimate_sigma", -0.1),
        ("gpu_share", -0.1),
        ("gpu_factors", (3.0,)),
        ("gpu_factors", (0.0,)),
    ],
)
def test_bad_specs_are_refused(name: str, value: object) -> None:
    with pytest.raises(InputError, match=name):
        changed(**{name: value})
    with pytest.raises(InputError, match="names none"):
        changed(gpu_share=0.5, gpu_factors=())


def test_drawing_is_quick(logs: list[Workload]) -> None:
    source = EpisodeSource(logs, GPUS, EpisodeSpec(jobs=320))
    generator = np.random.default_rng(0)
    best = np.inf
    for _ in range(20):
        began = time.perf_counter()
        source.draw(generator)
        best = min(best, time.perf_counter() - began)
    assert best < 2e-3


@pytest.mark.parametrize("jobs", [40, SHORT_LOG - 1, SHORT_LOG + 500])
def test_a_part_of_a_trace_is_what_training_cuts(jobs: int, tmp_path: Path) -> None:
    trace = synth("helios", jobs, seed=3)
    duration = trace.numbers("duration").copy()
    duration[::7] = np.nan  # what a log does not know no workload has
    at = trace.table.schema.get_field_index("duration")
    table = trace.table.set_column(at, trace.table.schema.field(at), pa.array(duration, from_pandas=True))
    trace = Trace(table, replace(trace.provenance, source="mine.csv", epoch="2024-03-01T00:00:00", dropped={"x": 2}))
    whole = build_workload(trace, seed=5)
    ids: list[str] = []
    for part in PARTS:
        wanted = period(whole, part)
        write_trace(trace_period(trace, part), tmp_path / "part.parquet")
        again = read_trace(tmp_path / "part.parquet")
        cut = build_workload(again, seed=5)
        assert cut.job_id.tolist() == wanted.job_id.tolist()
        assert cut.submit_s == pytest.approx(wanted.submit_s - wanted.submit_s[0])
        for name in ("duration_s", "num_gpus", "model"):  # the networks drawn are the same ones too
            assert (getattr(cut, name) == getattr(wanted, name)).all(), name
        left_out = again.provenance.dropped
        assert left_out["x"] == 2 and left_out["unknown duration"] == len(trace) - len(whole)
        assert left_out[f"not in the {part} part"] == len(whole) - len(wanted)
        assert len(again) + sum(left_out.values()) == again.provenance.rows_read + 2
        start = datetime(2024, 3, 1) + timedelta(seconds=float(wanted.submit_s[0]))
        assert again.provenance.epoch == start.isoformat()
        ids += cut.job_id.tolist()
    assert ids == whole.job_id.tolist()


def test_no_part_of_a_trace() -> None:
    with pytest.raises(InputError, match="unknown part 'last'"):
        trace_period(synth("helios", 40, seed=3), "last")
    with pytest.raises(InputError, match="its validation part holds no job"):
        trace_period(synth("helios", 1, seed=3), "validation")
