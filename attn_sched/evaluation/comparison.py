"""Policies x loads x windows: the plan, its replays, and one row a cell (policy at a load) of results."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from attn_sched.errors import InputError
from attn_sched.evaluation.fairness import Floats
from attn_sched.evaluation.gantt import Gantt, draw_range, gantt_of
from attn_sched.evaluation.metrics import RATIOS, STARVED_AFTER_S, Value, evaluate
from attn_sched.evaluation.outcomes import counted_outcomes
from attn_sched.evaluation.registry import METRICS, TIMING_KEYS, Metric
from attn_sched.evaluation.setup import WINDOW_JOBS, WorkloadSpec, check_load, check_warmup
from attn_sched.evaluation.statistics import (
    Estimate,
    batch_means,
    block_sums,
    bootstrap_mean,
    paired_batch_difference,
    paired_difference,
)
from attn_sched.workload.windows import spread_windows

if TYPE_CHECKING:
    from attn_sched.cluster import Cluster
    from attn_sched.simulator.options import SimOptions
    from attn_sched.simulator.schedule import Schedule
    from attn_sched.workload import Workload

GANTT_POLICIES = 4

# Waits (s) at which the distribution is kept: 0, then 24 steps a decade from 0.1 s to three years.
WAIT_GRID_S: Floats = np.concatenate([[0.0], np.logspace(-1, 8, 9 * 24 + 1)])

Bounds = tuple[int, int] | None


@dataclass(frozen=True)
class ComparisonPlan:
    """What to replay. Validated when made; windows are laid out once the number of kept jobs is known."""

    policies: tuple[str, ...]
    loads: tuple[float | None, ...] = (None,)  # None: as recorded
    windows: int | None = None  # None: the whole trace from an empty cluster
    window_jobs: int = WINDOW_JOBS
    warmup: int | None = None  # jobs before a window; None: as many as the window counts
    reference: str | None = None  # policy that differences are taken to; None: the first
    starved_after_s: float = STARVED_AFTER_S
    workload: WorkloadSpec = field(default_factory=WorkloadSpec)

    def __post_init__(self) -> None:
        if not self.policies:
            raise InputError("names no policy", field="policies", expected="P1,P2,...")
        for name, values in (("policies", self.policies), ("loads", self.loads)):
            if len(set(values)) < len(values):
                raise InputError("names something twice", field=name, expected="each once")
        if self.reference is not None and self.reference not in self.policies:
            raise InputError(
                f"{self.reference!r} is not compared", field="reference", expected=f"one of {', '.join(self.policies)}"
            )
        for load in self.loads:
            if load is not None:
                check_load(load, "loads")
        if self.windows is not None and self.windows < 1:
            raise InputError(f"{self.windows} is too few", field="windows", expected="a whole number of at least 1")
        if self.window_jobs < 1:
            raise InputError(
                f"{self.window_jobs} is too few", field="window-jobs", expected="a whole number of at least 1"
            )
        if self.windows is None and self.warmup is not None:
            raise InputError("warms up windows, and there are none", field="warmup", expected="--windows N with it")
        check_warmup(self.warmup)

    @property
    def reference_policy(self) -> str:
        return self.reference or self.policies[0]

    @property
    def wanted_warmup(self) -> int:
        """Jobs that should run before a window."""
        return self.window_jobs if self.warmup is None else self.warmup

    def bounds(self, jobs: int) -> list[Bounds]:
        """The windows over ``jobs`` kept jobs: evenly spread, apart and with room to warm up where the trace allows.

        Where it does not, they overlap and the first warms up less: :attr:`Comparison.caveats` says so.
        """
        if self.windows is None:
            return [None]
        return list(spread_windows(jobs, self.windows, self.window_jobs, self.wanted_warmup))


@dataclass(frozen=True, eq=False)
class WindowResult:
    """One replay, reduced to what tables and charts need."""

    bounds: Bounds  # place of the counted jobs among the kept ones
    values: dict[str, Value]
    waits: NDArray[np.int64]  # i8[len(WAIT_GRID_S)]: counted jobs that waited at most so long
    blocks: dict[str, tuple[Floats, Floats]]  # block sums of every ratio metric; empty for windows
    gantt: Gantt | None
    info: dict[str, object]  # of the workload replayed


@dataclass(frozen=True, eq=False)
class Cell:
    """A policy at a load: its windows and what they say together."""

    policy: str
    load: float | None
    windows: tuple[WindowResult, ...]
    seed: int

    def series(self, key: str) -> list[Value]:
        """A metric's value in each window."""
        return [window.values[key] for window in self.windows]

    @cached_property
    def estimates(self) -> dict[str, Estimate]:
        """Every metric with its interval: over windows, or by batch means when the whole trace was replayed once."""
        return {metric.key: self._estimate(metric) for metric in METRICS}

    def _estimate(self, metric: Metric) -> Estimate:
        if metric.key in self.windows[0].blocks:
            interval = batch_means(*self.windows[0].blocks[metric.key], seed=self.seed)
            value = self.windows[0].values[metric.key]
            # The value itself to the last bit, not as added up from blocks.
            return interval if value is None else replace(interval, value=float(value))
        known = [value for value in self.series(metric.key) if value is not None]
        if not known:
            return Estimate(float("nan"))
        if metric.pool == "sum":
            return Estimate(float(sum(known)))
        if metric.pool == "max":
            return Estimate(float(max(known)))
        return bootstrap_mean(known, seed=self.seed)

    def difference(self, other: Cell, key: str) -> Estimate:
        """This cell minus ``other`` in the windows (or blocks) they share, paired."""
        mine, theirs = self.windows[0].blocks, other.windows[0].blocks
        if key in mine and key in theirs:
            return paired_batch_difference(mine[key], theirs[key], seed=self.seed)
        return paired_difference(self.series(key), other.series(key), seed=self.seed)

    @cached_property
    def wait_cdf(self) -> Floats:
        """Share of counted jobs that waited at most ``WAIT_GRID_S``, all windows together."""
        counts = np.sum([window.waits for window in self.windows], axis=0).astype(np.float64)
        jobs = sum(int(window.values["jobs"] or 0) for window in self.windows)
        return counts / jobs if jobs else counts


@dataclass(frozen=True, eq=False)
class Comparison:
    """All cells of a finished plan, by load then policy."""

    plan: ComparisonPlan
    trace: str
    cluster: Cluster
    options: dict[str, object]
    info: dict[str, object]  # of the kept workload: rows left out, estimates, users
    kept_jobs: int
    cells: tuple[Cell, ...]

    def at_load(self, load: float | None) -> list[Cell]:
        return [cell for cell in self.cells if cell.load == load]

    def reference_at(self, load: float | None) -> Cell:
        return next(cell for cell in self.at_load(load) if cell.policy == self.plan.reference_policy)

    def best(self, load: float | None, metric: Metric) -> set[str]:
        """Policies with the best value of a metric at a load.

        There are none when the metric has no direction or depends on the machine, or when all are equal.
        """
        if metric.better == "neither" or metric.key in TIMING_KEYS:
            return set()
        values = {cell.policy: cell.estimates[metric.key].value for cell in self.at_load(load)}
        values = {policy: value for policy, value in values.items() if math.isfinite(value)}
        if len(set(values.values())) < 2:
            return set()
        top = min(values.values()) if metric.better == "lower" else max(values.values())
        return {policy for policy, value in values.items() if value == top}

    def _windows_at(self, load: float | None) -> list[WindowResult]:
        """The windows at a load in order of place; which jobs they hold does not depend on the policy."""
        return sorted(self.at_load(load)[0].windows, key=lambda window: window.bounds or (0, 0))

    @cached_property
    def windows_overlap(self) -> bool:
        """Whether a job is counted in two windows: they are then no independent samples."""
        for load in self.plan.loads:
            places = [window.bounds for window in self._windows_at(load) if window.bounds is not None]
            if any(later[0] < earlier[1] for earlier, later in pairwise(places)):
                return True
        return False

    @cached_property
    def caveats(self) -> list[str]:
        """What a reader must know before trusting the numbers, one sentence each."""
        lines = ["windows overlap: intervals are too narrow"] if self.windows_overlap else []
        for line in (self._short_warmup(), *map(self._missed_load, self.plan.loads)):
            if line and line not in lines:
                lines.append(line)
        return lines

    def _short_warmup(self) -> str:
        """How far the windows miss the warm-up asked for; empty when they do not."""
        done = [_warmup(window) for window in self._windows_at(self.plan.loads[0])]
        short = [jobs for jobs in done if jobs is not None and jobs < self.plan.wanted_warmup]
        if not short:
            return ""
        which = "the first window warms" if len(short) == 1 else f"the first {len(short)} windows warm"
        jobs = f"{short[0]:,}" if short[0] == short[-1] else f"{short[0]:,} to {short[-1]:,}"
        return f"{which} up with {jobs} jobs instead of {self.plan.wanted_warmup:,}"

    def _missed_load(self, load: float | None) -> str:
        """How far the windows miss a load; empty when they do not."""
        missed = [window.info for window in self._windows_at(load) if window.info.get("load_note")]
        if not missed:
            return ""
        achieved = sorted(float(str(info["load_achieved"])) for info in missed)
        span = f"{achieved[0]:.4g}" + (f" to {achieved[-1]:.4g}" if len(missed) > 1 else "")
        what = f" in {len(missed)} of {self.plan.windows} windows" if self.plan.windows else ""
        return f"load {load:g} is missed by more than 5 %{what}: {span} is offered"


def _warmup(window: WindowResult) -> int | None:
    place = window.info.get("window")
    return int(place["warmup"]) if isinstance(place, Mapping) else None


def reduce(
    schedule: Schedule, bounds: Bounds, *, starved_after_s: float = STARVED_AFTER_S, draw: bool = False
) -> WindowResult:
    """Keep of a replay what tables and charts need: a few kilobytes, some more with ``draw`` for the Gantt chart."""
    jobs = counted_outcomes(schedule)
    blocks = {}
    if bounds is None:
        for name, terms in RATIOS.items():
            top, bottom = terms(jobs)
            blocks[name] = block_sums(top), block_sums(bottom)
    return WindowResult(
        bounds=bounds,
        values=evaluate(schedule, starved_after_s=starved_after_s, jobs=jobs),
        waits=np.searchsorted(np.sort(jobs.wait_s), WAIT_GRID_S, side="right"),
        blocks=blocks,
        gantt=gantt_of(schedule, *draw_range(schedule.workload, schedule.cluster.num_gpus)) if draw else None,
        info=dict(schedule.workload.info),
    )


def compare(
    kept: Workload,
    cluster: Cluster,
    plan: ComparisonPlan,
    options: SimOptions,
    *,
    processes: int = 1,
    progress: Callable[[float], None] | None = None,
) -> Comparison:
    """Replay the plan over a kept workload (:func:`attn_sched.evaluation.setup.kept_workload`).

    Args:
        kept: jobs that the cluster can run, not yet cut or scaled.
        processes: replays at a time, each in a process of its own; results do not depend on it. One process replays
            the windows of a learned policy side by side.
        progress: told the number of replays done, fractions included.

    Raises:
        InputError: windows that do not fit the workload; whatever a policy refuses.
    """
    from attn_sched.evaluation.replays import Runner, Task, run_all

    bounds = plan.bounds(len(kept.submit_s))
    preflight(kept, cluster, plan.policies, options)
    drawn = set(plan.policies[:GANTT_POLICIES])
    tasks = [
        Task(load, window, policy, load == plan.loads[0] and window == bounds[0] and policy in drawn)
        for load in plan.loads
        for window in bounds
        for policy in plan.policies
    ]
    runner = Runner(kept, cluster, plan, options)
    results: dict[tuple[float | None, str], list[WindowResult]] = {}
    for task, result in zip(tasks, run_all(runner, tasks, processes, progress), strict=True):
        results.setdefault((task.load, task.policy), []).append(result)
    return Comparison(
        plan=plan,
        trace=kept.name,
        cluster=cluster,
        options=options.as_dict(),
        info=dict(kept.info),
        kept_jobs=len(kept.submit_s),
        cells=tuple(
            Cell(policy, load, tuple(results[load, policy]), plan.workload.seed)
            for load in plan.loads
            for policy in plan.policies
        ),
    )


def preflight(kept: Workload, cluster: Cluster, policies: Sequence[str], options: SimOptions) -> None:
    """Replay one job of every shape under every policy, so that what one of them refuses is told before the long work.

    Raises:
        InputError: an unknown policy, or options that do not go with it.
    """
    from attn_sched.policies import simulate

    shapes = np.stack([np.asarray(kept.num_gpus), np.asarray(kept.gpu_type)])
    sample = kept.select(np.sort(np.unique(shapes, axis=1, return_index=True)[1]))
    for policy in policies:
        simulate(sample, cluster, policy, options)
