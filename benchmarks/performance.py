"""Runs all timing scripts and writes docs/performance.md from what they print.

    python -m benchmarks.performance TRACES [--write docs/performance.md]

TRACES is the folder with ``golden`` and ``helios-venus-gpu``. Takes about three minutes.
"""

from __future__ import annotations

import argparse
import platform
import subprocess
import sys
from pathlib import Path

from attn_sched.files import atomic_write

INTRODUCTION = """# Speed

Written by `python -m benchmarks.performance TRACES --write docs/performance.md`; each block is what its command
printed. All run on one core of {machine}, Python {python}; other work on that machine makes single figures uncertain
by a third or so, ratios of one run less. Engine time alone: reading, compiling and metrics are not in jobs/s. The
first replay on a machine compiles the kernels, about half a minute; later ones load them from the cache in 0.3 s.
"""

PARTS = (
    (
        "Against SimPy",
        "The same strict FIFO on counted GPUs, written as a SimPy process model. Both must give the same mean.",
        ("peer_simpy", "{traces}/golden/philly-week.csv"),
    ),
    (
        "Rules, clusters and contention",
        "All 54,803 jobs of Helios Venus at load 0.9; on `dgx64` the 212 jobs larger than the cluster are left out.",
        ("throughput", "{traces}/helios-venus-gpu/helios_trace_mar18_jun30.csv"),
    ),
    (
        "Long queues",
        "Keyed rules look at one heap head per class of alike jobs. What growth they show is memory: the tables of\n"
        "100,000 jobs do not fit the processor's caches. `hrrn` re-ranks every waiting job at each decision,\n"
        "and backfilling looks at every waiting job when something ends; both are linear in the queue.",
        ("queue_length",),
    ),
    (
        "A million jobs",
        "End to end, from the synthetic generator to the metrics, through a Parquet file.",
        ("million",),
    ),
    (
        "The batched stepper",
        "Random legal decisions on 64-GPU clusters. With observations: all features and masks of the deciding agent\n"
        "are built for every decision. The answers themselves are drawn outside the time taken.",
        ("stepper",),
    ),
)


def main() -> None:
    """Run the scripts one after another; print or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", type=Path)
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    machine = f"a shared {platform.machine()} machine"
    page = [INTRODUCTION.format(machine=machine, python=platform.python_version())]
    for title, text, (module, *words) in PARTS:
        command = [sys.executable, "-m", f"benchmarks.{module}", *(word.format(traces=given.traces) for word in words)]
        print(f"{title} ...", file=sys.stderr)
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.rstrip()
        shown = " ".join(["python -m", f"benchmarks.{module}", *(word.format(traces="TRACES") for word in words)])
        page += [f"## {title}", "", text, "", "```", f"$ {shown}", printed, "```", ""]
    if given.write is None:
        print("\n".join(page))
        return
    with atomic_write(given.write) as part:
        part.write_text("\n".join(page), encoding="utf-8")


if __name__ == "__main__":
    main()
