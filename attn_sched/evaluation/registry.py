"""Every metric the product reports: its key, unit, direction and one-line definition.

``docs/metrics.md`` and the tables of the command line and the report are made or checked from this list alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Better = Literal["lower", "higher", "neither"]
Pool = Literal["mean", "sum", "max"]


@dataclass(frozen=True)
class Metric:
    """One number computed from a schedule."""

    key: str  # name in JSON, Parquet and Python
    label: str  # short heading for tables
    unit: str  # "s", "jobs", "share", "" ...
    better: Better  # which direction is an improvement; "neither" for facts about the replay
    definition: str  # one line
    headline: bool = False  # shown in the main tables and compared pairwise with the reference policy
    pool: Pool = "mean"  # how values of several windows become one


def _distribution(prefix: str, label: str, what: str) -> tuple[Metric, ...]:
    """Mean, percentiles and maximum of a time that each job has."""
    parts = (
        ("mean", "mean", "Mean"),
        ("p50", "median", "Median"),
        ("p95", "p95", "95th percentile (linear interpolation)"),
        ("p99", "p99", "99th percentile (linear interpolation)"),
        ("max", "max", "Largest value"),
    )
    return tuple(
        Metric(
            f"{prefix}_{part}_s",
            f"{label} {short}",
            "s",
            "lower",
            f"{long} of {what}.",
            headline=part == "mean" or (prefix, part) == ("wait", "p99"),
            pool="max" if part == "max" else "mean",
        )
        for part, short, long in parts
    )


METRICS: tuple[Metric, ...] = (
    Metric(
        "jobs",
        "jobs",
        "jobs",
        "neither",
        "Counted jobs that finished; every mean and percentile is over them.",
        pool="sum",
    ),
    Metric("users", "users", "users", "neither", "Users with at least one counted finished job."),
    Metric(
        "unfinished",
        "unfinished",
        "jobs",
        "lower",
        "Counted jobs neither finished nor cancelled when the replay ended.",
        pool="sum",
    ),
    Metric("cancelled", "cancelled", "jobs", "neither", "Counted jobs cancelled before they finished.", pool="sum"),
    *_distribution("jct", "JCT", "job completion time, finish - submit"),
    *_distribution("wait", "wait", "the time a job spent queued (sum of its queued intervals)"),
    Metric("excess_mean_s", "excess", "s", "lower", "Mean JCT minus mean ideal duration.", headline=True),
    Metric(
        "makespan_s", "makespan", "s", "lower", "Last counted finish minus first counted submission.", headline=True
    ),
    Metric(
        "bounded_slowdown_mean",
        "bounded slowdown mean",
        "ratio",
        "lower",
        "Mean of max(1, JCT / max(d, 10 s)), d the ideal duration.",
        headline=True,
    ),
    Metric(
        "bounded_slowdown_p99",
        "bounded slowdown p99",
        "ratio",
        "lower",
        "99th percentile of max(1, JCT / max(d, 10 s)), d the ideal duration.",
    ),
    Metric(
        "user_worst_bounded_slowdown",
        "worst user",
        "ratio",
        "lower",
        "Largest mean bounded slowdown of any user.",
        headline=True,
        pool="max",
    ),
    Metric(
        "jain_user",
        "Jain (users)",
        "index",
        "higher",
        "Jain's index (sum x)^2 / (m sum x^2) over m users' mean bounded slowdowns x; 1 is even.",
        headline=True,
    ),
    Metric(
        "gini_user", "Gini (users)", "index", "lower", "Gini coefficient of users' mean bounded slowdowns; 0 is even."
    ),
    Metric(
        "rho_mean",
        "rho mean",
        "ratio",
        "lower",
        "Mean finish-time ratio JCT / (max(d, 1 s) max(1, n A / N)), A the mean number of active users meanwhile.",
    ),
    Metric("rho_p99", "rho p99", "ratio", "lower", "99th percentile of the finish-time ratio."),
    Metric("rho_max", "rho max", "ratio", "lower", "Largest finish-time ratio.", pool="max"),
    Metric(
        "rho_over_1_share",
        "behind fair share",
        "share",
        "lower",
        "Share of jobs with a finish-time ratio above 1: worse off than with an even split of the cluster.",
        headline=True,
    ),
    Metric("wait_variance_s2", "wait variance", "s^2", "lower", "Population variance of the wait."),
    Metric(
        "starved_jobs",
        "starved",
        "jobs",
        "lower",
        "Jobs that waited longer than T (86,400 s unless set).",
        headline=True,
        pool="sum",
    ),
    Metric(
        "comm_overhead",
        "comm overhead",
        "ratio",
        "lower",
        "GPU time held (restarts included) over GPU time at the ideal placement, sum n held / sum n d; 1 is none.",
        headline=True,
    ),
    Metric(
        "slowdown_mean",
        "run slowdown",
        "ratio",
        "lower",
        "Mean of running time over ideal duration (jobs of ideal duration 0 left out).",
    ),
    Metric(
        "cross_rack_share",
        "gangs across racks",
        "share",
        "lower",
        "Share of gangs (2 GPUs or more) whose last placement crossed a rack's uplink; null without racks.",
    ),
    Metric(
        "allocated_utilisation",
        "allocated GPU time",
        "share",
        "higher",
        "GPU time held by any job over capacity, from the first counted submission to the last counted finish.",
        headline=True,
    ),
    Metric(
        "useful_utilisation",
        "useful GPU time",
        "share",
        "higher",
        "GPU time spent computing (n tau W) over capacity, same span; unfinished jobs count at their best placement.",
    ),
    Metric(
        "fragmentation",
        "fragmentation",
        "share",
        "lower",
        "Mean share of GPUs that are free while the oldest waiting job cannot use them, same span.",
    ),
    Metric("preemptions", "preemptions", "events", "lower", "Suspensions of counted jobs.", headline=True, pool="sum"),
    Metric(
        "restarts",
        "restarts",
        "events",
        "lower",
        "Times a failure stopped a counted job, which then had to be started again.",
        pool="sum",
    ),
    Metric(
        "decisions",
        "decisions",
        "decisions",
        "neither",
        "Decisions the policy was asked for, in the whole replay.",
        pool="sum",
    ),
    Metric(
        "decision_p50_s",
        "decision p50",
        "s",
        "lower",
        "Median engine time of an event, or of an answer where the rule is written in Python; null without samples.",
    ),
    Metric(
        "decision_p99_s",
        "decision p99",
        "s",
        "lower",
        "99th percentile of the same.",
    ),
    Metric("decisions_per_s", "decisions/s", "1/s", "higher", "Decisions per second of engine time."),
    Metric("jobs_replayed", "jobs replayed", "jobs", "neither", "Jobs the replay started, counted or not.", pool="sum"),
    Metric(
        "jobs_per_s",
        "jobs/s",
        "1/s",
        "higher",
        "Jobs replayed per second of engine time, compilation and reading excluded.",
    ),
)

BY_KEY: dict[str, Metric] = {metric.key: metric for metric in METRICS}

# Numbers that depend on the machine and its load: they alone may differ between two equal calls, and no policy is
# called the best for them.
TIMING_KEYS = frozenset({"decision_p50_s", "decision_p99_s", "decisions_per_s", "jobs_per_s"})

HEADLINE: tuple[Metric, ...] = tuple(metric for metric in METRICS if metric.headline)
