"""Every metric of one schedule, without a loop over jobs. Definitions: :mod:`attn_sched.evaluation.registry`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from attn_sched.evaluation.fairness import Floats, gini, jain, mean_by_user
from attn_sched.evaluation.outcomes import JobOutcomes, counted_outcomes
from attn_sched.evaluation.registry import METRICS
from attn_sched.evaluation.utilisation import fragmentation, utilisation

if TYPE_CHECKING:
    from attn_sched.simulator.schedule import Schedule

Value = float | int | None
Terms = tuple[Floats, Floats]

STARVED_AFTER_S = 86_400.0


def _per_job(values: Floats) -> Terms:
    return values, np.ones_like(values)


def _slowdown_terms(jobs: JobOutcomes) -> Terms:
    real = jobs.duration_s > 0
    ratio = np.divide(jobs.held_s, jobs.duration_s, out=np.zeros_like(jobs.held_s), where=real)
    return ratio, real.astype(np.float64)


def _cross_rack_terms(jobs: JobOutcomes) -> Terms:
    if jobs.across_racks is None:
        return np.zeros(jobs.index.size), np.zeros(jobs.index.size)
    return (jobs.across_racks & jobs.gang).astype(np.float64), jobs.gang.astype(np.float64)


# Metrics that are a sum over jobs divided by another: one definition serves the value and its batch-means interval.
RATIOS: dict[str, Callable[[JobOutcomes], Terms]] = {
    "jct_mean_s": lambda jobs: _per_job(jobs.jct_s),
    "wait_mean_s": lambda jobs: _per_job(jobs.wait_s),
    "excess_mean_s": lambda jobs: _per_job(jobs.jct_s - jobs.duration_s),
    "bounded_slowdown_mean": lambda jobs: _per_job(jobs.bounded_slowdown),
    "rho_mean": lambda jobs: _per_job(jobs.rho),
    "rho_over_1_share": lambda jobs: _per_job(above_one(jobs.rho).astype(np.float64)),
    "comm_overhead": lambda jobs: (jobs.num_gpus * jobs.held_s, jobs.num_gpus * jobs.duration_s),
    "slowdown_mean": _slowdown_terms,
    "cross_rack_share": _cross_rack_terms,
}


def above_one(rho: Floats) -> np.ndarray:
    """Finish-time ratios above 1 by more than rounding: a job alone in the system has exactly 1 on paper."""
    return rho > 1.0 + 1e-9


def ratio(terms: Terms) -> float:
    """Sum over sum; NaN when the denominator is zero."""
    top, bottom = float(terms[0].sum()), float(terms[1].sum())
    return top / bottom if bottom else float("nan")


def _quantiles(prefix: str, values: Floats, suffix: str = "_s") -> dict[str, Value]:
    if values.size == 0:
        return {}
    p50, p95, p99, top = (float(q) for q in np.percentile(values, [50, 95, 99, 100]))
    return {
        f"{prefix}_p50{suffix}": p50,
        f"{prefix}_p95{suffix}": p95,
        f"{prefix}_p99{suffix}": p99,
        f"{prefix}_max{suffix}": top,
    }


def _speed(schedule: Schedule) -> dict[str, Value]:
    samples = np.asarray(schedule.decision_latency_s, dtype=np.float64)
    replayed = int(np.isfinite(schedule.start_s).sum())
    result: dict[str, Value] = {"decisions": int(schedule.decisions), "jobs_replayed": replayed}
    if samples.size:
        result["decision_p50_s"], result["decision_p99_s"] = (float(q) for q in np.percentile(samples, [50, 99]))
    if schedule.engine_s > 0:
        result["decisions_per_s"] = schedule.decisions / schedule.engine_s
        result["jobs_per_s"] = replayed / schedule.engine_s
    return result


def evaluate(
    schedule: Schedule, *, starved_after_s: float = STARVED_AFTER_S, jobs: JobOutcomes | None = None
) -> dict[str, Value]:
    """All metrics of ``schedule`` over its counted jobs, in the registry's order; what is undefined is None, never NaN.

    Args:
        schedule: a finished replay.
        starved_after_s: wait (s) above which a job counts as starved.
        jobs: the schedule's outcomes, when the caller has them already.
    """
    jobs = counted_outcomes(schedule) if jobs is None else jobs
    counted = np.asarray(schedule.workload.counted, dtype=bool)
    cancelled = int((counted & np.asarray(schedule.cancelled, dtype=bool)).sum())
    found: dict[str, Value] = {
        "jobs": int(jobs.index.size),
        "users": int(np.unique(jobs.user).size),
        "cancelled": cancelled,
        "unfinished": int(counted.sum()) - cancelled - int(jobs.index.size),
        "starved_jobs": int((jobs.wait_s > starved_after_s).sum()),
        "preemptions": int(np.asarray(schedule.preemptions)[jobs.index].sum()),
        "restarts": int(np.asarray(schedule.restarts)[jobs.index].sum()),
    }
    found.update(_speed(schedule))
    for key, terms in RATIOS.items():
        found[key] = ratio(terms(jobs))
    if jobs.index.size:
        found.update(_quantiles("jct", jobs.jct_s))
        found.update(_quantiles("wait", jobs.wait_s))
        rho = _quantiles("rho", jobs.rho, "")
        found["rho_p99"], found["rho_max"] = rho["rho_p99"], rho["rho_max"]
        found["bounded_slowdown_p99"] = float(np.percentile(jobs.bounded_slowdown, 99))
        found["wait_variance_s2"] = float(np.var(jobs.wait_s))
        of_user = mean_by_user(jobs.bounded_slowdown, jobs.user)
        found["user_worst_bounded_slowdown"] = float(of_user.max())
        found["jain_user"], found["gini_user"] = jain(of_user), gini(of_user)
        # The first counted submission, whether or not that job finished.
        first = float(np.asarray(schedule.workload.submit_s, dtype=np.float64)[counted].min())
        last = float(jobs.finish_s.max())
        found["makespan_s"] = last - first
        found["allocated_utilisation"], found["useful_utilisation"] = utilisation(schedule, first, last)
        found["fragmentation"] = fragmentation(schedule, last)
    return {metric.key: _clean(found.get(metric.key)) for metric in METRICS}


def _clean(value: Value) -> Value:
    """None for what JSON cannot say."""
    return None if value is None or not math.isfinite(value) else value
