"""Synthetic logs with the statistics of published ones, for those who have no log at hand.

Each family is a YAML file in ``families/`` whose numbers carry their sources. A session is a single job or a burst; its
jobs share arrival, user and GPUs. Durations are drawn job by job. Everything is vectorised.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
import pyarrow as pa

from attn_sched.choices import FAMILIES, check_choice
from attn_sched.errors import InputError
from attn_sched.seeding import stream
from attn_sched.workload.trace import Provenance, Trace, make_table
from attn_sched.workload.users import deal_jobs, shares, user_count

MAX_JOBS = 50_000_000
FIRST_DAY = "2001-01-01T00:00:00"  # a Monday, so that hour and weekday can be read off; no real date is meant
HOUR_S = 3600.0
GROUP_EXPONENT = 1.0  # group sizes fall as 1/rank


@dataclass(frozen=True)
class Component:
    """One log-normal of a mixture of durations."""

    weight: float
    median_s: float
    sigma: float


@dataclass(frozen=True)
class Family:
    """The statistics of one family."""

    name: str
    description: str
    cluster_gpus: int
    jobs_per_day: float
    users: int
    groups: int
    gpus: Mapping[int, float]  # GPUs -> share of the jobs
    components: tuple[Component, ...]
    size_exponent: float  # durations are multiplied by GPUs^this
    max_s: float
    targets: Mapping[str, float]  # what the draws must reproduce
    status: Mapping[str, float]
    hourly: np.ndarray  # f8[24], mean 1
    weekly: np.ndarray  # f8[7], Monday first, mean 1
    day_cv: float
    burst_share: float  # of the jobs
    burst_size: float  # mean
    burst_gap_s: float  # mean


@cache
def load_family(name: str) -> Family:
    """The statistics of a family.

    Raises:
        InputError: the name is unknown.
    """
    check_choice(name, FAMILIES, "family", "family")
    import yaml

    text = resources.files("attn_sched.workload").joinpath(f"families/{name}.yaml").read_text(encoding="utf-8")
    data: dict[str, Any] = yaml.safe_load(text)
    arrivals = data["arrivals"]
    hourly = np.array(arrivals["hourly"], dtype=np.float64)
    weekly = np.array(arrivals["weekly"], dtype=np.float64)
    return Family(
        name=name,
        description=data["description"],
        cluster_gpus=data["cluster_gpus"],
        jobs_per_day=data["jobs_per_day"],
        users=data["users"],
        groups=data["groups"],
        gpus=data["gpus"],
        components=tuple(Component(**item) for item in data["duration"]["components"]),
        size_exponent=data["duration"]["size_exponent"],
        max_s=data["duration"]["max_s"],
        targets=data["targets"],
        status=data["status"],
        hourly=hourly / hourly.mean(),
        weekly=weekly / weekly.mean(),
        day_cv=arrivals["day_cv"],
        burst_share=arrivals["burst"]["share"],
        burst_size=arrivals["burst"]["size"],
        burst_gap_s=arrivals["burst"]["gap_s"],
    )


def synth(family: str, jobs: int, seed: int = 0) -> Trace:
    """A synthetic log.

    Args:
        family: One of FAMILIES.
        jobs: How many, at the family's own rate: more jobs make a longer log.
        seed: Same family, jobs and seed give the same log.

    Raises:
        InputError: the family is unknown or the number of jobs impossible.
    """
    stats = load_family(family)
    if not 1 <= jobs <= MAX_JOBS:
        raise InputError(f"{jobs} jobs", field="jobs", expected=f"1 to {MAX_JOBS:,}")
    session = _sessions(stats, jobs, stream(seed, f"synth {family} sessions"))
    sessions = int(session[-1]) + 1
    submit = _arrivals(stats, jobs, session, stream(seed, f"synth {family} arrivals"))
    # Dealt rather than drawn, so that a burst of rare large jobs does not distort the mix.
    mix = np.array(list(stats.gpus.values()))
    sizes = np.array(list(stats.gpus), dtype=np.int64)
    dealt = deal_jobs(np.bincount(session), mix / mix.sum(), stream(seed, f"synth {family} gpus"))
    gpus = sizes[dealt][session]
    duration = _durations(stats, gpus, stream(seed, f"synth {family} durations"))
    order = np.argsort(submit, kind="stable")
    submit, session, gpus, duration = submit[order], session[order], gpus[order], duration[order]
    rng = stream(seed, f"synth {family} users")
    size = shares(user_count(jobs, stats.users))
    user = deal_jobs(np.bincount(session, weights=gpus * duration, minlength=sessions), size, rng)[session]
    columns: dict[str, Any] = {
        "job_id": _names(f"{family}-", np.arange(jobs), len(str(jobs - 1))),
        "user": _names("u", np.arange(len(size)), 4).take(pa.array(user)),
        "submit_time": submit - submit[0],
        "duration": duration,
        "num_gpus": gpus.astype(np.int32),
    }
    if stats.groups:
        weights = np.arange(1, stats.groups + 1) ** -GROUP_EXPONENT
        group = rng.choice(stats.groups, len(size), p=weights / weights.sum())
        columns["group"] = _names("vc", np.arange(stats.groups), 2).take(pa.array(group[user]))
    if stats.status:
        names = list(stats.status)
        codes = _draw(dict(enumerate(stats.status.values())), jobs, stream(seed, f"synth {family} status"))
        columns["status"] = pa.array(names).take(pa.array(codes))
    epoch = np.datetime64(FIRST_DAY, "s") + np.timedelta64(int(submit[0]), "s")
    notes = {f"synthetic, seed {seed}": jobs}
    source = f"synthetic-{family}"
    return Trace(make_table(columns, jobs), Provenance(source, "synthetic", jobs, {}, notes, str(epoch)))


def _names(prefix: str, numbers: np.ndarray, width: int) -> pa.Array:
    import pyarrow.compute as pc

    digits = pc.utf8_lpad(pa.array(numbers).cast(pa.string()), width, padding="0")
    return pc.binary_join_element_wise(pa.scalar(prefix), digits, "")


def _draw(shares_of: Mapping[int, float], count: int, rng: np.random.Generator) -> np.ndarray:
    values = np.array(list(shares_of), dtype=np.int64)
    edges = np.cumsum(np.array(list(shares_of.values())))
    at = np.searchsorted(edges, rng.random(count) * edges[-1], side="right")
    return values[np.minimum(at, len(values) - 1)]


def _sessions(stats: Family, jobs: int, rng: np.random.Generator) -> np.ndarray:
    """i8[jobs], the session of each job, ascending from 0: bursts first, then single jobs."""
    in_bursts = round(stats.burst_share * jobs)
    bursts = max(1, round(in_bursts / stats.burst_size))
    # Sizes are geometric from 2 on: a burst of one is a single job.
    sizes = 1 + rng.geometric(1.0 / (stats.burst_size - 1.0), 2 * bursts + 8)
    member = np.repeat(np.arange(len(sizes)), sizes)[:in_bursts]
    first_single = int(member[-1]) + 1 if len(member) else 0
    return np.concatenate((member, first_single + np.arange(jobs - len(member))))


def _arrivals(stats: Family, jobs: int, session: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """f8[jobs], whole seconds after a Monday's midnight."""
    days = int(np.ceil(1.5 * jobs / stats.jobs_per_day)) + 14
    while True:
        busy = rng.gamma(stats.day_cv**-2, stats.day_cv**2, days)
        rate = stats.jobs_per_day / 24 * (busy * stats.weekly[np.arange(days) % 7])[:, None] * stats.hourly
        expected = np.concatenate(([0.0], np.cumsum(rate.ravel())))
        if expected[-1] >= jobs:
            break
        days *= 2  # unlucky quiet days
    sessions = int(session[-1]) + 1
    # The hour of a session by inversion of the expected count; uniform within the hour.
    start = np.interp(rng.random(sessions) * jobs, expected, np.arange(len(expected)) * HOUR_S)
    first = np.flatnonzero(np.diff(session, prepend=-1))
    gaps = rng.exponential(stats.burst_gap_s, jobs)
    gaps[first] = 0.0
    since = np.cumsum(gaps)
    return np.floor(start[session] + since - since[first][session])


def _durations(stats: Family, gpus: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """f8[jobs], whole seconds, at least 1; draws beyond the maximum are repeated."""
    part = _draw({i: c.weight for i, c in enumerate(stats.components)}, len(gpus), rng)
    median = np.array([c.median_s for c in stats.components])[part] * gpus**stats.size_exponent
    sigma = np.array([c.sigma for c in stats.components])[part]
    result = median * np.exp(sigma * rng.standard_normal(len(gpus)))
    while len(again := np.flatnonzero(result > stats.max_s)):
        result[again] = median[again] * np.exp(sigma[again] * rng.standard_normal(len(again)))
    return np.maximum(1.0, np.round(result))
