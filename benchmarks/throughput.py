"""Jobs per second of rule replays, by policy, cluster and contention model.

    python -m benchmarks.throughput TRACE [--load 0.9] [--clusters dgx64,pod1024]

Engine time alone, best of three; the ratio is to the first row of the same cluster.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from attn_sched.cluster import load_cluster
from attn_sched.policies import simulate, split_policy_list
from attn_sched.simulator import SimOptions, fit_to_cluster
from attn_sched.workload import Trace, build_workload, read_trace, scale_load

POLICIES = (
    "sjf+topo-best-fit,fifo+topo-best-fit,easy+topo-best-fit,sjf+best-fit,sjf+contention,"
    "sjf+topo-best-fit+hold(1.5,0.5),hrrn+topo-best-fit,srtf+topo-best-fit,tiresias+tiresias-skew"
)


@dataclass(frozen=True)
class Rate:
    """One measurement."""

    cluster: str
    policy: str
    contention: str
    jobs: int
    jobs_per_s: float


def measure(trace: Trace, clusters: list[str], policies: list[str], load: float, rounds: int = 3) -> list[Rate]:
    """Replay the whole trace at ``load`` under every policy; for the first one also every contention model."""
    rates = []
    for name in clusters:
        cluster = load_cluster(name)
        workload = scale_load(fit_to_cluster(build_workload(trace), cluster), cluster.num_gpus, load)
        for i, policy in enumerate(policies):
            for contention in ("equal", "none", "maxmin") if i == 0 else ("equal",):
                options = SimOptions(contention=contention)
                best = min(simulate(workload, cluster, policy, options).engine_s for _ in range(rounds))
                rates.append(Rate(name, policy, contention, len(workload), len(workload) / best))
    return rates


def main() -> None:
    """Print one line a measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace")
    parser.add_argument("--load", type=float, default=0.9)
    parser.add_argument("--clusters", default="dgx64,pod1024")
    parser.add_argument("--policies", default=POLICIES)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    policies = split_policy_list(given.policies)
    rates = measure(read_trace(given.trace), given.clusters.split(","), policies, given.load, given.rounds)
    first = {rate.cluster: rate.jobs_per_s for rate in reversed(rates)}
    print(f"{'cluster':10} {'policy':34} {'contention':10} {'jobs':>8} {'jobs/s':>11} {'ratio':>6}")
    for rate in rates:
        ratio = rate.jobs_per_s / first[rate.cluster]
        measured = f"{rate.jobs:8,} {rate.jobs_per_s:11,.0f} {ratio:6.2f}"
        print(f"{rate.cluster:10} {rate.policy:34} {rate.contention:10} {measured}")


if __name__ == "__main__":
    main()
