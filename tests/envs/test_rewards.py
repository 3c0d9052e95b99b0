"""Rewards telescope: what every agent of every face gets in an episode is minus the objectives of its schedule."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attn_sched.agents.rewards import reference_scales
from attn_sched.cluster import load_cluster
from attn_sched.simulator import SimOptions
from attn_sched.workload import Workload, scale_load
from envs.episodes import DrawEpisode, SyntheticEpisodes
from tests.envs.objectives import objectives
from tests.envs.play import FACES, make, play
from tests.reference.shapes import count_cluster, make_jobs

# Cluster, options of the simulator, fairness term, weights
CASES: dict[str, tuple[str, dict[str, Any], str, Any]] = {
    "dgx64": ("dgx64", {}, "wait", (1.0, 0.5, 0.25)),
    "dgx64-maxmin": ("dgx64", {"contention": "maxmin"}, "worst-user", (0.0, 1.0, 2.0)),
    "eth64": ("eth64", {"contention": "equal", "allreduce": "hierarchical"}, "jain", (1.0, 1.0, 1.0)),
    "eth64-alone": ("eth64", {"contention": "none"}, "wait", "random"),
    "small": ("nodes:2x4", {"contention": "maxmin"}, "wait", (1.0, 0.5, 0.25)),
    "guarded": ("nodes:2x4", {"max_wait_s": 600.0}, "worst-user", "random"),
    "counted": ("count:8", {}, "jain", (1.0, 0.5, 0.25)),
    "no communication": ("nodes:4x8", {"comm": False}, "wait", (3.0, 0.1, 0.1)),
}


def gangs(name: str) -> DrawEpisode:
    """Episodes of jobs with much to send, most of them gangs."""
    cluster = load_cluster(name)
    plain = SyntheticEpisodes(cluster, ("helios", "philly"), jobs=24, estimate="lognormal(0.3)")

    def draw(generator: np.random.Generator) -> Workload:
        jobs = plain(generator)
        gpus = np.minimum(generator.choice([1, 2, 4, 6, 8, 12, 16], len(jobs)), cluster.num_gpus).astype(np.int32)
        return scale_load(jobs.replace(num_gpus=gpus, grad_bytes=jobs.grad_bytes * 4), cluster.num_gpus, 1.5)

    return draw


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("case", CASES)
def test_returns_are_the_objectives_of_the_schedule(case: str, face: str) -> None:
    cluster, values, fairness, weights = CASES[case]
    options = SimOptions(**values)
    arguments: dict[str, Any] = (
        {"placement": "load-balance"} if face == "single" else {}
    )  # the best placement would cost nothing
    environment = make(
        face,
        cluster=cluster,
        episodes=gangs(cluster),
        window=6,
        weights=weights,
        options=options,
        fairness=fairness,
        **arguments,
    )
    for episode in range(2):
        record = play(face, environment, seed=5 if episode == 0 else None, choices=episode)
        raw = objectives(record.schedule, options, fairness)
        scales = reference_scales(load_cluster(cluster), [record.workload], options, fairness)[0]
        expected = -raw / scales
        for agent, terms in record.terms.items():
            np.testing.assert_allclose(terms, expected, rtol=1e-7, atol=1e-9, err_msg=agent)
            assert record.returns[agent] == pytest.approx(expected @ record.session.weights, rel=1e-7)
        assert set(record.terms) == ({"job"} if face == "single" else {"job", "gpu"})
        assert raw[0] > 0 and raw[1] >= 0
        if cluster in ("dgx64", "eth64"):
            assert raw[2] > 0, "some gang is placed badly"
        if cluster == "count:8" or not options.comm:
            assert raw[2] == 0


@pytest.mark.parametrize("face", FACES)
def test_what_is_spent_before_the_first_decision_counts(face: str) -> None:
    """A guard starts the first job unasked; the second has waited for a second when an agent is asked at last."""
    jobs = make_jobs([0, 1, 2, 2], [20, 5, 30, 10], [3, 4, 1, 1])
    options = SimOptions(comm=False, max_wait_s=0.0)
    environment = make(
        face, cluster=count_cluster(4), episodes=lambda generator: jobs, options=options, window=4, weights=(1, 0, 0)
    )
    record = play(face, environment)
    assert record.schedule.start_s[:2].tolist() == [0, 20]
    excess = record.schedule.finish_s - jobs.submit_s - jobs.duration_s
    scale = reference_scales(count_cluster(4), [jobs], options)[0, 0]
    for agent, reward in record.returns.items():
        assert reward == pytest.approx(-excess.sum() / scale), agent


def test_both_agents_get_every_reward_while_the_other_decides() -> None:
    """Each decision's reward goes to both agents, in the AEC face at once, in RLlib's when they are next observed."""
    arguments: dict[str, Any] = {"cluster": "nodes:2x4", "episodes": {"jobs": 12, "loads": (1.5, 1.5)}, "window": 4}
    aec, multi = make("aec", **arguments), make("multi", **arguments)
    aec.reset(seed=1)
    observations, _ = multi.reset(seed=1)
    since = {"job": 0.0, "gpu": 0.0}
    generator = np.random.default_rng(3)
    while True:
        ((agent, seen),) = observations.items()
        action = int(generator.choice(np.flatnonzero(seen["action_mask"])))
        aec.step(action)
        assert aec.rewards["job"] == aec.rewards["gpu"]
        for each in since:
            since[each] += aec.rewards[each]
        observations, rewards, terminated, _, _ = multi.step({agent: action})
        for each, reward in rewards.items():
            assert reward == pytest.approx(since[each], abs=1e-12)
            since[each] = 0.0
        if terminated["__all__"]:
            break
    assert since == {"job": 0.0, "gpu": 0.0}


def test_random_weights_are_drawn_for_each_episode_and_shown() -> None:
    environment = make("multi", cluster="count:4", episodes={"jobs": 5}, window=2, weights="random")
    drawn: list[tuple[float, ...]] = []
    for _ in range(4):
        observations, _ = environment.reset(seed=None if drawn else 0)
        ((_, seen),) = observations.items()
        np.testing.assert_allclose(seen["globals"][-3:], environment.session.weights, rtol=1e-6)
        drawn.append(tuple(environment.session.weights))
        assert max(drawn[-1]) == 1.0 and min(drawn[-1]) >= 0.0
    assert len(set(drawn)) == 4
