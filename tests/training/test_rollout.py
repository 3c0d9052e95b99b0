"""Sampling: episodes restart by themselves, rewards are complete whatever the cuts, forced answers cost nothing."""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
import torch

from attn_sched.agents.networks import Critic
from attn_sched.agents.pair import AgentPair
from attn_sched.agents.rewards import DEFAULT_WEIGHTS
from attn_sched.agents.spec import NetworkSpec
from attn_sched.cluster import load_cluster
from attn_sched.errors import InputError
from attn_sched.simulator import EngineRule, fit_to_cluster
from attn_sched.simulator import layout as at
from attn_sched.training.batch import EpisodeBatch, Shape
from attn_sched.training.rollout import Collected, Fragment, Rollout
from attn_sched.workload import Workload, build_workload, scale_load, synth

SPEC = NetworkSpec(width=8, heads=2, layers=1, feedforward=8, critic_width=8)
RULES = {
    "both": EngineRule(order=at.AGENT, placement=at.PLACE_AGENT),
    "job": EngineRule(order=at.AGENT, placement=at.TOPO_BEST_FIT),
    "gpu": EngineRule(keys=lambda workload, generator: workload.submit_s, placement=at.PLACE_AGENT),
}


def shapes(counts: dict[str, int], jobs: int = 30) -> list[Shape]:
    made = []
    for name, count in counts.items():
        cluster = load_cluster(name)

        def draw(generator: np.random.Generator, cluster=cluster) -> Workload:
            log = build_workload(synth("helios", jobs, seed=int(generator.integers(1 << 30))), users="synthetic")
            return scale_load(fit_to_cluster(log, cluster), cluster.num_gpus, 1.0)

        made.append(Shape(cluster, draw, count))
    return made


def rollout(rule: str = "both", seed: int = 0, greedy: bool = False, **batch: Any) -> Rollout:
    agents = ("job", "gpu") if rule == "both" else (rule,)
    pair = AgentPair.fresh(SPEC, agents, seed)
    torch.manual_seed(seed)
    made = EpisodeBatch(shapes({"dgx64": 3, "nodes:2x4": 2}), RULES[rule], seed=seed, **batch)
    return Rollout(
        made, {agent: pair.net(agent) for agent in agents}, {a: Critic(SPEC) for a in agents}, seed, greedy=greedy
    )


def by_trail(parts: list[Collected]) -> dict[tuple[str, int, int], list[Fragment]]:
    trails = defaultdict(list)
    for part in parts:
        for fragment in part.fragments:
            trails[fragment.agent, fragment.cluster, fragment.episode].append(fragment)
    return trails


def joined(fragments: list[Fragment], name: str) -> np.ndarray:
    return np.concatenate([getattr(fragment, name)[: len(fragment.actions)] for fragment in fragments])


@pytest.mark.parametrize("rule", RULES)
def test_cuts_change_nothing(rule: str) -> None:
    """Many short collections and one long one hold the same decisions with the same rewards."""
    short, long = rollout(rule), rollout(rule)
    parts = [short.collect(37) for _ in range(20)]
    whole = [long.collect(sum(sum(part.decisions.values()) for part in parts) + 5 * short.batch.size)]
    pieces, reference = by_trail(parts), by_trail(whole)
    assert len(pieces) > 5 and any(len(fragments) > 2 for fragments in pieces.values())
    for key, fragments in pieces.items():
        for name in ("actions", "logp", "terms", "values", "logits"):
            got, wanted = joined(fragments, name), joined(reference[key], name)
            np.testing.assert_allclose(got, wanted[: len(got)], rtol=1e-4, atol=1e-5, err_msg=name)
        # A fragment's last observation is the next one's first.
        for before, after in itertools.pairwise(fragments):
            np.testing.assert_array_equal(before.obs["jobs"][-1], after.obs["jobs"][0])
            np.testing.assert_array_equal(before.values[-1], after.values[0])


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("fairness", ["wait", "worst-user"])
def test_rewards_of_an_episode_add_up_to_its_costs(rule: str, fairness: str) -> None:
    sampler = rollout(rule, fairness=fairness)
    first: dict[tuple[int, int], np.ndarray] = {}
    parts, ended = [], {}
    for _ in range(40):
        if not sampler._asked:
            for done in sampler.batch.ask():
                ended[done.cluster, done.episode] = done.costs
                sampler._close(done)
            sampler._asked = True
        part = sampler.collect(20)
        parts.append(part)
        ended.update({(done.cluster, done.episode): done.costs for done in part.ended})
    del first
    checked = 0
    for (agent, cluster, episode), fragments in by_trail(parts).items():
        if (cluster, episode) not in ended or not fragments[-1].terminated:
            continue
        total = joined(fragments, "terms").sum(0)
        # What passed before an agent's first decision is nobody's: at most the whole cost.
        assert (-total <= ended[cluster, episode] + 1e-4).all(), agent
        if agent != "gpu":  # the job agent is asked as soon as something can start: nothing has been lost before
            np.testing.assert_allclose(-total[0], ended[cluster, episode][0], rtol=1e-3, atol=1e-3)
        checked += 1
    assert checked >= 3


def test_forced_decisions_are_not_learned_from() -> None:
    part = rollout("gpu").collect(300)
    assert part.forced > 0
    for fragment in part.fragments:
        assert (fragment.obs["action_mask"][: len(fragment.actions)].sum(1) > 1).all()


def test_decisions_are_legal_and_logits_explain_them() -> None:
    for agent in ("job", "gpu"):
        stacked = rollout().collect(400).flat(agent, 0.95)
        rows = np.arange(len(stacked["actions"]))
        assert (stacked["obs.action_mask"][rows, stacked["actions"]] == 1).all()
        logp = torch.log_softmax(torch.from_numpy(stacked["logits"]), 1)[rows, stacked["actions"]]
        np.testing.assert_allclose(logp, stacked["logp"], rtol=1e-4, atol=1e-5)
        assert stacked["advantages"].shape == stacked["targets"].shape == (len(rows), 3)


def test_one_seed_fixes_everything() -> None:
    one, same, other = (rollout(seed=seed).collect(200).flat("job", 0.9) for seed in (3, 3, 4))
    for name, values in one.items():
        np.testing.assert_array_equal(values, same[name])
    assert not np.array_equal(one["logp"][:50], other["logp"][:50])


def test_padding_of_smaller_clusters_is_marked() -> None:
    batch = EpisodeBatch(shapes({"nodes:2x4": 1, "dgx64": 1}), RULES["both"])
    batch.ask()
    assert batch.units.shape[1] == 8
    assert (batch.groups[0, 2:] == -1).all() and not batch.units[0, 2:].any() and not batch.unit_mask[0, 2:].any()
    assert (batch.groups[1] >= 0).all()


def test_weights_are_drawn_per_episode_and_seen() -> None:
    sampler = rollout(weights=lambda generator: generator.random(3))
    part = sampler.collect(500)
    drawn = {(f.cluster, f.episode): f.weights[0] for f in part.fragments}
    assert len({tuple(weights) for weights in drawn.values()}) == len(drawn) > 5
    for fragment in part.fragments:
        np.testing.assert_array_equal(fragment.obs["globals"][: len(fragment.actions), -3:], fragment.weights)
        np.testing.assert_array_equal(fragment.weights[0], drawn[fragment.cluster, fragment.episode])
    plain = rollout().collect(10)
    np.testing.assert_array_equal(plain.fragments[0].weights[0], np.array(DEFAULT_WEIGHTS, np.float32))


def test_a_restored_batch_goes_on_with_the_same_episodes() -> None:
    one, other = (EpisodeBatch(shapes({"nodes:2x4": 3}), RULES["both"], seed=2) for _ in range(2))
    for _ in range(40):
        one.ask()
        one.apply(np.where(one.phases == at.JOB_PHASE, one.job_mask.argmax(1), one.unit_mask.argmax(1)))
    state = one.get_state()
    other.set_state(state)
    one.set_state(state)
    one.ask(), other.ask()
    np.testing.assert_array_equal(one.jobs, other.jobs)
    np.testing.assert_array_equal(one.episode, other.episode)


def test_a_batch_of_no_cluster_is_refused() -> None:
    with pytest.raises(InputError, match="no cluster"):
        EpisodeBatch([], RULES["both"])
