"""Observations: masks say what is legal, padding is zero, features mean what they are called."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from attn_sched.agents import GLOBAL_FEATURES, JOB_FEATURES, UNIT_FEATURES, Observations
from attn_sched.cluster import load_cluster
from attn_sched.cluster.topology import Cluster
from attn_sched.errors import InputError
from attn_sched.simulator import Ask, Engine, EngineRule, SimOptions, fit_to_cluster
from attn_sched.simulator import layout as at
from attn_sched.simulator.fitting import best_slowdown
from attn_sched.simulator.selection import expected_end
from attn_sched.workload import Workload, build_workload, scale_load, synth

WINDOW = 8


def workloads(cluster: Cluster, count: int, jobs: int = 60) -> list[Workload]:
    """Small busy workloads, one a cluster of the batch."""
    made = [fit_to_cluster(build_workload(synth("helios", jobs, seed=seed)), cluster) for seed in range(count)]
    return [scale_load(workload, cluster.num_gpus, 1.2) for workload in made]


def walk(engine: Engine, observations: Observations, seed: int = 0) -> Iterator[Ask]:
    """Random legal decisions; yields every ask with its observations filled in."""
    generator = np.random.default_rng(seed)
    while True:
        ask = engine.ask()
        if ask.done:
            return
        observations.update(ask)
        yield ask
        answers = np.zeros(len(ask.phases), dtype=np.int64)
        for b, phase in enumerate(ask.phases):
            if phase != at.DONE_PHASE:
                mask = observations.job_mask[b] if phase == at.JOB_PHASE else observations.unit_mask[b]
                answers[b] = generator.choice(np.flatnonzero(mask))
        engine.apply(answers)


def make(cluster_name: str = "dgx64", batch: int = 3, unit: str | None = None) -> tuple[Engine, Observations]:
    cluster = load_cluster(cluster_name)
    if unit is not None:
        cluster = cluster.with_unit(unit)
    rule = EngineRule(order=at.AGENT, placement=at.PLACE_AGENT)
    engine = Engine(cluster, workloads(cluster, batch), rule, SimOptions(record_segments=False), window=WINDOW)
    return engine, Observations(engine)


@pytest.mark.parametrize("unit", [None, "gpu"])
@pytest.mark.parametrize("cluster", ["dgx64", "eth64", "nodes:3x4"])
def test_random_walk_stays_legal_and_finite(cluster: str, unit: str | None) -> None:
    engine, seen = make(cluster, unit=unit)
    asks = 0
    for ask in walk(engine, seen):
        asks += 1
        for b, phase in enumerate(ask.phases):
            if phase == at.JOB_PHASE:
                assert seen.job_mask[b].any()
                assert not seen.unit_mask[b].any()
            elif phase == at.UNIT_PHASE:
                assert seen.unit_mask[b].any()
                assert not seen.job_mask[b].any()
            else:
                assert not seen.job_mask[b].any()
                assert not seen.unit_mask[b].any()
        for array in (seen.jobs, seen.units, seen.glob, seen.chosen):
            assert np.isfinite(array).all()
            assert np.abs(array).max() < 4.0
    assert asks > 100
    assert all(np.isfinite(engine.schedule(b).finish_s).all() for b in range(3))


def test_masked_answers_are_refused_and_others_taken() -> None:
    engine, seen = make(batch=1)
    for step, ask in enumerate(walk(engine, seen)):
        if step > 150:
            break
        mask = seen.job_mask[0] if ask.phases[0] == at.JOB_PHASE else seen.unit_mask[0]
        for answer in np.flatnonzero(mask == 0):
            with pytest.raises(InputError, match="not legal"):
                engine.apply(np.array([answer]))


def test_job_rows_tell_what_the_workload_says() -> None:
    engine, seen = make(batch=1)
    names = {name: k for k, name in enumerate(JOB_FEATURES)}
    checked = 0
    for ask in walk(engine, seen):
        w = engine.view(0)
        placing = ask.phases[0] != at.JOB_PHASE
        shown = ask.windows[0][ask.windows[0] >= 0]
        rows = seen.jobs[0, : len(shown)]
        workload = engine.workloads[0]
        np.testing.assert_allclose(rows[:, names["gpus"]], np.log2(workload.num_gpus[shown]) / 10, rtol=1e-5)
        wait = float(w.sf[at.NOW]) - workload.submit_s[shown]
        week = np.log1p(7 * 86_400)
        np.testing.assert_allclose(rows[:, names["wait"]], np.log1p(wait) / week, rtol=1e-5, atol=1e-6)
        # While a gang is being placed nobody asks whether other jobs fit.
        np.testing.assert_array_equal(rows[:, names["fits"]], 0 if placing else seen.job_mask[0, : len(shown)])
        for k, job in enumerate(shown):
            expected = 1 - 1 / best_slowdown(w, int(job)) if rows[k, names["fits"]] else 1.0
            assert rows[k, names["best_slowdown"]] == pytest.approx(expected, abs=1e-6)
            levels = rows[k, names["best_level_0"] : names["best_slowdown"]]
            assert levels.sum() == rows[k, names["fits"]]
        assert not seen.jobs[0, len(shown) :].any()
        checked += 1
    assert checked > 50


@pytest.mark.parametrize("cluster", ["nodes:2x4", "nodes:4x2"])
def test_job_rows_tell_ranks_and_how_long_until_enough_is_free(cluster: str) -> None:
    engine, seen = make(cluster, batch=1)
    names = {name: k for k, name in enumerate(JOB_FEATURES)}
    week = np.log1p(7 * 86_400)
    waited = 0
    for ask in walk(engine, seen):
        w = engine.view(0)
        workload = engine.workloads[0]
        shown = ask.windows[0][ask.windows[0] >= 0]
        rows = seen.jobs[0, : len(shown)]
        length = np.maximum(workload.estimate_s[shown], 1.0)
        for name, keys in (("length_rank", length), ("area_rank", length * workload.num_gpus[shown])):
            before = (keys[None] < keys[:, None]).sum(1) + ((keys[None] == keys[:, None]).sum(1) - 1) / 2
            np.testing.assert_allclose(rows[:, names[name]], before / max(1, len(shown) - 1), atol=1e-6, err_msg=name)
        gpus = engine.cluster.num_gpus
        np.testing.assert_allclose(rows[:, names["gpus_of_cluster"]], workload.num_gpus[shown] / gpus, rtol=1e-5)
        if ask.phases[0] != at.JOB_PHASE:
            assert not rows[:, names["until_fits"]].any()
            continue
        running = w.fh[: w.si[at.N_FINISH]]
        ends = np.array([expected_end(w, int(job)) for job in running])
        order = np.argsort(ends, kind="stable")
        free = (
            gpus - workload.num_gpus[running].sum() + np.concatenate([[0], workload.num_gpus[running][order].cumsum()])
        )
        moments = np.concatenate([[float(w.sf[at.NOW])], ends[order]])
        for k, job in enumerate(shown):
            fits = bool(rows[k, names["fits"]])
            wait = 0.0 if fits else moments[int(np.argmax(free >= workload.num_gpus[job]))] - w.sf[at.NOW]
            waited += wait > 0
            assert rows[k, names["until_fits"]] == pytest.approx(np.log1p(wait) / week, abs=1e-5)
            lost = length[k] * (best_slowdown(w, int(job)) - 1) if fits else 0.0
            assert rows[k, names["time_lost"]] == pytest.approx(np.log1p(max(0.0, lost)) / week, abs=1e-5)
    assert waited > 50


def test_unit_rows_tell_what_is_free_and_picked() -> None:
    engine, seen = make(batch=1)
    names = {name: k for k, name in enumerate(UNIT_FEATURES)}
    need = GLOBAL_FEATURES.index("need")
    placing = 0
    for ask in walk(engine, seen):
        w = engine.view(0)
        rows = seen.units[0]
        free = w.free[0, engine.units]
        np.testing.assert_allclose(rows[:, names["free_share"]], free / 8, rtol=1e-6)
        np.testing.assert_array_equal(rows[:, names["wholly_free"]], free == 8)
        nothing_left = rows[:, names["wholly_free"]] == 1
        assert not rows[nothing_left][:, [names["next_release"], names["until_free"]]].any()
        assert (rows[:, names["until_free"]] >= rows[:, names["next_release"]] - 1e-6).all()
        if ask.phases[0] == at.UNIT_PHASE:
            placing += 1
            gang = int(w.ji[int(w.si[at.PICK_JOB]), at.GPUS])
            left = int(w.si[at.PICK_LEFT])
            assert rows[:, names["picked_here"]].sum() == pytest.approx(1 - left / gang, abs=1e-5)
            assert seen.glob[0, need] == pytest.approx(np.log2(1 + left) / 10)
            np.testing.assert_array_equal(seen.unit_mask[0], free > 0)
            np.testing.assert_array_equal(rows[:, names["completes"]], free >= left)
            above = w.free[0, engine.cluster.parent[engine.units]]
            for name, room in (("fill", free), ("rack_fill", above)):
                share = np.where(room > 0, np.minimum(1.0, left / np.maximum(room, 1)), 0.0)
                np.testing.assert_allclose(rows[:, names[name]], share, rtol=1e-6, err_msg=name)
            np.testing.assert_array_equal(rows[:, names["rack_completes"]], above >= left)
        else:
            assert seen.glob[0, need] == 0
    assert placing > 30


def test_position_in_the_batch_does_not_matter() -> None:
    cluster = load_cluster("dgx64")
    one, other = workloads(cluster, 2)
    rule = EngineRule(order=at.AGENT, placement=at.TOPO_BEST_FIT)
    options = SimOptions(record_segments=False)
    alone = Engine(cluster, [other], rule, options, window=WINDOW)
    pair = Engine(cluster, [one, other], rule, options, window=WINDOW)
    seen_alone, seen_pair = Observations(alone), Observations(pair)
    for _ in range(40):
        ask, both = alone.ask(), pair.ask()
        seen_alone.update(ask)
        seen_pair.update(both)
        for name in ("jobs", "job_mask", "units", "glob"):
            np.testing.assert_array_equal(getattr(seen_alone, name)[0], getattr(seen_pair, name)[1], err_msg=name)
        alone.apply(seen_alone.job_mask.argmax(axis=1))
        pair.apply(seen_pair.job_mask.argmax(axis=1))
