"""The two agents as RLlib sees them: one RLModule each, around the networks that a deployed policy uses."""

from __future__ import annotations

from typing import Any

import torch
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis.value_function_api import ValueFunctionAPI
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.core.rl_module.torch.torch_rl_module import TorchRLModule

from attn_sched.agents.networks import Critic, GpuNet, JobNet
from attn_sched.agents.schema import GLOBAL_FEATURES
from attn_sched.agents.spec import NetworkSpec

SPEC = "spec"  # key of the model config: the NetworkSpec as a dict
_WEIGHTS = GLOBAL_FEATURES.index("weight_completion")


class AgentModule(TorchRLModule, ValueFunctionAPI):
    """What both agents share: a pointer network for the choice and a critic with one value per reward term.

    Observations are those of ``Observations`` with a leading batch dimension; ``model_config["spec"]`` holds the
    ``NetworkSpec``. The logits of what is masked are -1e9, so that a plain categorical distribution never picks it. The
    critic is kept where sampling happens too: values are recorded under the weights that chose the actions.
    """

    net_class: type[JobNet] | type[GpuNet]
    model_config: Any

    def setup(self) -> None:
        """Build the networks; called by RLlib."""
        self.spec = NetworkSpec.from_dict(self.model_config[SPEC])
        self.net = self.net_class(self.spec)
        self.critic = Critic(self.spec)

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return {Columns.ACTION_DIST_INPUTS: self.net(batch[Columns.OBS])}

    def value_terms(self, observations: dict[str, torch.Tensor]) -> torch.Tensor:
        """f4[N, 3]: what each reward term is expected to sum up to from here on."""
        values: torch.Tensor = self.critic(observations)
        return values

    def compute_values(self, batch: dict[str, Any], embeddings: Any = None) -> torch.Tensor:
        """f4[N]: the value terms summed by the objective weights that stand in the observations."""
        observations = batch[Columns.OBS]
        weights = observations["globals"][..., _WEIGHTS : _WEIGHTS + 3]
        return (self.value_terms(observations) * weights).sum(-1)


class JobAgentModule(AgentModule):
    """Picks a waiting job, or holds."""

    net_class = JobNet


class GpuAgentModule(AgentModule):
    """Picks a unit for the gang being placed."""

    net_class = GpuNet


MODULES: dict[str, type[AgentModule]] = {"job": JobAgentModule, "gpu": GpuAgentModule}


def module_spec(agent: str, spec: NetworkSpec) -> RLModuleSpec:
    """What RLlib builds an agent's module from; the spaces come from the environment."""
    return RLModuleSpec(module_class=MODULES[agent], model_config={SPEC: spec.as_dict()})
