"""Placement rules: which islands a gang takes among what is free."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from itertools import combinations

from tests.reference.comm import Comm
from tests.reference.job import CloseCalls, Job, Run, whole
from tests.reference.tree import Free, Placement, Tree, kind_rank, topo_best_fit

RULES = ("topo-best-fit", "first-fit", "load-balance", "best-fit", "tiresias-skew", "lwf", "contention", "random")


class Placer:
    """One placement rule on one cluster."""

    def __init__(self, tree: Tree, rule: str, comm: Comm, calls: CloseCalls, seed: int = 0) -> None:
        if rule not in RULES:
            raise ValueError(f"unknown placement rule {rule!r}")
        self.tree, self.rule, self.comm, self.calls = tree, rule, comm, calls
        self.random = random.Random(seed)

    # -- what fits, and on which GPU type -----------------------------------------------------------------------------

    def feasible_kinds(self, job: Job, free: Free) -> list[int]:
        """The GPU types on which the rule can place the gang now."""
        if self.rule == "best-fit":
            return [k for k in job.kinds if consolidated(self.tree, free, k, job.gpus) is not None]
        return countable_kinds(self.tree, job, free)

    def fits(self, job: Job, free: Free) -> bool:
        """Whether the rule can place the gang now."""
        return bool(self.feasible_kinds(job, free))

    def place(self, job: Job, free: Free, running: dict[int, Run], now: float) -> Placement:
        """Where the gang goes; it must fit."""
        kind = choose_kind(self.tree, self.feasible_kinds(job, free), free, job.gpus)
        return self.place_kind(job, kind, free, running, now)

    def place_kind(self, job: Job, kind: int, free: Free, running: dict[int, Run], now: float) -> Placement:
        """Where the gang goes on GPU type ``kind``."""
        rules: dict[str, Callable[[], Placement]] = {
            "topo-best-fit": lambda: self.topo(job, kind, free),
            "first-fit": lambda: self.fill(job, kind, free, self.tree.nodes),
            "load-balance": lambda: self.emptiest(job, kind, free),
            "best-fit": lambda: self.consolidated(job, kind, free),
            "tiresias-skew": lambda: self.topo(job, kind, free) if job.skewed else self.fragments(job, kind, free),
            "lwf": lambda: self.least_work(job, kind, free, running, now),
            "contention": lambda: self.least_contention(job, kind, free, running),
            "random": lambda: self.shuffled(job, kind, free),
        }
        placement = rules[self.rule]()
        assert sum(placement.values()) == job.gpus
        assert all(0 < c <= free[i] and self.tree.island_type[i] == kind for i, c in placement.items())
        return placement

    # -- the rules ----------------------------------------------------------------------------------------------------

    def topo(self, job: Job, kind: int, free: Free) -> Placement:
        """Fewest racks, then nodes, then least left over."""
        placement = topo_best_fit(self.tree, free, kind, job.gpus)
        assert placement is not None
        return placement

    def in_nodes(self, kind: int, free: Free, shares: dict[int, int]) -> Placement:
        """So many GPUs in each node; below the node, ``topo-best-fit``."""
        placement: Placement = {}
        for node, count in shares.items():
            inside = topo_best_fit(self.tree, free, kind, count, root=node)
            assert inside is not None
            placement.update(inside)
        return placement

    def fill(self, job: Job, kind: int, free: Free, nodes: Iterable[int]) -> Placement:
        """Whatever is free in each node in turn, until the gang is complete."""
        shares: dict[int, int] = {}
        need = job.gpus
        for node in nodes:
            take = min(self.tree.count(node, free, kind), need)
            if take > 0:
                shares[node] = take
                need -= take
        return self.in_nodes(kind, free, shares)

    def fragments(self, job: Job, kind: int, free: Free) -> Placement:
        """The fullest nodes first."""
        return self.fill(job, kind, free, sorted(self.tree.nodes, key=lambda v: (self.tree.count(v, free, kind), v)))

    def emptiest(self, job: Job, kind: int, free: Free) -> Placement:
        """One GPU at a time from the node with most free GPUs."""
        room = {v: self.tree.count(v, free, kind) for v in self.tree.nodes}
        shares: dict[int, int] = {}
        for _ in range(job.gpus):
            node = min(room, key=lambda v: (-room[v], v))
            room[node] -= 1
            shares[node] = shares.get(node, 0) + 1
        return self.in_nodes(kind, free, shares)

    def consolidated(self, job: Job, kind: int, free: Free) -> Placement:
        """Case D of the golden cross-checks."""
        shares = consolidated(self.tree, free, kind, job.gpus)
        assert shares is not None
        return self.in_nodes(kind, free, shares)

    def least_work(self, job: Job, kind: int, free: Free, running: dict[int, Run], now: float) -> Placement:
        """Nodes with the least remaining (estimated) GPU-seconds of running work first."""
        left, steady = {}, {}  # seconds, and whether the order in which they are summed makes no difference
        for j, run in running.items():
            left[j], exact = self.calls.not_below_zero(run.estimate_left_at(now), exact=run.exact_at(now))
            steady[j] = exact and whole(left[j])
        nodes = [v for v in self.tree.nodes if self.tree.count(v, free, kind) > 0]
        held = {v: self.held_in(v, running) for v in nodes}
        load = {v: sum(left[j] * count for j, count in held[v].items()) for v in nodes}
        for a, b in combinations(nodes, 2):
            exact = held[a] == held[b] or all(steady[j] for j in (*held[a], *held[b]))
            self.calls.note(load[a], load[b], exact=exact)
        return self.fill(job, kind, free, sorted(load, key=lambda v: (load[v], v)))

    def held_in(self, node: int, running: dict[int, Run]) -> dict[int, int]:
        """How many GPUs each running job has there, for those that have any."""
        under = self.tree.islands_under(node)
        counts = {j: sum(run.placement.get(i, 0) for i in under) for j, run in sorted(running.items())}
        return {j: count for j, count in counts.items() if count}

    def least_contention(self, job: Job, kind: int, free: Free, running: dict[int, Run]) -> Placement:
        """The candidate after which the iteration times of all running jobs sum to least; the first among equals."""
        candidates = [
            self.topo(job, kind, free),
            self.fill(job, kind, free, self.tree.nodes),
            self.emptiest(job, kind, free),
        ]
        if consolidated(self.tree, free, kind, job.gpus) is not None:
            candidates.append(self.consolidated(job, kind, free))
        candidates.append(self.fragments(job, kind, free))
        placed = {j: (run.job, run.placement) for j, run in running.items()}
        times = [self.comm.iteration_times({**placed, job.index: (job, c)}) for c in candidates]
        costs = [sum(t[j] for j in sorted(t)) for t in times]
        least = min(costs)
        chosen = costs.index(least)
        for cost, each in zip(costs, times, strict=True):
            self.calls.note(cost, least, exact=each == times[chosen])  # else different terms, the same sum
        return candidates[chosen]

    def shuffled(self, job: Job, kind: int, free: Free) -> Placement:
        """Nodes in random order."""
        return self.fill(job, kind, free, self.random.sample(self.tree.nodes, len(self.tree.nodes)))


def countable_kinds(tree: Tree, job: Job, free: Free) -> list[int]:
    """The GPU types with enough free GPUs, wherever they are."""
    return [k for k in job.kinds if tree.count(tree.root, free, k) >= job.gpus]


def choose_kind(tree: Tree, kinds: list[int], free: Free, need: int) -> int:
    """The GPU type that a gang takes among the feasible ones."""
    return min(kinds, key=lambda k: kind_rank(tree, free, k, need)) if len(kinds) > 1 else kinds[0]


def consolidated(tree: Tree, free: Free, kind: int, need: int) -> dict[int, int] | None:
    """GPUs in each node by the rule of case D, or None: whole nodes and one for the rest, or one node."""
    room = {v: tree.count(v, free, kind) for v in tree.nodes}
    size = {v: tree.count(v, tree.size, kind) for v in tree.nodes}
    largest = max(size.values())
    if largest == 0:
        return None
    shares: dict[int, int] = {}
    rest = need
    if need > largest:
        for step in sorted(set(size.values()), reverse=True):
            alike = [v for v in tree.nodes if size[v] == step]
            whole = min(rest // step, len(alike)) if step else 0
            empty = [v for v in alike if room[v] == step][:whole]
            if len(empty) < whole:
                return None
            shares.update(dict.fromkeys(empty, step))
            rest -= whole * step
            if rest == 0 or any(size[v] >= rest for v in tree.nodes if v not in shares):
                break  # smaller nodes are taken whole only where the cluster has too few larger ones
    if rest > 0:
        others = [v for v in tree.nodes if v not in shares and room[v] >= rest]
        if not others:
            return None
        shares[min(others, key=lambda v: (room[v], v))] = rest
    return shares
