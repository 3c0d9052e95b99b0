"""The batched runner: credit does not depend on where sampling stops; counters, states and misuse."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest
import torch
from ray.rllib.core.columns import Columns
from ray.rllib.env.single_agent_episode import SingleAgentEpisode

from attn_sched.agents.schema import AGENTS
from attn_sched.errors import InputError
from attn_sched.training.algorithm import build_config
from attn_sched.training.fragments import FOLLOWING, REWARD_TERMS, VALUES, WEIGHTS
from attn_sched.training.runner import SECONDS, STREAMS, BatchedEnvRunner
from tests.training.clusters import SPEC, TinySource, settings


def make_runner(source: TinySource | None = None, **changes: Any) -> BatchedEnvRunner:
    source = source or TinySource()
    return BatchedEnvRunner(config=build_config(settings(agents=source.agents, **changes), SPEC, source))


def columns(episode: SingleAgentEpisode) -> dict[str, np.ndarray]:
    """All rows of a fragment."""
    rows = {name: episode.get_extra_model_outputs(name) for name in episode.extra_model_outputs}
    observations = episode.get_observations(slice(0, len(episode)))
    rows |= {"actions": episode.get_actions(), "rewards": episode.get_rewards()}
    return rows | {f"obs.{name}": values for name, values in observations.items()}


def joined(episodes: list[SingleAgentEpisode]) -> dict[str, dict[str, np.ndarray]]:
    """The rows of each agent in each episode, cut or not, in order; only of episodes that have ended."""
    parts: dict[str, list[SingleAgentEpisode]] = defaultdict(list)
    for episode in episodes:
        parts[episode.id_].append(episode)
    whole = {}
    for name, chunks in parts.items():
        if chunks[-1].is_terminated:
            assert [c.t_started for c in chunks] == [0, *np.cumsum([len(c) for c in chunks])[:-1]]
            rows = [columns(chunk) for chunk in chunks]
            whole[name] = {key: np.concatenate([r[key] for r in rows]) for key in rows[0]}
    return whole


@pytest.mark.parametrize("agents", [AGENTS, ("job",), ("gpu",)])
def test_credit_does_not_depend_on_where_sampling_stops(agents: tuple[str, ...]) -> None:
    source = TinySource(agents=agents)
    once = make_runner(source)
    long = once.sample(num_timesteps=300)
    often = make_runner(source)
    often.module.set_state(once.module.get_state())
    short: list[SingleAgentEpisode] = []
    number = 0
    while sum(map(len, short)) < 300:
        number += 1
        short += often.sample(num_timesteps=1 + number % 7)
    assert len(short) > 3 * len(long), "sampling was cut often"
    ended, cut = joined(long), joined(short)
    both = set(ended) & set(cut)
    assert {name.rsplit(":", 1)[1] for name in both} == set(agents) and len(both) >= 6
    for name in both:
        for key, rows in ended[name].items():
            # Rows are computed in batches of other sizes, which round differently.
            exact = key in ("actions", REWARD_TERMS, WEIGHTS)
            np.testing.assert_allclose(cut[name][key], rows, rtol=0 if exact else 1e-4, atol=0 if exact else 1e-5)


def test_rewards_are_what_the_episodes_cost() -> None:
    """The sum of an agent's rewards is the whole cost less what was spent before its first decision."""
    runner = make_runner()
    rollout = runner._sampler()
    costs: dict[int, np.ndarray] = {}
    paid: dict[tuple[str, int], np.ndarray] = defaultdict(lambda: np.zeros(3))
    first: dict[tuple[str, int], np.ndarray] = {}
    decide = rollout._decide

    def watched(agent: str, rows: Any) -> Any:
        for row in rows:
            first.setdefault((agent, int(rollout.batch.episode[row])), rollout.batch.costs[row].copy())
        return decide(agent, rows)

    rollout._decide = watched  # type: ignore[method-assign]
    for _ in range(40):
        collected = rollout.collect(7)
        costs |= {done.episode: done.costs for done in collected.ended}
        for fragment in collected.fragments:
            paid[fragment.agent, fragment.episode] += fragment.terms.sum(0)
            assert not fragment.terminated or (fragment.values[-1] == 0).all()
    assert len(costs) >= 4 and all((cost > 0).any() for cost in costs.values())
    for (agent, episode), terms in paid.items():
        if episode in costs:
            np.testing.assert_allclose(terms, first[agent, episode] - costs[episode], rtol=1e-4, atol=1e-5)


def test_recorded_columns_belong_together() -> None:
    runner = make_runner(TinySource(("nodes:2x4", "nodes:4x2")))
    episodes = runner.sample(num_timesteps=150)
    for episode in episodes:
        rows = columns(episode)
        module = runner.module[episode.module_id]
        obs = {key[4:]: torch.from_numpy(np.array(values)) for key, values in rows.items() if key.startswith("obs.")}
        with torch.no_grad():
            logits = module.net(obs).numpy()
            values = module.critic(obs).numpy()
        np.testing.assert_allclose(rows[Columns.ACTION_DIST_INPUTS], logits, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(rows[VALUES], values, rtol=1e-4, atol=1e-5)
        logp = torch.log_softmax(torch.from_numpy(logits), 1).numpy()
        chosen = np.take_along_axis(logp, rows["actions"][:, None].astype(np.int64), 1)[:, 0]
        np.testing.assert_allclose(rows[Columns.ACTION_LOGP], chosen, rtol=1e-4, atol=1e-5)
        assert (np.take_along_axis(rows["obs.action_mask"], rows["actions"][:, None].astype(np.int64), 1) == 1).all()
        np.testing.assert_allclose(rows["rewards"], (rows[REWARD_TERMS] * rows[WEIGHTS]).sum(1), rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(rows[FOLLOWING][:-1], rows[VALUES][1:])
        assert (rows[FOLLOWING][-1] == 0).all() == episode.is_terminated
        assert episode.agent_id == episode.module_id


def test_counters_are_exact() -> None:
    runner = make_runner()
    checked = False
    for _ in range(6):
        episodes = runner.sample(num_timesteps=60)
        steps = {agent: sum(len(e) for e in episodes if e.agent_id == agent) for agent in AGENTS}
        peek = runner.metrics.peek
        assert sum(steps.values()) >= 60 and peek("num_env_steps_sampled") == sum(steps.values())
        assert peek("num_agent_steps_sampled") == steps == peek("num_module_steps_sampled")
        assert peek("num_episodes") == len({e.multi_agent_episode_id for e in episodes if e.is_terminated})
        assert set(peek(SECONDS)) == {"engine", "network", "rest"} and min(peek(SECONDS).values()) > 0
        ended = {e.multi_agent_episode_id for e in episodes if e.is_terminated}
        if ended:
            checked = True
            assert peek("episode_return_max") < 0 < peek(("episode_cost", "completion"))
            assert 10 <= peek("episode_len_min") <= peek("episode_len_mean") <= peek("episode_len_max")
        runner.get_metrics()
    assert checked, "no episode has ended: nothing of theirs was checked"


def test_default_amount_and_number_of_episodes() -> None:
    runner = make_runner()
    assert sum(map(len, runner.sample())) >= settings().iteration_decisions
    episodes = runner.sample(num_episodes=3, explore=False)
    assert len({e.multi_agent_episode_id for e in episodes if e.is_terminated}) >= 3
    with pytest.raises(ValueError, match="either steps or episodes"):
        runner.sample(num_timesteps=1, num_episodes=1)
    with pytest.raises(ValueError, match="actions are the networks'"):
        runner.sample(random_actions=True)


def test_the_best_actions_without_exploration() -> None:
    runner = make_runner()
    for episode in runner.sample(num_timesteps=80, explore=False):
        logits = episode.get_extra_model_outputs(Columns.ACTION_DIST_INPUTS)
        np.testing.assert_array_equal(episode.get_actions(), logits.argmax(1))


def test_restored_runners_go_on_alike() -> None:
    runner = make_runner()
    before = runner.sample(num_timesteps=120)
    state = runner.get_state()
    after = []
    for _ in range(2):
        other = make_runner(seed=5)  # other episodes and draws until the state is taken up
        other.sample(num_timesteps=20)
        other.set_state({**state, "weights_seq_no": 0})
        after.append(other.sample(num_timesteps=60))
    one, two = ([columns(e) for e in episodes] for episodes in after)
    assert len(one) == len(two)
    for left, right in zip(one, two, strict=True):
        np.testing.assert_equal(left, right)
    seen = {float(row) for e in before for row in e.get_extra_model_outputs(REWARD_TERMS)[:, 0]}
    assert len(seen & {float(row) for rows in one for row in rows[REWARD_TERMS][:, 0] if row}) < len(one)
    with pytest.raises(InputError, match="2 clusters cannot go on from 4"):
        make_runner(clusters=2).set_state(state)


def test_state_is_asked_for_in_parts() -> None:
    runner = make_runner()
    assert STREAMS in runner.get_state(not_components=["rl_module"])
    assert STREAMS not in runner.get_state(components=["rl_module"])


def test_new_episodes_on_request_and_with_another_seed() -> None:
    runner = make_runner()
    first = runner.sample(num_timesteps=40)
    fresh = runner.sample(num_timesteps=40, force_reset=True)
    assert {e.id_ for e in fresh} == {e.id_ for e in fresh if e.t_started == 0}
    assert not {e.id_ for e in fresh} & {e.id_ for e in first if not e.is_terminated}
    runner.reseed(3)
    again = runner.sample(num_timesteps=40)
    assert not np.array_equal(again[0].get_observations(0)["jobs"], first[0].get_observations(0)["jobs"])


def test_the_environment_behind_it_is_never_stepped() -> None:
    runner = make_runner()
    with pytest.raises(NotImplementedError, match="set env_runner_cls"):
        runner.env.envs[0].unwrapped.reset()
    with pytest.raises(NotImplementedError, match="set env_runner_cls"):
        runner.env.envs[0].unwrapped.step({})
