"""Intervals: bootstrap over windows, paired differences, means over cells, and batch means for one long replay.

Everything is seeded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from attn_sched.evaluation.fairness import Floats
from attn_sched.seeding import stream

CONFIDENCE = 0.95
RESAMPLES = 2_000
BLOCK_JOBS = 256
MIN_UNITS = 5  # fewer windows or blocks than this say too little about their spread


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval; ``low`` and ``high`` are None where there is too little to tell."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def excludes_zero(self) -> bool:
        """Whether the whole interval lies on one side of zero: for differences, a difference that is there."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


def student_t(units: int) -> float:
    """Student's t for a two-sided interval from ``units`` values (``units - 1`` degrees of freedom).

    With t = sqrt(f) tan(a) the density is proportional to cos(a)^(f - 1); it is integrated on a fine grid.
    """
    freedom = units - 1
    angle = np.linspace(0.0, math.pi / 2, 200_001)
    density = np.cos(angle) ** (freedom - 1)
    share = np.cumsum(density) - (density + density[0]) / 2  # trapezoidal rule
    return math.sqrt(freedom) * math.tan(float(np.interp(CONFIDENCE, share / share[-1], angle)))


@lru_cache(maxsize=64)
def _tail(units: int) -> float:
    """Tail probability of the expanded percentile interval.

    The plain percentile bootstrap is too narrow for few units; this widens it as Student's t widens the normal interval
    (Hesterberg, "What teachers should know about the bootstrap", The American Statistician 69(4), 2015).
    """
    return NormalDist().cdf(-student_t(units) * math.sqrt(units / (units - 1)))


@lru_cache(maxsize=2)
def _draws(units: int, seed: int, purpose: str) -> Floats:
    """How often each unit is drawn in each resample, f8[RESAMPLES, units]: the same for all metrics of a comparison."""
    generator = stream(seed, f"bootstrap:{purpose}:{units}")
    return generator.multinomial(units, np.full(units, 1.0 / units), size=RESAMPLES).astype(np.float64)


def _interval(value: float, resampled: Floats, tail: float) -> Estimate:
    known = resampled[np.isfinite(resampled)]
    if known.size == 0:
        return Estimate(value)
    low, high = np.quantile(known, [tail, 1 - tail])
    # Resamples that round differently from the plain mean must not push it out of its own interval.
    return Estimate(value, min(float(low), value), max(float(high), value))


def bootstrap_ratio(top: Floats, bottom: Floats, *, seed: int = 0, purpose: str = "windows") -> Estimate:
    """``sum(top) / sum(bottom)`` over independent units, with its interval from resampling the units.

    Args:
        top, bottom: one pair a unit (window or block), f8[units].
        seed: fixes the resamples; equal seeds and numbers of units draw alike.
        purpose: names the stream the resamples come from.
    """
    whole = float(bottom.sum())
    if not whole:
        return Estimate(float("nan"))
    value = float(top.sum()) / whole
    if top.size < MIN_UNITS:
        return Estimate(value)
    draws = _draws(top.size, seed, purpose)
    with np.errstate(divide="ignore", invalid="ignore"):
        resampled = (draws @ top) / (draws @ bottom)
    return _interval(value, resampled, _tail(top.size))


def bootstrap_mean(values: Sequence[float | None] | Floats, *, seed: int = 0) -> Estimate:
    """Mean over windows with its interval; windows without a value (None) are left out, NaN when none has one."""
    known = np.array([value for value in values if value is not None], dtype=np.float64)
    return bootstrap_ratio(known, np.ones_like(known), seed=seed)


def paired_difference(values: Sequence[float | None], reference: Sequence[float | None], *, seed: int = 0) -> Estimate:
    """Mean of ``value - reference`` over the windows that have both: windows differ more than policies do."""
    return bootstrap_mean(
        [a - b for a, b in zip(values, reference, strict=True) if a is not None and b is not None], seed=seed
    )


def block_sums(values: Floats, block: int = BLOCK_JOBS) -> Floats:
    """Sums over consecutive blocks of ``block`` jobs; a shorter rest joins the last block."""
    if values.size == 0:
        return np.empty(0)
    return np.add.reduceat(values, np.arange(0, max(values.size - block, 0) + 1, block))


def batch_means(top: Floats, bottom: Floats, *, seed: int = 0) -> Estimate:
    """A ratio of sums over jobs with its batch-means interval, from block sums (:func:`block_sums`).

    Jobs near one another wait together and are no independent sample; blocks are much closer to one.
    """
    return bootstrap_ratio(top, bottom, seed=seed, purpose="blocks")


def paired_batch_difference(
    blocks: tuple[Floats, Floats], reference: tuple[Floats, Floats], *, seed: int = 0
) -> Estimate:
    """Difference of two ratios over the same jobs, from block sums; each resample draws the same blocks for both."""
    top, bottom, other_top, other_bottom = (*blocks, *reference)
    if not bottom.sum() or not other_bottom.sum() or top.size != other_top.size:
        return Estimate(float("nan"))
    value = float(top.sum() / bottom.sum() - other_top.sum() / other_bottom.sum())
    if top.size < MIN_UNITS:
        return Estimate(value)
    draws = _draws(top.size, seed, "blocks")
    with np.errstate(divide="ignore", invalid="ignore"):
        resampled = (draws @ top) / (draws @ bottom) - (draws @ other_top) / (draws @ other_bottom)
    return _interval(value, resampled, _tail(top.size))


@lru_cache(maxsize=64)
def _group_draws(group: str, units: int, seed: int) -> Floats:
    """As :func:`_draws`, but ``units - 1`` of the units are drawn, and each group has a stream of its own."""
    generator = stream(seed, f"bootstrap:cells:{group}:{units}")
    return generator.multinomial(units - 1, np.full(units, 1.0 / units), size=RESAMPLES).astype(np.float64)


@lru_cache(maxsize=64)
def _student_tail(freedom: int) -> float:
    """Tail probability of the normal distribution beyond Student's t of so many degrees of freedom."""
    return NormalDist().cdf(-student_t(freedom + 1))


@dataclass(frozen=True, eq=False)
class RatioCell:
    """One cell of a mean over cells: a ratio of sums over its units.

    Raises:
        ValueError: different numbers of units.
    """

    top: Floats  # f8[units]; a unit that is NaN here or below is left out
    bottom: Floats  # f8[units]
    group: str = ""  # cells of one group have the same units, in the same order
    least: float = 0.0  # the mean of bottom is taken as this at least

    def __post_init__(self) -> None:
        if self.top.shape != self.bottom.shape or self.top.ndim != 1:
            raise ValueError(f"{self.top.shape} and {self.bottom.shape} are no pairs")

    @property
    def units(self) -> int:
        """Units, those left out included."""
        return int(self.top.size)

    def ratio(self, draws: Floats) -> Floats:
        """f8[R]: ratio of the sums in which unit u counts draws[r, u] times; inf or NaN where the bottom is 0."""
        known = np.isfinite(self.top) & np.isfinite(self.bottom)
        top, bottom = (np.where(known, values, 0.0) for values in (self.top, self.bottom))
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio: Floats = (draws @ top) / np.maximum(draws @ bottom, self.least * (draws @ known))
        return ratio


def mean_of_ratios(cells: Sequence[RatioCell], *, seed: int = 0) -> Estimate:
    """Mean over cells of their ratios, each weighing the same, with its interval from resampling units within groups.

    Cells of one group are resampled together: they do well and badly in the same units, and to draw for each of them
    alone would make the interval too narrow. Of the m units of a group m - 1 are drawn, so that the bootstrap has the
    variance of the mean and not less (Rao and Wu, "Resampling inference with complex survey data", JASA 83(401), 1988);
    quantiles are widened as Student's t widens those of the normal distribution, at the sum of the m - 1 as degrees of
    freedom. There is no interval where all groups together have fewer than ``MIN_UNITS`` units, or one has a single
    one. NaN without cells.

    Args:
        cells: One or more; those of a group have equally many units.
        seed: Fixes the resamples, together with name and units of a group.

    Raises:
        ValueError: cells of a group have different numbers of units.
    """
    if not cells:
        return Estimate(float("nan"))
    units: dict[str, int] = {}
    for cell in cells:
        if units.setdefault(cell.group, cell.units) != cell.units:
            raise ValueError(f"cells of {cell.group!r} have {units[cell.group]} and {cell.units} units")
    value = float(np.mean([cell.ratio(np.ones((1, cell.units)))[0] for cell in cells]))
    if sum(units.values()) < MIN_UNITS or min(units.values()) < 2:
        return Estimate(value)
    draws = {group: _group_draws(group, size, seed) for group, size in units.items()}
    resampled = np.mean([cell.ratio(draws[cell.group]) for cell in cells], axis=0)
    return _interval(value, resampled, _student_tail(sum(size - 1 for size in units.values())))
