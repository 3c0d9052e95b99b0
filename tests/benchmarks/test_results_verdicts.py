"""Scores and verdicts over results made up by hand: every figure reached, and missed."""

from __future__ import annotations

import math

import pytest

from attn_sched.evaluation.formatting import MINUS
from attn_sched.evaluation.statistics import Estimate
from benchmarks.results import page, tables
from benchmarks.results.plan import DGX256, HELIOS, SIZES, Plan, Section, grid
from benchmarks.results.scores import EXCESS, JAIN, OVERHEAD, WAIT
from benchmarks.results.verdicts import NOTHING_FOUND, Judge, Verdict, judged, told
from tests.benchmarks.small import made_up, small_plan, stored

HOUR = 3600.0
FULL = "agents:full"


def hours(*values: float, **more: float):
    return stored([value * HOUR for value in values], **more)


def found(full: float = 1.0, jain: float = 0.6, wait: float = HOUR, overhead: float = 1.0, lost: bool = False):
    """The agents take ``full`` hours where the best rule takes 2, ``tuned`` 1.5 and SJF 2.5."""
    own = {"": hours(full, full, full, jain=jain, wait=wait, overhead=overhead)}
    if lost:
        own["one on nodes:2x4 at 0.9"] = hours(2.5, 2.5, 2.5, jain=jain, wait=wait, overhead=overhead)
    return made_up(
        {
            "sjf+best-fit": {"": hours(1, 2, 3)},
            "sjf+topo-best-fit": {"": hours(2.5, 2.5, 2.5)},
            "fifo+best-fit": {"": hours(20, 20, 20, overhead=1.02)},
            "fifo+topo-best-fit": {"": hours(18, 18, 18, overhead=1.05)},
            "tuned": {"": hours(1.5, 1.5, 1.5)},
            FULL: own,
            f"{FULL}+topo-best-fit": {"": hours(1.4, 1.4, 1.4)},
            f"fifo+{FULL}": {"": hours(15, 15, 15, overhead=overhead)},
            f"sjf+{FULL}": {"": hours(1.9, 1.9, 1.9)},
            "agents:imitation": {"": hours(1.45, 1.45, 1.45)},
            **{f"agents:medium-{seed}": {"": hours(1 + seed / 10, 1, 1)} for seed in range(3)},
        }
    )


def verdicts(scores) -> dict[str, Verdict]:
    judge = Judge(scores)
    return {verdict.wanted: verdict for verdict in (*judge.wanted(), *judge.gates())}


def one(scores, words: str) -> Verdict:
    return next(verdict for wanted, verdict in verdicts(scores).items() if words in wanted)


def test_the_best_rule_is_chosen_on_validation_alone() -> None:
    plan = small_plan()
    there = {cell.name: hours(9, 9, 9) for cell in plan.validation}
    scores = made_up({"sjf+best-fit": {"": hours(1, 1, 1), **there}, "saf+best-fit": {"": hours(2, 2, 2)}}, plan)
    assert scores.reference == "saf+best-fit"
    assert scores.validation_means["sjf+best-fit"] == pytest.approx(9 * HOUR)
    cells = plan.section("main")
    assert scores.best_rule(cells[0]) == "sjf+best-fit"
    assert scores.least_excess(cells) == "sjf+best-fit"
    assert scores.ratio("sjf+best-fit", "saf+best-fit", cells).value == pytest.approx(0.5)


def test_ratios_and_differences_by_hand() -> None:
    scores = found()
    cells = scores.plan.section("main")
    assert scores.reference == "sjf+best-fit"
    assert scores.ratio(FULL, "sjf+best-fit", cells).value == pytest.approx(3 / 6)
    assert scores.ratio(FULL, "sjf+best-fit", cells, WAIT).value == pytest.approx(1)
    assert scores.difference(FULL, "sjf+best-fit", cells, JAIN).value == pytest.approx(0.1)
    assert scores.difference(FULL, "sjf+best-fit", cells, OVERHEAD).value == pytest.approx(-0.1)
    assert scores.own_best_ratio(FULL, cells).value == pytest.approx(0.5)
    assert scores.excess(FULL, cells[0]).value == HOUR
    record = scores.record(FULL, "tuned", cells)
    assert (len(record.won), record.lost) == (4, ())


def test_a_cell_where_nobody_waits_does_not_decide() -> None:
    scores = made_up({"sjf+best-fit": {"": stored([1.0] * 3)}, FULL: {"": stored([30.0] * 3)}})
    cells = scores.plan.section("main")
    assert scores.floor("sjf+best-fit", cells[0]) == pytest.approx(0.05 * 7200)
    assert scores.ratio(FULL, "sjf+best-fit", cells).value == pytest.approx(30 / 360)


@pytest.mark.parametrize(
    ("words", "reached", "missed"),
    [
        ("35 % below", {"full": 1.29}, {"full": 1.31}),
        ("below `tuned`", {"full": 1.2}, {"full": 1.21}),
        ("below SJF", {"full": 1.25}, {"full": 1.26}),
        ("in every cell", {}, {"lost": True}),
        ("percentile wait", {"wait": HOUR}, {"wait": 1.01 * HOUR}),
        ("Jain index over users no worse", {"jain": 0.5}, {"jain": 0.49}),
        ("overhead no worse", {"overhead": 1.02}, {"overhead": 1.03}),
        ("imitation start", {"full": 1.44}, {"full": 1.45}),
        ("gate 1", {"overhead": 1.01}, {"overhead": 1.02}),
        ("gate 3", {"full": 1.39}, {"full": 1.41}),
        ("gate 4", {"full": 2.5, "jain": 0.51}, {"full": 2.5, "jain": 0.5}),
        ("gate 4", {"full": 2.4}, {"full": 2.6}),
    ],
)
def test_both_outcomes(words: str, reached: dict, missed: dict) -> None:
    yes, no = one(found(**reached), words), one(found(**missed), words)
    assert (yes.reached, yes.word) == (True, "reached"), yes
    assert (no.reached, no.word) == (False, "**not reached**"), no
    assert any(character.isdigit() for character in yes.found + no.found)


def test_lost_cells_are_named() -> None:
    verdict = one(found(lost=True), "in every cell")
    assert verdict.found == "less in 3 of 4 cells (clearly in 0); not in one on nodes:2x4 at 0.9"
    assert page._losses(found(lost=True), FULL)[2:-1] == ["- one on nodes:2x4 at 0.9: 1.250"]
    assert page._losses(found(), FULL)[2:-1] == ["None."]


def test_gate_2_names_the_strongest_rule() -> None:
    verdict = one(found(), "gate 2")
    assert verdict.reached and "best of 2, `sjf+topo-best-fit`, 0.560" in verdict.found
    strong = made_up(
        {
            "sjf+best-fit": {"": hours(2, 2, 2)},
            "saf+topo-best-fit+hold(1.2,1)": {"": hours(1, 1, 1)},
            f"{FULL}+topo-best-fit": {"": hours(1, 1, 1)},
        }
    )
    assert one(strong, "gate 2").reached is False


def test_gate_1_tells_rules_that_wait_from_those_that_place_at_once() -> None:
    policies = {
        "sjf+best-fit": {"": hours(2, 2, 2)},
        "fifo+best-fit": {"": stored([1.0] * 3, overhead=1.0)},
        "fifo+contention": {"": stored([1.0] * 3, overhead=1.2)},
        f"fifo+{FULL}": {"": stored([1.0] * 3, overhead=1.1)},
    }
    verdict = one(made_up(policies), "gate 1")
    assert verdict.reached is False
    assert f"to `fifo+contention`, the best that places what fits, {MINUS}0.100" in verdict.found


def test_gate_3_holds_for_agents_trained_alone_too() -> None:
    policies = {
        "sjf+best-fit": {"": hours(2, 2, 2)},
        FULL: {"": hours(1, 1, 1)},
        f"fifo+{FULL}": {"": hours(9, 9, 9)},
        "agents:medium-0": {"": hours(1, 1, 1)},
        "agents:job-only": {"": hours(1.1, 1.1, 1.1)},
    }
    assert one(made_up(policies), "gate 3").reached is True
    assert one(made_up({**policies, "agents:job-only": {"": hours(0.9, 1, 1)}}), "gate 3").reached is False


def test_seeds_must_all_be_there_and_all_be_better() -> None:
    assert one(found(), "seeds").reached is True
    policies = {
        "sjf+best-fit": {"": hours(2, 2, 2)},
        "agents:medium-0": {"": hours(1, 1, 1)},
        "agents:medium-1": {"": hours(1, 1, 1)},
    }
    assert one(made_up(policies), "seeds").reached is None
    assert one(made_up({**policies, "agents:medium-2": {"": hours(3, 3, 3)}}), "seeds").reached is False


@pytest.mark.parametrize(("excess", "reached"), [(1.04, True), (1.05, False)])
def test_gate_5(excess: float, reached: bool) -> None:
    plan = small_plan()
    large = Section(SIZES, "Sizes", grid(SIZES, (HELIOS,), (str(DGX256),), (0.95,)))
    plan = Plan((*plan.sections, large), plan.validation)
    scores = made_up(
        {
            "sjf+best-fit": {"": hours(2, 2, 2)},
            FULL: {"": hours(excess, excess, excess)},
            "agents:retrained-256": {large.cells[0].name: hours(1, 1, 1)},
        },
        plan,
    )
    assert one(scores, "gate 5").reached is reached


def test_without_agents_nothing_is_measured() -> None:
    scores = made_up({"sjf+best-fit": {"": hours(2, 2, 2)}, "sjf+topo-best-fit": {"": hours(2, 2, 3)}})
    for verdict in verdicts(scores).values():
        assert verdict.reached is None and verdict.word == "not measured" and verdict.found == NOTHING_FOUND
    assert page._losses(scores, FULL) == []
    assert tables.ablations(scores) == tables.seeds(scores) == []


def test_marks_within_the_interval_are_said() -> None:
    inside = judged("w", Estimate(0.6, 0.5, 0.7), 0.65, "n")
    assert inside.reached and inside.found == "n 0.600 (0.500\u20130.700); the interval reaches beyond the mark"
    outside = judged("w", Estimate(0.7, 0.6, 0.8), 0.65, "n")
    assert outside.reached is False and outside.found.endswith("the mark lies within the interval")
    assert judged("w", Estimate(0.6, 0.5, 0.64), 0.65, "n").found == "n 0.600 (0.500\u20130.640)"
    low = judged("w", Estimate(-0.1, -0.2, 0.1), 0.0, "n", least=True, signed=True)
    assert low.reached is False
    assert low.found == "n \u22120.100 (\u22120.200 to +0.100); the mark lies within the interval"
    assert judged("w", Estimate(1.0), 1.0, "n", strict=True).reached is False
    assert judged("w", Estimate(1.0), 1.0, "n").reached is True
    assert told(Estimate(math.nan)) == "\u2013"
    assert told(Estimate(12.34)) == "12.3"


def test_summary_row_by_hand() -> None:
    lines = tables.summary(found())
    row = next(line for line in lines if line.startswith(f"| `{FULL}` |")).split(" | ")
    assert [entry.split(" (")[0] for entry in row[1:5]] == ["0.500", "0.667", "0.400", "0.500"]
    assert row[5:7] == ["4 (0)", "0 (0)"]
    assert [entry.split(" (")[0] for entry in row[7:]] == ["1.000", "+0.100", "\u22120.020"]
    assert [line.split(" | ")[0] for line in lines[2:4]] == [f"| `{FULL}`", f"| `{FULL}+topo-best-fit`"]


def test_intervals_appear_with_enough_windows() -> None:
    values = [1.0, 1.2, 0.9, 1.1, 1.3, 1.0]
    scores = made_up({"sjf+best-fit": {"": hours(*[2.0] * 6)}, FULL: {"": hours(*values)}}, small_plan(6))
    estimate = scores.ratio(FULL, "sjf+best-fit", scores.plan.section("main"))
    assert estimate.low is not None and estimate.high is not None
    assert estimate.low < sum(values) / 12 < estimate.high < 1
    assert scores.record(FULL, "sjf+best-fit", scores.plan.section("main")).clear_wins == 4
    assert scores.series(FULL, scores.plan.section("main")[0], EXCESS).size == 6


def test_ablations_stand_beside_the_whole() -> None:
    scores = made_up(
        {
            "sjf+best-fit": {"": hours(2, 2, 2)},
            "agents:medium-0": {"": hours(1, 1, 1)},
            "agents:no-hold": {"": hours(1.5, 1.5, 1.5)},
        }
    )
    rows = [line.split(" | ") for line in tables.ablations(scores)[2:4]]
    assert [row[0] for row in rows] == ["| `agents:medium-0`", "| `agents:no-hold`"]
    assert [entry.split(" (")[0] for entry in rows[1][1:3]] == ["0.750", "1.500"]
