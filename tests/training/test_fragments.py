"""Fragments on their way to the learner: what goes in comes out, row by row, and credit is that of each fragment."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ray.rllib.core.columns import Columns

from attn_sched.training.credit import gae, standardise
from attn_sched.training.fragments import ADVANTAGES, TARGETS, VALUES, FragmentsToTrainBatch, to_episode
from attn_sched.training.rollout import Fragment


def fragment(agent: str, episode: int, n: int, terminated: bool, generator: np.random.Generator) -> Fragment:
    """Rows that can be told apart."""
    actions = 5 if agent == "job" else 3
    return Fragment(
        agent=agent,
        cluster=0,
        episode=episode,
        obs={"jobs": generator.random((n + 1, 4, 2), np.float32), "globals": generator.random((n + 1, 3), np.float32)},
        actions=generator.integers(actions, size=n),
        logp=generator.random(n, np.float32),
        logits=generator.random((n, actions), np.float32),
        values=generator.random((n + 1, 3), np.float32),
        terms=generator.random((n, 3), np.float32),
        weights=np.tile(generator.random((1, 3), np.float32), (n, 1)),
        terminated=terminated,
    )


@pytest.fixture
def fragments() -> list[Fragment]:
    generator = np.random.default_rng(0)
    shapes = [("job", 0, 4, False), ("gpu", 0, 2, True), ("job", 1, 1, True), ("job", 0, 3, True)]
    return [fragment(*shape, generator) for shape in shapes]


def join(fragments: list[Fragment], **changes: Any) -> dict[str, dict[str, Any]]:
    connector = FragmentsToTrainBatch(**{"gamma": 1.0, "lam": {"job": 0.9, "gpu": 0.9}, "clamp": 4.0, **changes})
    return connector(episodes=[to_episode(f, str(f.episode)) for f in fragments])


def test_an_episode_holds_the_fragment(fragments: list[Fragment]) -> None:
    first = fragments[0]
    episode = to_episode(first, "0:7", started=11)
    assert (len(episode), episode.t_started, episode.t) == (4, 11, 15)
    assert episode.agent_id == episode.module_id == "job" and str(episode.multi_agent_episode_id) == "0:7"
    assert episode.is_numpy and not episode.is_terminated and to_episode(fragments[1], "0:7").is_terminated
    np.testing.assert_array_equal(episode.get_observations(-1)["jobs"], first.obs["jobs"][-1])
    np.testing.assert_allclose(episode.get_return(), (first.terms * first.weights).sum(), rtol=1e-6)


def test_columns_stand_row_by_row(fragments: list[Fragment]) -> None:
    batch = join(fragments)
    assert {module: len(columns[Columns.ACTIONS]) for module, columns in batch.items()} == {"job": 8, "gpu": 2}
    jobs = [f for f in fragments if f.agent == "job"]
    for name in ("jobs", "globals"):
        np.testing.assert_array_equal(batch["job"][Columns.OBS][name], np.concatenate([f.obs[name][:-1] for f in jobs]))
    for column, field in (
        (Columns.ACTIONS, "actions"), (Columns.ACTION_LOGP, "logp"), (Columns.ACTION_DIST_INPUTS, "logits"),
    ):  # fmt: skip
        np.testing.assert_array_equal(batch["job"][column], np.concatenate([getattr(f, field) for f in jobs]))


@pytest.mark.parametrize(("gamma", "lams"), [(1.0, (0.9, 0.5)), (0.8, (1.0, 1.0)), (1.0, (0.0, 0.9))])
def test_credit_is_that_of_each_fragment(fragments: list[Fragment], gamma: float, lams: tuple[float, float]) -> None:
    by_agent = dict(zip(("job", "gpu"), lams, strict=True))
    batch = join(fragments, gamma=gamma, lam=by_agent)
    for agent in ("job", "gpu"):
        mine = [f for f in fragments if f.agent == agent]
        advantages = np.concatenate([gae(f.terms, f.values, f.terminated, by_agent[agent], gamma) for f in mine])
        values = np.concatenate([f.values[:-1] for f in mine])
        weights = np.concatenate([f.weights for f in mine])
        np.testing.assert_allclose(batch[agent][TARGETS], advantages + values, rtol=1e-5)
        np.testing.assert_allclose(batch[agent][ADVANTAGES], standardise(advantages, weights, 4.0), atol=1e-5)
        np.testing.assert_array_equal(batch[agent][VALUES], values)


def test_nothing_sampled_gives_nothing(fragments: list[Fragment]) -> None:
    assert join([]) == {}


def test_a_copy_is_made_alike() -> None:
    connector = FragmentsToTrainBatch(gamma=0.9, lam={"job": 0.8, "gpu": 0.5}, clamp=3.0)
    args, kwargs = connector.get_ctor_args_and_kwargs()
    copy = FragmentsToTrainBatch(*args, **kwargs)
    assert (copy.gamma, copy.lam, copy.clamp) == (0.9, {"job": 0.8, "gpu": 0.5}, 3.0)
