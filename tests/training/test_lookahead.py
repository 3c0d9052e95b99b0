"""Looking ahead: costs are those of the episode played on by the rule, and the clusters themselves are left alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attn_sched.agents.teaching import picks_of_rule
from attn_sched.cluster import load_cluster
from attn_sched.policies.linear import answer, sjf_rule
from attn_sched.simulator import Ask, EngineRule, fit_to_cluster
from attn_sched.simulator import layout as at
from attn_sched.training.batch import EpisodeBatch, Shape
from attn_sched.training.lookahead import Lookahead, _imagine
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
    """The answers of rule and placement."""
    answers = np.zeros(clusters.size, np.int64)
    for group in clusters.groups_of:
        part = slice(group.lo, group.lo + group.shape.count)
        ask = Ask(clusters.phases[part], clusters.windows[part])
        answers[part] = picks_of_rule(group.engine, ask).argmax(1)
        answer(RULE, group.engine, ask, answers[part])
    return answers


def legal(clusters: EpisodeBatch, row: int) -> np.ndarray:
    """The legal answers of a cluster."""
    mask = clusters.job_mask if clusters.phases[row] == at.JOB_PHASE else clusters.unit_mask
    return np.flatnonzero(mask[row])


@pytest.mark.parametrize(
    ("placement", "steps"), [(at.TOPO_BEST_FIT, 25), (at.PLACE_AGENT, 40), (at.PLACE_AGENT, 41), (at.PLACE_AGENT, 43)]
)
def test_what_an_answer_costs_is_what_comes_of_it(placement: int, steps: int) -> None:
    """The foretold cost of the answer that is given, the rule answering from then on, is the episode's own."""
    clusters = batch(placement)
    ahead = Lookahead(clusters, RULE)
    generator = np.random.default_rng(0)
    for _ in range(steps):  # somewhere in the middle of episodes, on a way of their own
        clusters.ask()
        clusters.apply(np.array([generator.choice(legal(clusters, row)) for row in range(clusters.size)]))
    clusters.ask()
    if placement == at.PLACE_AGENT:
        assert (clusters.phases == at.UNIT_PHASE).any() and clusters.groups_of[0].engine.units.size > 1
    rows = {row: legal(clusters, row) for row in range(clusters.size)}
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


class InOrder:
    """Imagines what is going to happen."""

    def permutation(self, count: int) -> np.ndarray:
        return np.arange(count)


def test_futures_are_imagined_of_the_jobs_to_come() -> None:
    """In their own order and rhythm they are what is going to happen; cut short, they cost less; others, others."""
    clusters = batch()
    ahead = Lookahead(clusters, RULE)
    for _ in range(10):
        clusters.ask()
        clusters.apply(by_rule(clusters))
    clusters.ask()
    less = other = 0
    for row in range(clusters.size):
        answers = legal(clusters, row)
        true = ahead.costs(row, answers)
        in_order: Any = InOrder()
        np.testing.assert_array_equal(ahead.costs(row, answers, in_order, 1000), true)
        short = ahead.costs(row, answers, in_order, 3)[:, 0]
        assert (short <= true[:, 0] + 1e-9).all()
        less += int((short < true[:, 0] - 1e-9).all())
        drawn = ahead.costs(row, answers, np.random.default_rng(1))
        other += int((drawn != true).any())
        np.testing.assert_array_equal(ahead.costs(row, answers, np.random.default_rng(1)), drawn)
    assert less and other


def test_an_imagined_future_has_the_same_jobs_and_the_same_times_between_them() -> None:
    clusters = batch()
    clusters.ask()
    engine = clusters.groups_of[0].engine
    w = engine.view(0)
    first, last = int(w.si[at.NEXT_ARRIVAL]), int(w.si[at.N_JOBS])
    draws = np.random.default_rng(2)
    floats, integers = w.jf.copy(), w.ji.copy()
    _imagine(engine.batch.address, draws.permutation(last - first), draws.permutation(last - first - 1), 5)
    np.testing.assert_array_equal(w.jf[:first], floats[:first])
    assert w.si[at.N_JOBS] == first + 5 and w.si[at.COUNTED_LEFT] == first + 5
    jobs = [
        sorted(zip(f[first:last, at.DURATION], i[first:last, at.GPUS], strict=True))
        for f, i in ((w.jf, w.ji), (floats, integers))
    ]
    assert jobs[0] == jobs[1] and (w.jf[first:last, at.DURATION] != floats[first:last, at.DURATION]).any()
    gaps = [np.sort(np.diff(f[first:last, at.SUBMIT])) for f in (w.jf, floats)]
    np.testing.assert_allclose(gaps[0], gaps[1], atol=1e-6)


def test_a_cluster_that_asks_nobody_has_no_answers() -> None:
    ahead = Lookahead(batch(), RULE)
    with pytest.raises(ValueError, match="phase"):
        ahead.costs(0, np.array([0]))
