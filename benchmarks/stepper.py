"""Decisions per second of the batched stepper with random legal decisions, observations included and left out.

    python -m benchmarks.stepper [--clusters 64] [--cluster dgx64] [--steps 3000]

A decision is one answer of the job agent or of the GPU agent. The ratio is to a batch of one cluster.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from attn_sched.agents import Observations
from attn_sched.cluster import load_cluster
from attn_sched.jit import njit
from attn_sched.simulator import Engine, EngineRule, SimOptions, fit_to_cluster
from attn_sched.simulator import layout as at
from attn_sched.workload import build_workload, scale_load, synth


@njit
def random_legal(phases, job_mask, unit_mask, draws, out):  # type: ignore[no-untyped-def]
    """One legal answer a cluster, drawn uniformly."""
    for b in range(phases.shape[0]):
        mask = job_mask[b] if phases[b] == at.JOB_PHASE else unit_mask[b]
        legal = 0
        for i in range(mask.shape[0]):
            legal += mask[i]
        pick = int(draws[b] * legal)
        for i in range(mask.shape[0]):
            if mask[i]:
                if pick == 0:
                    out[b] = i
                    break
                pick -= 1


def measure(
    cluster_name: str, batch: int, steps: int, placement: int, contention: str = "equal"
) -> tuple[float, float]:
    """(decisions/s with observations, decisions/s of ask and apply alone).

    Drawing the random answers is not counted.
    """
    cluster = load_cluster(cluster_name)
    workloads = [
        scale_load(fit_to_cluster(build_workload(synth("helios", 2000, seed=seed)), cluster), cluster.num_gpus, 0.9)
        for seed in range(batch)
    ]
    options = SimOptions(record_segments=False, contention=contention)
    engine = Engine(cluster, workloads, EngineRule(order=at.AGENT, placement=placement), options)
    observations = Observations(engine)
    generator = np.random.default_rng(0)
    answers = np.zeros(batch, dtype=np.int64)
    decisions = 0
    stepping = observing = 0.0
    for step in range(steps + 1):
        t0 = time.perf_counter()
        ask = engine.ask()
        t1 = time.perf_counter()
        if ask.done:
            break
        observations.update(ask)
        t2 = time.perf_counter()
        random_legal(ask.phases, observations.job_mask, observations.unit_mask, generator.random(batch), answers)
        t3 = time.perf_counter()
        engine.apply(answers)
        t4 = time.perf_counter()
        if step == 0:  # compiles
            continue
        decisions += int(np.count_nonzero(ask.phases))
        stepping += (t1 - t0) + (t4 - t3)
        observing += t2 - t1
    return decisions / (stepping + observing), decisions / stepping


def main() -> None:
    """Print rates for both agents and for the job agent over a placement rule."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clusters", type=int, default=64)
    parser.add_argument("--cluster", default="dgx64")
    parser.add_argument("--steps", type=int, default=3000)
    given = parser.parse_args()
    print(f"{'agents':34} {'batch':>6} {'with observations':>20} {'without':>14} {'ratio':>6}")
    for label, placement in (("job and GPU agent", at.PLACE_AGENT), ("job agent, topo-best-fit", at.TOPO_BEST_FIT)):
        alone = 0.0
        for batch in (1, given.clusters):
            seen, bare = measure(given.cluster, batch, given.steps, placement)
            alone = alone or seen
            print(f"{label:34} {batch:6} {seen:16,.0f} d/s {bare:10,.0f} d/s {seen / alone:6.1f}")


if __name__ == "__main__":
    main()
