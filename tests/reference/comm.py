"""Communication: iteration times and slowdowns of all running jobs, computed from scratch.

Ring all-reduce over the tree, or the hierarchical one (inside each island, then between islands).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from tests.reference.job import Job
from tests.reference.tree import Placement, Tree

Placed = Mapping[int, tuple[Job, Placement]]
"""Running jobs by index, with where they run."""


@dataclass(frozen=True)
class Comm:
    """The communication model; ``enabled`` False means no job is ever slowed."""

    tree: Tree
    enabled: bool = True
    contention: str = "equal"
    allreduce: str = "ring"

    def __post_init__(self) -> None:
        if self.contention not in ("none", "equal", "maxmin"):
            raise ValueError(f"unknown contention {self.contention!r}")
        if self.allreduce not in ("ring", "hierarchical"):
            raise ValueError(f"unknown all-reduce {self.allreduce!r}")

    def links(self, placement: Placement) -> list[int]:
        """The vertices whose uplink the gang uses: they hold some but not all of its GPUs. GPU uplinks are extra."""
        total = sum(placement.values())
        held = {v: sum(placement.get(i, 0) for i in self.tree.islands_under(v)) for v in self.tree.level}
        return [v for v in sorted(held) if 0 < held[v] < total]

    def volume(self, job: Job, placement: Placement) -> float:
        """Bytes that one iteration sends over each tree link the gang uses."""
        parties = job.gpus if self.allreduce == "ring" else len(placement)
        return 2 * (parties - 1) / parties * job.grad_bytes

    def gpu_limit(self, placement: Placement) -> float:
        """Capacity of the slowest GPU uplink used; a GPU belongs to one job, so it is never shared."""
        return min(self.tree.gpu_capacity[i] for i in placement)

    def shares(self, placed: Placed) -> dict[int, dict[int, float]]:
        """For each job, the bytes/s it gets on each tree link that it uses."""
        links = {j: self.links(placement) for j, (_, placement) in placed.items()}
        capacity = self.tree.capacity
        if self.contention == "none":
            return {j: {e: capacity[e] for e in used} for j, used in links.items()}
        if self.contention == "equal":
            users = {e: sum(e in used for used in links.values()) for e in self.tree.level}
            return {j: {e: capacity[e] / users[e] for e in used} for j, used in links.items()}
        rates = self.fill(placed, links)
        return {
            j: {e: capacity[e] - sum(rates[o] for o in sorted(links) if o != j and e in links[o]) for e in used}
            for j, used in links.items()
        }

    def fill(self, placed: Placed, links: Mapping[int, list[int]]) -> dict[int, float]:
        """Max-min fair rates by progressive filling, each job capped at its demand (in a ring, its GPU uplinks too)."""
        cap: dict[int, float] = {}
        for j, (job, placement) in placed.items():
            size = self.volume(job, placement)
            cap[j] = 0.0 if size == 0 else size / job.compute if job.compute > 0 else math.inf
            if self.allreduce == "ring":
                cap[j] = min(cap[j], self.gpu_limit(placement))
        rates: dict[int, float] = {}
        while len(rates) < len(placed):
            rising = [j for j in sorted(placed) if j not in rates]
            full: dict[int, float] = {}  # the common rate at which each link is full
            for e in sorted(self.tree.level):
                here = [j for j in rising if e in links[j]]
                if here:
                    frozen = sum(rates[j] for j in sorted(rates) if e in links[j])
                    full[e] = max(0.0, self.tree.capacity[e] - frozen) / len(here)
            level = min([*full.values(), *(cap[j] for j in rising)])
            for j in rising:
                if cap[j] <= level or any(full[e] <= level for e in links[j]):
                    rates[j] = level
        return rates

    def comm_time(self, job: Job, placement: Placement, shares: Mapping[int, float]) -> float:
        """Seconds of communication of one iteration."""
        if job.gpus == 1:
            return 0.0
        tree = self.tree
        gpu_latency = max(tree.gpu_latency[i] for i in placement)
        upper = 0.0  # latency of the highest level crossed above the GPUs
        if shares:
            highest = max(tree.level[e] for e in shares)
            upper = max(tree.latency[e] for e in shares if tree.level[e] == highest)
        if self.allreduce == "ring":
            slowest = min([self.gpu_limit(placement), *shares.values()])
            alpha = upper if shares else gpu_latency
            return 2 * (job.gpus - 1) * alpha + transfer(2 * (job.gpus - 1) / job.gpus * job.grad_bytes, slowest)
        most, islands = max(placement.values()), len(placement)
        inside = 2 * (most - 1) * gpu_latency
        inside += transfer(2 * (most - 1) / most * job.grad_bytes, self.gpu_limit(placement))
        between = 2 * (islands - 1) * upper
        between += transfer(2 * (islands - 1) / islands * job.grad_bytes, min(shares.values(), default=math.inf))
        return inside + between

    def iteration_times(self, placed: Placed) -> dict[int, float]:
        """Seconds per iteration of every running job."""
        shares = self.shares(placed) if self.enabled else {}
        times = {}
        for j, (job, placement) in placed.items():
            exposed = self.comm_time(job, placement, shares[j]) - job.overlap * job.compute if self.enabled else 0.0
            times[j] = job.compute + max(0.0, exposed)
        return times

    def slowdowns(self, placed: Placed, best: Mapping[int, float]) -> dict[int, float]:
        """Slowdown of every running job against ``best``, its iteration time ideally placed and alone."""
        if not self.enabled:
            return dict.fromkeys(placed, 1.0)
        times = self.iteration_times(placed)
        return {j: max(1.0, times[j] / best[j]) if best[j] > 0 else 1.0 for j in placed}


def transfer(size: float, rate: float) -> float:
    """Seconds to move ``size`` bytes at ``rate`` bytes/s."""
    return 0.0 if size == 0 else size / rate
