"""Rules on real traces: the tables of docs/comparisons.md.

    python -m benchmarks.compare_traces TRACES [--write docs/comparisons.md]

TRACES is the folder that holds ``helios-venus-gpu`` and ``philly-vc``. Without ``--write`` the tables are printed.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from attn_sched.cluster import load_cluster
from attn_sched.evaluation.comparison import Comparison, ComparisonPlan, compare
from attn_sched.evaluation.formatting import describe_load, format_range, format_value
from attn_sched.evaluation.registry import BY_KEY
from attn_sched.evaluation.setup import WorkloadSpec, dropped_counts, kept_workload
from attn_sched.files import atomic_write
from attn_sched.policies import split_policy_list
from attn_sched.progress import progress_bar
from attn_sched.simulator import SimOptions

POLICIES = (
    "fifo+topo-best-fit,easy+topo-best-fit,sjf+load-balance,sjf+best-fit,sjf+topo-best-fit,"
    "sjf+topo-best-fit+hold(1.5,0.5),saf+topo-best-fit,hrrn+topo-best-fit,wfp3+topo-best-fit,"
    "user-fair+topo-best-fit,srtf+topo-best-fit,tiresias+tiresias-skew,themis-like+topo-best-fit"
)
KEYS = ("excess_mean_s", "jct_mean_s", "wait_p99_s", "jain_user", "comm_overhead", "allocated_utilisation")


@dataclass(frozen=True)
class Case:
    """One table: a trace on a cluster."""

    trace: str
    cluster: str
    loads: tuple[float, ...]
    windows: int | None


CASES = (
    Case("helios-venus-gpu/helios_trace_mar18_jun30.csv", "dgx64", (0.75, 0.95), 20),
    Case("helios-venus-gpu/helios_trace_mar18_jun30.csv", "helios-venus", (0.9,), None),
    Case("philly-vc/trace1.csv", "dgx64", (0.75, 0.95), 5),
    Case("philly-vc/trace3.csv", "dgx64", (0.75, 0.95), 3),
    Case("philly-vc/trace1.csv", "eth64", (0.75,), 5),
)

INTRODUCTION = """# Rules on real traces

Written by `python -m benchmarks.compare_traces TRACES --write docs/comparisons.md`; every table is what `attn-sched
compare` prints for the command above it. Durations are known exactly (`oracle`), jobs share links evenly (`equal`),
users are synthetic where the trace names none. Ranges are 95 % bootstrap intervals over windows, or over consecutive
blocks of 256 jobs where the whole trace is replayed once; fewer than five windows give none. Values in bold are the
best of a column.

Windows are drawn with `--later steady`: the jobs that keep arriving after a window are stretched, block by block, to
the same load. The other choice, `--later same`, stretches them by the window's own factor. Where a log is busier after
a window than in it, that overloads the cluster for as long as the last counted job is waiting: over 20 windows of the
Helios trace at load 0.95, the 2,048 jobs after the window then offer a load of 0.4 to 4.9, and over Philly's passed
jobs 0.2 to 8.2.
"""


def run(case: Case, traces: Path) -> tuple[Comparison, str]:
    """The comparison of a case, and the command that makes it."""
    later = "steady" if case.windows else "same"
    plan = ComparisonPlan(
        policies=tuple(split_policy_list(POLICIES)),
        loads=case.loads,
        windows=case.windows,
        workload=WorkloadSpec(later=later),
    )
    cluster = load_cluster(case.cluster)
    kept = kept_workload(traces / case.trace, cluster, plan.workload)
    total = len(plan.policies) * len(plan.loads) * len(plan.bounds(len(kept)))
    with progress_bar(f"{case.trace} on {case.cluster}", total) as advance:
        comparison = compare(kept, cluster, plan, SimOptions(), progress=advance)
    loads = ",".join(f"{load:g}" for load in case.loads)
    windows = f" --windows {case.windows} --later steady" if case.windows else ""
    what = f'TRACES/{case.trace} --cluster {case.cluster} --policies "$POLICIES" --loads {loads}{windows}'
    return comparison, f"attn-sched compare {what}"


def tables(comparison: Comparison) -> list[str]:
    """One Markdown table a load."""
    metrics = [BY_KEY[key] for key in KEYS]
    lines = []
    for load in comparison.plan.loads:
        lines += [f"**{describe_load(load)}**", "", "| policy | " + " | ".join(m.label for m in metrics) + " |"]
        lines.append("|---" + "|---:" * len(metrics) + "|")
        for cell in comparison.at_load(load):
            row = [f"`{cell.policy}`"]
            for metric in metrics:
                estimate = cell.estimates[metric.key]
                told = format_value(estimate.value, metric.unit, short=True)
                if cell.policy in comparison.best(load, metric):
                    told = f"**{told}**"
                if estimate.low is not None and estimate.high is not None:
                    told += f" ({format_range(estimate.low, estimate.high, metric.unit, estimate.value)})"
                row.append(told)
            lines.append("| " + " | ".join(row) + " |")
        lines.append("")
    return lines


def main() -> None:
    """Run all cases; print or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", type=Path)
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    page = [INTRODUCTION, "```\nPOLICIES=" + f'"{POLICIES}"' + "\n```\n"]
    for case in CASES:
        comparison, command = run(case, given.traces)
        left_out = ", ".join(f"{reason}: {n:,}" for reason, n in dropped_counts(comparison.info).items()) or "none"
        counted = (
            f"{case.windows} windows of 256 jobs"
            if case.windows
            else f"all {comparison.kept_jobs:,} jobs, from an empty cluster"
        )
        page += [f"## {Path(case.trace).parent.name}/{Path(case.trace).stem} on `{case.cluster}`", ""]
        page += [
            f"`{command}`",
            "",
            f"{counted[0].upper()}{counted[1:]}; jobs left out: {left_out}.",
            "",
            *tables(comparison),
        ]
    text = "\n".join(page)
    if given.write is None:
        print(text)
        return
    with atomic_write(given.write) as part:
        part.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
