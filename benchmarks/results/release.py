"""The command that puts a run's agents among the released ones, with their test scores in the model card.

    python -m benchmarks.results.release TRACES --runs RUNS full medium-0

The scores are those of the results that ``python -m benchmarks.results`` keeps: give that command first.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attn_sched.agents.cards import checkpoints_folder
from attn_sched.agents.weights import load_agents, save_agents
from attn_sched.errors import InputError
from benchmarks.results.__main__ import CACHE, collect, say
from benchmarks.results.cache import Cache
from benchmarks.results.entrants import ROLES, Field, find_entrants
from benchmarks.results.material import Material
from benchmarks.results.plan import MAIN, PLAN, Plan
from benchmarks.results.replaying import Bench
from benchmarks.results.scores import Scores

_LICENCE = re.compile(r"\blicen[cs]e", re.IGNORECASE)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.results.release", description=__doc__)
    parser.add_argument("traces", type=Path, metavar="TRACES")
    parser.add_argument("names", nargs="+", metavar="NAME", help="what `python -m benchmarks.results` calls them")
    parser.add_argument("--runs", type=Path, required=True, help="folder of training runs")
    parser.add_argument("--cache", type=Path, default=CACHE, help=f"folder of results ({CACHE})")
    parser.add_argument("--out", type=Path, help="folder of released weights (checkpoints)")
    return parser.parse_args(arguments)


def scores_on_test(scores: Scores, label: str) -> dict[str, Any]:
    """What a card says of the test windows: ratios of excess to the hand-written rule that is best on validation.

    Raises:
        InputError: a cell is not there.
    """
    cells = scores.plan.section(MAIN)
    reference = scores.reference
    missing = [cell.name for cell in cells if not (scores.has(label, cell) and scores.has(reference, cell))]
    if missing or not cells:
        raise InputError(
            f"{label} has no results in {', '.join(missing[:3]) or 'any cell'}",
            field="names",
            expected="python -m benchmarks.results before",
        )
    whole = scores.ratio(label, reference, cells)
    return {
        "score": round(whole.value, 4),
        "low": None if whole.low is None else round(whole.low, 4),
        "high": None if whole.high is None else round(whole.high, 4),
        "reference": reference,
        "cells": {cell.name: round(scores.ratio(label, reference, [cell]).value, 4) for cell in cells},
    }


def with_licences(data: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The sources of a card with what their notes say of licences in a field of its own.

    Raises:
        InputError: a source says nothing of it.
    """
    rows = []
    for source in data:
        said = (
            [source["licence"]] if source.get("licence") else [n for n in source.get("notes", []) if _LICENCE.search(n)]
        )
        if not said:
            raise InputError(
                f"the notes of {source.get('name')!r} name no licence",
                field="data",
                expected="a README beside the log that does, when it is trained on",
            )
        rows.append({**source, "licence": " ".join(said)})
    return rows


def release(scores: Scores, runs: Path, names: Sequence[str], out: Path) -> list[Path]:
    """Write agents under the names of their roles; returns the cards.

    Raises:
        InputError: an unknown name, a run, result or licence that is not there, or results of other weights.
    """
    roles = {role.key: role for role in ROLES}
    written = []
    for name in names:
        if name not in roles:
            raise InputError(f"{name!r} is none of them", field="names", expected=", ".join(roles))
        pair = load_agents(runs / roles[name].run)
        _check_same(pair.card, scores.field.cards.get(name), name)
        # The first form of a role is the agents as they were trained.
        label = next(entrant.label for entrant in scores.field.entrants if entrant.role == name)
        told = scores_on_test(scores, label)
        pair.card = {
            **pair.card,
            "name": name,
            "data": with_licences(pair.card["data"]),
            "scores": {**pair.card["scores"], "test": told},
        }
        written.append(save_agents(pair, out / name))
    return written


def _check_same(card: Mapping[str, Any], played: Mapping[str, Any] | None, name: str) -> None:
    """Raise InputError if the results are those of other weights: what is released goes before a run."""
    if played is not None and played["weights"]["sha256"] != card["weights"]["sha256"]:
        raise InputError(
            f"the results are those of other weights than the run's {name}",
            field="names",
            expected="what is released under that name taken away, and python -m benchmarks.results again",
        )


def main(arguments: Sequence[str] | None = None, plan: Plan = PLAN, field: Field | None = None) -> int:
    """The command; returns its exit status."""
    try:
        given = parse(arguments)
        found = find_entrants(given.runs) if field is None else field
        scores = collect(Bench(Material(given.traces), Cache(given.cache)), plan.limited(None, [f"{MAIN}:"]), found)
        for card in release(scores, given.runs, given.names, given.out or checkpoints_folder()):
            say(f"wrote {card}")
    except InputError as error:
        say(f"error: {error}")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
