"""Scores on validation windows, against what the same replays give by other ways."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from attn_sched.agents.pair import AgentPair
from attn_sched.agents.weights import save_agents
from attn_sched.errors import InputError
from attn_sched.evaluation.metrics import evaluate
from attn_sched.policies import simulate, simulate_many
from attn_sched.policies.linear import save_linear, sjf_rule
from attn_sched.training.configs import TrainingConfig
from attn_sched.training.validation import (
    OPTIONS,
    CellScore,
    RuleScores,
    Scores,
    Validation,
    agents_player,
    load_rule_scores,
    save_rule_scores,
    tuned_player,
)
from tests.training.tiny_run import tiny_config

CONFIG = tiny_config(validation__loads=(0.7, 1.1), validation__warmup=8)


@pytest.fixture(scope="module")
def validation() -> Validation:
    return Validation(CONFIG.data.pools("validation"), CONFIG.validation)


@pytest.fixture(scope="module")
def rules(validation: Validation) -> RuleScores:
    return validation.score_rules()


def cell(excess_s: float, jobs: int = 1, duration_s: float = 0.0) -> CellScore:
    return CellScore(1, jobs, duration_s, excess_s, wait_p99_s=0.0, jain=1.0, comm_overhead=1.0)


def test_every_log_and_cluster_is_a_cell_with_all_loads(validation: Validation) -> None:
    assert len(validation.cells) == 4
    assert validation.windows == 8
    for windows in validation.cells.values():
        assert [window.info["load"] for window in windows] == [0.7, 1.1]
        assert all(window.counted.sum() == 16 for window in windows)


def test_a_rule_scores_what_the_metrics_say(validation: Validation, rules: RuleScores) -> None:
    name = "sjf+topo-best-fit"
    for cluster, cells in validation._clusters:
        for where in cells:
            windows = validation.cells[where]
            values = [evaluate(simulate(window, cluster, name, OPTIONS)) for window in windows]
            found = rules.scores[name].cells[where]
            assert [value["jobs"] for value in values] == [16, 16]
            assert found.jobs == 32
            assert found.excess_mean_s == pytest.approx(np.mean([float(v["excess_mean_s"] or 0) for v in values]))
            assert found.wait_p99_s == pytest.approx(np.mean([float(v["wait_p99_s"] or 0) for v in values]))
            assert found.jain == pytest.approx(np.mean([float(v["jain_user"] or 0) for v in values]))
            work = [float(window.gpu_seconds[window.counted].sum()) for window in windows]
            overhead = np.average([float(v["comm_overhead"] or 0) for v in values], weights=work)
            assert found.comm_overhead == pytest.approx(overhead)


def test_agents_score_what_their_saved_weights_do(validation: Validation, tmp_path: Path) -> None:
    pair = AgentPair.fresh(CONFIG.network, ("job", "gpu"), seed=3)
    found = validation.score_player(agents_player(CONFIG, pair))
    assert pair.card == {}
    path = save_agents(pair, tmp_path / "pair")
    same = validation._score(lambda windows, cluster: simulate_many(windows, cluster, f"agents:{path}", OPTIONS))
    assert found == same


@pytest.mark.parametrize(
    ("agents", "other", "policy"),
    [
        ("job", {"placement": "first-fit"}, "agents:{}+first-fit"),
        ("gpu", {"order": "sjf+hold(1.5,0.5)"}, "sjf+agents:{}+hold(1.5,0.5)"),
        ("gpu", {}, "fifo+agents:{}"),
    ],
)
def test_one_agent_alone_acts_with_the_rule_of_the_run(
    validation: Validation, tmp_path: Path, agents: str, other: dict[str, str], policy: str
) -> None:
    config = tiny_config(ppo__agents=(agents,), **other)
    pair = AgentPair.fresh(config.network, (agents,), seed=3)
    found = validation.score_player(agents_player(config, pair))
    path = save_agents(pair, tmp_path / "pair")
    same = validation._score(lambda windows, cluster: simulate_many(windows, cluster, policy.format(path), OPTIONS))
    assert found == same


def test_a_linear_rule_scores_what_its_file_does(validation: Validation, tmp_path: Path) -> None:
    config: TrainingConfig = tiny_config(placement="first-fit")
    found = validation.score_player(tuned_player(config, sjf_rule(1.5)))
    save_linear(sjf_rule(1.5), tmp_path / "rule.json")
    name = f"tuned:{tmp_path / 'rule.json'}+first-fit"
    assert found == validation._score(lambda windows, cluster: simulate_many(windows, cluster, name, OPTIONS))


def test_the_best_rule_is_best_by_the_geometric_mean_and_scores_1(rules: RuleScores) -> None:
    scores = RuleScores(
        {
            "even": Scores({"a": cell(200.0), "b": cell(200.0)}),
            "uneven": Scores({"a": cell(100.0), "b": cell(390.0)}),  # larger sum, less geometric mean
            "bad": Scores({"a": cell(4e5), "b": cell(4e5)}),
        }
    )
    assert scores.best == "uneven"
    assert scores.reference.ratio(scores.reference) == 1.0
    assert scores.scores["even"].ratio(scores.reference) == pytest.approx((2.0 + 200 / 390) / 2)
    assert scores.scores["even"].summary(scores.reference)["excess_mean_s"] == 200.0
    assert rules.reference.ratio(rules.reference) == pytest.approx(1.0)


def test_a_cell_where_hardly_anybody_waits_weighs_little() -> None:
    reference = Scores({"a": cell(0.0), "b": cell(6000.0, jobs=10, duration_s=2e4), "c": cell(9.0, duration_s=2000.0)})
    other = Scores({"a": cell(30.0), "b": cell(3000.0, jobs=10, duration_s=2e4), "c": cell(0.0, duration_s=2000.0)})
    # At least 5 % of the mean duration, and of a minute: 3 s, 600 s (as measured), 100 s.
    assert other.ratios(reference) == pytest.approx({"a": 10.0, "b": 0.5, "c": 1.0})
    assert reference.geometric_mean == pytest.approx((3.0 * 600.0 * 100.0) ** (1 / 3))


def test_scores_of_rules_survive_a_file(rules: RuleScores, tmp_path: Path) -> None:
    path = tmp_path / "rules.json"
    save_rule_scores(rules, path)
    assert load_rule_scores(path) == rules
    path.write_text(path.read_text()[:-20])
    with pytest.raises(InputError, match="no scores of rules"):
        load_rule_scores(path)
