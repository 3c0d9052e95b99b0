"""The batched environment runner: RLlib's interface, our simulator.

RLlib's own runner steps one Python environment after the other and builds every batch from single observations. Here
one compiled engine steps all clusters, and one forward pass of an agent's network answers for all that ask it.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
import torch
from ray.rllib.env.multi_agent_env import MultiAgentEnv
from ray.rllib.env.multi_agent_env_runner import MultiAgentEnvRunner
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.utils.metrics import (
    EPISODE_LEN_MAX,
    EPISODE_LEN_MEAN,
    EPISODE_LEN_MIN,
    EPISODE_RETURN_MAX,
    EPISODE_RETURN_MEAN,
    EPISODE_RETURN_MIN,
    NUM_AGENT_STEPS_SAMPLED,
    NUM_AGENT_STEPS_SAMPLED_LIFETIME,
    NUM_ENV_STEPS_SAMPLED,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
    NUM_EPISODES,
    NUM_EPISODES_LIFETIME,
    NUM_MODULE_STEPS_SAMPLED,
    NUM_MODULE_STEPS_SAMPLED_LIFETIME,
    SAMPLE_TIMER,
    TIME_BETWEEN_SAMPLING,
    WEIGHTS_SEQ_NO,
)

from attn_sched.agents.pair import arrays
from attn_sched.agents.rewards import TERMS
from attn_sched.agents.schema import AGENTS
from attn_sched.errors import InputError
from attn_sched.seeding import stream
from attn_sched.training.batch import EpisodeBatch
from attn_sched.training.fragments import to_episode
from attn_sched.training.rollout import Collected, Rollout

SOURCE = "source"  # key of ``env_config``: a BatchSource
_SPACES = "spaces"  # key of ``env_config``, set by the runner
STREAMS = "streams"  # key of the runner's state
SECONDS = "sampling_seconds"  # metrics: engine, network and rest, in seconds
FORCED = "num_forced_decisions"  # metrics: decisions with one legal answer, taken without the networks


class BatchSource(Protocol):
    """Makes the clusters that a runner samples from; an instance is ``env_config["source"]``.

    RLlib copies and pickles its configuration often, into every checkpoint too: keep names of files, not their content.
    """

    def __call__(self, clusters: int, seed: int) -> EpisodeBatch:
        """So many clusters; the seed fixes their episodes."""


class ClusterSpaces(MultiAgentEnv):
    """What RLlib gets to see of the clusters: who acts, what is observed, what can be answered. It is never stepped.

    RLlib is given the class, not a name: its registry of names forgets them when Ray is shut down.
    """

    def __init__(self, env_config: dict[str, Any]) -> None:
        super().__init__()
        self.observation_spaces, self.action_spaces = env_config[_SPACES]
        self.agents = list(self.observation_spaces)
        self.possible_agents = list(self.observation_spaces)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Raises NotImplementedError."""
        raise NotImplementedError("clusters are stepped by BatchedEnvRunner: set env_runner_cls to it")

    def step(self, action_dict: Any) -> Any:
        """Raises NotImplementedError."""
        raise NotImplementedError("clusters are stepped by BatchedEnvRunner: set env_runner_cls to it")


def spaces_of(batch: EpisodeBatch, agents: Collection[str]) -> tuple[dict[str, gym.Space], dict[str, gym.Space]]:
    """Observation and action space of each agent, from the arrays that the batch fills."""
    observations: dict[str, gym.Space] = {}
    actions: dict[str, gym.Space] = {}
    for agent in agents:
        seen = arrays(batch, np.array([0]), agent)
        boxes: dict[str, gym.Space] = {}
        for name, values in seen.items():
            low, high = -np.inf, np.inf
            if np.issubdtype(values.dtype, np.integer):
                low, high = np.iinfo(values.dtype).min, np.iinfo(values.dtype).max
            boxes[name] = gym.spaces.Box(low, high, values.shape[1:], values.dtype)  # type: ignore[arg-type]
        observations[agent] = gym.spaces.Dict(boxes)
        actions[agent] = gym.spaces.Discrete(seen["action_mask"].shape[1])
    return observations, actions


class BatchedEnvRunner(MultiAgentEnvRunner):
    """Samples with all clusters side by side; ``num_envs_per_env_runner`` says how many.

    A step is a decision that an agent's network took and whose reward is complete. Decisions with a single legal answer
    are no steps: what they bring about goes to the decision before.

    ``sample`` returns one ``SingleAgentEpisode`` per agent and cluster, cut where sampling stopped; see ``fragments``
    for their columns. Metrics beside RLlib's counters, under ``env_runners``: ``episode_return_mean`` and its like over
    ended episodes (rewards summed over both agents, undiscounted), ``episode_cost`` by reward term (normalised by the
    reference rule: 1 is as good as that), ``sampling_seconds`` by engine, network and rest, ``num_forced_decisions``.
    """

    # RLlib leaves these without a type, or with one that holds for its own classes alone.
    module: Any
    env: Any
    _time_after_sampling: Any

    def make_env(self) -> None:
        """Build the clusters, and the environment that shows RLlib their spaces; called by RLlib."""
        self._agents = [agent for agent in AGENTS if agent in self.config.policies]
        self._batch: EpisodeBatch = self.config.env_config[SOURCE](
            self.config.num_envs_per_env_runner, self._seed_for("clusters")
        )
        self._rollout: Rollout | None = None
        self._started: dict[tuple[str, int], int] = defaultdict(int)
        spaces = spaces_of(self._batch, self._agents)
        self.config.env_config = {**self.config.env_config, _SPACES: spaces}
        super().make_env()

    def make_module(self) -> None:
        """Build the agents' modules; called by RLlib."""
        super().make_module()
        self._rollout = None

    def _seed_for(self, purpose: str) -> int:
        return int(stream(self._seed or 0, f"runner:{purpose}").integers(1 << 31))

    def reseed(self, salt: int) -> None:
        """Go on with other episodes and draws than a fresh runner of the same seed: for runs that are resumed."""
        if self.env is not None:
            self._seed = (self._seed or 0) + 1_000_003 * (salt + 1)
            self.make_env()

    def _sampler(self) -> Rollout:
        if self._rollout is None:
            modules = {agent: self.module[agent].unwrapped() for agent in self._agents}
            self._rollout = Rollout(
                self._batch,
                {agent: module.net for agent, module in modules.items()},
                {agent: module.critic for agent, module in modules.items()},
                self._seed_for("actions"),
            )
            self._started.clear()
        return self._rollout

    def sample(  # type: ignore[override]
        self,
        *,
        num_timesteps: int | None = None,
        num_episodes: int | None = None,
        explore: bool | None = None,
        random_actions: bool = False,
        force_reset: bool = False,
    ) -> list[SingleAgentEpisode]:
        """Go on until there are so many steps or ended episodes.

        Args:
            num_timesteps: steps, of both agents together; by default this runner's share of the train batch.
            num_episodes: episodes that end; the others are returned as far as they got.
            explore: False takes the best action instead of drawing one; default: as configured.
            random_actions: not supported.
            force_reset: start new episodes first.

        Raises:
            ValueError: random actions, both a number of steps and one of episodes, or a runner without clusters.
        """
        if self.env is None:
            raise ValueError("this runner has no clusters: it cannot sample")
        if random_actions or (num_timesteps is not None and num_episodes is not None):
            raise ValueError("actions are the networks', and either steps or episodes are counted")
        if num_timesteps is None and num_episodes is None:
            num_timesteps = self.config.get_rollout_fragment_length(self.worker_index or 0) * self.num_envs
        if self._time_after_sampling is not None:
            self.metrics.log_value(TIME_BETWEEN_SAMPLING, time.perf_counter() - self._time_after_sampling)
        self.metrics.log_value(WEIGHTS_SEQ_NO, self._weights_seq_no, window=1)
        if force_reset:
            self._set_streams(self._streams())
        with self.metrics.log_time(SAMPLE_TIMER):
            episodes = self._collect(num_timesteps, num_episodes, self.config.explore if explore is None else explore)
        self._time_after_sampling = time.perf_counter()
        return episodes

    def _collect(self, steps: int | None, endings: int | None, explore: bool) -> list[SingleAgentEpisode]:
        rollout = self._sampler()
        rollout.greedy = not explore
        episodes: list[SingleAgentEpisode] = []
        sampled = ended = 0
        while (steps is not None and sampled < steps) or (endings is not None and ended < endings):
            # A cut holds back the decisions that still wait for their reward, so the first may bring a few too few.
            collected = rollout.collect(self.num_envs if steps is None else steps - sampled)
            sampled += sum(collected.decisions.values())
            ended += len(collected.ended)
            self._log(collected)
            episodes += [self._episode(fragment) for fragment in collected.fragments]
        return episodes

    def _episode(self, fragment: Any) -> SingleAgentEpisode:
        key = (fragment.agent, fragment.episode)
        episode = to_episode(fragment, f"{self.worker_index or 0}:{fragment.episode}", self._started[key])
        self._started[key] += len(fragment.actions)
        if fragment.terminated:
            del self._started[key]
        return episode

    def _log(self, collected: Collected) -> None:
        """Counters and the results of ended episodes."""
        log = self.metrics.log_value
        steps = sum(collected.decisions.values())
        log(NUM_ENV_STEPS_SAMPLED, steps, reduce="sum")
        log(NUM_ENV_STEPS_SAMPLED_LIFETIME, steps, reduce="lifetime_sum", with_throughput=True)
        if steps:
            self._log_env_steps(self._metrics_num_env_steps_sampled, steps)
        for agent in self._agents:
            count = collected.decisions[agent]
            log((NUM_AGENT_STEPS_SAMPLED, agent), count, reduce="sum")
            log((NUM_AGENT_STEPS_SAMPLED_LIFETIME, agent), count, reduce="lifetime_sum")
            log((NUM_MODULE_STEPS_SAMPLED, agent), count, reduce="sum")
            log((NUM_MODULE_STEPS_SAMPLED_LIFETIME, agent), count, reduce="lifetime_sum")
        log(FORCED, collected.forced, reduce="sum")
        for part, seconds in collected.seconds.items():
            log((SECONDS, part), seconds, reduce="sum")
        log(NUM_EPISODES, len(collected.ended), reduce="sum")
        log(NUM_EPISODES_LIFETIME, len(collected.ended), reduce="lifetime_sum")
        weights = {f.episode: f.weights[0] for f in collected.fragments if f.terminated}
        window = max(1, self.config.metrics_num_episodes_for_smoothing // (self.config.num_env_runners or 1))
        for done in collected.ended:
            for term, cost in zip(TERMS, done.costs, strict=True):
                log(("episode_cost", term), float(cost), window=window)
            for key, reduce in ((EPISODE_LEN_MEAN, "mean"), (EPISODE_LEN_MIN, "min"), (EPISODE_LEN_MAX, "max")):
                log(key, done.decisions, reduce=reduce, window=window)
            if done.episode in weights:  # else every decision in it was forced: there is nothing to learn from
                value = -float(done.costs @ weights[done.episode])
                returns = ((EPISODE_RETURN_MEAN, "mean"), (EPISODE_RETURN_MIN, "min"), (EPISODE_RETURN_MAX, "max"))
                for key, reduce in returns:
                    log(key, value, reduce=reduce, window=window)

    def _streams(self) -> dict[str, Any]:
        return {"batch": self._batch.get_state(), "actions": self._sampler().generator.get_state().numpy()}

    def _set_streams(self, streams: dict[str, Any]) -> None:
        saved = len(streams["batch"]["episodes"])
        if saved != self._batch.size:
            raise InputError(
                f"{self._batch.size} clusters cannot go on from {saved}", field="clusters", expected=f"{saved}"
            )
        self._batch.set_state(streams["batch"])
        self._rollout = None
        self._sampler().generator.set_state(torch.from_numpy(np.array(streams["actions"])))

    def get_state(
        self,
        components: str | Collection[str] | None = None,
        *,
        not_components: str | Collection[str] | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """RLlib's state, with the random streams where all of it, or they, are asked for.

        A restored runner draws the next episodes and actions from them; episodes under way are not kept.
        """
        state: dict[str, Any] = super().get_state(components, not_components=not_components, **kwargs)
        if self.env is not None and self._check_component(STREAMS, components, not_components):
            state[STREAMS] = self._streams()
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        """Take up a state that ``get_state`` gave."""
        super().set_state(state)
        if STREAMS in state and self.env is not None:
            self._set_streams(state[STREAMS])
