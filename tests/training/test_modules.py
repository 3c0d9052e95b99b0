"""The agents as RLlib sees them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from ray.rllib.core.columns import Columns

from attn_sched.agents.pair import tensors
from attn_sched.agents.schema import AGENTS
from attn_sched.training.modules import module_spec
from attn_sched.training.runner import spaces_of
from envs.spaces import action_spaces, observation_spaces
from tests.training.clusters import SPEC, TinySource

SHAPES = ("nodes:2x4", "nodes:4x2")


@pytest.mark.parametrize("agent", AGENTS)
def test_a_module_answers_as_its_network_and_values_as_its_critic(agent: str) -> None:
    batch = TinySource(SHAPES)(4, 0)
    batch.ask()
    observations, actions = spaces_of(batch, AGENTS)
    spec = module_spec(agent, SPEC)
    spec.observation_space, spec.action_space = observations[agent], actions[agent]
    torch.manual_seed(0)
    module: Any = spec.build()
    obs = tensors(batch, np.arange(4), "job")  # all clusters begin with a choice of jobs
    if agent == "gpu":
        units = int(batch.unit_mask.shape[1])
        obs |= {"chosen": torch.rand(4, obs["jobs"].shape[-1]), "action_mask": torch.ones(4, units, dtype=torch.int8)}
        obs["action_mask"][:, 0] = 0
    for forward in (module.forward_inference, module.forward_exploration, module.forward_train):
        logits = forward({Columns.OBS: obs})[Columns.ACTION_DIST_INPUTS]
        torch.testing.assert_close(logits, module.net(obs))
        assert logits.shape == obs["action_mask"].shape
        assert (logits[obs["action_mask"] == 0] == -1e9).all() and (logits[obs["action_mask"] == 1] > -11).all()
    obs["globals"][:, -3:] = torch.tensor([[1.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 3.0], [1.0, 1.0, 1.0]])
    terms = module.value_terms(obs)
    expected = torch.stack([terms[0, 0], 2 * terms[1, 1], 3 * terms[2, 2], terms[3].sum()])
    torch.testing.assert_close(module.compute_values({Columns.OBS: obs}), expected)


def test_spaces_are_those_of_the_environments() -> None:
    batch = TinySource(SHAPES)(2, 0)
    observations, actions = spaces_of(batch, AGENTS)
    units = batch.unit_mask.shape[1]
    for agent, space in observation_spaces(SPEC.window, units).items():
        boxes: Any = observations[agent]
        ours = {name: (box.shape, box.dtype) for name, box in boxes.spaces.items()}
        ours.pop("outlook")  # for critics alone
        assert ours == {name: (box.shape, box.dtype) for name, box in space.spaces.items()}
    assert actions == action_spaces(SPEC.window, units)
