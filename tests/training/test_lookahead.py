"""Looking ahead: costs are those of the episode played on by the rule, and the clusters themselves are left alone."""

from __future__ import annotations

import numpy as np
import pytest

from attn_sched.cluster import load_cluster
from attn_sched.policies.linear import answer, sjf_rule
from attn_sched.simulator import Ask, EngineRule, fit_to_cluster
from attn_sched.simulator import layout as at
from attn_sched.training.batch import EpisodeBatch, Shape
from attn_sched.training.lookahead import Lookahead
from attn_sched.workload import Workload, build_workload, scale_load, synth

RULE = sjf_rule(1.5)


def batch(placement: int = at.TOPO_BEST_FIT) -> EpisodeBatch:
    made = []
    for name, count in (("dgx64", 2), ("nodes:2x4", 1)):
        cluster = load_cluster(name)

        def draw(generator: np.random.Generator, cluster=cluster) -> Workload:
            log = build_workload(synth("helios", 40, seed=int(generator.integers(1 << 30))), users="synthetic")
            return scale_load(fit_to_cluster(log, cluster), cluster.num_gpus, 1.3)

        made.append(Shape(cluster, draw, count))
    return EpisodeBatch(made, EngineRule(order=at.AGENT, placement=placement), window=8)


def by_rule(clusters: EpisodeBatch) -> np.ndarray:
    """The rule's answers."""
    answers = np.zeros(clusters.size, np.int64)
    for group in clusters.groups_of:
        part = slice(group.lo, group.lo + group.shape.count)
        answer(RULE, group.engine, Ask(clusters.phases[part], clusters.windows[part]), answers[part])
    return answers


def test_what_an_answer_costs_is_what_comes_of_it() -> None:
    """The foretold cost of the answer that is given, the rule answering from then on, is the episode's own."""
    clusters = batch()
    ahead = Lookahead(clusters, RULE)
    generator = np.random.default_rng(0)
    for _ in range(25):  # somewhere in the middle of episodes, on a way of their own
        clusters.ask()
        clusters.apply(np.array([generator.choice(np.flatnonzero(mask)) for mask in clusters.job_mask]))
    clusters.ask()
    rows = {row: np.flatnonzero(clusters.job_mask[row]) for row in range(clusters.size)}
    foretold = {row: ahead.costs(row, answers) for row, answers in rows.items()}
    given = np.array([answers[generator.integers(len(answers))] for answers in rows.values()])
    episodes = clusters.episode.copy()
    clusters.apply(given)
    found: dict[int, np.ndarray] = {}
    while len(found) < clusters.size:
        for done in clusters.ask():
            if done.episode == episodes[done.cluster]:
                found[done.cluster] = done.costs
        clusters.apply(by_rule(clusters))
    for row, answers in rows.items():
        expected = foretold[row][list(answers).index(given[row])]
        np.testing.assert_allclose(found[row], expected, rtol=1e-9, atol=1e-12)


def test_the_clusters_are_left_alone() -> None:
    clusters = batch(placement=at.PLACE_AGENT)
    ahead = Lookahead(clusters, RULE)
    clusters.ask()
    before = [{name: array.copy() for name, array in g.engine.batch.arrays.items()} for g in clusters.groups_of]
    first = ahead.costs(0, np.flatnonzero(clusters.job_mask[0]))
    for group, arrays in zip(clusters.groups_of, before, strict=True):
        for name, array in arrays.items():
            np.testing.assert_array_equal(group.engine.batch.arrays[name], array, err_msg=name)
    np.testing.assert_array_equal(ahead.costs(0, np.flatnonzero(clusters.job_mask[0])), first)


def test_only_a_job_agent_s_decisions_are_looked_into() -> None:
    clusters = batch(placement=at.PLACE_AGENT)
    ahead = Lookahead(clusters, RULE)
    clusters.ask()
    clusters.apply(clusters.job_mask.argmax(1))
    clusters.ask()
    row = int(np.flatnonzero(clusters.phases == at.UNIT_PHASE)[0])
    with pytest.raises(ValueError, match="phase"):
        ahead.costs(row, np.array([0]))
