"""What the page says in words: what is compared, the terms, and what to keep in mind."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from pathlib import Path

from attn_sched.evaluation.formatting import format_value
from attn_sched.evaluation.statistics import CONFIDENCE, MIN_UNITS
from benchmarks.results.cache import code_digest
from benchmarks.results.entrants import AGENTS, FULL, MEDIUM, RULE, TUNED, agents_label
from benchmarks.results.material import Material, overlaps
from benchmarks.results.plan import MAIN, SIZES
from benchmarks.results.scores import Scores

WIDTH = 118


def paragraph(*sentences: str) -> list[str]:
    """Sentences as lines of a paragraph, and an empty line."""
    text = " ".join(" ".join(sentences).split())
    return [*textwrap.wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False), ""]


def bullet(text: str) -> list[str]:
    """An item of a list."""
    lines = paragraph(text)[:-1]
    return [f"- {lines[0]}", *(f"  {line}" for line in lines[1:])]


def listed(names: Iterable[str]) -> str:
    """``a, b and c``, each once."""
    found = list(dict.fromkeys(names))
    if len(found) < 2:
        return "".join(found)
    return f"{', '.join(found[:-1])} and {found[-1]}"


WANTED = paragraph(
    """How much better than `tuned` anybody could decide who does not know what comes: [headroom.md](headroom.md). What
    PPO adds to what it starts from: [training.md](training.md#what-ppo-adds)."""
)
SUMMARY = paragraph(
    """Numbers below 1 are better than what is divided by. *won* and *lost*: cells with less excess than the best rule,
    and with as much or more; in brackets those where the whole interval says so. *Jain*: the higher the fairer.
    *overhead*: against the rule that has the least communication overhead of all."""
)
SEEDS = paragraph("The medium budget, with another seed of everything that is drawn in training.")
ABLATIONS = paragraph(
    f"""One seed, the medium budget: to be compared with `{agents_label(MEDIUM[0])}`, which has the same of both. How
    far seeds differ stands above."""
)
PREEMPTIVE = paragraph("They may suspend and move running jobs, at no cost; no other policy here may.")
TRAINING = paragraph("From the model cards. By the validation score training picked the weights.")
MATRIX = paragraph("Mean excess in hours; the least of each column in bold, preemptive rules aside.")


def introduction(scores: Scores, material: Material, command: str) -> list[str]:
    """What is compared, the terms, and what a reader must know. Raises InputError for a log that cannot be read."""
    cells = scores.plan.sections[0].cells
    rules, tuned, agents = (len(scores.field.of_kind(kind)) for kind in (RULE, TUNED, AGENTS))
    who = [f"{rules} hand-written rules that do not preempt"]
    who += ["a linear rule whose weights were tuned"] * bool(tuned)
    who += [f"{agents} form{'s' * (agents > 1)} of trained agents"] * bool(agents)
    return [
        *paragraph(f"Written by `{command}`; every number on this page comes from that run."),
        *paragraph(
            f"""{listed(who)} schedule the same jobs: windows of {listed(cell.log.key for cell in cells)} on the
            clusters {listed(f"`{cell.cluster_name}`" for cell in cells)}, the time between submissions stretched to an
            offered load of {listed(f"{cell.load:g}" for cell in cells)} (at 1, as much work arrives as the cluster can
            do). A *cell* is a log on a cluster at a load. A window counts consecutive jobs; as many jobs run before
            them to warm the cluster, and later ones keep arriving until the last counted one has ended."""
        ),
        *paragraph(
            """**Excess** is the mean time from submission to completion beyond what a job takes when it starts at once,
            placed best and alone: the part that a scheduler can change. A ratio of excess is the sum over a cell's
            windows under one policy divided by the sum under another; over several cells it is the mean of the cells'
            ratios, each weighing the same. What is divided by counts as 5 % of the mean duration, or of a minute,
            at least, so that cells in which next to nobody waits do not decide. **p99 wait** is the 99th percentile of
            the time in the queue. **Jain** is Jain's index over users' mean bounded slowdowns; at 1 all fare alike.
            **Communication overhead** is the GPU time held over the GPU time at the best placement; 1 is none."""
        ),
        *paragraph(
            f"""Brackets hold {format_value(CONFIDENCE, "share").replace(".0", "")} bootstrap intervals over windows, in
            which policies are paired. Over several cells the windows of one log are drawn together for all its cells,
            since they are the same jobs. Fewer than {MIN_UNITS} windows give no interval."""
        ),
        *paragraph(
            f"""**The best rule** is `{scores.reference}`: of all hand-written rules that do not preempt it has the
            least excess on the validation periods of the same logs, clusters and loads. The test periods had no part in
            the choice. *Each cell's best* is the rule that turns out best in a cell; it is known afterwards only."""
        ),
        *paragraph("What to keep in mind:"),
        *bullet("Policies know the duration of every job exactly (`oracle`): estimates are not the question here."),
        *_notes(scores, material),
        "",
    ]


def _notes(scores: Scores, material: Material) -> list[str]:
    test = scores.plan.section(MAIN)
    cells = [cell for section in scores.plan.sections for cell in section.cells]
    lines = []
    synthetic = listed(cell.log.key for cell in cells if material.facts(cell).synthetic_users)
    if synthetic:
        lines += bullet(
            f"""Users are synthetic where the log names none ({synthetic}): there Jain's index says how evenly a policy
            would treat users whose jobs are mixed in that way."""
        )
    lines += bullet("Which network a job trains, and so how much it communicates, is drawn: no log says it.")
    if test:
        lines += bullet(
            """Training has seen the earlier parts of the same logs. It learned on the first 60 % of their time and
            chose by the next 15 %; of logs of fewer than 5,000 jobs, on 35 % and by 15 % of the jobs. Warm-up and later
            arrivals of a test window lie in the test part too. Logs and clusters that training has not seen stand in
            tables of their own."""
        )
    for one in overlaps(material, list(dict.fromkeys(cell.log for cell in test))):
        what = "training" if one.part == "train" else "validation"
        share = format_value(one.shared / one.test_jobs, "share")
        lines += bullet(
            f"""{one.log} and {one.other} are cut from one log: at most {one.shared:,} of the {one.test_jobs:,} test
            jobs of the first ({share}) stand in the {what} part of the second."""
        )
    lines += _trained_on(scores)
    if scores.field.missing:
        lines += bullet(f"Left out, since there are no such weights: {', '.join(scores.field.missing)}.")
    codes = scores.codes()
    older = sum(count for code, count in codes.items() if code != code_digest())
    if older:
        lines += bullet(f"{older:,} of {sum(codes.values()):,} results were kept from a run of earlier code.")
    return lines


def _trained_on(scores: Scores) -> list[str]:
    """What the card of the released agents says they learned from, and where that is not new to them."""
    card = scores.field.cards.get(FULL, {})
    clusters = [Path(str(name)).stem for name in card.get("clusters", [])]
    logs = [str(log["name"]) for log in card.get("data", []) if "name" in log]
    if not clusters and not logs:
        return []
    where = listed(f"`{name}`" for name in clusters)
    lines = bullet(f"By its card, `{agents_label(FULL)}` learned on {where} from {listed(logs)}.")
    again = listed(f"`{cell.cluster_name}`" for cell in scores.plan.section(SIZES) if cell.cluster_name in clusters)
    if again:
        lines += bullet(f"So {again} is not new to it.")
    return lines


def best_rule(scores: Scores) -> list[str]:
    """How the rule was chosen, and whether another measure, or the test cells, would have chosen another."""
    cells = scores.plan.validation
    windows = sum(scores.series(scores.reference, cell, "jobs").size for cell in cells)
    by_ratio = scores.least_excess(cells)
    hindsight = scores.least_excess(scores.plan.section(MAIN))
    sentences = [
        f"""On {windows} windows of {len(cells)} validation cells `{scores.reference}` has the least geometric mean
        of the cells' mean excesses, which does not depend on a rule to divide by."""
    ]
    if by_ratio == scores.reference:
        sentences.append("The mean of ratios to it is least for it too.")
    else:
        sentences.append(f"By the mean of ratios to it `{by_ratio}` would be chosen.")
    if hindsight == scores.reference:
        sentences.append("It is the best single rule of the test cells as well.")
    elif hindsight is not None:
        sentences.append(f"In hindsight `{hindsight}` is the best single rule of the test cells.")
    return paragraph(*sentences)
