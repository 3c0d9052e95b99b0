"""The engine: an event-driven replay of gangs on a tree of GPUs, batched and steppable."""

from attn_sched.simulator.engine import Ask, Engine
from attn_sched.simulator.fit import fit_to_cluster
from attn_sched.simulator.options import NodeChange, SimOptions
from attn_sched.simulator.rule import EngineRule
from attn_sched.simulator.schedule import Schedule

__all__ = ["Ask", "Engine", "EngineRule", "NodeChange", "Schedule", "SimOptions", "fit_to_cluster"]
