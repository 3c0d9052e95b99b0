"""Linear rules: what known weights must do, answers of every kind of run, and their files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attn_sched.cluster import Cluster, load_cluster
from attn_sched.errors import InputError
from attn_sched.policies import simulate
from attn_sched.policies.linear import (
    ORDER_FEATURES,
    ORDERS,
    START_FEATURES,
    STARTS,
    LinearRule,
    answer,
    choose,
    load_linear,
    play,
    save_linear,
    sjf_rule,
)
from attn_sched.simulator import Engine, EngineRule, SimOptions, fit_to_cluster
from attn_sched.simulator import layout as at
from attn_sched.workload import Workload, build_workload, scale_load, synth

JOB_AGENT = EngineRule(order=at.AGENT, placement=at.TOPO_BEST_FIT)
WHOLE_QUEUE = 512


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    return load_cluster("dgx64")


@pytest.fixture(scope="module")
def logs(cluster: Cluster) -> list[Workload]:
    made = []
    for number, family in enumerate(("helios", "philly", "pai")):
        log = fit_to_cluster(build_workload(synth(family, 300, seed=number), estimate="lognormal(0.5)"), cluster)
        made.append(scale_load(log, cluster.num_gpus, 1.0))
    return made


def replay(rule: LinearRule, cluster: Cluster, logs: list[Workload], window: int = WHOLE_QUEUE) -> Engine:
    """All logs in one batch, answered from Python."""
    engine = Engine(cluster, logs, JOB_AGENT, SimOptions(), window=window)
    out = np.zeros(len(logs), dtype=np.int64)
    while not (ask := engine.ask()).done:
        answer(rule, engine, ask, out)
        engine.apply(out)
    return engine


def drawn(seed: int) -> LinearRule:
    """Weights around those of a rule that holds."""
    noise = np.random.default_rng(seed).normal(size=ORDERS + STARTS)
    return LinearRule.from_vector(sjf_rule(1.5).vector + 0.3 * noise)


def test_the_sjf_rule_is_sjf_to_the_last_bit(cluster: Cluster, logs: list[Workload]) -> None:
    engine = replay(sjf_rule(), cluster, logs)
    for b, log in enumerate(logs):
        expected = simulate(log, cluster, "sjf+topo-best-fit")
        assert np.array_equal(engine.schedule(b).start_s, expected.start_s)
        assert np.array_equal(engine.schedule(b).finish_s, expected.finish_s)


def test_the_sjf_rule_with_theta_is_sjf_that_holds_without_end(cluster: Cluster, logs: list[Workload]) -> None:
    engine = replay(sjf_rule(1.5), cluster, logs)
    greedy = replay(sjf_rule(), cluster, logs)
    for b, log in enumerate(logs):
        expected = simulate(log, cluster, "sjf+topo-best-fit+hold(1.5,1e12)")
        assert np.array_equal(engine.schedule(b).start_s, expected.start_s)
    assert any(not np.array_equal(engine.schedule(b).start_s, greedy.schedule(b).start_s) for b in range(len(logs)))


def test_known_orders(cluster: Cluster, logs: list[Workload]) -> None:
    always = {"constant": 1.0}
    for weights, policy in (
        ({"gpus": -1.0}, "smallest+topo-best-fit"),
        ({"estimate": -1.0, "gpus": -float(np.log(2.0))}, "saf+topo-best-fit"),  # ln d + ln n, both over 3
        ({"estimate": 1.0}, "ljf+topo-best-fit"),
    ):
        engine = replay(LinearRule.from_weights(weights, always), cluster, logs)
        for b, log in enumerate(logs):
            expected = simulate(log, cluster, policy)
            same = engine.schedule(b).start_s == expected.start_s
            assert same.mean() > 0.99, policy  # sums in another order may part what is equal to a bit


def test_every_feature_changes_decisions(cluster: Cluster, logs: list[Workload]) -> None:
    base = LinearRule.from_weights(
        {"estimate": -1.0, "gpus": 0.5}, {"constant": 0.5, "slowdown": -1.0, "overtakes_long": -0.3}
    )
    plain = replay(base, cluster, logs)
    starts = [plain.schedule(b).start_s for b in range(len(logs))]
    for place in range(ORDERS + STARTS):
        weights = base.vector
        weights[place] += 3.0 if place < ORDERS else -1.0
        changed = replay(LinearRule.from_vector(weights), cluster, logs)
        name = [*ORDER_FEATURES, *START_FEATURES][place]
        assert any(not np.array_equal(changed.schedule(b).start_s, starts[b]) for b in range(len(logs))), name


@pytest.mark.parametrize("window", [4, 32])
def test_playing_decides_as_answering_does(cluster: Cluster, logs: list[Workload], window: int) -> None:
    for seed in range(3):
        answered = replay(drawn(seed), cluster, logs, window)
        played = Engine(cluster, logs, JOB_AGENT, SimOptions(record_segments=False), window=window)
        for b in range(len(logs)):
            play(drawn(seed).vector, played, b)
            assert np.array_equal(played.schedule(b).finish_s, answered.schedule(b).finish_s)
            assert played.view(b).si[at.DECISIONS] == answered.view(b).si[at.DECISIONS]


def test_ties_go_to_the_oldest(cluster: Cluster, logs: list[Workload]) -> None:
    nothing = LinearRule.from_weights({}, {})  # all sums are 0: all jobs are candidates, and equal
    engine = replay(nothing, cluster, logs)
    for b, log in enumerate(logs):
        expected = simulate(log, cluster, "fifo:skip+topo-best-fit")
        assert np.array_equal(engine.schedule(b).start_s, expected.start_s)


def test_a_rule_that_always_holds_starts_jobs_when_time_would_stand_still(
    cluster: Cluster, logs: list[Workload]
) -> None:
    engine = replay(LinearRule.from_weights({"estimate": -1.0}, {"constant": -1.0}), cluster, logs[:1])
    schedule = engine.schedule()
    assert np.isfinite(schedule.finish_s).all()
    # Nothing starts before the last arrival; from then on one job runs at a time.
    assert schedule.start_s.min() == logs[0].submit_s[-1]
    starts, ends = np.sort(schedule.start_s), np.sort(schedule.finish_s)
    assert np.all(starts[1:] >= ends[:-1])


def test_choices_stay_among_the_legal_ones(cluster: Cluster, logs: list[Workload]) -> None:
    engine = Engine(cluster, logs, JOB_AGENT, window=8)
    out = np.full(len(logs), -7, dtype=np.int64)
    seen = set()
    for step in range(300):
        ask = engine.ask()
        if ask.done:
            break
        answer(drawn(step), engine, ask, out)
        for b in np.flatnonzero(ask.phases == at.JOB_PHASE):
            assert out[b] == choose(engine.view(int(b)), ask.windows[b], drawn(step).vector)
            seen.add(int(out[b]))
        engine.apply(out)  # refuses what is not legal
    assert 8 in seen
    assert len(seen) > 3


def test_clusters_that_wait_for_something_else_keep_their_answers(cluster: Cluster, logs: list[Workload]) -> None:
    engine = Engine(cluster, logs[:2], EngineRule(order=at.AGENT, placement=at.PLACE_AGENT))
    assert (engine.ask().phases == at.JOB_PHASE).all()
    engine.apply(np.array([0, 0]))
    ask = engine.ask()
    assert (ask.phases == at.UNIT_PHASE).all()
    out = np.array([41, 41], dtype=np.int64)
    answer(sjf_rule(), engine, ask, out)
    assert out.tolist() == [41, 41]
    with pytest.raises(ValueError, match="job agent alone"):
        play(sjf_rule().vector, engine, 0)


def test_files_keep_weights_and_card(tmp_path: Path) -> None:
    rule = LinearRule.from_vector(drawn(1).vector, {"command": "attn-sched train", "scores": {"a": 0.5}})
    save_linear(rule, tmp_path / "rule.json")
    again = load_linear(tmp_path / "rule.json")
    assert np.array_equal(again.vector, rule.vector)
    assert again == rule
    assert [path.name for path in tmp_path.iterdir()] == ["rule.json"]


def test_a_card_that_is_no_json_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "rule.json"
    save_linear(sjf_rule(), path)
    for value in (float("nan"), object()):
        with pytest.raises(InputError, match="card"):
            save_linear(LinearRule.from_vector(drawn(1).vector, {"score": value}), path)
    assert np.array_equal(load_linear(path).vector, sjf_rule().vector)


def spoiled(tmp_path: Path, **changes: Any) -> Path:
    path = tmp_path / "rule.json"
    save_linear(sjf_rule(), path)
    content = json.loads(path.read_text()) | changes
    path.write_text(json.dumps(content))
    return path


def test_bad_files_are_refused(tmp_path: Path) -> None:
    good = json.loads(spoiled(tmp_path).read_text())
    order, start = good["order"], good["start"]
    bad: list[tuple[dict[str, Any], str]] = [
        ({"version": 2}, "of version 2"),
        ({"format": "other"}, "no linear rule"),
        ({"order": [1, 2]}, "no table"),
        ({"card": None}, "no table"),
        ({"order": {k: v for k, v in order.items() if k != "gpus"}}, "'gpus' is missing"),
        ({"start": {**start, "colour": 1.0}}, "no feature 'colour'"),
        ({"start": {**start, "gpus": "many"}}, "'gpus' is 'many'"),
        ({"start": {**start, "gpus": True}}, "'gpus' is True"),
        ({"order": {**order, "gpus": float("nan")}}, "NaN is no JSON"),
    ]
    for changes, told in bad:
        path = spoiled(tmp_path, **changes)
        with pytest.raises(InputError, match=told) as caught:
            load_linear(path)
        assert caught.value.file == str(path)
    path = spoiled(tmp_path)
    path.write_text(path.read_text()[:-40])
    with pytest.raises(InputError, match="no JSON"):
        load_linear(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="no JSON"):
        load_linear(path)
    path.write_text("[]")
    with pytest.raises(InputError, match="holds a list"):
        load_linear(path)
    with pytest.raises(InputError, match="does not exist"):
        load_linear(tmp_path / "absent.json")
    with pytest.raises(InputError, match="cannot be read"):
        load_linear(tmp_path)


def test_vectors_of_another_length_are_refused() -> None:
    with pytest.raises(InputError, match="3 weights"):
        LinearRule.from_vector(np.zeros(3))
