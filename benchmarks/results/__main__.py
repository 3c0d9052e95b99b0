"""The command: replay what is missing, then write the page."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from attn_sched.errors import InputError
from attn_sched.files import atomic_write, check_target
from benchmarks.results import page
from benchmarks.results.cache import Cache
from benchmarks.results.entrants import Field, find_entrants
from benchmarks.results.material import Material
from benchmarks.results.plan import PLAN, Plan
from benchmarks.results.replaying import Bench, check_entrants, run_tasks, tasks_of
from benchmarks.results.scores import Scores

CACHE = Path("out") / "results"
INTERRUPTED = 130

DESCRIPTION = """Evaluate trained agents against all rules on test periods, and write the page.

TRACES is the folder that holds helios-venus-gpu, philly-vc and so on. RUNS holds training runs, each made by
`attn-sched train --out RUNS/NAME`: full, medium-0, medium-1, medium-2 (seeds), no-attention, no-topology, job-only,
gpu-only, no-hold, no-completion, no-fairness, no-communication, retrained-256 (on benchmarks/results/dgx256.yaml).
What is released goes before what lies there; what is missing is left out, and the page says so. An interrupted command
goes on where it was when it is given again."""


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.results",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("traces", type=Path, metavar="TRACES")
    parser.add_argument("--runs", type=Path, help="folder of training runs")
    parser.add_argument("--write", type=Path, help="file of the page; printed without it")
    parser.add_argument("--cache", type=Path, default=CACHE, help=f"folder of results, kept between calls ({CACHE})")
    parser.add_argument("--only", nargs="+", default=[], metavar="TEXT", help="cells whose name holds one of the texts")
    parser.add_argument("--policies", nargs="+", default=[], metavar="TEXT", help="policies, likewise")
    parser.add_argument("--windows", type=int, help="at most so many windows a cell")
    parser.add_argument("--processes", type=int, default=1, help="replays at a time")
    given = parser.parse_args(arguments)
    for name in ("windows", "processes"):
        if getattr(given, name) is not None and getattr(given, name) < 1:
            raise InputError(f"{getattr(given, name)} is too few", field=name, expected="1 or more")
    return given


def command_of(given: argparse.Namespace) -> str:
    """The command as the page names it: folders by what they are for."""
    parts = ["python -m benchmarks.results TRACES"]
    parts += ["--runs RUNS"] if given.runs is not None else []
    parts += [f"--windows {given.windows}"] if given.windows is not None else []
    for name in ("only", "policies"):
        if getattr(given, name):
            parts.append(f"--{name} " + " ".join(f'"{text}"' for text in getattr(given, name)))
    return " ".join([*parts, "--write docs/results.md"])


def collect(bench: Bench, plan: Plan, field: Field) -> Scores:
    """All that is in the cache. Raises InputError for a damaged file."""
    results = {}
    for entrant in field.entrants:
        for cell in plan.cells:
            if entrant.plays(cell):
                stored = bench.stored(entrant, cell)
                if stored is not None:
                    results[cell.name, entrant.label] = stored
    return Scores(plan, field, results)


def run(given: argparse.Namespace, plan: Plan = PLAN, field: Field | None = None) -> str:
    """Replay what is missing, and return the page.

    Args:
        given: The options.
        plan: What is replayed, before the options limit it.
        field: The policies; default: all that can be found.

    Raises:
        InputError: an input cannot be used.
    """
    plan = plan.limited(given.windows, given.only)
    found = (find_entrants(given.runs) if field is None else field).limited(given.policies)
    material = Material(given.traces)
    material.check(plan.logs)
    bench = Bench(material, Cache(given.cache))
    check_entrants(material, found.entrants, plan.cells)
    tasks = tasks_of(bench, found.entrants, plan.cells)
    run_tasks(bench, tasks, given.processes, say)
    scores = collect(bench, plan, found)
    for line in page.cost_lines(scores):
        say(line)
    return page.page(scores, material, command_of(given))


def say(line: str) -> None:
    """A line to people, beside the page."""
    print(line, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    # Before anything loads a BLAS: small matrices are slower on several threads of busy cores.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    try:
        given = parse(arguments)
        check_target(given.write, "write")
        text = run(given)
        if given.write is None:
            print(text, end="")
        else:
            with atomic_write(given.write) as part:
                part.write_text(text, encoding="utf-8")
    except InputError as error:
        say(f"error: {error}")
        return 2
    except KeyboardInterrupt:
        say("interrupted; the same command goes on from here")
        return INTERRUPTED
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
