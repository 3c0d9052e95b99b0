"""What PPO costs: sampling with RLlib's own runner and with ours, learning in several ways, and whole iterations.

    python -m benchmarks.sampling [--cluster dgx64] [--decisions 100] [--rounds 3] [--compiled]

All with the default networks and one torch thread, in turn within each round of one run, in seconds of this process's
CPU: what else the machine does changes little. Rates are the best of the rounds, ratios their medians. RLlib's runner
steps ``envs.multi_agent.SchedulingMultiAgentEnv``; its steps include decisions with a single legal answer, ours do not,
and ours also pay for the critics. Every cluster makes as many decisions, so that queues are about as long.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
from ray.rllib.env.multi_agent_env_runner import MultiAgentEnvRunner

from attn_sched.agents.schema import AGENTS, JOB_FEATURES
from attn_sched.agents.spec import NetworkSpec
from attn_sched.cluster import load_cluster
from attn_sched.training import learner as learning
from attn_sched.training.algorithm import PPOSettings, build_config, ray_session
from attn_sched.training.batch import EpisodeBatch, Shape
from attn_sched.training.runner import SECONDS, BatchedEnvRunner
from attn_sched.training.source import rule_for
from envs.episodes import SyntheticEpisodes
from envs.multi_agent import register

JOBS = 320  # an episode
FAMILY = "helios"
WARM = 60  # decisions a cluster before the clock starts
MINIBATCH = 1024


@dataclass(frozen=True)
class Synthetic:
    """Clusters of one shape that run synthetic episodes, as the environments do."""

    cluster: str

    def __call__(self, clusters: int, seed: int) -> EpisodeBatch:
        """So many."""
        cluster = load_cluster(self.cluster)
        draw = SyntheticEpisodes(cluster, (FAMILY,), JOBS)
        return EpisodeBatch([Shape(cluster, draw, clusters)], rule_for(AGENTS), seed=seed)


def make_config(cluster: str, clusters: int, **settings: Any) -> Any:
    """RLlib's configuration of our runner and learner."""
    return build_config(PPOSettings(clusters=clusters, **settings), NetworkSpec(), Synthetic(cluster))


def queue_length(episodes: list[Any]) -> float:
    """Mean number of jobs that job agents were shown."""
    estimate = JOB_FEATURES.index("estimate")
    shown = [episode.get_observations(slice(0, len(episode)))["jobs"] for episode in episodes]
    return float(np.mean(np.concatenate([(jobs[..., estimate] > 0).sum(-1) for jobs in shown])))


class Stock:
    """RLlib's own runner and learner with our modules."""

    def __init__(self, cluster: str, envs: int, decisions: int) -> None:
        config = make_config(cluster, envs)
        config.env_runners(env_runner_cls=MultiAgentEnvRunner)
        config.environment(register())
        config.env_config = {"cluster": cluster, "episodes": {"families": [FAMILY], "jobs": JOBS}}
        config.learners(learner_class=PPOTorchLearner, add_default_connectors_to_learner_pipeline=True)
        self.steps = decisions * envs
        self.runner = MultiAgentEnvRunner(config=config)
        self.runner.sample(num_timesteps=WARM * envs)
        self.learner = config.build_learner_group(spaces=self.runner.get_spaces())
        self.queue = 0.0

    def sample(self) -> float:
        """CPU milliseconds a step."""
        began = time.process_time()
        self.episodes = self.runner.sample(num_timesteps=self.steps)
        spent = time.process_time() - began
        jobs = [episode.agent_episodes["job"] for episode in self.episodes if "job" in episode.agent_episodes]
        self.queue = queue_length(jobs)
        return 1e3 * spent / self.steps

    def learn(self) -> float:
        """CPU milliseconds a decision of an update with one epoch."""
        decisions = sum(episode.agent_steps() for episode in self.episodes)
        began = time.process_time()
        self.learner.update(episodes=self.episodes, num_epochs=1, minibatch_size=min(MINIBATCH, decisions))
        return 1e3 * (time.process_time() - began) / decisions


class Batched:
    """Our runner."""

    def __init__(self, cluster: str, clusters: int, decisions: int) -> None:
        self.steps = decisions * clusters
        self.runner = BatchedEnvRunner(config=make_config(cluster, clusters))
        self.runner.sample(num_timesteps=WARM * clusters)
        self.queue = 0.0
        self.spent: dict[str, float] = {}

    def sample(self) -> float:
        """CPU milliseconds a decision."""
        self.runner.get_metrics()
        began, clock = time.process_time(), time.perf_counter()
        self.episodes = self.runner.sample(num_timesteps=self.steps)
        spent, clock = time.process_time() - began, time.perf_counter() - clock
        self.spent = {part: float(self.runner.metrics.peek((SECONDS, part))) for part in ("engine", "network")}
        self.spent["rest"] = clock - sum(self.spent.values())
        self.queue = queue_length([episode for episode in self.episodes if episode.agent_id == "job"])
        return 1e3 * spent / sum(map(len, self.episodes))


class Learner:
    """Our learner in one of several ways."""

    def __init__(self, config: Any, spaces: Any, *, part_rows: int, bf16: bool = False, compiled: bool = False) -> None:
        self.part_rows, self.bf16 = part_rows, bf16
        group = config.build_learner_group(spaces=spaces)
        self.learner = group._learner
        if compiled:
            for agent in AGENTS:
                for network in (self.learner.module[agent].net, self.learner.module[agent].critic):
                    network.compile(dynamic=True)

    def learn(self, episodes: list[Any]) -> float:
        """CPU milliseconds a decision of an update with one epoch, in which policy and critic learn."""
        rows, learning.PART_ROWS = learning.PART_ROWS, self.part_rows
        try:
            began = time.process_time()
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.bf16):
                self.learner.update(episodes=episodes, num_epochs=1, minibatch_size=MINIBATCH)
            return 1e3 * (time.process_time() - began) / sum(map(len, episodes))
        finally:
            learning.PART_ROWS = rows


def sampling(cluster: str, decisions: int, rounds: int) -> tuple[Batched, float]:
    """Print rates of sampling; returns our runner and RLlib's learner's milliseconds a decision and epoch."""
    ours, peers = Batched(cluster, 64, decisions), {envs: Stock(cluster, envs, decisions) for envs in (1, 32)}
    costs: dict[int, list[float]] = {envs: [] for envs in (*peers, 64)}
    learned = []
    for _ in range(rounds):
        for envs, peer in peers.items():
            costs[envs].append(peer.sample())
        costs[64].append(ours.sample())
        learned.append(peers[32].learn())
    for envs, peer in peers.items():
        print(
            f"RLlib's runner, {envs:2d} environments: {1e3 / min(costs[envs]):7,.0f} decisions/s, "
            f"queue {peer.queue:.1f}"
        )
        peer.runner.stop()
    ratios = {envs: np.median(np.array(costs[envs]) / costs[64]) for envs in peers}
    print(
        f"batched runner, 64 clusters:     {1e3 / min(costs[64]):7,.0f} decisions/s, queue {ours.queue:.1f}: "
        + ", ".join(f"{ratio:.1f} times {envs} environments" for envs, ratio in ratios.items())
    )
    whole = sum(ours.spent.values())
    print("  of its time: " + ", ".join(f"{part} {seconds / whole:.0%}" for part, seconds in ours.spent.items()))
    return ours, min(learned)


def learners(ours: Batched, cluster: str, rounds: int, compiled: bool) -> None:
    """Print the cost of learning in several ways."""
    parts = learning.PART_ROWS
    ways: dict[str, dict[str, Any]] = {
        "whole minibatches": {"part_rows": 1 << 30},
        f"sorted parts of {parts}": {"part_rows": parts},
        "the same in bfloat16": {"part_rows": parts, "bf16": True},
    }
    if compiled:
        ways["the same compiled"] = {"part_rows": parts, "compiled": True}
    config = make_config(cluster, 64, value_warmup=0, kl_limit=1e9)
    made = {name: Learner(config, ours.runner.get_spaces(), **way) for name, way in ways.items()}
    costs: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, learner in made.items():
            cost = learner.learn(ours.episodes)
            if number:  # the first compiles
                costs[name].append(cost)
    first = np.array(costs["whole minibatches"])
    for name, values in costs.items():
        print(f"learner, {name:23s} {min(values):6.3f} ms a decision and epoch ({np.median(values / first):.2f})")


def iterations(cluster: str, rounds: int) -> None:
    """Print the rate of whole iterations."""
    ppo = dataclasses.replace(PPOSettings(), value_warmup=0, kl_limit=1e9)
    algorithm = build_config(ppo, NetworkSpec(), Synthetic(cluster)).build_algo()
    algorithm.train()
    rates, shares = [], []
    for _ in range(rounds):
        began, clock = time.process_time(), time.perf_counter()
        result = algorithm.train()
        spent, clock = time.process_time() - began, time.perf_counter() - clock
        rates.append(result["env_runners"]["num_env_steps_sampled"] / spent)
        shares.append(sum(result["env_runners"][SECONDS].values()) / clock)
    algorithm.stop()
    share = float(np.median(shares))
    print(
        f"whole iterations, {ppo.epochs} epochs:      {max(rates):7,.0f} decisions/s "
        f"(sampling {share:.0%}, learning and the rest {1 - share:.0%})"
    )


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--cluster", default="dgx64")
    parser.add_argument("--decisions", type=int, default=100, help="sampled for each cluster and round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--compiled", action="store_true", help="also torch.compile, which takes minutes to begin")
    args = parser.parse_args()
    warnings.filterwarnings("ignore", "Overriding environment", UserWarning)
    warnings.filterwarnings("ignore", ".*Overriding environment")
    with ray_session():
        print(f"{args.cluster}, {JOBS} synthetic {FAMILY} jobs an episode, {NetworkSpec()}")
        ours, stock_learner = sampling(args.cluster, args.decisions, args.rounds)
        print(f"RLlib's learner                  {stock_learner:6.3f} ms a decision and epoch, rarer agents more often")
        learners(ours, args.cluster, args.rounds, args.compiled)
        iterations(args.cluster, args.rounds)


if __name__ == "__main__":
    main()
