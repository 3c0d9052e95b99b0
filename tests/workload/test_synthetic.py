"""Synthetic families reproduce the statistics they cite, within the tolerances stated here."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from attn_sched.errors import InputError
from attn_sched.workload import FAMILIES, Trace, build_workload, offered_load, read_trace, scale_load, synth, synthetic
from attn_sched.workload.synthetic import Family, load_family
from tests.shared_traces import shared_traces

JOBS = 100_000
# Relative tolerances. Medians and 90th percentiles sit where there is much mass; means and GPU time hang on the tail.
TOLERANCE = {"median_s": 0.05, "p90_s": 0.08, "mean_s": 0.10, "mean_gpus": 0.06, "gpu_s_per_job": 0.15}
MIX_TOLERANCE = 0.015  # absolute, on the share of jobs of each size
# Of a profile's largest deviation from a flat one: an hour or weekday may be off by so much. A flat log is off by all.
PROFILE_TOLERANCE = 0.45
WEEKS = 120  # so many that the random level of each day averages out


@pytest.fixture(scope="module", params=FAMILIES)
def made(request: pytest.FixtureRequest) -> tuple[str, Trace]:
    return request.param, synth(request.param, JOBS, seed=0)


def local_seconds(trace: Trace) -> np.ndarray:
    """Seconds after a Monday's midnight."""
    start = (np.datetime64(trace.provenance.epoch) - np.datetime64("2001-01-01")) / np.timedelta64(1, "s")
    return trace.numbers("submit_time") + start


def hour_profile(seconds: np.ndarray, least: int) -> np.ndarray:
    """Rate by hour over the mean rate, averaged over the days with at least ``least`` jobs."""
    days = (seconds // 86_400).astype(int)
    counts = np.zeros((days.max() + 1, 24))
    np.add.at(counts, (days, (seconds % 86_400 // 3600).astype(int)), 1)
    counts = counts[counts.sum(axis=1) >= least]
    return np.asarray((counts / counts.sum(axis=1, keepdims=True)).mean(axis=0) * 24)


def test_published_numbers(made: tuple[str, Trace]) -> None:
    name, trace = made
    duration, gpus = trace.numbers("duration"), trace.numbers("num_gpus")
    found = {
        "median_s": np.median(duration),
        "p90_s": np.quantile(duration, 0.9),
        "mean_s": duration.mean(),
        "mean_gpus": gpus.mean(),
        "gpu_s_per_job": (duration * gpus).mean(),
    }
    targets = load_family(name).targets
    assert targets.keys() == found.keys()
    for key, target in targets.items():
        assert found[key] == pytest.approx(target, rel=TOLERANCE[key]), key
    assert duration.min() >= 1
    assert duration.max() <= load_family(name).max_s


def test_gpu_mix(made: tuple[str, Trace]) -> None:
    name, trace = made
    shares = load_family(name).gpus
    total = sum(shares.values())
    for size, share in shares.items():
        assert (trace.numbers("num_gpus") == size).mean() == pytest.approx(share / total, abs=MIX_TOLERANCE)


def test_rhythm(made: tuple[str, Trace]) -> None:
    name, trace = made
    family = load_family(name)
    assert len(trace) / (local_seconds(trace)[-1] / 86_400) == pytest.approx(family.jobs_per_day, rel=0.25)


def profiles(monkeypatch: pytest.MonkeyPatch, family: Family) -> tuple[np.ndarray, np.ndarray]:
    """Rates by hour and by weekday over their means, of logs of many weeks."""
    monkeypatch.setattr(synthetic, "load_family", lambda name: family)
    hours, weekdays = [], []
    for seed in range(3):
        seconds = local_seconds(synth(family.name, round(WEEKS * 7 * family.jobs_per_day / 3), seed))
        hours.append(hour_profile(seconds, 20))
        whole = seconds[seconds < seconds[-1] // (7 * 86_400) * 7 * 86_400]
        weekdays.append(np.bincount((whole // 86_400 % 7).astype(int), minlength=7) / len(whole) * 7)
    return np.mean(hours, axis=0), np.mean(weekdays, axis=0)


def like(found: np.ndarray, profile: np.ndarray) -> bool:
    return bool(np.abs(found - profile).max() <= PROFILE_TOLERANCE * np.abs(profile - 1).max())


@pytest.mark.parametrize("name", FAMILIES)
def test_profiles_of_day_and_week(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # The rate does not touch the profiles: 400 jobs a day make as many weeks with fewer jobs.
    family = replace(load_family(name), jobs_per_day=400.0)
    hours, weekdays = profiles(monkeypatch, family)
    assert like(hours, family.hourly) and like(weekdays, family.weekly)
    flat = replace(family, hourly=np.ones(24), weekly=np.ones(7))
    hours, weekdays = profiles(monkeypatch, flat)
    assert not like(hours, family.hourly) and not like(weekdays, family.weekly)
    assert not like(np.ones(24), family.hourly) and not like(np.ones(7), family.weekly)


def test_bursts(made: tuple[str, Trace]) -> None:
    _, trace = made
    gaps = np.diff(trace.numbers("submit_time"))
    # A Poisson process has 1; the public logs have 3 to 19.
    assert gaps.std() / gaps.mean() > 1.2
    assert (gaps == 0).mean() > 0.015


def test_users(made: tuple[str, Trace]) -> None:
    name, trace = made
    _, user = np.unique(trace.strings("user"), return_inverse=True)
    held = np.sort(np.bincount(user, weights=trace.numbers("num_gpus") * trace.numbers("duration")))[::-1]
    assert held[: math.ceil(0.05 * len(held))].sum() / held.sum() == pytest.approx(0.5, abs=0.08)
    family = load_family(name)
    assert trace.has("group") == bool(family.groups)
    if family.groups:  # a user belongs to one group
        pairs = set(zip(trace.strings("user"), trace.strings("group"), strict=True))
        assert len(pairs) == len(held)
    if family.status:
        for state, share in family.status.items():
            assert (trace.strings("status") == state).mean() == pytest.approx(share, abs=0.01)


def test_load_is_real_and_scales(made: tuple[str, Trace]) -> None:
    name, trace = made
    w = build_workload(trace)
    load = offered_load(w, load_family(name).cluster_gpus)
    assert 0.03 < load < 1.0  # the thinned PAI log offers little
    scaled = scale_load(w, load_family(name).cluster_gpus, 0.9)
    assert scaled.info["load_achieved"] == pytest.approx(0.9)


def test_same_seed_same_log() -> None:
    one, same, other = (synth("helios", 2000, seed) for seed in (4, 4, 5))
    assert one.table.equals(same.table)
    assert not one.table.equals(other.table)
    assert one.provenance.format == "synthetic"


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("jobs", [1, 2, 3, 50])
def test_small(family: str, jobs: int) -> None:
    trace = synth(family, jobs, 0)
    assert len(trace) == jobs
    assert trace.numbers("submit_time")[0] == 0


def test_refusals() -> None:
    with pytest.raises(InputError, match="unknown family 'x'; expected one of philly, helios, pai, acme"):
        synth("x", 10)
    for jobs in (0, -5, 10**12):
        with pytest.raises(InputError, match="field 'jobs'"):
            synth("pai", jobs)


def test_a_million_jobs() -> None:
    trace = synth("philly", 1_000_000, 0)
    assert len(trace) == 1_000_000
    assert len(set(trace.table["job_id"].to_pylist())) == 1_000_000


class TestAgainstTheLogs:
    def test_helios(self) -> None:
        real = read_trace(shared_traces() / "helios-venus-gpu" / "helios_trace_mar18_jun30.csv")
        ours = synth("helios", JOBS, 1)
        self.same_sizes(real, ours, 0.02)
        for q, rel in ((0.25, 0.10), (0.5, 0.06), (0.75, 0.10), (0.9, 0.08)):
            assert np.quantile(ours.numbers("duration"), q) == pytest.approx(
                np.quantile(real.numbers("duration"), q), rel=rel
            )
        # The log begins on Wednesday 2020-03-18 at 04:01:39; its steady part on Wednesday 2020-04-01.
        seconds = real.numbers("submit_time") + 2 * 86_400 + 4 * 3600 + 99
        seconds = seconds[seconds >= 16 * 86_400]
        np.testing.assert_allclose(hour_profile(local_seconds(ours), 20), hour_profile(seconds, 20), atol=0.30)

    def test_pai(self) -> None:
        real = read_trace(shared_traces() / "alibaba-pai-2020" / "alibaba_trace_sub_day00_31.csv")
        ours = synth("pai", JOBS, 1)
        self.same_sizes(real, ours, 0.02)
        for q, rel in ((0.25, 0.10), (0.5, 0.06), (0.75, 0.15), (0.9, 0.08)):
            assert np.quantile(ours.numbers("duration"), q) == pytest.approx(
                np.quantile(real.numbers("duration"), q), rel=rel
            )

    def test_philly_gangs(self) -> None:
        folder = shared_traces()
        files = ("philly-vc/trace1.csv", "philly-vc/trace3.csv", "gavel/103959.trace", "gavel/e13805.trace")
        real = np.concatenate([read_trace(folder / name).numbers("num_gpus") for name in files])
        ours = synth("philly", JOBS, 1).numbers("num_gpus")
        for size in (2, 4, 8, 16, 32):
            assert (ours[ours > 1] == size).mean() == pytest.approx((real[real > 1] == size).mean(), abs=0.04)

    def test_published_summary(self) -> None:
        import csv

        with (shared_traces() / "acme-kalos" / "cluster_summary.csv").open() as file:
            rows = {row["id"]: row for row in csv.DictReader(file)}
        for name, row in (("philly", rows["Philly"]), ("acme", rows["Seren"])):
            targets = load_family(name).targets
            assert targets["median_s"] == float(row["med_run_time_gpu"])
            assert targets["mean_s"] == pytest.approx(float(row["avg_run_time_gpu"]), abs=1)
            assert targets["mean_gpus"] == float(row["avg_gpu_num"])
            total = sum(float(row[f"{state}_gpu_time"]) for state in ("complete", "cancel", "fail"))
            assert targets["gpu_s_per_job"] == pytest.approx(total / float(row["gpu_job_num"]), rel=0.01)

    @staticmethod
    def same_sizes(real: Trace, ours: Trace, tolerance: float) -> None:
        a, b = real.numbers("num_gpus"), ours.numbers("num_gpus")
        for size in np.unique(a):
            assert (a == size).mean() == pytest.approx((b == size).mean(), abs=tolerance)
