"""What a decision costs as the queue grows: W jobs wait at once, and the time per decision is compared with W = 100.

    python -m benchmarks.queue_length [--sizes 100,1000,10000,100000]

Keyed rules look at one heap head per class of alike jobs, so their cost should hardly grow; orderings whose keys change
with time (hrrn) and backfilling look at every waiting job.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from attn_sched.cluster import Cluster, load_cluster
from attn_sched.policies import parse_policy, simulate
from attn_sched.simulator import Engine, SimOptions
from attn_sched.simulator import layout as at
from attn_sched.simulator.loop import run
from attn_sched.workload import Workload, build_workload, synth

# A patience of 8 is so long that none runs out meanwhile.
KEYED = ("fifo+topo-best-fit", "sjf+topo-best-fit", "saf+best-fit", "sjf+topo-best-fit+hold(1.5,8)")
SCANNING = ("hrrn+topo-best-fit", "easy+topo-best-fit")
SCAN_LIMIT = 10_000  # rules that look at every job are quadratic here: larger queues would only take long


def crowd(cluster: Cluster, size: int) -> Workload:
    """``size`` jobs, all submitted at time 0."""
    jobs = build_workload(synth("helios", size, seed=1))
    gpus = np.minimum(jobs.num_gpus, cluster.num_gpus)
    duration = np.maximum(jobs.duration_s, 1.0)
    return jobs.replace(submit_s=np.zeros(size), num_gpus=gpus, duration_s=duration, estimate_s=duration)


def seconds_per_decision(cluster: Cluster, policy: str, workload: Workload, decisions: int = 400) -> float:
    """Seconds per decision (a start, or finding that nothing starts) while the queue is about as long as it was."""
    rule = parse_policy(policy).engine_rule()
    engine = Engine(cluster, [workload], rule, SimOptions(record_segments=False))
    w = engine.view(0)
    while int(w.si[at.NEXT_ARRIVAL]) < len(workload):  # the arrivals, and the first starts, which fill the cluster
        run(w, 1)
    before = int(w.si[at.DECISIONS])
    began = time.perf_counter()
    while True:
        phase = run(w, 25)
        made = int(w.si[at.DECISIONS]) - before
        if phase != -1 or made >= decisions:
            break
    return (time.perf_counter() - began) / max(1, made)


def measure(sizes: list[int], policies: tuple[str, ...], rounds: int = 5) -> dict[str, list[float]]:
    """Seconds per decision by policy, one for each size (nan beyond what a scanning rule is given)."""
    cluster = load_cluster("dgx64")
    simulate(crowd(cluster, 10), cluster, "sjf")  # compiles
    table: dict[str, list[float]] = {}
    for policy in policies:
        row = []
        for size in sizes:
            if policy in SCANNING and size > SCAN_LIMIT:
                row.append(float("nan"))
                continue
            workload = crowd(cluster, size)
            row.append(min(seconds_per_decision(cluster, policy, workload) for _ in range(rounds)))
        table[policy] = row
    return table


def main() -> None:
    """Print microseconds per decision and the ratio to the shortest queue."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="100,1000,10000,100000")
    given = parser.parse_args()
    sizes = [int(size) for size in given.sizes.split(",")]
    print(f"{'microseconds per decision (ratio)':34}" + "".join(f"{f'queue {size:,}':>18}" for size in sizes))
    for policy, row in measure(sizes, KEYED + SCANNING).items():
        cells = (f"{1e6 * s:.2f} ({s / row[0]:.1f})" if np.isfinite(s) else "not run" for s in row)
        print(f"{policy:34}" + "".join(f"{cell:>18}" for cell in cells))


if __name__ == "__main__":
    main()
