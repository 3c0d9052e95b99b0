"""How much better than the tuned rule could a scheduler decide: the tables of docs/headroom.md.

    python -m benchmarks.headroom TRACES [--agents NAME_OR_PATH ...] [--write docs/headroom.md]

TRACES is the folder that holds ``helios-venus-gpu``, ``alibaba-pai-2020``, ``philly-vc`` and ``philly-passed``.
Episodes are those of training, from the training parts alone: no test window has a part in this.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from attn_sched.agents.cards import find_released
from attn_sched.agents.pair import AgentPair
from attn_sched.agents.weights import load_agents
from attn_sched.files import atomic_write
from attn_sched.policies.linear import FORMAT, LinearRule, load_linear
from attn_sched.policies.registry import TUNED
from attn_sched.progress import Advance, progress_bar
from attn_sched.seeding import stream
from attn_sched.training.batch import EpisodeBatch
from attn_sched.training.configs import named_config
from attn_sched.training.imitation import Teacher
from attn_sched.training.lookahead import HORIZON, Lookahead
from attn_sched.training.rollout import PHASES
from attn_sched.training.source import DataSource
from attn_sched.training.start import data_source
from benchmarks.results.plan import SEEN
from benchmarks.results.texts import paragraph

F8 = npt.NDArray[np.float64]
I8 = npt.NDArray[np.int64]

SEED = 777
LARGEST = 0.5  # a difference counts at most so much: single decisions that cost more than that would drown the others
MOST_COST = 3.0  # and a cost of an episode at most this
SHARE = 0.006  # of the decisions that are looked into
WARM = 150  # decisions of each cluster before any is: episodes are then at all stages
WHICH = {"job": "which job, or none", "gpu": "which unit of GPUs next"}
BETTER = 0.003  # by which an answer must be better on average for the rollout policy to leave the rule's

TITLE = "# Headroom: how much better could the tuned rule decide?"
INTRODUCTION = """
Written by `{command}`. Episodes are those of training: {jobs}-job windows of the training parts of five logs, changed
at random, on `dgx64` and `eth64`. The cost is the completion term: the excess of all jobs over that of
`sjf+topo-best-fit+hold(1.5,0.5)` on the same window, 1 being as good as that rule. The tuned rule decides, and
`topo-best-fit` places.
"""
DECISIONS = """
Decisions in which another answer was legal. Once another answer is given, then the rule decides again: what that costs,
less what the rule's own answer does. The best answer in hindsight knows which jobs come. Imagined futures have the next
{horizon} of the jobs to come, in another order and rhythm; what is best in half of them is judged by the other half.
The same better answer can often be given at several decisions in a row, so gains do not add up. ± is a standard error
over episodes.
"""
EPISODES = """
The rollout policy tries every answer of the job agent in {futures} imagined futures, with the tuned rule taking over
after it, and gives the best one if it is better by {better:g}: no learning, some 20 ms a decision. Agents decide
without randomness. Squared waits are the fairness term, over the same rule's. A cost of an episode counts at most
{most:g}.
"""


@dataclass(frozen=True)
class Looked:
    """One decision of the rule, and what its answers would have cost, less what the rule's own does."""

    episode: int
    hindsight: float  # the best answer's, by what is going to happen
    knowable: float  # in half of the imagined futures, of the answer that is best in the other half


def training_episodes(traces: Path) -> DataSource:
    """Those of the ``full`` configuration; logs are read once, however many batches are made."""
    config = named_config("full")
    logs = tuple(str(traces / log.path) for log in SEEN)
    return data_source(config.with_values({"data.traces": logs}))


def rule_answers(batch: EpisodeBatch, teacher: Teacher) -> tuple[I8, dict[str, dict[int, int]]]:
    """Answers i8[B] of rule and placement, and by agent those of clusters that have a choice, by row."""
    answers = batch.forced()
    targets = teacher.targets()
    for rows, target in targets.values():
        answers[rows] = target.argmax(1)
    return answers, {agent: {int(row): int(answers[row]) for row in rows} for agent, (rows, _) in targets.items()}


def look(batch: EpisodeBatch, rule: LinearRule, states: int, futures: int, tell: Advance) -> dict[str, list[Looked]]:
    """Look into some of the decisions that the rule takes in each agent's place."""
    ahead, teacher = Lookahead(batch, rule), Teacher(batch, rule)
    masks = {"job": batch.job_mask, "gpu": batch.unit_mask}
    draws = {agent: stream(SEED, f"headroom of {agent}") for agent in masks}
    found: dict[str, list[Looked]] = {agent: [] for agent in masks}
    steps = 0
    while wanted := [agent for agent in masks if len(found[agent]) < states]:
        batch.ask()
        answers, free = rule_answers(batch, teacher)
        steps += 1
        for agent in wanted if steps > WARM else ():
            for row, own in free[agent].items():
                if draws[agent].random() < SHARE:
                    legal = np.flatnonzero(masks[agent][row])
                    found[agent].append(look_into(ahead, row, legal, own, futures, draws[agent]))
        tell(sum(min(len(looked), states) for looked in found.values()))
        batch.apply(answers)
    return found


def look_into(ahead: Lookahead, row: int, legal: I8, own: int, futures: int, draws: np.random.Generator) -> Looked:
    """One decision of a cluster, the rule's answer being ``own``."""
    mine = np.flatnonzero(legal == own)

    def less(costs: F8) -> F8:
        return np.clip(costs[:, 0] - costs[mine, 0], -LARGEST, LARGEST)

    true = less(ahead.costs(row, legal))
    halves = np.stack([less(ahead.costs(row, legal, draws)) for _ in range(futures)])
    one, other = halves[: futures // 2].mean(0), halves[futures // 2 :].mean(0)
    knowable = 0.5 * float(other[one.argmin()] + one[other.argmin()])
    return Looked(int(ahead.batch.episode[row]), float(true.min()), knowable)


# Answers i8[B], told which clusters still count. Made for a batch.
Choose = Callable[[set[int]], I8]
Player = Callable[[EpisodeBatch], Choose]


def play(batch: EpisodeBatch, rows: Sequence[int], player: Player, tell: Advance) -> F8:
    """Costs f8[n, 3] of the first episodes of some clusters, by term."""
    choose = player(batch)
    costs: dict[int, F8] = {}
    first = {row: int(batch.episode[row]) for row in rows}
    while len(costs) < len(rows):
        for done in batch.ask():
            if first.get(done.cluster) == done.episode:
                costs[done.cluster] = done.costs.copy()
                tell(len(costs))
        batch.apply(choose(set(first) - set(costs)))
    return np.minimum([costs[row] for row in rows], MOST_COST)


def by_rule(rule: LinearRule) -> Player:
    """The rule itself."""

    def player(batch: EpisodeBatch) -> Choose:
        teacher = Teacher(batch, rule)
        return lambda counting: rule_answers(batch, teacher)[0]

    return player


def by_rollouts(rule: LinearRule, futures: int) -> Player:
    """Of all answers the one that is best on average over imagined futures, if by enough."""

    def player(batch: EpisodeBatch) -> Choose:
        ahead, teacher, draws = Lookahead(batch, rule), Teacher(batch, rule), stream(SEED, "rollout policy")

        def choose(counting: set[int]) -> I8:
            answers, choices = rule_answers(batch, teacher)
            free = choices["job"]
            for row in counting & set(free):
                legal = np.flatnonzero(batch.job_mask[row])
                mean = np.mean([ahead.costs(row, legal, draws)[:, 0] for _ in range(futures)], axis=0)
                if mean.min() < mean[np.flatnonzero(legal == free[row])[0]] - BETTER:
                    answers[row] = legal[mean.argmin()]
            return answers

        return choose

    return player


def by_agents(pair: AgentPair, rule: LinearRule) -> Player:
    """Trained agents, without randomness; the rule where nothing counts any more."""

    def player(batch: EpisodeBatch) -> Choose:
        teacher = Teacher(batch, rule)
        acting = [PHASES[agent] for agent in pair.card["agents"]]

        def choose(counting: set[int]) -> I8:
            answers, _ = rule_answers(batch, teacher)
            asked = np.isin(np.arange(batch.size), list(counting)) & (batch.forced() < 0)
            asked &= np.isin(batch.phases, acting)
            return np.where(asked, pair.act(batch, np.where(asked, batch.phases, 0)), answers)

        return choose

    return player


def clustered(values: F8, groups: I8) -> tuple[float, float]:
    """Mean and its standard error, where values of one group hang together."""
    mean = float(values.mean())
    sums = np.bincount(np.unique(groups, return_inverse=True)[1], values - mean)
    return mean, float(np.sqrt((sums**2).sum()) / len(values))


def decisions_table(found: Mapping[str, Sequence[Looked]], futures: int) -> str:
    """What single decisions leave, by agent."""
    lines = [
        "| decision | looked into | the best answer in hindsight | the best on average over "
        f"{futures // 2} imagined futures |",
        "|---|---:|---:|---:|",
    ]
    for agent, looked in found.items():
        episodes = np.array([one.episode for one in looked])
        kinds = [one.hindsight for one in looked], [one.knowable for one in looked]
        told = [with_error(*clustered(np.array(values), episodes), 4) for values in kinds]
        where = f"{len(looked):,} of {len(np.unique(episodes)):,} episodes"
        lines.append(f"| {WHICH[agent]} | {where} | {' | '.join(told)} |")
    return "\n".join(["## Single decisions", "", *paragraph(DECISIONS.format(horizon=HORIZON)), *lines])


def with_error(mean: float, error: float, digits: int = 3) -> str:
    """A difference and its standard error."""
    return f"{mean:+.{digits}f} ± {error:.{digits}f}"


def episodes_table(rule: F8, others: Mapping[str, F8], futures: int) -> str:
    """What whole episodes cost, f8[n, 3] each."""
    lines = [
        "| who decides | episodes | cost | `tuned` on these | difference | difference in squared waits |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, costs in others.items():
        same = rule[:: len(rule) // len(costs)]
        gaps = costs - same
        errors = gaps.std(axis=0, ddof=1) / np.sqrt(len(gaps))
        excess, waits = (with_error(float(gaps[:, k].mean()), float(errors[k])) for k in (0, 1))
        cells = f"{len(gaps)} | {costs[:, 0].mean():.3f} | {same[:, 0].mean():.3f} | {excess} | {waits}"
        lines.append(f"| {name} | {cells} |")
    about = EPISODES.format(futures=futures, better=BETTER, most=MOST_COST)
    return "\n".join(["## Whole episodes", "", *paragraph(about), *lines])


def main() -> None:
    """The command."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    parser = argparse.ArgumentParser(prog="python -m benchmarks.headroom", description=__doc__)
    parser.add_argument("traces", type=Path, metavar="TRACES")
    parser.add_argument("--states", type=int, default=4000, help="decisions that are looked into")
    parser.add_argument("--futures", type=int, default=16, help="imagined for each")
    parser.add_argument("--episodes", type=int, default=384, help="that agents play")
    parser.add_argument("--rollouts", type=int, default=96, help="of them, that the rollout policy plays; a divisor")
    parser.add_argument("--agents", nargs="*", default=[], metavar="NAME_OR_PATH")
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    if given.futures < 2 or given.rollouts < 1 or given.episodes % given.rollouts:
        parser.error("at least 2 futures, and --rollouts that divides --episodes")
    rule = load_linear(find_released(TUNED, FORMAT, "tuned rule"))
    command = "python -m benchmarks.headroom TRACES"
    command += f" --agents {' '.join(given.agents)}" if given.agents else ""
    jobs = named_config("full").episodes.jobs
    source = training_episodes(given.traces)
    with progress_bar("decisions", len(WHICH) * given.states) as tell:
        found = look(source(64, SEED), rule, given.states, given.futures, tell)
    every = range(given.episodes)
    some = range(0, given.episodes, given.episodes // given.rollouts)

    def played(name: str, rows: Sequence[int], player: Player) -> F8:
        with progress_bar(name, len(rows)) as tell:
            return play(source(given.episodes, SEED), rows, player, tell)

    base = played(TUNED, every, by_rule(rule))
    half = given.futures // 2
    others = {"rollout policy": played("rollouts", some, by_rollouts(rule, half))}
    for name in given.agents:
        others[f"`agents:{name}`"] = played(name, every, by_agents(load_agents(name), rule))
    about = paragraph(INTRODUCTION.format(command=f"{command} --write docs/headroom.md", jobs=jobs))
    tables = [decisions_table(found, given.futures), "", episodes_table(base, others, half), ""]
    text = "\n".join([TITLE, "", *about, *tables])
    if given.write is None:
        print(text)
    else:
        with atomic_write(given.write) as part:
            part.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
