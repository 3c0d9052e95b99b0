"""Strict FIFO on counted GPUs: this engine against the same policy written in SimPy, in one run.

    python -m benchmarks.peer_simpy TRACE [--gpus 96]

Both replay the same jobs and must give the same mean completion time; times are the best of several rounds, in turn.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Generator

import numpy as np
import simpy

from attn_sched.cluster import load_cluster
from attn_sched.policies import simulate
from attn_sched.simulator import SimOptions, fit_to_cluster
from attn_sched.workload import Workload, build_workload, read_trace


def simpy_fifo(workload: Workload, gpus: int) -> tuple[float, float]:
    """(mean completion time in s, seconds taken). A SimPy container serves its getters in order: the head blocks."""
    submit, duration = workload.submit_s.tolist(), workload.duration_s.tolist()
    wanted = workload.num_gpus.tolist()
    finish = [0.0] * len(submit)
    began = time.perf_counter()
    env = simpy.Environment()
    pool = simpy.Container(env, capacity=gpus, init=gpus)

    def run(job: int) -> Generator[simpy.Event, object, None]:
        yield pool.get(wanted[job])
        yield env.timeout(duration[job])
        finish[job] = env.now
        yield pool.put(wanted[job])

    def arrive() -> Generator[simpy.Event, object, None]:
        for job, at in enumerate(submit):
            if at > env.now:
                yield env.timeout(at - env.now)
            env.process(run(job))

    env.process(arrive())
    env.run()
    took = time.perf_counter() - began
    return float(np.mean(np.array(finish) - workload.submit_s)), took


def measure(workload: Workload, gpus: int, rounds: int = 5) -> tuple[float, float]:
    """(jobs/s of this engine, jobs/s of SimPy), best of ``rounds`` each, in turn.

    Raises ValueError if they disagree.
    """
    cluster = load_cluster(f"count:{gpus}")
    workload = fit_to_cluster(workload, cluster)
    ours, theirs = [], []
    for _ in range(rounds):
        schedule = simulate(workload, cluster, "fifo", SimOptions(comm=False))
        ours.append(schedule.engine_s)
        mean, took = simpy_fifo(workload, gpus)
        theirs.append(took)
        own = float(np.mean(schedule.finish_s - workload.submit_s))
        if abs(own - mean) > 1e-6 * mean:
            raise ValueError(f"mean completion times differ: {own} here, {mean} in SimPy")
    return len(workload) / min(ours), len(workload) / min(theirs)


def main() -> None:
    """Print both rates and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace")
    parser.add_argument("--gpus", type=int, default=96)
    given = parser.parse_args()
    workload = build_workload(read_trace(given.trace))
    ours, theirs = measure(workload, given.gpus)
    print(f"strict FIFO, {len(workload):,} jobs on {given.gpus} counted GPUs, equal mean completion time")
    print(f"this engine {ours:12,.0f} jobs/s\nSimPy       {theirs:12,.0f} jobs/s\nratio       {ours / theirs:12.1f}")


if __name__ == "__main__":
    main()
