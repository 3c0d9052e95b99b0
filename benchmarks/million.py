"""One million synthetic jobs, end to end: make them, write and read Parquet, replay, measure. Prints time and peak
memory.

    python -m benchmarks.million [--jobs 1000000] [--cluster pod1024] [--policy sjf+topo-best-fit]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from attn_sched.cluster import load_cluster
from attn_sched.evaluation.metrics import evaluate
from attn_sched.policies import simulate
from attn_sched.simulator import SimOptions, fit_to_cluster
from attn_sched.workload import build_workload, read_trace, scale_load, synth, write_trace
from benchmarks.memory import peak_memory


def main() -> None:
    """Print the seconds of each step, their sum, and the peak of resident memory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--cluster", default="pod1024")
    parser.add_argument("--policy", default="sjf+topo-best-fit")
    given = parser.parse_args()
    cluster = load_cluster(given.cluster)
    steps: list[tuple[str, float]] = []
    began = time.perf_counter()

    def done(step: str) -> None:
        nonlocal began
        steps.append((step, time.perf_counter() - began))
        began = time.perf_counter()

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.parquet"
        write_trace(synth("helios", given.jobs, seed=0), file)
        done("synthesise and write")
        trace = read_trace(file)
        done("read")
    workload = fit_to_cluster(build_workload(trace), cluster)
    del trace
    workload = scale_load(workload, cluster.num_gpus, 0.9)
    done("build and scale")
    schedule = simulate(workload, cluster, given.policy, SimOptions())
    done("replay (kernels loaded or compiled in it)")
    values = evaluate(schedule)
    done("metrics")
    for step, seconds in steps:
        print(f"{step:42} {seconds:8.2f} s")
    peak = peak_memory() / 1e9
    print(f"{'all':42} {sum(seconds for _, seconds in steps):8.2f} s, peak memory {peak:.2f} GB")
    rate, excess = values["jobs_per_s"], values["excess_mean_s"]
    print(f"{len(workload):,} jobs, {rate:,.0f} jobs/s in the engine, excess {excess:,.0f} s")


if __name__ == "__main__":
    main()
