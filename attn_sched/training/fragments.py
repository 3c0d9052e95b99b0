"""Fragments of episodes on their way from the runner to the learner, as RLlib's episodes and as one train batch.

A fragment is a run of one agent's decisions in one cluster. It travels as a ``SingleAgentEpisode`` whose columns are
numpy arrays; the learner's connector joins them with one concatenation a column, without a loop over decisions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.core.columns import Columns
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.env.utils.infinite_lookback_buffer import InfiniteLookbackBuffer

from attn_sched.training.credit import following_values, gae_rows, standardise
from attn_sched.training.rollout import Fragment

# Columns of ours, each f4[n, 3] with one value a reward term.
REWARD_TERMS = "reward_terms"
WEIGHTS = "objective_weights"
VALUES = "value_terms"  # of the observations, under the weights that sampled
FOLLOWING = "following_value_terms"  # of the agent's next observations; 0 where the episode ended
# Columns that the connector adds.
ADVANTAGES = "advantages"  # f4[n], weighted over the terms, standardised and clamped
TARGETS = "value_targets"  # f4[n, 3]


def to_episode(fragment: Fragment, name: str, started: int = 0) -> SingleAgentEpisode:
    """A fragment in RLlib's terms; its arrays are shared, not copied.

    Args:
        fragment: n decisions of one agent.
        name: of the whole episode; the fragments of both agents in it share it.
        started: decisions of this agent in the same episode before the fragment.

    Returns:
        An episode of n steps with n + 1 observations, rewards summed over the weighted terms, and the columns of this
        module among its extra model outputs.
    """
    columns = {
        Columns.ACTION_LOGP: fragment.logp,
        Columns.ACTION_DIST_INPUTS: fragment.logits,
        REWARD_TERMS: fragment.terms,
        WEIGHTS: fragment.weights,
        VALUES: fragment.values[:-1],
        FOLLOWING: following_values(fragment.values, fragment.terminated),
    }
    # RLlib says int and arrays where it takes any name and any struct of arrays.
    shared: Any = InfiniteLookbackBuffer
    whole: Any = name
    return SingleAgentEpisode(
        id_=f"{name}:{fragment.agent}",
        agent_id=fragment.agent,
        module_id=fragment.agent,
        multi_agent_episode_id=whole,
        observations=shared(fragment.obs),
        infos=shared([{}] * (len(fragment.actions) + 1)),
        actions=shared(fragment.actions),
        rewards=shared(np.sum(fragment.terms * fragment.weights, axis=1, dtype=np.float32)),
        extra_model_outputs={key: shared(column) for key, column in columns.items()},
        terminated=fragment.terminated,
        t_started=started,
        len_lookback_buffer=0,
    )


class FragmentsToTrainBatch(ConnectorV2):
    """Learner connector: joins fragments to one batch a module, and adds advantages and value targets.

    Values are those recorded while sampling, so no row is added for the value after a cut, and none has to be masked.

    Args:
        gamma: discount per decision of an agent.
        lam: of generalised advantage estimation, by module id.
        clamp: of the standardised advantages.
    """

    def __init__(
        self,
        input_observation_space: Any = None,
        input_action_space: Any = None,
        *,
        gamma: float,
        lam: Mapping[str, float],
        clamp: float,
    ) -> None:
        super().__init__(input_observation_space, input_action_space)
        self.gamma = gamma
        self.lam = dict(lam)
        self.clamp = clamp

    def __call__(self, *, episodes: Sequence[Any], **kwargs: Any) -> dict[str, dict[str, Any]]:
        """Module id -> columns; ``obs`` is a dict of arrays, as the networks take it."""
        of_module: dict[str, list[SingleAgentEpisode]] = defaultdict(list)
        for episode in episodes:
            if len(episode) > 0:
                of_module[str(episode.module_id)].append(episode)
        return {module: self._join(chunks, self.lam[module]) for module, chunks in of_module.items()}

    def _join(self, episodes: list[SingleAgentEpisode], lam: float) -> dict[str, Any]:
        def column(name: str) -> Any:
            return np.concatenate([episode.get_extra_model_outputs(name) for episode in episodes])

        observations = [episode.get_observations(slice(0, len(episode))) for episode in episodes]
        weights, values = column(WEIGHTS), column(VALUES)
        lengths = [len(episode) for episode in episodes]
        advantages = gae_rows(column(REWARD_TERMS), values, column(FOLLOWING), lengths, lam, self.gamma)
        return {
            Columns.OBS: {name: np.concatenate([rows[name] for rows in observations]) for name in observations[0]},
            Columns.ACTIONS: np.concatenate([episode.get_actions() for episode in episodes]).astype(np.int64),
            Columns.ACTION_LOGP: column(Columns.ACTION_LOGP),
            Columns.ACTION_DIST_INPUTS: column(Columns.ACTION_DIST_INPUTS),
            VALUES: values,
            ADVANTAGES: standardise(advantages, weights, self.clamp),
            TARGETS: advantages + values,
        }

    def get_ctor_args_and_kwargs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What a copy is made from; called by RLlib."""
        return (
            (self.input_observation_space, self.input_action_space),
            {"gamma": self.gamma, "lam": self.lam, "clamp": self.clamp},
        )
