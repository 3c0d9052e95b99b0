"""The best answer: ties go to the first, and the batch a decision is scored in does not tell."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from attn_sched.agents import Observations
from attn_sched.agents.greedy import DOUBT, TIE, best_legal, exact_scores, greedy
from attn_sched.agents.networks import MASKED
from attn_sched.agents.pair import tensors
from attn_sched.cluster import load_cluster
from attn_sched.errors import InputError
from attn_sched.simulator import Engine, EngineRule, SimOptions
from attn_sched.simulator import layout as at
from tests.agents.test_observations import workloads
from tests.agents.tiny import tiny_pair

BOTH = EngineRule(order=at.AGENT, placement=at.PLACE_AGENT)


def never(rows: torch.Tensor) -> torch.Tensor:
    raise AssertionError(f"rows {rows} are in no doubt")


def test_the_first_of_the_best() -> None:
    sure = TIE - 2 * DOUBT
    logits = torch.tensor([[1.0, 3.0, 2.0], [2.0 - sure, 2.0, 2.0], [MASKED, MASKED, -9.0], [0.0, 0.0, 0.0], [1, 2, 2]])
    assert best_legal(logits, never).tolist() == [1, 0, 2, 0, 1]


def test_doubtful_scores_are_computed_again() -> None:
    """Only where they could change the answer: an earlier score near the border of a tie."""
    asked: list[int] = []

    def exact(rows: torch.Tensor) -> torch.Tensor:
        asked.extend(rows.tolist())
        better, equal = [5.0 - 2 * TIE, 5.0, 0.0], [5.0 - TIE / 2, 5.0, 0.0]
        return torch.tensor([better if row == 1 else equal for row in rows], dtype=torch.float64)

    near, later, clear = [5.0 - TIE, 5.0, 0.0], [5.0, 5.0 - TIE, 0.0], [1.0, 0.0, 2.0]
    assert best_legal(torch.tensor([later, near, clear, near]), exact).tolist() == [0, 1, 2, 0]
    assert asked == [1, 3]


def test_exact_scores_are_those_of_the_network() -> None:
    engine, seen = walked(6, 25)
    pair = tiny_pair(spread=0.1)
    phases = engine.ask().phases
    assert len(set(phases.tolist())) == 2
    for agent, phase in (("job", at.JOB_PHASE), ("gpu", at.UNIT_PHASE)):
        obs = tensors(seen, np.flatnonzero(phases == phase), agent)
        rows = torch.arange(len(obs["globals"])).flip(0)
        exact = exact_scores(pair.net(agent), obs, rows)
        with torch.no_grad():
            rough: Any = pair.net(agent)(obs)
        assert exact.dtype == torch.float64
        torch.testing.assert_close(exact.float(), rough[rows], rtol=0, atol=DOUBT / 10)
    assert next(pair.net("job").parameters()).dtype == torch.float32, "the network itself stays as it is"


def walked(batch: int, steps: int, cluster_name: str = "dgx64") -> tuple[Engine, Observations]:
    """Clusters after some random legal decisions, their observations up to date."""
    cluster = load_cluster(cluster_name)
    engine = Engine(cluster, workloads(cluster, batch), BOTH, SimOptions(record_segments=False), window=8)
    seen = Observations(engine)
    draw = np.random.default_rng(batch)
    for step in range(steps + 1):
        ask = engine.ask()
        seen.update(ask)
        if step < steps:
            masks = [seen.job_mask[b] if ask.phases[b] == at.JOB_PHASE else seen.unit_mask[b] for b in range(batch)]
            engine.apply(np.array([draw.choice(np.flatnonzero(mask)) if mask.any() else 0 for mask in masks]))
    return engine, seen


@pytest.mark.parametrize("cluster", ["dgx64", "nvl72"])
@pytest.mark.parametrize("attention", [True, False])
def test_the_batch_does_not_tell(cluster: str, attention: bool) -> None:
    """Every decision is answered alike alone, beside others, and in another place; it is the best-scored legal one."""
    batch = 12
    pair = tiny_pair(spread=0.5, attention=attention)
    for steps in (0, 7, 30, 61):
        engine, seen = walked(batch, steps, cluster)
        phases = engine.ask().phases
        together = greedy(pair, seen, phases)
        for b in range(batch):
            alone = greedy(pair, seen, np.where(np.arange(batch) == b, phases, at.DONE_PHASE))
            assert alone[b] == together[b] and not np.delete(alone, b).any()
            agent = "job" if phases[b] == at.JOB_PHASE else "gpu"
            obs = tensors(seen, np.array([b]), agent)
            scores = exact_scores(pair.net(agent), obs, torch.tensor([0]))[0]
            assert scores[together[b]] > scores.amax() - TIE - DOUBT
            mask = seen.job_mask[b] if agent == "job" else seen.unit_mask[b]
            assert mask[together[b]]


def test_it_answers_as_the_pair_does() -> None:
    """Where no scores are close, the two ways to the best answer are one."""
    engine, seen = walked(12, 40)
    phases = engine.ask().phases
    pair = tiny_pair(spread=0.3)
    mine, its = greedy(pair, seen, phases), pair.act(seen, phases)
    compared = 0
    for b in range(12):
        agent = "job" if phases[b] == at.JOB_PHASE else "gpu"
        scores = exact_scores(pair.net(agent), tensors(seen, np.array([b]), agent), torch.tensor([0]))[0].sort()[0]
        if scores[-1] - scores[-2] > TIE + DOUBT:
            compared += 1
            assert mine[b] == its[b]
    assert compared >= 6


def test_what_is_refused() -> None:
    engine, seen = walked(4, 40)
    phases = engine.ask().phases
    with pytest.raises(InputError, match="no gpu agent"):
        greedy(tiny_pair(("job",)), seen, phases)
    seen.units[1, 0, 0] = np.nan
    with pytest.raises(InputError, match="not finite"):
        greedy(tiny_pair(), seen, phases)
