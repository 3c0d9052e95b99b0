"""Why an agent answered as it did: the score of every candidate, what it looked like, and the attention behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from attn_sched.agents.schema import GLOBAL_FEATURES, JOB_FEATURES, UNIT_FEATURES
from attn_sched.errors import InputError
from attn_sched.simulator import layout as at

if TYPE_CHECKING:
    from attn_sched.agents.pair import AgentPair, Seen

F4 = npt.NDArray[np.float32]

HOLD = "HOLD"
DECIDER = {"job": "queue", "gpu": "gang"}  # name of the token that points at the answer


@dataclass(frozen=True)
class Candidate:
    """One thing that could be answered."""

    action: int  # window index (its length: HOLD) or unit number
    kind: str  # job | hold | unit
    name: str
    legal: bool  # by its mask, and for HOLD by the spec
    score: float | None  # logit, at most 10 in size; None where it is not legal
    probability: float  # of the policy that samples; 0 where it is not legal
    features: dict[str, float]  # as the networks see them, by the names of ``schema``; none for HOLD


@dataclass(frozen=True, eq=False)
class AttentionMap:
    """Attention of one layer: each row says how much a token took from the others, and sums to 1."""

    layer: int
    kind: str  # "self" among the agent's own tokens, "cross" from them to the units
    queries: tuple[str, ...]  # [Q] names of the tokens
    keys: tuple[str, ...]  # [S]
    weights: F4  # [heads, Q, S]


@dataclass(frozen=True, eq=False)
class Explanation:
    """One decision of one agent."""

    agent: str  # job | gpu
    choice: int  # the action taken
    candidates: tuple[Candidate, ...]  # by action; the last of a job agent is HOLD
    state: dict[str, float]  # global features
    attention: tuple[AttentionMap, ...]  # empty for networks without attention
    units: tuple[Candidate, ...] = ()  # of a job decision: the units it looked at, none of which it could choose
    placing: str | None = None  # of a GPU decision: the job whose gang is placed ...
    placing_features: dict[str, float] | None = None  # ... and how it looked
    decision: int | None = None  # its number in a replay, the first being 1
    time_s: float | None = None  # in the replay

    @property
    def chosen(self) -> Candidate:
        """The candidate that was taken."""
        return next(candidate for candidate in self.candidates if candidate.action == self.choice)

    def attention_on(self, kind: str) -> dict[str, float]:
        """How much the deciding token took from each key in the last layer of a kind, mean over the heads."""
        maps = [shown for shown in self.attention if shown.kind == kind]
        if not maps:
            return {}
        return dict(zip(maps[-1].keys, maps[-1].weights[:, 0].mean(axis=0).tolist(), strict=True))

    def as_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return {
            "decision": self.decision,
            "time_s": self.time_s,
            "agent": self.agent,
            "choice": self.choice,
            "chosen": self.chosen.name,
            "placing": self.placing,
            "placing_features": self.placing_features,
            "candidates": [vars(candidate) for candidate in self.candidates],
            "units": [{"name": unit.name, "features": unit.features} for unit in self.units],
            "state": self.state,
            "attention": [
                {
                    "layer": shown.layer,
                    "kind": shown.kind,
                    "queries": list(shown.queries),
                    "keys": list(shown.keys),
                    "weights": shown.weights.tolist(),
                }
                for shown in self.attention
            ],
        }


def explain(
    pair: AgentPair,
    observations: Seen,
    b: int,
    phase: int,
    *,
    jobs: Sequence[str] | None = None,
    units: Sequence[str] | None = None,
    placing: str | None = None,
    decision: int | None = None,
    time_s: float | None = None,
) -> Explanation:
    """Explain the decision that cluster ``b`` waits for; padding is left out.

    Args:
        observations: Up to date, of engines with the window that the pair was trained with.
        phase: ``JOB_PHASE`` or ``UNIT_PHASE`` of ``simulator.layout``.
        jobs: Names of the waiting jobs shown, in their order; numbers unless given.
        units: Names of the units; numbers unless given.
        placing: Name of the job that is placed.
        decision: Its number in a replay.
        time_s: When it is made.

    Raises:
        InputError: the cluster waits for no agent, the pair lacks the agent asked, another window, or NaN.
    """
    import torch

    from attn_sched.agents.greedy import best_legal, exact_scores
    from attn_sched.agents.networks import MASKED, job_there, unit_there
    from attn_sched.agents.pair import check_finite, tensors

    if phase not in (at.JOB_PHASE, at.UNIT_PHASE):
        raise InputError("the cluster waits for no agent", field="phase", expected="a job or a unit to be chosen")
    agent = "job" if phase == at.JOB_PHASE else "gpu"
    if observations.jobs.shape[1] != pair.spec.window:
        raise InputError(
            f"{observations.jobs.shape[1]} jobs are shown",
            field="window",
            expected=f"{pair.spec.window}, as in training",
        )
    net = pair.net(agent)
    obs = tensors(observations, np.array([b]), agent)
    check_finite(obs)
    with torch.no_grad():
        logits, shown = net(obs, attention=True)
        choice = int(best_legal(net(obs), lambda rows: exact_scores(net, obs, rows))[0])
        probabilities = torch.softmax(logits[0].double(), 0).tolist()
    scores = [None if score <= 0.5 * MASKED else score for score in logits[0].tolist()]
    waiting = int(job_there(obs)[0].sum())
    there = np.flatnonzero(unit_there(obs)[0].numpy())
    job_names = _names(jobs, waiting, "job")
    unit_names = _names(units, observations.units.shape[1], "unit")

    def candidate(action: int, kind: str, name: str, features: dict[str, float]) -> Candidate:
        score = scores[action]
        return Candidate(action, kind, name, score is not None, score, probabilities[action], features)

    unit_features = [_named(UNIT_FEATURES, row) for row in observations.units[b]]
    tokens = (DECIDER[agent], HOLD, *job_names) if agent == "job" else (DECIDER[agent], *(unit_names[u] for u in there))
    if agent == "job":
        candidates = [
            candidate(k, "job", name, _named(JOB_FEATURES, observations.jobs[b, k])) for k, name in enumerate(job_names)
        ]
        candidates.append(candidate(pair.spec.window, "hold", HOLD, {}))
        looked_at = [Candidate(int(u), "unit", unit_names[u], False, None, 0.0, unit_features[u]) for u in there]
    else:
        candidates = [candidate(int(u), "unit", unit_names[u], unit_features[u]) for u in there]
        looked_at = []
    return Explanation(
        agent=agent,
        choice=choice,
        candidates=tuple(candidates),
        state=_named(GLOBAL_FEATURES, observations.glob[b]),
        attention=_maps(agent, shown, tokens, [unit_names[u] for u in there], there),
        units=tuple(looked_at),
        placing=(placing or "the job being placed") if agent == "gpu" else None,
        placing_features=_named(JOB_FEATURES, observations.chosen[b]) if agent == "gpu" else None,
        decision=decision,
        time_s=time_s,
    )


def _maps(
    agent: str, shown: dict[str, Any], tokens: Sequence[str], units: Sequence[str], there: np.ndarray
) -> tuple[AttentionMap, ...]:
    """The attention of every layer, without the rows and columns of units that pad."""
    own = np.arange(len(tokens)) if agent == "job" else np.concatenate([[0], 1 + there])
    maps = []
    for name, weights in shown.items():
        what, layer = name.split(".")
        crosses = agent == "job" and what == "units"
        keys = there if crosses else own
        maps.append(
            AttentionMap(
                layer=int(layer),
                kind="cross" if crosses else "self",
                queries=tuple(tokens),
                keys=tuple(units if crosses else tokens),
                weights=weights[0].numpy()[:, own][:, :, keys],
            )
        )
    return tuple(maps)


def _named(names: Sequence[str], row: np.ndarray) -> dict[str, float]:
    return dict(zip(names, (float(value) for value in row), strict=True))


def _names(given: Sequence[str] | None, count: int, what: str) -> list[str]:
    names = [f"{what} {k}" for k in range(count)] if given is None else list(given)
    if len(names) != count:
        raise InputError(f"{len(names)} names of {what}s", field="names", expected=f"{count}")
    return names
