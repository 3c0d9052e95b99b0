"""PPO's update: every agent its epochs, no more; values that fit better; rests, warm-up, schedules, states."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from ray.rllib.core.columns import Columns
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.utils.metrics import NUM_ENV_STEPS_SAMPLED_LIFETIME

from attn_sched.errors import InputError
from attn_sched.training import learner as learning
from attn_sched.training.algorithm import build_config
from attn_sched.training.learner import POLICY, VALUE, SchedulingPPOLearner, divergence, minibatches, surrogate
from attn_sched.training.runner import BatchedEnvRunner
from tests.training.clusters import SPEC, TinySource, settings

MINIBATCH = 24


@pytest.fixture(scope="module")
def sampled() -> tuple[dict[str, Any], list[SingleAgentEpisode], dict[str, Any]]:
    """Spaces, episodes, and the weights they were sampled with."""
    runner = BatchedEnvRunner(config=build_config(settings(), SPEC, TinySource()))
    return runner.get_spaces(), runner.sample(num_timesteps=150), runner.module.get_state()


Sampled = tuple[dict[str, Any], list[SingleAgentEpisode], dict[str, Any]]


def make_learner(sampled: Sampled, **changes: Any) -> Any:
    spaces, _, weights = sampled
    config = build_config(settings(**{"rate_warmup": 0, **changes}), SPEC, TinySource())
    learner: Any = config.build_learner_group(spaces=spaces)._learner
    assert isinstance(learner, SchedulingPPOLearner)
    learner.module.set_state(weights)
    return learner


def update(learner: Any, episodes: list[SingleAgentEpisode], epochs: int = 1, steps: int = 0) -> Any:
    """Metrics of an update, as numbers."""
    learner.update(
        episodes=episodes,
        num_epochs=epochs,
        minibatch_size=MINIBATCH,
        timesteps={NUM_ENV_STEPS_SAMPLED_LIFETIME: steps},
        _no_metrics_reduce=True,
    )
    return {
        agent: {name: learner.metrics.peek((agent, name)) for name in learner.metrics.stats[agent]}
        for agent in ("job", "gpu")
    }


def rows_of(episodes: list[SingleAgentEpisode], agent: str) -> int:
    return sum(len(e) for e in episodes if e.agent_id == agent)


def steps_taken(learner: Any, agent: str, name: str) -> int:
    states = learner.get_optimizer(agent, name).state.values()
    return max((int(state["step"]) for state in states), default=0)


def weights(learner: Any, agent: str, part: str) -> torch.Tensor:
    return torch.nn.utils.parameters_to_vector(getattr(learner.module[agent], part).parameters()).detach().clone()


def test_minibatches_cover_every_row_once_an_epoch() -> None:
    for rows, size in ((100, 32), (7, 32), (33, 32), (64, 32), (1, 1)):
        taken = list(minibatches(rows, size, 3, np.random.default_rng(0)))
        parts = max(1, round(rows / size))
        assert len(taken) == 3 * parts
        for epoch in range(3):
            order = torch.cat(taken[epoch * parts : (epoch + 1) * parts])
            assert sorted(order.tolist()) == list(range(rows))
        sizes = [len(part) for part in taken]
        assert max(sizes) - min(sizes) <= 1
    orders = {tuple(part.tolist()) for part in minibatches(50, 50, 3, np.random.default_rng(0))}
    assert len(orders) == 3


def test_each_agent_is_trained_exactly_its_epochs(sampled: Sampled) -> None:
    episodes = sampled[1]
    # The GPU agent decides far more rarely than the job agent.
    kept = [e for e in episodes if e.agent_id == "job"] + [e for e in episodes if e.agent_id == "gpu"][:1]
    learner = make_learner(sampled)
    metrics = update(learner, kept, epochs=3)
    for agent in ("job", "gpu"):
        rows = rows_of(kept, agent)
        assert metrics[agent]["num_module_steps_trained"] == 3 * rows
        assert steps_taken(learner, agent, POLICY) == steps_taken(learner, agent, VALUE)
        assert steps_taken(learner, agent, VALUE) == 3 * max(1, round(rows / MINIBATCH))
    assert learner.metrics.peek(("__all_modules__", "num_env_steps_trained")) == sum(map(len, kept))


def test_an_agent_without_decisions_is_left_alone(sampled: Sampled) -> None:
    jobs = [e for e in sampled[1] if e.agent_id == "job"]
    learner = make_learner(sampled)
    before = weights(learner, "gpu", "net"), weights(learner, "gpu", "critic")
    learner.update(episodes=jobs, minibatch_size=MINIBATCH)
    assert torch.equal(before[0], weights(learner, "gpu", "net"))
    assert torch.equal(before[1], weights(learner, "gpu", "critic"))
    assert steps_taken(learner, "job", POLICY) > 0


def test_updates_fit_the_values(sampled: Sampled) -> None:
    learner = make_learner(sampled, value_rate=2e-2)
    losses = [update(learner, sampled[1], epochs=2) for _ in range(8)]
    for agent in ("job", "gpu"):
        assert losses[-1][agent]["vf_loss"] < 0.9 * losses[0][agent]["vf_loss"]


def test_actions_that_turned_out_well_become_likelier(sampled: Sampled) -> None:
    learner = make_learner(sampled, job_rate=2e-3, job_entropy=0.0, kl_limit=1.0)
    batch = learner._learner_connector(rl_module=learner.module, episodes=sampled[1])["job"]
    tensors = learner._tensors(batch)

    def gain() -> float:
        logits = learner.module["job"].net(tensors[Columns.OBS])
        logp = torch.log_softmax(logits, 1).gather(1, tensors[Columns.ACTIONS][:, None]).squeeze(1)
        ratio = torch.exp(logp - tensors[Columns.ACTION_LOGP])
        return float((ratio * tensors[learning.ADVANTAGES]).mean().detach())

    assert gain() == pytest.approx(0.0, abs=1e-4)
    update(learner, sampled[1], epochs=2)
    assert gain() > 0.01


def test_the_policy_rests_once_it_has_moved_too_far(sampled: Sampled) -> None:
    free = make_learner(sampled)
    update(free, sampled[1], epochs=2)
    # Far less than a step moves it, far more than rounding does.
    learner = make_learner(sampled, kl_limit=1e-6, job_rate=1e-3, gpu_rate=1e-3)
    metrics = update(learner, sampled[1], epochs=2)
    for agent in ("job", "gpu"):
        total = 2 * max(1, round(rows_of(sampled[1], agent) / MINIBATCH))
        assert steps_taken(free, agent, POLICY) == total > 2
        assert steps_taken(learner, agent, POLICY) == 1  # at first it has not moved at all
        assert steps_taken(learner, agent, VALUE) == total
        assert metrics[agent]["policy_rested"] == pytest.approx(1 - 1 / total)
        assert metrics[agent]["mean_kl_loss"] > 1e-6
    # It rests for one update only.
    update(learner, sampled[1])
    assert steps_taken(learner, "job", POLICY) == 1, "the same sample is still far away"
    learner.module.set_state(sampled[2])
    update(learner, sampled[1])
    assert steps_taken(learner, "job", POLICY) == 2


def test_values_learn_alone_at_first(sampled: Sampled) -> None:
    learner = make_learner(sampled, value_warmup=2)
    before = weights(learner, "job", "net"), weights(learner, "job", "critic")
    for _ in range(2):
        metrics = update(learner, sampled[1])
        assert metrics["job"]["policy_rested"] == 1.0 and torch.equal(before[0], weights(learner, "job", "net"))
    assert not torch.equal(before[1], weights(learner, "job", "critic"))
    update(learner, sampled[1])
    assert not torch.equal(before[0], weights(learner, "job", "net"))


@pytest.mark.parametrize("agent", ["job", "gpu"])
def test_parts_add_up_to_the_minibatch(sampled: Sampled, agent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    after = []
    for part_rows in (5, 1 << 30):
        monkeypatch.setattr(learning, "PART_ROWS", part_rows)
        learner = make_learner(sampled, gradient_clip=1e-3)
        metrics = update(learner, sampled[1], epochs=2)[agent]
        after.append((weights(learner, agent, "net"), weights(learner, agent, "critic"), metrics))
    torch.testing.assert_close(after[0][0], after[1][0], rtol=0, atol=2e-4)
    torch.testing.assert_close(after[0][1], after[1][1], rtol=0, atol=2e-4)
    for name in ("policy_loss", "vf_loss", "entropy", "gradient_norm_policy", "gradient_norm_value"):
        assert after[0][2][name] == pytest.approx(after[1][2][name], rel=2e-2, abs=1e-4)


def test_metrics_are_of_the_sampled_policy_in_the_first_step(sampled: Sampled) -> None:
    learner = make_learner(sampled)
    learner.update(episodes=sampled[1], num_epochs=1, minibatch_size=None, _no_metrics_reduce=True)
    metrics = {name: learner.metrics.peek(("job", name)) for name in learner.metrics.stats["job"]}
    batch = learner._learner_connector(rl_module=learner.module, episodes=sampled[1])["job"]
    logp = torch.log_softmax(torch.from_numpy(batch[Columns.ACTION_DIST_INPUTS]), 1)
    assert metrics["mean_kl_loss"] == pytest.approx(0.0, abs=1e-5) and metrics["clip_share"] == 0.0
    assert metrics["entropy"] == pytest.approx(float(-(logp.exp() * logp).sum(1).mean()), rel=1e-4)
    assert metrics["policy_loss"] == pytest.approx(0.0, abs=1e-4), "standardised advantages have mean 0"
    errors = np.abs(batch[learning.TARGETS] - batch[learning.VALUES])
    huber = np.where(errors < 1, 0.5 * errors**2, errors - 0.5).sum(1).mean()
    assert metrics["vf_loss"] == pytest.approx(float(huber), rel=1e-4)
    for term, k in (("completion", 0), ("communication", 2)):
        targets, values = batch[learning.TARGETS][:, k], batch[learning.VALUES][:, k]
        share = 1 - (targets - values).var() / targets.var()
        assert metrics[f"explained_variance_{term}"] == pytest.approx(share, rel=1e-3, abs=1e-4)


def test_surrogate_and_divergence() -> None:
    old, new = torch.tensor([0.5, 0.5, 0.5, 0.5]).log(), torch.tensor([0.9, 0.9, 0.1, 0.52]).log()
    gain, outside = surrogate(new, old, torch.tensor([1.0, -1.0, -1.0, 2.0]), 0.2)
    torch.testing.assert_close(gain, torch.tensor([1.2, -1.8, -0.8, 2.08]))
    assert outside.tolist() == [True, True, True, False]
    logits = torch.tensor([[math.log(0.25), math.log(0.75), -1e9]])
    same = torch.log_softmax(logits, 1)
    torch.testing.assert_close(divergence(logits, same), torch.zeros(1))
    even = torch.log_softmax(torch.tensor([[0.0, 0.0, -1e9]]), 1)
    expected = 0.25 * math.log(0.25 / 0.5) + 0.75 * math.log(0.75 / 0.5)
    torch.testing.assert_close(divergence(logits, even), torch.tensor([expected]))


def test_learning_rates_follow_their_schedules(sampled: Sampled) -> None:
    learner = make_learner(sampled, job_rate=1e-3, gpu_rate=2e-3, value_rate=4e-3, final_rate=0.5, total_decisions=1000)

    def rates() -> list[float]:
        order = (("job", POLICY), ("gpu", POLICY), ("job", VALUE), ("gpu", VALUE))
        values = [learner.get_optimizer(*key).param_groups[0]["lr"] for key in order]
        assert all(type(value) is float for value in values)
        return values

    assert rates() == pytest.approx([1e-3, 2e-3, 4e-3, 4e-3])
    update(learner, sampled[1], steps=500)
    assert rates() == pytest.approx([7.5e-4, 1.5e-3, 3e-3, 3e-3])
    update(learner, sampled[1], steps=5000)
    assert rates() == pytest.approx([5e-4, 1e-3, 2e-3, 2e-3])


def test_a_restored_learner_learns_on_alike(sampled: Sampled) -> None:
    learner = make_learner(sampled, value_warmup=1)
    update(learner, sampled[1])
    state = learner.get_state()
    other = make_learner(sampled, value_warmup=1, seed=9)
    other.set_state(state)
    for one in (learner, other):
        update(one, sampled[1], epochs=2)  # past the warm-up, and through the same minibatches
    for agent in ("job", "gpu"):
        for part in ("net", "critic"):
            assert torch.equal(weights(learner, agent, part), weights(other, agent, part))


def test_a_gradient_that_is_not_finite_stops_training(sampled: Sampled) -> None:
    runner = BatchedEnvRunner(config=build_config(settings(), SPEC, TinySource()))
    spoilt = runner.sample(num_timesteps=40)
    spoilt[0].get_extra_model_outputs("reward_terms")[0, 0] = np.nan
    learner = make_learner(sampled)
    with pytest.raises(FloatingPointError, match=r"gradient of the \w+ agent is nan: training has diverged"):
        learner.update(episodes=spoilt, minibatch_size=MINIBATCH)
    for agent in ("job", "gpu"):
        assert torch.isfinite(weights(learner, agent, "net")).all()
        assert torch.isfinite(weights(learner, agent, "critic")).all()


def test_several_learners_are_refused(sampled: Sampled) -> None:
    config = build_config(settings(), SPEC, TinySource())
    config.learners(num_learners=2)
    learner = SchedulingPPOLearner(config=config, module_spec=config.get_multi_rl_module_spec(spaces=sampled[0]))
    with pytest.raises(InputError, match="2 learners are not supported"):
        learner.build()


def test_fewer_clusters_than_processes() -> None:
    with pytest.raises(InputError, match="cannot be shared among 5 processes"):
        build_config(replace(settings(), runners=5), SPEC, TinySource())
