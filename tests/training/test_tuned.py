"""The search for the tuned rule: it improves, repeats itself, goes on where it was stopped, and says what it did."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from attn_sched.agents.rewards import LEAST_DURATION_S, LEAST_EXCESS
from attn_sched.errors import InputError
from attn_sched.policies import simulate
from attn_sched.policies.linear import LinearRule, load_linear, save_linear, sjf_rule
from attn_sched.simulator import SimOptions
from attn_sched.training.data import ClusterPools, TrainingData
from attn_sched.training.tuned import Scorer, TuneSettings, WindowBank, tune_rule
from attn_sched.workload.episodes import EpisodeSpec

SETTINGS = TuneSettings(
    evaluations=80, windows=8, bank=16, finalists=4, sigma=0.5, window=16, episodes=EpisodeSpec(jobs=60)
)


@pytest.fixture(scope="module")
def pools() -> list[ClusterPools]:
    return TrainingData(families=("helios",), clusters=("dgx64", "eth64"), synthetic_jobs=600).pools("train")


def test_the_rule_found_is_better_than_the_one_begun_with(pools: list[ClusterPools]) -> None:
    told: list[tuple[int, float]] = []
    rule = tune_rule(pools, SETTINGS, seed=1, progress=lambda *report: told.append(report), card={"command": "x"})
    scores = rule.card["training_score"]
    assert scores["chosen"] < scores["first"]
    assert [number for number, _ in told] == list(range(1, len(told) + 1))
    scorer = Scorer(pools, SETTINGS, seed=1)
    assert scorer.score(rule.vector, scorer.everything()) == pytest.approx(scores["chosen"], abs=1e-4)
    assert rule.card["command"] == "x"
    assert rule.card["clusters"] == ["dgx64", "eth64"]
    assert rule.card["settings"]["episodes"]["jobs"] == 60
    assert rule.card["budget"]["evaluations"] >= 70


def test_the_same_seed_gives_the_same_rule_and_no_other_generator_is_touched(pools: list[ClusterPools]) -> None:
    short = replace(SETTINGS, evaluations=26)
    np.random.seed(3)  # noqa: NPY002  # the library would use the global one
    before = str(np.random.get_state())  # noqa: NPY002
    one = tune_rule(pools, short, seed=1)
    assert str(np.random.get_state()) == before  # noqa: NPY002
    assert np.array_equal(one.vector, tune_rule(pools, short, seed=1).vector)
    assert not np.array_equal(one.vector, tune_rule(pools, short, seed=2).vector)


def test_an_interrupted_search_goes_on_to_the_same_rule(pools: list[ClusterPools], tmp_path: Path) -> None:
    short = replace(SETTINGS, evaluations=52)
    whole = tune_rule(pools, short, seed=1)
    path = tmp_path / "tuning.json"

    def stop(number: int, score: float) -> None:
        if number == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune_rule(pools, short, seed=1, progress=stop, resume=path)
    assert len(json.loads(path.read_text())["scores"]) == 2
    resumed = tune_rule(pools, short, seed=1, resume=path)
    assert np.array_equal(resumed.vector, whole.vector)
    with pytest.raises(InputError, match="another search"):
        tune_rule(pools, short, seed=2, resume=path)
    path.write_text(path.read_text()[:50])
    with pytest.raises(InputError, match="holds no search"):
        tune_rule(pools, short, seed=1, resume=path)


@pytest.mark.slow
def test_processes_do_not_change_the_rule(pools: list[ClusterPools]) -> None:
    short = replace(SETTINGS, evaluations=13)
    assert np.array_equal(tune_rule(pools, short, seed=1).vector, tune_rule(pools, short, seed=1, processes=2).vector)


def test_ratios_are_those_of_the_replays(pools: list[ClusterPools]) -> None:
    pool = pools[1]
    source = pool.source(SETTINGS.episodes)
    windows = [source.draw(np.random.default_rng(seed)) for seed in range(6)]
    bank = WindowBank(pool.cluster, windows, window=200)
    options = SimOptions(record_segments=False)

    def excess(policy: str) -> np.ndarray:
        schedules = [simulate(window, pool.cluster, policy, options) for window in windows]
        return np.array(
            [
                (schedule.finish_s - window.submit_s - window.duration_s).sum()
                for schedule, window in zip(schedules, windows, strict=True)
            ]
        )

    mean_s = np.maximum([window.duration_s.mean() for window in windows], LEAST_DURATION_S)
    reference = np.maximum(excess("sjf+topo-best-fit+hold(1.5,0.5)"), LEAST_EXCESS * mean_s * 60)
    assert np.allclose(bank.reference, reference)
    for _ in range(2):  # windows are as new each time
        ratios = bank.ratios(sjf_rule().vector, np.array([1, 4, 5]))
        assert np.allclose(ratios, (excess("sjf+topo-best-fit") / reference)[[1, 4, 5]])
    assert len(bank) == 6


def test_a_window_that_went_wrong_counts_no_more_than_the_clip(pools: list[ClusterPools]) -> None:
    idle = LinearRule.from_weights({"estimate": 1.0}, {"constant": -1.0})  # holds for ever
    scorer = Scorer(pools, replace(SETTINGS, clip=1.5), seed=0)
    assert scorer.score(idle.vector, scorer.everything()) == pytest.approx(1.5, abs=0.3)
    assert scorer.score(idle.vector, scorer.everything()) <= 1.5


def test_the_score_is_that_of_cells_with_windows_alike_and_by_weight() -> None:
    data = TrainingData(families=("helios", "philly"), clusters=("dgx64", "eth64"), synthetic_jobs=400)
    scorer = Scorer(data.pools("train"), SETTINGS, seed=0)
    weights = sjf_rule().vector
    cells = []
    for bank in scorer.banks:
        ratios = np.minimum(bank.ratios(weights, np.arange(len(bank))), SETTINGS.clip)
        names = np.array([window.name for window in bank.engine.workloads])
        for name in ("synthetic-helios", "synthetic-philly"):
            mine, reference = ratios[names == name], bank.reference[names == name]
            cells.append((mine.mean() + (mine * reference).sum() / reference.sum()) / 2)
    assert len(set(np.round(cells, 6))) > 1
    assert scorer.score(weights, scorer.everything()) == pytest.approx(np.mean(cells))


def test_generations_draw_windows_evenly_from_the_clusters(pools: list[ClusterPools]) -> None:
    scorer = Scorer(pools, SETTINGS, seed=0)
    generator = np.random.default_rng(0)
    first, second = scorer.draw(generator), scorer.draw(generator)
    assert [len(numbers) for numbers in first] == [4, 4]
    assert all(len(set(numbers)) == 4 for numbers in first)
    assert any(not np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def test_the_card_survives_the_file(pools: list[ClusterPools], tmp_path: Path) -> None:
    rule = tune_rule(pools, replace(SETTINGS, evaluations=13), seed=1)
    save_linear(rule, tmp_path / "tuned.json")
    assert load_linear(tmp_path / "tuned.json") == rule


@pytest.mark.parametrize(("name", "value"), [("evaluations", 0), ("bank", 0), ("clip", float("inf")), ("sigma", 0.0)])
def test_bad_settings_are_refused(name: str, value: float) -> None:
    with pytest.raises(InputError, match=name):
        replace(SETTINGS, **{name: value})  # type: ignore[arg-type]
    with pytest.raises(InputError, match="no cluster"):
        tune_rule([], SETTINGS)
