"""Imitation: students come to do as their teachers, on states of their own, and critics to expect what follows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from attn_sched.agents.networks import Critic
from attn_sched.agents.pair import AgentPair
from attn_sched.agents.schema import AGENTS, GLOBAL_FEATURES, JOB_FEATURES, UNIT_FEATURES, UNIT_GROUPS
from attn_sched.cluster import load_cluster
from attn_sched.errors import InputError
from attn_sched.policies.linear import LinearRule, choose
from attn_sched.simulator import layout as at
from attn_sched.training.batch import EpisodeBatch, Shape
from attn_sched.training.critics import CriticFit, fit_critics, returns, whole_episodes
from attn_sched.training.imitation import ImitationSettings, Teacher, imitate
from attn_sched.training.rollout import Fragment, Rollout
from attn_sched.training.source import rule_for
from tests.training.clusters import SPEC, draw

SMALL = ImitationSettings(
    rounds=4, decisions=250, epochs=5, last_epochs=3, minibatch=50, rate=1e-2,
    value_decisions=600, value_epochs=10, value_rate=5e-3,
)  # fmt: skip
STUDENT = replace(SPEC, width=16, feedforward=16)
RULE = LinearRule.from_weights(
    {"estimate": -1.0, "gpus": 0.3}, {"constant": 1.0, "gpus": -1.2, "wait_over_estimate": 1.0}
)


def make_batch(agents: tuple[str, ...] = AGENTS, seed: int = 0) -> EpisodeBatch:
    shapes = [Shape(load_cluster(name), partial(draw, jobs=12), 6) for name in ("nodes:2x4", "eth64")]
    return EpisodeBatch(shapes, rule_for(agents), window=SPEC.window, seed=seed)


def make_critics(agents: tuple[str, ...] = AGENTS) -> dict[str, Critic]:
    torch.manual_seed(0)
    return {agent: Critic(SPEC) for agent in agents}


def test_both_agents_learn_their_teachers_and_critics_learn_the_returns() -> None:
    pair = AgentPair.fresh(STUDENT, AGENTS, seed=0)
    told: list[tuple[str, int, Mapping[str, float]]] = []
    metrics = imitate(
        make_batch(), pair, make_critics(), RULE, SMALL, seed=1, progress=lambda *report: told.append(report)
    )
    first = told[0][2]
    assert metrics["agreement.job"] > first["agreement.job"] + 0.25
    assert metrics["agreement.gpu"] > first["agreement.gpu"]
    assert metrics["loss.job"] < 0.75 * first["loss.job"]
    assert -1e-5 <= metrics["loss.gpu"] < 0.85 * first["loss.gpu"]
    assert {"explained.job", "explained.gpu"} <= set(metrics)
    assert metrics["decisions.job"] + metrics["decisions.gpu"] >= 4 * 250
    assert [stage for stage, _, _ in told] == ["imitation"] * 4 + ["critics"]


def test_the_same_seed_gives_the_same_agents() -> None:
    settings = replace(SMALL, rounds=2, decisions=80, epochs=1, last_epochs=1, value_decisions=80, value_epochs=1)
    made = []
    for seed in (1, 1, 2):
        pair = AgentPair.fresh(STUDENT, AGENTS, seed=0)
        critics = make_critics()
        metrics = imitate(make_batch(), pair, critics, RULE, settings, seed=seed)
        weights = [*pair.net("job").parameters(), *pair.net("gpu").parameters(), *critics["job"].parameters()]
        made.append((metrics, torch.cat([weight.detach().flatten() for weight in weights])))
    assert made[0][0] == made[1][0]
    assert torch.equal(made[0][1], made[1][1])
    assert not torch.equal(made[0][1], made[2][1])


@pytest.mark.parametrize("agent", AGENTS)
def test_one_agent_alone(agent: str) -> None:
    pair = AgentPair.fresh(STUDENT, (agent,), seed=0)
    rule = RULE if agent == "job" else None
    settings = replace(SMALL, rounds=2, decisions=80, epochs=1, last_epochs=1, value_decisions=80, value_epochs=1)
    metrics = imitate(make_batch((agent,)), pair, make_critics((agent,)), rule, settings)
    assert {name.partition(".")[2] for name in metrics} == {agent}


def test_a_job_agent_needs_a_teacher() -> None:
    with pytest.raises(InputError, match="no teacher"):
        imitate(make_batch(), AgentPair.fresh(STUDENT, AGENTS, seed=0), {}, None, SMALL)


def test_without_critics_nothing_is_fitted() -> None:
    settings = replace(SMALL, rounds=1, decisions=50, epochs=1, last_epochs=0)
    metrics = imitate(make_batch(), AgentPair.fresh(STUDENT, AGENTS, seed=0), {}, RULE, settings)
    assert not any(name.startswith("explained") for name in metrics)


def test_targets_are_the_teachers_answers() -> None:
    batch = make_batch()
    teacher = Teacher(batch, RULE)
    generator = np.random.default_rng(0)
    seen = {"hold": 0, "start": 0, "several": 0}
    for _ in range(60):
        batch.ask()
        forced = batch.forced()
        targets = teacher.targets()
        for agent, (rows, target) in targets.items():
            mask = batch.job_mask[rows] if agent == "job" else batch.unit_mask[rows]
            assert np.all(forced[rows] < 0)
            assert np.allclose(target.sum(1), 1.0)
            assert np.all(mask[target > 0] == 1)
        job_rows, job_target = targets["job"]
        for row, target in zip(job_rows, job_target, strict=True):
            group = next(g for g in batch.groups_of if g.lo <= row < g.lo + g.shape.count)
            w = group.engine.view(int(row) - group.lo)
            assert target.argmax() == choose(w, batch.windows[row], RULE.vector)
            seen["hold" if target[-1] == 1 else "start"] += 1
        seen["several"] += int((targets["gpu"][1] > 0).sum(1).max(initial=0) > 1)
        asked = np.flatnonzero((forced < 0) & (batch.phases == at.UNIT_PHASE))
        assert set(targets["gpu"][0]) == set(asked)
        answers = forced.copy()
        for row in np.flatnonzero(forced < 0):
            mask = batch.job_mask[row] if batch.phases[row] == at.JOB_PHASE else batch.unit_mask[row]
            answers[row] = generator.choice(np.flatnonzero(mask))
        batch.apply(answers)
    assert min(seen.values()) > 5, seen


def test_students_that_cannot_hold_are_not_taught_to() -> None:
    batch = make_batch()
    always = LinearRule.from_weights({"estimate": -1.0}, {"constant": -1.0})
    for hold in (True, False):
        batch.ask()
        rows, target = Teacher(batch, always, hold=hold).targets()["job"]
        assert len(rows)
        assert np.all(target[:, -1] == float(hold))


def fragment(episode: int, terms: list[float], *, ended: bool) -> Fragment:
    count = len(terms)
    rows = np.zeros((count + 1, 1), np.float32)
    return Fragment(
        agent="job",
        cluster=0,
        episode=episode,
        obs={"globals": rows + episode},
        actions=np.zeros(count, np.int64),
        logp=np.zeros(count, np.float32),
        logits=np.zeros((count, 2), np.float32),
        values=np.zeros((count + 1, 3), np.float32),
        terms=np.stack([terms, [0.0] * count, [1.0] * count], axis=1).astype(np.float32),
        weights=np.ones((count, 3), np.float32),
        terminated=ended,
    )


def test_returns_go_on_across_fragments_of_an_episode() -> None:
    def critic(obs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return 100.0 * obs["globals"].expand(-1, 3)  # 100 times the number of the episode

    parts = [
        fragment(1, [1.0, 2.0], ended=False),
        fragment(2, [5.0], ended=True),
        fragment(1, [4.0], ended=True),
        fragment(3, [7.0, 8.0], ended=False),
    ]
    sums = returns(critic, parts)  # type: ignore[arg-type]
    assert sums[:, 0].tolist() == [7.0, 6.0, 5.0, 4.0, 315.0, 308.0]
    assert sums[:, 2].tolist() == [3.0, 2.0, 1.0, 1.0, 302.0, 301.0]


def test_critics_learn_from_whole_episodes() -> None:
    parts = [fragment(1, [1.0], ended=False), fragment(2, [5.0], ended=False), fragment(1, [4.0], ended=True)]
    assert whole_episodes(parts) == [parts[0], parts[2]]
    assert whole_episodes(parts[:2]) == parts[:2]  # none ended: the critic's guesses must do


def test_returns_are_minus_the_costs_of_the_whole_episode() -> None:
    batch = make_batch()
    pair = AgentPair.fresh(SPEC, AGENTS, seed=0)
    critics = make_critics()
    nets = {agent: pair.net(agent) for agent in AGENTS}
    rollout = Rollout(batch, nets, critics, seed=0)
    fragments: list[Fragment] = []
    ended: dict[int, np.ndarray] = {}
    for _ in range(3):
        collected = rollout.collect(300)
        fragments += [part for part in collected.fragments if part.agent == "job"]
        ended |= {done.episode: done.costs for done in collected.ended}
    sums = returns(critics["job"], fragments)
    firsts: dict[int, np.ndarray] = {}
    place = 0
    for part in fragments:
        firsts.setdefault(part.episode, sums[place])
        place += len(part.actions)
    assert len(ended) > 5
    for episode, costs in ended.items():
        # Before its first decision that was no forced one, an episode has cost something already.
        assert np.all(firsts[episode] <= 1e-5)
        assert np.all(firsts[episode] >= -costs - 1e-4)
        assert firsts[episode][0] == pytest.approx(-costs[0], rel=0.35, abs=0.05)


def test_a_critic_comes_to_expect_what_can_be_known() -> None:
    generator = np.random.default_rng(0)
    parts = []
    for cluster in range(40):
        seen = np.zeros((6, len(GLOBAL_FEATURES)), np.float32)
        seen[:, 0] = generator.uniform(0, 1)  # what each of the five decisions will cost ...
        seen[:, 1] = np.linspace(1.0, 0.0, 6)  # ... and how many of them are still to come
        part = replace(fragment(cluster, (-seen[:5, 0]).tolist(), ended=True), cluster=cluster)
        part.obs = {
            "jobs": np.zeros((6, SPEC.window, len(JOB_FEATURES)), np.float32),
            "units": np.zeros((6, 2, len(UNIT_FEATURES)), np.float32),
            "unit_groups": np.zeros((6, 2, UNIT_GROUPS), np.int32),
            "globals": seen,
        }
        parts.append(part)
    torch.manual_seed(0)
    fit = CriticFit(Critic(replace(SPEC, critic_width=32)), parts, generator)
    assert set(fit.judged).isdisjoint(fit.train)
    assert len(fit.judged) == 4 * 5  # of every tenth cluster
    before = fit.explained()
    fit.learn(60, 20, 1e-2, 1.0, 1.0)
    assert before < 0.1
    assert fit.explained() > 0.8


def test_fitting_critics_leaves_the_agents_alone() -> None:
    pair = AgentPair.fresh(SPEC, AGENTS, seed=0)
    critics = make_critics()
    before = [weight.clone() for weight in critics["job"].parameters()]
    agents_before = [weight.clone() for agent in AGENTS for weight in pair.net(agent).parameters()]
    metrics = fit_critics(make_batch(), pair, critics, 300, epochs=1, minibatch=50)
    assert set(metrics) == {"explained.job", "explained.gpu"}
    agents_after = [weight for agent in AGENTS for weight in pair.net(agent).parameters()]
    assert all(torch.equal(a, b) for a, b in zip(agents_before, agents_after, strict=True))
    assert any(not torch.equal(a, b) for a, b in zip(before, critics["job"].parameters(), strict=True))


@pytest.mark.parametrize(
    ("name", "value"),
    [("rounds", 0), ("decisions", 1.5), ("teacher", 1.1), ("rate", 0.0), ("huber", float("nan")), ("minibatch", True)],
)
def test_bad_settings_are_refused(name: str, value: object) -> None:
    with pytest.raises(InputError, match=name):
        replace(SMALL, **{name: value})  # type: ignore[arg-type]
