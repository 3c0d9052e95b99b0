"""A linear rule: two weighted sums of a waiting job's features say which job comes first, and whether to hold it.

The weights are those of ``tuned``, found by CMA-ES (``attn_sched.training.tuned``). A rule is a small JSON file with a
card that says how it was made.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from attn_sched.agents.cards import read_json
from attn_sched.errors import InputError
from attn_sched.files import atomic_write
from attn_sched.jit import njit
from attn_sched.simulator import layout as at
from attn_sched.simulator.engine import WHOLE_RUN, Ask, Engine
from attn_sched.simulator.fitting import best_slowdown
from attn_sched.simulator.layout import F8, I8
from attn_sched.simulator.loop import apply_job, hold_legal, job_legal, run
from attn_sched.simulator.rule import EngineRule
from attn_sched.simulator.selection import estimate, gpu_counts, until_fits
from attn_sched.simulator.state import World, world_at

FORMAT = "attn-sched linear rule"
VERSION = 1

# Of a waiting job that may start now: d estimated duration (s, at least 1), n GPUs, w seconds waited, s best slowdown
# now; of the cluster: q waiting jobs, f share of GPUs free. Of the blocked job, the one with the highest order sum of
# those that cannot start now: m GPUs, e seconds until enough GPUs should be free for it by estimates. a: by how much
# its order sum exceeds that of the job in question; 0 where it does not, and without a blocked job. Slowdowns count as
# 1 in the sums of jobs that cannot start. All features are of the order of 1. The order knows no waiting times: with
# them the search finds rules that do better on the jobs it sees and worse on later ones.
ORDER_FEATURES: dict[str, str] = {
    "estimate": "ln(d / 1 h) / 3",
    "gpus": "log2(n) / 3",
    "slowdown": "ln(s)",
    "communication": "share of an iteration that communication takes at the ideal placement",
    "estimate_in_queue": "ln(d / 1 h) / 3 * ln(1 + q) / 3",
    "gpus_in_queue": "log2(n) / 3 * ln(1 + q) / 3",
    "gpus_when_free": "log2(n) / 3 * f",
}
START_FEATURES: dict[str, str] = {
    "constant": "1",
    "estimate": "ln(d / 1 h) / 3",
    "gpus": "log2(n) / 3",
    "wait_over_estimate": "ln(1 + w / d)",
    "slowdown": "ln(s)",
    "loss": "ln(1 + d (s - 1) / 60 s) / 3",
    "queue": "ln(1 + q) / 3",
    "free_after": "share of GPUs free once the job has started",
    "estimate_when_free": "ln(d / 1 h) / 3 * share of GPUs free once the job has started",
    "outlasts": "l = ln(1 + d s / (60 s + e)) / 3; 0 without a blocked job",
    "overtakes": "a",
    "overtakes_long": "a l",
    "overtakes_large": "a l min(1, n / m)",
}
# The engine's rule where a linear rule answers for the job agent.
JOB_AGENT = EngineRule(order=at.AGENT, placement=at.TOPO_BEST_FIT)
ORDERS, STARTS = len(ORDER_FEATURES), len(START_FEATURES)
_LOG_HOUR = float(np.log(3600.0))


@dataclass(frozen=True)
class LinearRule:
    """Weights of the two sums.

    Of the jobs that may start, those whose start sum is at least 0 are candidates; the candidate with the highest order
    sum starts, ties to the oldest; HOLD where there is none. Where HOLD is not legal, all that may start are
    candidates.

    Raises:
        InputError: a weight is missing, unknown or not finite.
    """

    order: Mapping[str, float]  # of ORDER_FEATURES, all of them
    start: Mapping[str, float]  # of START_FEATURES, all of them
    card: Mapping[str, Any] = field(default_factory=dict)  # how it was made: command, data, seed, scores

    def __post_init__(self) -> None:
        for name, features in (("order", ORDER_FEATURES), ("start", START_FEATURES)):
            weights = getattr(self, name)
            for feature in (*features, *weights):
                if feature not in weights:
                    raise InputError(f"the weight of {feature!r} is missing", field=name, expected="all weights")
                if feature not in features:
                    raise InputError(
                        f"there is no feature {feature!r}", field=name, expected=f"one of {', '.join(features)}"
                    )
                value = weights[feature]
                if isinstance(value, bool) or not isinstance(value, int | float) or not np.isfinite(value):
                    raise InputError(f"the weight of {feature!r} is {value!r}", field=name, expected="a finite number")

    @property
    def vector(self) -> F8:
        """All weights, f8[ORDERS + STARTS], in the order of the features."""
        values = [self.order[name] for name in ORDER_FEATURES] + [self.start[name] for name in START_FEATURES]
        return np.array(values, dtype=np.float64)

    @classmethod
    def from_vector(cls, vector: F8, card: Mapping[str, Any] | None = None) -> LinearRule:
        """The rule of f8[ORDERS + STARTS] weights."""
        values = [float(value) for value in vector]
        if len(values) != ORDERS + STARTS:
            raise InputError(f"{len(values)} weights", expected=f"{ORDERS + STARTS} weights")
        return cls(
            dict(zip(ORDER_FEATURES, values[:ORDERS], strict=True)),
            dict(zip(START_FEATURES, values[ORDERS:], strict=True)),
            dict(card or {}),
        )

    @classmethod
    def from_weights(
        cls, order: Mapping[str, float], start: Mapping[str, float], card: Mapping[str, Any] | None = None
    ) -> LinearRule:
        """The rule with some weights given and the others 0."""
        return cls(
            {**dict.fromkeys(ORDER_FEATURES, 0.0), **order},
            {**dict.fromkeys(START_FEATURES, 0.0), **start},
            dict(card or {}),
        )


def sjf_rule(theta: float | None = None) -> LinearRule:
    """The rule that does as ``sjf`` does; with ``theta``, as long as its best slowdown now exceeds it a job is held."""
    start = {"constant": 1.0} if theta is None else {"constant": float(np.log(theta)), "slowdown": -1.0}
    return LinearRule.from_weights({"estimate": -1.0}, start)


def save_linear(rule: LinearRule, path: str | PathLike[str]) -> None:
    """Write a rule as JSON, whole or not at all.

    Raises:
        InputError: the file cannot be written, or the card holds what JSON cannot.
    """
    content = {
        "format": FORMAT,
        "version": VERSION,
        "order": dict(rule.order),
        "start": dict(rule.start),
        "card": dict(rule.card),
    }
    try:
        text = json.dumps(content, indent=2, allow_nan=False) + "\n"
    except (TypeError, ValueError) as error:
        raise InputError(f"the card cannot be written: {error}", file=path, field="card") from None
    with atomic_write(path) as part:
        part.write_text(text, encoding="utf-8")


def load_linear(path: str | PathLike[str]) -> LinearRule:
    """Read a rule.

    Raises:
        InputError: the file is missing, truncated, no linear rule, of another version, or names other features.
    """
    content = read_json(Path(path))
    if content.get("format") != FORMAT:
        raise InputError("is no linear rule", file=path, field="format", expected=repr(FORMAT))
    if content.get("version") != VERSION:
        raise InputError(
            f"is of version {content.get('version')!r}", file=path, field="version", expected=f"version {VERSION}"
        )
    parts = [content.get("order"), content.get("start"), content.get("card", {})]
    for name, part in zip(("order", "start", "card"), parts, strict=True):
        if not isinstance(part, dict):
            raise InputError("is no table", file=path, field=name, expected="names and values")
    try:
        return LinearRule(*parts)
    except InputError as error:
        raise InputError(error.problem, file=path, field=error.field, expected=error.expected) from None


@njit
def _length(w: World, job: int) -> float:
    return (np.log(estimate(w, job)) - _LOG_HOUR) / 3.0


@njit
def _order_sum(w: World, job: int, slow: float, order: F8, per_length: float, per_size: float) -> float:
    """The order sum of a job; ``slow`` is the logarithm of its best slowdown."""
    total = per_length * _length(w, job) + per_size * np.log2(w.ji[job, at.GPUS]) / 3.0 + order[2] * slow
    return total + order[3] * (1.0 - w.jf[job, at.COMPUTE] / w.jf[job, at.BEST_ITER])


@njit
def choose(w: World, window: I8, weights: F8) -> int:
    """The rule's answer: an index of ``window``, or its length for HOLD."""
    gpus, free = gpu_counts(w)
    order = weights[:ORDERS]
    start = weights[ORDERS:]
    queue = np.log1p(w.si[at.N_WAITING]) / 3.0
    per_length = order[0] + order[4] * queue
    per_size = order[1] + order[5] * queue + order[6] * free / gpus
    may_hold = hold_legal(w)
    blocked = -1
    blocked_sum = -np.inf
    blocked_fits = 0.0
    if may_hold and (start[9] != 0.0 or start[10] != 0.0 or start[11] != 0.0 or start[12] != 0.0):
        for i in range(window.shape[0]):
            if window[i] < 0:
                break
            if not job_legal(w, window[i]):
                total = _order_sum(w, window[i], 0.0, order, per_length, per_size)
                if total > blocked_sum:
                    blocked = window[i]
                    blocked_sum = total
        if blocked >= 0:
            blocked_fits = until_fits(w, blocked)
    best = window.shape[0]
    best_sum = 0.0
    for i in range(window.shape[0]):
        job = window[i]
        if job < 0:
            break
        if not job_legal(w, job):
            continue
        slowdown = best_slowdown(w, job)
        slow = np.log(slowdown)
        total = _order_sum(w, job, slow, order, per_length, per_size)
        if best < window.shape[0] and not total > best_sum:
            continue
        if may_hold:
            d = estimate(w, job)
            n = w.ji[job, at.GPUS]
            length = _length(w, job)
            after = (free - n) / gpus
            go = start[0] + start[1] * length + start[2] * np.log2(n) / 3.0
            go += start[3] * np.log1p((w.sf[at.NOW] - w.jf[job, at.SUBMIT]) / d) + start[4] * slow
            go += start[5] * np.log1p(d * max(0.0, slowdown - 1.0) / 60.0) / 3.0
            go += start[6] * queue + start[7] * after + start[8] * length * after
            if blocked >= 0:
                outlasts = np.log1p(d * slowdown / (60.0 + blocked_fits)) / 3.0
                ahead = max(0.0, blocked_sum - total)
                large = min(1.0, n / w.ji[blocked, at.GPUS])
                go += start[9] * outlasts + ahead * (start[10] + outlasts * (start[11] + start[12] * large))
            if go < 0.0:
                continue
        best = i
        best_sum = total
    return best


@njit
def _choose_all(address: int, phases: I8, windows: I8, weights: F8, out: I8) -> None:
    for b in range(phases.shape[0]):
        if phases[b] == at.JOB_PHASE:
            out[b] = choose(world_at(address, b), windows[b], weights)


@njit
def follow(w: World, window: I8, weights: F8) -> int:
    """Run a cluster to its end under the rule; returns the phase it stopped at. ``window`` i8[K] is overwritten."""
    while True:
        phase = run(w, WHOLE_RUN)
        if phase != at.JOB_PHASE:
            return phase
        window[:] = w.wj
        apply_job(w, window, choose(w, window, weights))


@njit
def _play(address: int, b: int, window: I8, weights: F8) -> int:
    return follow(world_at(address, b), window, weights)


def answer(rule: LinearRule, engine: Engine, ask: Ask, out: I8) -> None:
    """Write the rule's answers for the clusters that wait for a job agent to ``out``, i8[B]; the others' stay."""
    _choose_all(engine.batch.address, ask.phases, ask.windows, rule.vector, out)


def play(weights: F8, engine: Engine, b: int) -> None:
    """Run cluster ``b`` of an engine with a job agent over a placement rule to its end under f8[ORDERS + STARTS].

    Decides as :func:`answer` does, without coming back to Python in between.

    Raises:
        ValueError: the engine asks for something else than a job, or records placements.
    """
    phase = _play(engine.batch.address, b, np.empty(engine.window, dtype=np.int64), weights)
    if phase != at.DONE_PHASE:
        raise ValueError(f"the engine stopped at phase {phase}: it needs a job agent alone, and no segment record")
