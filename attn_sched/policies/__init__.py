"""Every policy by its name: orderings, queueings, placements, and the replay of a workload under one of them."""

from attn_sched.policies.learned import check_policy, explain_decision
from attn_sched.policies.names import Policy, list_policies, parse_policy, split_policy_list
from attn_sched.policies.registry import register_ordering, register_placement
from attn_sched.policies.replay import simulate, simulate_many
from attn_sched.policies.views import PlacementView, QueueView

__all__ = [
    "PlacementView",
    "Policy",
    "QueueView",
    "check_policy",
    "explain_decision",
    "list_policies",
    "parse_policy",
    "register_ordering",
    "register_placement",
    "simulate",
    "simulate_many",
    "split_policy_list",
]
