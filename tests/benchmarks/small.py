"""A small plan over synthetic logs, and results made up by hand."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from attn_sched.evaluation.registry import METRICS
from attn_sched.workload import synth, write_trace
from benchmarks.results.__main__ import parse
from benchmarks.results.cache import SECONDS, Stored, code_digest
from benchmarks.results.entrants import AGENTS, RULE, TUNED, Entrant, Field
from benchmarks.results.plan import MAIN, VALIDATION, Log, Plan, Section, grid
from benchmarks.results.scores import EXCESS, JAIN, OVERHEAD, WAIT, Scores

LOGS = (Log("one", "first", "one.parquet", 8), Log("helios", "helios-venus-gpu", "two.parquet", 8))
RULES = ("fifo+best-fit", "sjf+topo-best-fit", "sjf+best-fit", "srtf+topo-best-fit")


def small_plan(windows: int = 3, clusters: Sequence[str] = ("nodes:2x4",), loads: Sequence[float] = (0.9, 1.2)) -> Plan:
    """Two logs on small clusters, windows of 8 jobs."""
    main = grid(MAIN, LOGS, clusters, loads, most=windows)
    validation = tuple(replace(cell, section=VALIDATION, part="validation") for cell in main)
    return Plan((Section(MAIN, "Test", main),), validation)


def write_logs(folder: Path) -> Path:
    """The logs of the small plan."""
    for log, family in zip(LOGS, ("philly", "helios"), strict=True):
        write_trace(synth(family, 200, seed=1), folder / log.path)
    return folder


def options(traces: Path, cache: Path, *more: str) -> argparse.Namespace:
    """As typed."""
    return parse([str(traces), "--cache", str(cache), *more])


def stored(excess: Sequence[float], wait: float = 3600.0, jain: float = 0.5, overhead: float = 1.1) -> Stored:
    """Results of a policy in a cell whose jobs last two hours."""
    given = {
        EXCESS: np.array(excess, float),
        "jct_mean_s": np.array(excess, float) + 7200.0,
        WAIT: np.full(len(excess), wait),
        JAIN: np.full(len(excess), jain),
        OVERHEAD: np.full(len(excess), overhead),
        "jobs": np.full(len(excess), 8.0),
    }
    blank = {name: np.full(len(excess), np.nan) for name in (*(metric.key for metric in METRICS), SECONDS)}
    return Stored({**blank, **given}, code_digest())


def made_up(policies: Mapping[str, Mapping[str, Stored]], plan: Plan | None = None) -> Scores:
    """Scores of policies; what is said of a cell by name holds there, of "" everywhere else."""
    plan = plan or small_plan()
    results = {}
    field = []
    for label, by_cell in policies.items():
        kind = AGENTS if "agents:" in label else TUNED if label == "tuned" else RULE
        placement = label.partition("+")[2].partition("+")[0]
        field.append(Entrant(label, label, kind, label, placement, role=label.partition("agents:")[2]))
        for cell in plan.cells:
            found = by_cell.get(cell.name, by_cell.get(""))
            if found is not None:
                results[cell.name, label] = found
    return Scores(plan, Field(tuple(field), ()), results)
