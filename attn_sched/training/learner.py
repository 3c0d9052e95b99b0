"""PPO's update: RLlib's learner with minibatches per agent, a value per reward term, and rests for the policy.

RLlib draws minibatches equally from all modules until the rarest has had its epochs, so rarer agents are trained more
often than asked. Here every module goes through its own decisions exactly ``num_epochs`` times.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from ray.rllib.algorithms.ppo.ppo import LEARNER_RESULTS_KL_KEY
from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
from ray.rllib.core.columns import Columns
from ray.rllib.core.learner.learner import ENTROPY_KEY, POLICY_LOSS_KEY, VF_LOSS_KEY
from ray.rllib.core.learner.training_data import TrainingData
from ray.rllib.utils.metrics import (
    ALL_MODULES,
    NUM_ENV_STEPS_TRAINED,
    NUM_ENV_STEPS_TRAINED_LIFETIME,
    NUM_MODULE_STEPS_TRAINED,
    NUM_MODULE_STEPS_TRAINED_LIFETIME,
    WEIGHTS_SEQ_NO,
)
from torch import Tensor
from torch.nn import functional

from attn_sched.agents.networks import job_there
from attn_sched.agents.rewards import TERMS
from attn_sched.errors import InputError
from attn_sched.seeding import stream
from attn_sched.training.credit import explained_variance
from attn_sched.training.fragments import ADVANTAGES, TARGETS, VALUES, FragmentsToTrainBatch
from attn_sched.training.modules import AgentModule

POLICY, VALUE = "policy", "value"  # names of a module's two optimizers
PART_ROWS = 96  # decisions that go through a network at once on a CPU; more leave its caches
_STATE = "scheduling"  # key of what this learner adds to RLlib's learner state


@dataclass(frozen=True)
class LearnerOptions:
    """What RLlib's own configuration has no place for; see ``PPOSettings`` for the meaning."""

    value_rate: float | list[list[float]]
    advantage_clamp: float
    kl_limit: float
    value_warmup: int
    huber: float


OPTIONS = "options"  # key of RLlib's ``learner_config_dict`` that holds the LearnerOptions


def minibatches(rows: int, size: int, epochs: int, generator: np.random.Generator) -> Iterator[Tensor]:
    """Row numbers of each minibatch: every epoch is a new order of all rows, cut into parts of about ``size``.

    The parts of an epoch differ by at most one row, so that no gradient step rests on a few left-over decisions.
    """
    parts = max(1, round(rows / size))
    for _ in range(epochs):
        yield from torch.from_numpy(generator.permutation(rows)).tensor_split(parts)


def surrogate(logp: Tensor, old_logp: Tensor, advantages: Tensor, clip: float) -> tuple[Tensor, Tensor]:
    """PPO's clipped objective per decision, f4[N], and whether its ratio lies outside the clip, bool[N]
    (Schulman et al., Proximal policy optimization algorithms, 2017, eq. 7)."""
    ratio = torch.exp(logp - old_logp)
    gain = torch.minimum(advantages * ratio, advantages * ratio.clamp(1.0 - clip, 1.0 + clip))
    return gain, (ratio - 1.0).abs() > clip


def divergence(old_logits: Tensor, logp: Tensor) -> Tensor:
    """KL(old || new) per decision, f4[N]; ``logp`` f4[N, A] are the new log-probabilities."""
    old_logp = torch.log_softmax(old_logits, dim=-1)
    return (old_logp.exp() * (old_logp - logp)).sum(-1)


class SchedulingPPOLearner(PPOTorchLearner):
    """Trains each agent's policy and critic with an optimizer of its own.

    RLlib's settings ``lr``, ``clip_param``, ``entropy_coeff``, ``gamma``, ``lambda_``, ``grad_clip``, ``num_epochs``
    and ``minibatch_size`` have their usual meaning; the rest is in ``learner_config_dict["options"]``.

    Raises:
        InputError: more than one learner is configured.
    """

    # RLlib leaves these without a type, or with that of its base class.
    config: Any
    _learner_connector: Any
    _device: Any

    def build(self) -> None:
        """Build module, optimizers and connector; called by RLlib."""
        if self.distributed:
            raise InputError(
                f"{self.config.num_learners} learners are not supported", field="num_learners", expected="0 or 1"
            )
        if self._is_built:
            return
        self._options: LearnerOptions = self.config.learner_config_dict[OPTIONS]
        self._updates = 0
        self._shuffles = stream(self.config.seed or 0, "minibatches")
        super().build()
        self._learner_connector.append(
            FragmentsToTrainBatch(
                gamma=self.config.gamma,
                # The module is no dict: it has no iteration of its own.
                lam={name: self.config.get_config_for_module(name).lambda_ for name in self.module.keys()},  # noqa: SIM118
                clamp=self._options.advantage_clamp,
            )
        )

    def _agent(self, module_id: str) -> AgentModule:
        module = self.module[module_id].unwrapped()
        assert isinstance(module, AgentModule)
        return module

    def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
        """One Adam for the policy network and one for the critic; called by RLlib."""
        module = self._agent(module_id)
        value_rate = config.learner_config_dict[OPTIONS].value_rate
        for name, part, rate in ((POLICY, module.net, config.lr), (VALUE, module.critic, value_rate)):
            params = list(part.parameters())
            self.register_optimizer(
                module_id=module_id,
                optimizer_name=name,
                optimizer=torch.optim.Adam(params, fused=True),
                params=params,
                lr_or_lr_schedule=rate,
            )

    @staticmethod
    def _set_optimizer_lr(optimizer: torch.optim.Optimizer, lr: Any) -> None:
        # RLlib's schedules give tensors, which fused optimizers refuse and checkpoints do not keep as numbers.
        for group in optimizer.param_groups:
            group["lr"] = float(lr)

    def update(  # type: ignore[override]
        self,
        *,
        training_data: TrainingData | None = None,
        timesteps: dict[str, Any] | None = None,
        num_epochs: int = 1,
        minibatch_size: int | None = None,
        _no_metrics_reduce: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Learn from one train batch.

        Args:
            training_data: or ``episodes`` / ``episodes_refs``: what the batched runner sampled.
            timesteps: counters that learning rate schedules follow.
            num_epochs: passes over each agent's decisions.
            minibatch_size: decisions of one agent a gradient step; None takes all at once.

        Returns:
            RLlib's reduced metrics.
        """
        self._check_is_built()
        timesteps = timesteps or {}
        if training_data is None:
            names = ("episodes", "episodes_refs")
            training_data = TrainingData(**{name: kwargs[name] for name in names if name in kwargs})
        training_data.validate()
        training_data.solve_refs()
        self.before_gradient_based_update(timesteps=timesteps)
        self._weights_seq_no += 1
        self._updates += 1
        batch = self._learner_connector(
            rl_module=self.module, episodes=training_data.episodes, shared_data={}, metrics=self.metrics
        )
        for module_id in sorted(batch):
            if self.should_module_be_updated(module_id):
                self._train(module_id, batch[module_id], num_epochs, minibatch_size)
        decisions = sum(len(columns[Columns.ACTIONS]) for columns in batch.values())
        self.metrics.log_value((ALL_MODULES, NUM_ENV_STEPS_TRAINED), decisions, reduce="sum")
        self.metrics.log_value((ALL_MODULES, NUM_ENV_STEPS_TRAINED_LIFETIME), decisions, reduce="lifetime_sum")
        self.after_gradient_based_update(timesteps=timesteps)
        return None if _no_metrics_reduce else self.metrics.reduce()

    def _train(self, module_id: str, columns: dict[str, Any], epochs: int, size: int | None) -> None:
        """All gradient steps of one module on its train batch."""
        rows = len(columns[Columns.ACTIONS])
        batch = self._tensors(columns)
        lengths = job_there(batch[Columns.OBS]).sum(1)
        config = self.config.get_config_for_module(module_id)
        policy_learns = self._updates > self._options.value_warmup
        sums: dict[str, float] = defaultdict(float)
        counts: dict[str, int] = defaultdict(int)
        for picked in minibatches(rows, size or rows, epochs, self._shuffles):
            parts = [_rows(batch, part) for part in self._parts(picked.to(self._device), lengths)]
            done = self._value_step(module_id, parts, config)
            done["policy_rested"] = 1.0
            if policy_learns:
                policy = self._policy_step(module_id, parts, config)
                policy_learns = policy[LEARNER_RESULTS_KL_KEY] <= self._options.kl_limit
                done |= policy
            for name, value in done.items():
                sums[name] += value
                counts[name] += 1
            self._count_steps(module_id, len(picked))
        means = {name: sums[name] / counts[name] for name in sums}
        shares = explained_variance(columns[TARGETS], columns[VALUES])
        means |= {f"explained_variance_{term}": float(share) for term, share in zip(TERMS, shares, strict=True)}
        self.metrics.log_dict(means, key=module_id, window=1)
        self.metrics.log_value((module_id, WEIGHTS_SEQ_NO), self._weights_seq_no, window=1)

    def _parts(self, picked: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
        """A minibatch in parts of like queue length, whose gradients are added up.

        On a CPU small parts stay in its caches, and short queues are not padded to long ones: half the time.
        """
        if torch.device(self._device).type != "cpu":
            return (picked,)
        return picked[torch.argsort(lengths[picked])].split(PART_ROWS)

    def _log_trainable_parameters(self) -> None:
        """Nothing: RLlib would log the counts once, and report not-a-number ever after."""

    def _tensors(self, columns: dict[str, Any]) -> dict[str, Any]:
        def tensor(values: np.ndarray) -> Tensor:
            return torch.from_numpy(np.ascontiguousarray(values)).to(self._device)

        return {
            name: {key: tensor(value) for key, value in column.items()} if isinstance(column, dict) else tensor(column)
            for name, column in columns.items()
        }

    def _value_step(self, module_id: str, parts: list[dict[str, Any]], config: Any) -> dict[str, float]:
        """One step of the critic: Huber loss, summed over the reward terms."""
        rows = sum(len(part[TARGETS]) for part in parts)
        optimizer = self.get_optimizer(module_id, VALUE)
        optimizer.zero_grad(set_to_none=True)
        total = 0.0
        for part in parts:
            values = self._agent(module_id).value_terms(part[Columns.OBS])
            errors = functional.huber_loss(values, part[TARGETS], reduction="none", delta=self._options.huber)
            loss = errors.sum() / rows
            loss.backward()
            total += loss.item()
        return {VF_LOSS_KEY: total, "gradient_norm_value": self._descend(module_id, VALUE, config.grad_clip)}

    def _policy_step(self, module_id: str, parts: list[dict[str, Any]], config: Any) -> dict[str, float]:
        """One step of the policy; none, if it has already moved farther from the one that sampled than allowed."""
        rows = sum(len(part[Columns.ACTIONS]) for part in parts)
        entropy_weight = float(self.entropy_coeff_schedulers_per_module[module_id].get_current_value())
        optimizer = self.get_optimizer(module_id, POLICY)
        optimizer.zero_grad(set_to_none=True)
        sums: dict[str, float] = defaultdict(float)
        for part in parts:
            out = self.module[module_id].forward_train({Columns.OBS: part[Columns.OBS]})
            logp = torch.log_softmax(out[Columns.ACTION_DIST_INPUTS], dim=-1)
            chosen = logp.gather(1, part[Columns.ACTIONS][:, None]).squeeze(1)
            gain, outside = surrogate(chosen, part[Columns.ACTION_LOGP], part[ADVANTAGES], config.clip_param)
            entropy = -(logp.exp() * logp).sum()
            (-(gain.sum() + entropy_weight * entropy) / rows).backward()
            sums[POLICY_LOSS_KEY] -= gain.sum().item() / rows
            sums[ENTROPY_KEY] += entropy.item() / rows
            moved = divergence(part[Columns.ACTION_DIST_INPUTS], logp.detach())
            sums[LEARNER_RESULTS_KL_KEY] += moved.sum().item() / rows
            sums["clip_share"] += outside.sum().item() / rows
        if sums[LEARNER_RESULTS_KL_KEY] > self._options.kl_limit:
            return {LEARNER_RESULTS_KL_KEY: sums[LEARNER_RESULTS_KL_KEY]}
        norm = self._descend(module_id, POLICY, config.grad_clip)
        return {**sums, "gradient_norm_policy": norm, "policy_rested": 0.0}

    def _descend(self, module_id: str, name: str, clip: float) -> float:
        """A step of an optimizer with the gradient's norm clipped; returns the norm before.

        Raises:
            FloatingPointError: the gradient is not finite; a step would spoil every weight, and so would going on.
        """
        optimizer = self.get_optimizer(module_id, name)
        params = [param for group in optimizer.param_groups for param in group["params"]]
        norm = torch.nn.utils.clip_grad_norm_(params, clip).item()
        if not np.isfinite(norm):
            raise FloatingPointError(f"the {name} gradient of the {module_id} agent is {norm}: training has diverged")
        optimizer.step()
        return norm

    def _count_steps(self, module_id: str, decisions: int) -> None:
        for key in (module_id, ALL_MODULES):
            self.metrics.log_value((key, NUM_MODULE_STEPS_TRAINED), decisions, reduce="sum")
            self.metrics.log_value((key, NUM_MODULE_STEPS_TRAINED_LIFETIME), decisions, reduce="lifetime_sum")

    def get_state(
        self,
        components: str | Collection[str] | None = None,
        *,
        not_components: str | Collection[str] | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """RLlib's state, with the number of updates and the stream that orders minibatches where all is asked for."""
        state: dict[str, Any] = super().get_state(components, not_components=not_components, **kwargs)
        if components is None:
            state[_STATE] = {"updates": self._updates, "shuffles": self._shuffles.bit_generator.state}
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        """Take up a state that ``get_state`` gave."""
        super().set_state(state)
        if _STATE in state:
            self._updates = state[_STATE]["updates"]
            self._shuffles.bit_generator.state = state[_STATE]["shuffles"]


def _rows(batch: dict[str, Any], picked: Tensor) -> dict[str, Any]:
    return {
        name: {key: value[picked] for key, value in column.items()} if isinstance(column, dict) else column[picked]
        for name, column in batch.items()
    }
