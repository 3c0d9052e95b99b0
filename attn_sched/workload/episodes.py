"""Training material from logs: the parts a log is divided into, windows of a part, and randomly changed episodes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from attn_sched.choices import PARTS, check_choice
from attn_sched.errors import InputError
from attn_sched.workload.catalogue import config_fields, draw_configs
from attn_sched.workload.estimates import MAX_SIGMA, with_estimates
from attn_sched.workload.load import offered_load, scale_load
from attn_sched.workload.trace import SCHEMA, Trace, later_epoch
from attn_sched.workload.windows import cut_part, no_job_in_part, split_bounds, spread_windows, window
from attn_sched.workload.workload import Workload, require_jobs

SHORT_LOG = 5_000  # jobs; shorter logs are divided by job count, so that each part has jobs enough
# Shares of the jobs of a short log. Half of it is for the test, which needs windows more than training does.
SHORT_SPLIT = dict(zip(PARTS, ((0.0, 0.35), (0.35, 0.50), (0.50, 1.0)), strict=True))
LATER_WINDOWS = 4  # window lengths of jobs that keep arriving after a window of a part
TRIES = 100  # draws of a window before a log is given up whose windows all are submitted at once
MOST_EPISODE_JOBS = 1_000_000
MOST_SCALE = 1024.0


def period(workload: Workload, part: str) -> Workload:
    """The jobs of one part of a log: "train", "validation" or "test"; every job belongs to exactly one.

    By time, as :func:`attn_sched.workload.windows.split`; logs of fewer than ``SHORT_LOG`` jobs by job count: 35 %,
    15 % and 50 %.

    Raises:
        InputError: the part is unknown or holds no job.
    """
    check_choice(part, PARTS, "split", "part")
    require_jobs(workload, "split")
    return cut_part(workload, part, period_bounds(workload.submit_s, part))


def period_bounds(submit_s: np.ndarray, part: str) -> tuple[int, int]:
    """The first job of a part and the one after its last; ``submit_s`` is sorted and holds at least one."""
    jobs = len(submit_s)
    if jobs >= SHORT_LOG:
        return split_bounds(submit_s, part)
    low, high = SHORT_SPLIT[part]
    return round(low * jobs), round(high * jobs)


def trace_period(trace: Trace, part: str) -> Trace:
    """The jobs of one part of a log as a log of its own, cut where :func:`period` cuts.

    Jobs of unknown duration, which no workload has, are left out before the cut. Time zero is the part's first job. The
    source's name stays, so that what is drawn for a job (its network) is what is drawn for it in the whole log.

    Raises:
        InputError: the part is unknown or holds no job.
    """
    check_choice(part, PARTS, "part", "part")
    known = trace.table.filter(pc.is_valid(trace.table["duration"]))
    source = trace.provenance
    if not len(known):
        raise no_job_in_part(source.source, part)
    submit = known["submit_time"].to_numpy()
    lo, hi = period_bounds(submit, part)
    if lo >= hi:
        raise no_job_in_part(source.source, part)
    first = float(submit[lo])
    at = SCHEMA.get_field_index("submit_time")
    table = known.slice(lo, hi - lo).set_column(at, SCHEMA.field(at), pa.array(submit[lo:hi] - first))
    dropped = Counter(source.dropped)
    dropped += Counter({"unknown duration": len(trace) - len(known), f"not in the {part} part": len(known) - (hi - lo)})
    epoch = None if source.epoch is None else later_epoch(source.epoch, first)
    return Trace(table, replace(source, dropped=dict(dropped), epoch=epoch))


def period_windows(
    part: Workload,
    num_gpus: int,
    load: float,
    count: int,
    jobs: int,
    *,
    warmup: int | None = None,
    later_windows: int = LATER_WINDOWS,
) -> list[Workload]:
    """At most ``count`` windows of ``jobs`` counted jobs, spread evenly over one part of a log, at an offered load.

    Nothing outside the part is in them: not the warm-up before a window, nor the jobs that keep arriving after it.
    Those are stretched to the same load block by block ("steady"), and there are at most ``later_windows`` windows of
    them: enough to keep the cluster busy until the counted ones have ended, but for jobs that wait many times longer
    than the window is.

    Args:
        part: One part of a log, as :func:`period` gives it, fitted to the cluster.
        num_gpus: GPUs of the cluster.
        load: The offered load of each window and its warm-up.
        count: Windows wanted; fewer where no more fit into the part side by side (one at least).
        jobs: Jobs each counts.
        warmup: Jobs that run before a window, uncounted; None: as many as it counts. 0: it starts on an empty cluster.

    Raises:
        InputError: the part has fewer jobs than a window, or the load cannot be reached.
    """
    before = jobs if warmup is None else warmup
    count = max(1, min(count, len(part) // jobs))
    made = []
    for first, last in spread_windows(len(part), count, jobs, before):
        end = min(len(part), last + later_windows * jobs)
        cut = window(part.select(np.arange(end)), first, last, warmup=before)
        made.append(scale_load(cut, num_gpus, load, later="steady"))
    return made


@dataclass(frozen=True)
class EpisodeSpec:
    """How episodes differ from the logs they are cut from. Validated when made; shares are chances per episode.

    Raises:
        InputError: a value is out of range.
    """

    jobs: int = 320  # consecutive jobs, all counted, from an empty cluster; of a short log at most half of it
    loads: tuple[float, float] = (0.6, 1.1)  # offered load, uniform between the two
    estimate_share: float = 0.5  # of the episodes whose estimates are off
    estimate_sigma: float = 0.2  # by exp(sigma z), z standard normal
    redraw_models: bool = True  # each job trains a network drawn anew from the catalogue
    time_scale: tuple[float, float] = (0.5, 2.0)  # durations and gaps times one factor, log-uniform between the two
    gpu_share: float = 0.3  # of the episodes whose GPU counts are multiplied by one of gpu_factors
    gpu_factors: tuple[float, ...] = (0.5, 2.0)  # powers of two; durations stay

    def __post_init__(self) -> None:
        if not 2 <= self.jobs <= MOST_EPISODE_JOBS:
            raise InputError(f"{self.jobs} jobs", field="jobs", expected=f"2 to {MOST_EPISODE_JOBS:,} jobs an episode")
        for name, most in (("loads", 1e3), ("time_scale", MOST_SCALE)):
            low, high = getattr(self, name)
            if not (1.0 / most <= low <= high <= most):
                raise InputError(
                    f"{low:g} to {high:g} is no range",
                    field=name,
                    expected=f"two rising numbers from {1 / most:g} to {most:g}",
                )
        for name in ("estimate_share", "gpu_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"{getattr(self, name)} is no share", field=name, expected="0 to 1")
        if not 0 <= self.estimate_sigma <= MAX_SIGMA:
            raise InputError(
                f"{self.estimate_sigma} is no sigma", field="estimate_sigma", expected=f"0 to {MAX_SIGMA:g}"
            )
        for factor in self.gpu_factors:
            if not (1 / MOST_SCALE <= factor <= MOST_SCALE and math.log2(factor).is_integer()):
                raise InputError(f"{factor:g} is no factor", field="gpu_factors", expected="powers of two")
        if self.gpu_share and not self.gpu_factors:
            raise InputError("names none", field="gpu_factors", expected="powers of two, or a gpu_share of 0")


class EpisodeSource:
    """Draws episodes from pools: training parts of logs that are fitted to the cluster.

    Args:
        pools: One log's part each; an episode is cut from one of them, all with the same chance.
        num_gpus: GPUs of the cluster.
        spec: What is changed.
        largest: GPUs the cluster can give each job of each pool, i8[J] (``simulator.world.largest_placeable``), where
            GPU types limit some; default: all of them.

    Raises:
        InputError: there is no pool, or one has fewer than two jobs, no work or no span of time.
    """

    def __init__(
        self,
        pools: Sequence[Workload],
        num_gpus: int,
        spec: EpisodeSpec | None = None,
        *,
        largest: Sequence[np.ndarray] | None = None,
    ) -> None:
        if not pools:
            raise InputError("there is no log to draw episodes from", field="traces", expected="at least one")
        for pool in pools:
            if len(pool) < 2 or not 0 < offered_load(pool, num_gpus) < math.inf:
                raise InputError(
                    "no episode can be cut from it", file=pool.name, expected="jobs that take time, submitted over time"
                )
        self.pools = list(pools)
        self.num_gpus = num_gpus
        self.spec = spec or EpisodeSpec()
        self._largest = list(largest) if largest is not None else [np.full(len(pool), num_gpus) for pool in pools]

    def draw(self, generator: np.random.Generator) -> Workload:
        """An episode: all jobs counted, the first submitted at 0, at most as many GPUs a job as it can get.

        ``info["episode"]`` says what was drawn. The same state of the generator gives the same episode.

        Raises:
            InputError: a pool whose windows hold no work or are submitted at once, however often one is drawn.
        """
        spec = self.spec
        number = int(generator.integers(len(self.pools)))
        pool = self.pools[number]
        # Of a short log at most half, or episodes would all be the same jobs.
        jobs = min(spec.jobs, max(2, len(pool) // 2))
        for _ in range(TRIES):
            first = int(generator.integers(len(pool) - jobs + 1))
            span = pool.submit_s[first + jobs - 1] - pool.submit_s[first]
            if span > 0 and pool.duration_s[first : first + jobs].any():
                break
        else:
            raise InputError(
                f"{TRIES} windows of {jobs} jobs hold no work or were submitted at once",
                file=pool.name,
                field="jobs",
                expected="longer episodes",
            )
        part = np.arange(first, first + jobs)
        gpus = pool.num_gpus[part]
        gpu_factor = 1.0
        if generator.random() < spec.gpu_share:
            gpu_factor = spec.gpu_factors[generator.integers(len(spec.gpu_factors))]
            scaled = np.ceil(gpus * gpu_factor)
            gpus = np.clip(scaled, 1, self._largest[number][part]).astype(np.int32)
        low, high = spec.time_scale
        time_factor = float(np.exp(generator.uniform(math.log(low), math.log(high))))
        start = pool.submit_s[first]
        # The users who are there, numbered anew: the engine keeps a row for each.
        users, user = np.unique(pool.user[part], return_inverse=True)
        changes = {
            "submit_s": (pool.submit_s[part] - start) * time_factor,
            "duration_s": pool.duration_s[part] * time_factor,
            "estimate_s": pool.estimate_s[part] * time_factor,
            "requested_s": pool.requested_s[part] * time_factor,
            "cancel_s": (pool.cancel_s[part] - start) * time_factor,
            "num_gpus": gpus,
            "user": user.astype(np.int32),
            "user_names": tuple(pool.user_names[i] for i in users),
            "counted": np.ones(jobs, bool),
        }
        if spec.redraw_models:
            changes |= config_fields(draw_configs(gpus, generator.random(jobs)))
        load = float(generator.uniform(*spec.loads))
        told = {"pool": pool.name, "first": first, "gpu_factor": gpu_factor, "time_factor": time_factor}
        episode = pool.select(part).replace(**changes, info={"episode": told, "window": None})
        episode = scale_load(episode, self.num_gpus, load)
        if generator.random() < spec.estimate_share:
            noise = int(generator.integers(1 << 62))
            episode = with_estimates(episode, f"lognormal({spec.estimate_sigma!r})", noise)
        return episode
