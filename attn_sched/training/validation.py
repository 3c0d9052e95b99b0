"""How good a policy is on fixed windows of the validation parts: the measure by which training picks its weights.

A cell is one log on one cluster, with windows at several offered loads. Its excess is the sum, over all counted jobs of
its windows, of what they took beyond their ideal durations. A policy's score is the mean over cells of its excess
divided by that of the best hand-written rule: 1 is as good as the rule, less is better. The best rule is one for all
cells: the one with the least geometric mean of the cells' excesses, which does not depend on what each is measured in.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from attn_sched.agents.pair import AgentPair
from attn_sched.agents.rewards import LEAST_DURATION_S, LEAST_EXCESS
from attn_sched.cluster import Cluster
from attn_sched.errors import InputError
from attn_sched.evaluation.fairness import jain, mean_by_user
from attn_sched.evaluation.outcomes import counted_outcomes
from attn_sched.files import atomic_write
from attn_sched.policies import parse_policy, simulate_many
from attn_sched.policies.learned import Player, replay_batch
from attn_sched.policies.linear import LinearRule
from attn_sched.policies.names import Policy
from attn_sched.policies.registry import AGENTS, TUNED, Learned, Ordering, Placement
from attn_sched.simulator import SimOptions
from attn_sched.simulator import layout as at
from attn_sched.simulator.schedule import Schedule
from attn_sched.training.configs import TrainingConfig, ValidationSettings
from attn_sched.training.data import ClusterPools
from attn_sched.workload import Workload

OPTIONS = SimOptions(record_segments=False)

Tell = Callable[[float], None]


@dataclass(frozen=True)
class CellScore:
    """A policy on one log and cluster: all windows of the cell together."""

    windows: int
    jobs: int  # counted jobs that finished
    duration_s: float  # sum of their ideal durations
    excess_s: float  # sum over jobs of JCT - ideal duration
    wait_p99_s: float  # 99th percentile of the wait; mean over windows
    jain: float  # Jain index of users' mean bounded slowdowns; mean over windows
    comm_overhead: float  # GPU time held over GPU time at the ideal placement

    @property
    def excess_mean_s(self) -> float:
        """Excess a job."""
        return self.excess_s / max(1, self.jobs)

    @property
    def floored_mean_s(self) -> float:
        """Excess a job, at least a share of the mean duration as in the rewards: where hardly anybody waits, a ratio to
        what a rule costs would make much of seconds.
        """
        return max(self.excess_mean_s, LEAST_EXCESS * max(self.duration_s / max(1, self.jobs), LEAST_DURATION_S))


def cell_score(schedules: Sequence[Schedule]) -> CellScore:
    """Score of the windows of one cell."""
    excess = held = ideal = duration = 0.0
    jobs = 0
    waits, jains = [], []
    for schedule in schedules:
        done = counted_outcomes(schedule)
        if not len(done.index):
            continue  # every counted job was cancelled before it finished
        jobs += len(done.index)
        duration += float(done.duration_s.sum())
        excess += float((done.jct_s - done.duration_s).sum())
        held += float((done.num_gpus * done.held_s).sum())
        ideal += float((done.num_gpus * done.duration_s).sum())
        waits.append(float(np.percentile(done.wait_s, 99)))
        jains.append(jain(mean_by_user(done.bounded_slowdown, done.user)))
    return CellScore(
        windows=len(schedules),
        jobs=jobs,
        duration_s=duration,
        excess_s=excess,
        wait_p99_s=float(np.mean(waits)) if waits else 0.0,
        jain=float(np.mean(jains)) if jains else 1.0,
        comm_overhead=held / ideal if ideal > 0 else 1.0,
    )


@dataclass(frozen=True)
class Scores:
    """A policy on all cells."""

    cells: Mapping[str, CellScore]

    @property
    def geometric_mean(self) -> float:
        """Of the cells' mean excesses in seconds a job."""
        logs = [math.log(cell.floored_mean_s) for cell in self.cells.values()]
        return math.exp(sum(logs) / len(logs))

    def ratio(self, reference: Scores) -> float:
        """Mean over cells of the excess divided by the reference's."""
        return float(np.mean(list(self.ratios(reference).values())))

    def ratios(self, reference: Scores) -> dict[str, float]:
        """Of each cell."""
        return {name: cell.floored_mean_s / reference.cells[name].floored_mean_s for name, cell in self.cells.items()}

    def summary(self, reference: Scores) -> dict[str, float]:
        """The score, and the means over cells of what stands beside it."""
        cells = list(self.cells.values())
        return {
            "score": self.ratio(reference),
            "excess_mean_s": float(np.mean([cell.excess_mean_s for cell in cells])),
            "wait_p99_s": float(np.mean([cell.wait_p99_s for cell in cells])),
            "jain": float(np.mean([cell.jain for cell in cells])),
            "comm_overhead": float(np.mean([cell.comm_overhead for cell in cells])),
        }

    def as_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return {name: asdict(cell) for name, cell in self.cells.items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Scores:
        """What ``as_dict`` gave."""
        return cls({name: CellScore(**cell) for name, cell in values.items()})


@dataclass(frozen=True)
class RuleScores:
    """The hand-written rules on all cells."""

    scores: Mapping[str, Scores]

    @property
    def best(self) -> str:
        """The rule that others are measured by; the first of equals."""
        return min(self.scores, key=lambda name: self.scores[name].geometric_mean)

    @property
    def reference(self) -> Scores:
        """The best rule's scores."""
        return self.scores[self.best]

    def best_of_cell(self, cell: str) -> str:
        """The rule with the least excess in one cell."""
        return min(self.scores, key=lambda name: self.scores[name].cells[cell].excess_s)


class Validation:
    """Fixed windows of the validation parts.

    Args:
        pools: Validation parts, by cluster.
        settings: Which windows.

    Raises:
        InputError: a part has too few jobs, or its load cannot be scaled.
    """

    def __init__(self, pools: Sequence[ClusterPools], settings: ValidationSettings) -> None:
        self.settings = settings
        self.cells: dict[str, list[Workload]] = {}
        self._clusters: list[tuple[Cluster, list[str]]] = []
        for pool in pools:
            names = []
            for load in settings.loads:
                found = pool.windows(load, settings.windows, settings.jobs, warmup=settings.warmup)
                for log, windows in found.items():
                    name = f"{log} on {pool.cluster.name}"
                    self.cells.setdefault(name, []).extend(windows)
                    names.append(name)
            self._clusters.append((pool.cluster, list(dict.fromkeys(names))))

    @property
    def windows(self) -> int:
        """Windows of all cells."""
        return sum(len(windows) for windows in self.cells.values())

    def score_rule(self, name: str) -> Scores:
        """A hand-written rule. Raises InputError."""
        return self._score(lambda workloads, cluster: simulate_many(workloads, cluster, name, OPTIONS))

    def score_player(self, player: Player) -> Scores:
        """Trained agents or a tuned rule, with what does the other half's part."""
        return self._score(lambda workloads, cluster: replay_batch(workloads, cluster, player, OPTIONS))

    def _score(self, replay: Callable[[list[Workload], Cluster], list[Schedule]]) -> Scores:
        scored: dict[str, CellScore] = {}
        for cluster, names in self._clusters:
            workloads = [window for name in names for window in self.cells[name]]
            schedules = replay(workloads, cluster)
            for name in names:
                count = len(self.cells[name])
                scored[name], schedules = cell_score(schedules[:count]), schedules[count:]
        return Scores({name: scored[name] for name in self.cells})

    def score_rules(self, tell: Tell | None = None) -> RuleScores:
        """All rules of the settings; ``tell`` is given the number of rules done."""
        scores = {}
        for number, name in enumerate(self.settings.rules, start=1):
            scores[name] = self.score_rule(name)
            if tell is not None:
                tell(number)
        return RuleScores(scores)


def save_rule_scores(rules: RuleScores, path: Path) -> None:
    """Keep the rules' scores as JSON: they stay the same for a whole run."""
    content = {
        "best": rules.best,
        "rules": {
            name: {**scores.summary(rules.reference), "cells": scores.as_dict()}
            for name, scores in rules.scores.items()
        },
    }
    with atomic_write(path) as part:
        part.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def load_rule_scores(path: Path) -> RuleScores:
    """What ``save_rule_scores`` wrote. Raises InputError if the file is damaged."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return RuleScores({name: Scores.from_dict(rule["cells"]) for name, rule in content["rules"].items()})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"holds no scores of rules: {error}", file=path, expected="a file of a training run") from None


def agents_player(config: TrainingConfig, pair: AgentPair) -> Player:
    """The agents of a run as a policy, under its objective weights; a rule does the part of one that is missing."""
    shown = dataclasses.replace(pair, card={"objective_weights": list(config.objective.effective)})
    job, gpu = (shown if net is not None else None for net in (pair.job, pair.gpu))
    return Player(_policy(config, Learned(AGENTS, config.name), job is not None, gpu is not None), job, gpu)


def tuned_player(config: TrainingConfig, rule: LinearRule) -> Player:
    """A linear rule as a policy, with the placement of the run."""
    return Player(_policy(config, Learned(TUNED, TUNED), True, False), rule, None)


def _policy(config: TrainingConfig, learned: Learned, job: bool, gpu: bool) -> Policy:
    """The policy in which ``learned`` picks jobs, GPUs or both."""
    if not job:
        policy = config.other_half
    else:
        ordering = Ordering(learned.text, "", "", code=at.AGENT, learned=learned)
        policy = dataclasses.replace(parse_policy(f"sjf:skip+{config.placement}"), ordering=ordering)
    if gpu:
        policy = dataclasses.replace(policy, placement=Placement(learned.text, "", "", at.PLACE_AGENT, learned=learned))
    return dataclasses.replace(policy, name=policy.full_name)
