"""Episodes end for both agents, are truncated on demand, follow from the seed, and come from where one says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attn_sched.errors import InputError
from attn_sched.workload import build_workload, offered_load, synth
from envs.episodes import SyntheticEpisodes
from tests.envs.play import FACES, Record, make, play
from tests.reference.shapes import make_jobs, node_cluster

SMALL: dict[str, Any] = {"cluster": "nodes:2x4", "episodes": {"jobs": 12, "loads": (1.0, 2.0)}, "window": 4}


@pytest.mark.parametrize("face", FACES)
def test_ends_when_all_jobs_have(face: str) -> None:
    environment = make(face, **SMALL)
    record = play(face, environment)
    assert record.terminated and not record.truncated
    assert np.isfinite(record.schedule.finish_s).all()
    assert record.schedule.decisions == len(record.decisions) == record.session.decisions
    assert {agent for agent, _, _ in record.decisions} == ({"job"} if face == "single" else {"job", "gpu"})
    with pytest.raises(InputError, match="has ended"):
        record.session.step(0)
    assert play(face, environment, seed=None).terminated, "another one follows"


@pytest.mark.parametrize("most", [1, 7])
@pytest.mark.parametrize("face", FACES)
def test_is_truncated_after_so_many_decisions(face: str, most: int) -> None:
    environment = make(face, max_decisions=most, **SMALL)
    record = play(face, environment)
    assert record.truncated and not record.terminated
    assert len(record.decisions) == most
    with pytest.raises(InputError, match="has ended"):
        record.session.step(0)
    whole = play(face, make(face, **SMALL))
    assert len(whole.decisions) > most
    last = make(face, max_decisions=len(whole.decisions), **SMALL)
    assert play(face, last).terminated, "an episode that ends with its last decision is not cut off"


def same(one: Record, other: Record) -> bool:
    if len(one.decisions) != len(other.decisions) or one.returns != other.returns:
        return False
    return all(
        a[0] == b[0] and a[2] == b[2] and all(np.array_equal(a[1][name], b[1][name]) for name in a[1])
        for a, b in zip(one.decisions, other.decisions, strict=True)
    )


@pytest.mark.parametrize("face", FACES)
def test_follows_from_the_seed(face: str) -> None:
    arguments = SMALL | {"weights": "random"} | ({"placement": "random"} if face == "single" else {})
    environment = make(face, **arguments)
    first = [play(face, environment, seed=seed) for seed in (7, None, None)]
    again = [play(face, environment, seed=seed) for seed in (7, None, None)]
    fresh = make(face, seed=7, **arguments)
    by_constructor = [play(face, fresh, seed=None) for _ in range(3)]
    for a, b, c in zip(first, again, by_constructor, strict=True):
        assert same(a, b) and same(a, c)
    assert not same(first[0], first[1]) and not same(first[1], first[2])
    assert not same(first[0], play(face, environment, seed=8))


def test_two_environments_without_a_seed_differ() -> None:
    one, other = (play("single", make("single", **SMALL), seed=None) for _ in range(2))
    assert not same(one, other)


@pytest.mark.parametrize("cluster", ["count:2", "nodes:2x4", "dgx64", "eth64"])
def test_synthetic_episodes_fit_the_cluster_and_offer_the_load(cluster: str) -> None:
    environment = make("single", cluster=cluster, episodes="synthetic", window=4)
    environment.reset(seed=0)
    shape = environment.session.settings.cluster
    draw = SyntheticEpisodes(shape, ("philly", "helios", "pai", "acme"), jobs=30, loads=(0.7, 0.9))
    generator, names = np.random.default_rng(1), set()
    for _ in range(12):
        jobs = draw(generator)
        names.add(jobs.name)
        assert len(jobs) == 30 and jobs.counted.all() and jobs.submit_s[0] == 0
        assert jobs.num_gpus.max() <= shape.num_gpus
        assert 0.699 < offered_load(jobs, shape.num_gpus) < 0.901
    assert len(names) > 1


def test_episodes_of_ones_own() -> None:
    log = build_workload(synth("philly", 500)).select(np.arange(500))
    small = log.replace(num_gpus=np.minimum(log.num_gpus, 4).astype(np.int32))

    def draw(generator: np.random.Generator) -> Any:
        first = int(generator.integers(400))
        return small.select(np.arange(first, first + 20))

    record = play("aec", make("aec", cluster="count:8", episodes=draw, window=4))
    assert set(record.workload.job_id) < set(small.job_id)


def test_a_source_that_gives_what_cannot_be_played() -> None:
    for given, problem in (
        (None, "NoneType was drawn"),
        (make_jobs([0], [1], [99]), "asks for 99 GPUs"),
        (make_jobs([0, 1], [1, 1], [1, 1]).select(np.arange(0)), "no jobs"),
    ):
        environment = make("single", cluster=node_cluster(2, 4), episodes=lambda generator, given=given: given)
        with pytest.raises(InputError, match=problem):
            environment.reset(seed=0)


def test_episodes_that_leave_nothing_to_decide() -> None:
    cancelled = make_jobs([0, 5], [1, 1], [1, 1], cancel=[0, 5])
    environment = make("single", cluster=node_cluster(2, 4), episodes=lambda generator: cancelled)
    with pytest.raises(InputError, match="nothing to decide"):
        environment.reset(seed=0)


def test_illegal_actions_hold_on_demand() -> None:
    environment = make("single", on_illegal="hold", **SMALL)
    observation, info = environment.reset(seed=0)
    assert observation["action_mask"].tolist() == [1, 0, 0, 0, 1]
    _, _, _, _, info = environment.step(2)
    assert info["illegal"] and np.isnan(environment.session.schedule().start_s).all(), "it held"
    _, _, _, _, info = environment.step(0)
    assert not info["illegal"]
    for action in (-1, 5, 0.5):
        with pytest.raises(InputError, match="not legal"):
            environment.step(action)
    # A job alone at the end cannot wait for anything: it is started.
    alone = make("single", cluster="count:2", episodes=lambda g: make_jobs([0], [5], [1]), on_illegal="hold", window=2)
    observation, _ = alone.reset()
    assert observation["action_mask"].tolist() == [1, 0, 0]
    _, _, terminated, _, info = alone.step(2)
    assert terminated and info["illegal"]
