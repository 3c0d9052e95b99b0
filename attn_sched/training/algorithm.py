"""PPO on batches of clusters, as one RLlib algorithm: configuration, weights in and out, checkpoints."""

from __future__ import annotations

import contextlib
import glob
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ray
import torch
from ray.rllib.algorithms.ppo.ppo import PPO, PPOConfig
from ray.rllib.core import COMPONENT_LEARNER, COMPONENT_RL_MODULE
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec

from attn_sched.agents.pair import AgentPair
from attn_sched.agents.schema import AGENTS
from attn_sched.agents.spec import NetworkSpec
from attn_sched.errors import InputError
from attn_sched.training.learner import OPTIONS, LearnerOptions, SchedulingPPOLearner
from attn_sched.training.modules import SPEC, module_spec
from attn_sched.training.ray_address import OWN, cluster_address
from attn_sched.training.runner import SOURCE, BatchedEnvRunner, BatchSource, ClusterSpaces
from attn_sched.training.settings import PPOSettings

__all__ = [
    "PPOSettings",
    "SchedulingPPO",
    "build_config",
    "load_pair_into",
    "pair_from",
    "ray_session",
    "restore_checkpoint",
    "save_checkpoint",
]

_NET = "net."  # where a module keeps the network that a pair has


class SchedulingPPO(PPO):
    """RLlib's PPO; runner, modules and learner come with the configuration that ``build_config`` makes.

    Outside of Tune it leaves no folder behind, where RLlib makes one in the home folder for each algorithm.
    """

    _logdir: Any  # RLlib gives it no type

    def _setup_logdir(self) -> None:
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        if self._storage:
            super()._setup_logdir()
            return
        self._scratch = tempfile.TemporaryDirectory(prefix="attn-sched-", ignore_cleanup_errors=True)
        self._logdir = self._scratch.name

    def cleanup(self) -> None:
        """Stop runners and learner; called by RLlib."""
        super().cleanup()
        if self._scratch is not None:
            self._scratch.cleanup()


def module_of(agent: Any, episode: Any = None, **kwargs: Any) -> str:
    """RLlib's agent-to-module mapping: every agent has the module of its name."""
    return str(agent)


def build_config(settings: PPOSettings, spec: NetworkSpec, source: BatchSource) -> PPOConfig:
    """RLlib's configuration; ``build_config(...).build_algo()`` makes the algorithm.

    Sampling and learning run in the calling process unless ``settings.runners`` asks for others. With a GPU the learner
    uses it.

    Args:
        settings: Of PPO.
        spec: Of both agents' networks.
        source: Makes the clusters and draws their episodes. RLlib copies and pickles it, also into every checkpoint.

    Raises:
        InputError: fewer clusters than sampling processes.
    """
    processes = max(1, settings.runners)
    if settings.clusters < processes:
        raise InputError(
            f"{settings.clusters} clusters cannot be shared among {processes} processes",
            field="clusters",
            expected="at least one for each",
        )
    options = LearnerOptions(
        value_rate=settings.critic_rate,
        advantage_clamp=settings.advantage_clamp,
        kl_limit=settings.kl_limit,
        value_warmup=settings.value_warmup,
        huber=settings.huber,
    )
    config = PPOConfig(algo_class=SchedulingPPO)
    config.environment(ClusterSpaces, env_config={SOURCE: source}, disable_env_checking=True)
    config.framework("torch")
    config.env_runners(
        env_runner_cls=BatchedEnvRunner,
        num_env_runners=settings.runners,
        num_envs_per_env_runner=-(-settings.clusters // processes),
        sample_timeout_s=None,
    )
    config.learners(
        num_learners=0,
        num_gpus_per_learner=1 if torch.cuda.is_available() else 0,
        learner_class=SchedulingPPOLearner,
        learner_config_dict={OPTIONS: options},
        add_default_connectors_to_learner_pipeline=False,
    )
    config.training(
        gamma=settings.gamma,
        clip_param=settings.clip,
        use_kl_loss=False,
        grad_clip=settings.gradient_clip,
        num_epochs=settings.epochs,
        minibatch_size=min(settings.minibatch, settings.iteration_decisions),
        train_batch_size_per_learner=settings.iteration_decisions,
    )
    config.multi_agent(policies=set(settings.agents), policy_mapping_fn=module_of)
    config.rl_module(
        rl_module_spec=MultiRLModuleSpec(
            rl_module_specs={agent: module_spec(agent, spec) for agent in settings.agents}
        ),
        algorithm_config_overrides_per_module={
            agent: PPOConfig.overrides(
                lr=settings.policy_rate(agent),
                lambda_=settings.lam(agent),
                entropy_coeff=settings.entropy(agent),
            )
            for agent in settings.agents
        },
    )
    config.debugging(seed=settings.seed, log_level="ERROR")
    return config


@contextlib.contextmanager
def ray_session(cpus: int | None = None, address: str | None = None) -> Iterator[None]:
    """Ray for the length of a block: started without dashboard and usage report, and shut down again whatever happens.

    A Ray that this process uses already is used and left alone. A cluster that is named, or in whose job this process
    runs (RAY_ADDRESS is set there), is connected to and goes on afterwards. Torch is told to use one thread: on cores
    that others want too, a second one makes everything several times slower.

    Args:
        cpus: Of a Ray that is started; a cluster has its own.
        address: Of a running cluster.

    Raises:
        InputError: the cluster cannot be connected to.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    torch.set_num_threads(1)
    logging.getLogger("ray.rllib").setLevel(logging.ERROR)  # else it says with every algorithm which interface it has
    if ray.is_initialized():
        yield
        return
    cluster = cluster_address(address)
    if cluster is not None:
        _connect(cluster)
    else:
        ray.init(address=OWN, num_cpus=cpus, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    try:
        yield
    finally:
        ray.shutdown()


def _connect(address: str) -> None:
    """Use a running cluster. Raises InputError."""
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        said = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise InputError(
            f"the cluster at {address} cannot be used: {said}",
            field="address",
            expected=f"a running cluster of Ray {ray.__version__}, and its token in RAY_AUTH_TOKEN_PATH if it has one",
        ) from error


def network_spec(algorithm: PPO) -> NetworkSpec:
    """The spec that the algorithm's networks are built from."""
    return NetworkSpec.from_dict(next(iter(_module_specs(algorithm).values())).model_config[SPEC])


def _module_specs(algorithm: PPO) -> dict[str, Any]:
    config: Any = algorithm.config
    specs: dict[str, Any] = config.rl_module_spec.rl_module_specs
    return specs


def _learning_agents(algorithm: PPO) -> tuple[str, ...]:
    return tuple(agent for agent in AGENTS if agent in _module_specs(algorithm))


def _learner_weights(algorithm: PPO) -> dict[str, Any]:
    """Module id -> parameters and buffers by name, as arrays."""
    learners: Any = algorithm.learner_group
    component = f"{COMPONENT_LEARNER}/{COMPONENT_RL_MODULE}"
    states: dict[str, Any] = learners.get_state(components=component)[COMPONENT_LEARNER][COMPONENT_RL_MODULE]
    return states


def pair_from(algorithm: PPO) -> AgentPair:
    """The agents as the learner has them now, as a pair of their own: later training does not change it."""
    states = _learner_weights(algorithm)
    agents = _learning_agents(algorithm)
    pair = AgentPair.fresh(network_spec(algorithm), agents, seed=0)
    for agent in agents:
        weights = {name[len(_NET) :]: values for name, values in states[agent].items() if name.startswith(_NET)}
        pair.net(agent).load_state_dict({name: torch.tensor(values) for name, values in weights.items()})
    return pair


def load_pair_into(algorithm: PPO, pair: AgentPair) -> None:
    """Let the algorithm's agents start from the networks of ``pair``; its critics stay as they are.

    Raises:
        InputError: the pair lacks an agent that learns, or its networks have another shape.
    """
    spec = network_spec(algorithm)
    if pair.spec != spec:
        raise InputError(f"networks of {pair.spec}", field="agents", expected=f"those of {spec}")
    states = {
        agent: {_NET + name: values.detach().cpu().numpy() for name, values in pair.net(agent).state_dict().items()}
        for agent in _learning_agents(algorithm)
    }

    def load(learner: Any) -> None:
        for agent, state in states.items():
            learner.module[agent].set_state(state)

    learners: Any = algorithm.learner_group
    for outcome in learners.foreach_learner(load):
        outcome.get()
    _push_weights(algorithm)


def _push_weights(algorithm: PPO) -> None:
    """Give all runners the learner's weights. RLlib's own way refuses those that are not newer by its count."""
    states = _learner_weights(algorithm)
    runners: Any = algorithm.env_runner_group
    runners.foreach_env_runner(lambda runner: runner.set_state({COMPONENT_RL_MODULE: states}))


def save_checkpoint(algorithm: PPO, folder: str | os.PathLike[str]) -> Path:
    """Write an RLlib checkpoint whole or not at all: beside its place first, then renamed.

    What a killed process left of an earlier attempt is removed.

    Args:
        algorithm: Its weights, optimizers, counters and random streams are kept.
        folder: Where to; must not exist yet, its parent must.

    Returns:
        The folder.

    Raises:
        InputError: it exists, or cannot be written.
    """
    target = Path(folder).absolute()
    if target.exists():
        raise InputError("exists already", file=target, expected="the name of a new folder")
    for left in target.parent.glob(f".{glob.escape(target.name)}.*.part"):
        shutil.rmtree(left, ignore_errors=True)
    try:
        part = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent))
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", file=target) from error
    try:
        algorithm.save_to_path(part)
        part.chmod(0o755)
        part.rename(target)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return target


def restore_checkpoint(algorithm: PPO, folder: str | os.PathLike[str]) -> None:
    """Take up weights, optimizers, counters and random streams of a checkpoint; clusters start new episodes.

    The streams are those of a run that samples in its own process, and going on from a checkpoint twice gives the same;
    remote runners go on with fresh ones.

    Args:
        algorithm: Built from the same settings and spec as the one that was saved.
        folder: What ``save_checkpoint`` wrote. RLlib's checkpoints are pickles: restore none from people you do not
            trust.

    Raises:
        InputError: there is no checkpoint, or it is of networks of another shape.
    """
    source = Path(folder).absolute()
    if not (source / "algorithm_state.pkl").is_file():
        raise InputError("is no checkpoint", file=source, expected="a folder that save_checkpoint wrote")
    agents = set(_learning_agents(algorithm))
    saved = source / "learner_group" / "learner" / "rl_module"
    there = {path.name for path in saved.iterdir() if path.is_dir()} if saved.is_dir() else set()
    if there != agents:
        raise InputError(
            f"holds the agents {', '.join(sorted(there)) or 'none'}",
            file=source,
            expected=", ".join(sorted(agents)),
        )
    try:
        algorithm.restore_from_path(source)
    except RuntimeError as error:
        raise InputError(f"does not fit these networks: {error}", file=source) from error
    _push_weights(algorithm)
    runners: Any = algorithm.env_runner_group
    if runners.num_remote_env_runners() > 0:
        iteration = algorithm.iteration
        runners.foreach_env_runner(lambda runner: runner.reseed(iteration), local_env_runner=False)
