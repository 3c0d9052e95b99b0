"""Figures of links as people write them."""

from __future__ import annotations

import math

from attn_sched.cluster.spec import GB

Range = tuple[float, float]


def plural(count: int, noun: str) -> str:
    """``1 GPU``, ``2,490 GPUs``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def number_text(value: float) -> str:
    """Up to four significant digits, no trailing zeros, no exponent."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    digits = max(0, 3 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def range_text(low_high: Range, scale: float = 1.0) -> str:
    """``8`` or ``2 to 8``, in units of ``scale``."""
    low, high = (number_text(value / scale) for value in low_high)
    return low if low == high else f"{low} to {high}"


def bandwidth_text(low_high: Range) -> str:
    """``11.5 GB/s``, ``28.75 to 46 GB/s``, ``unlimited``."""
    low, high = low_high
    if math.isinf(low):
        return "unlimited"
    if math.isinf(high):
        return f"{range_text((low, low), GB)} GB/s to unlimited"
    return f"{range_text(low_high, GB)} GB/s"


def latency_text(low_high: Range) -> str:
    """``5 us``."""
    return f"{range_text(low_high, 1e-6)} us"


def ratio_text(low_high: Range | None) -> str:
    """``2:1``, ``1 to 4:1``, empty for none."""
    return "" if low_high is None else f"{range_text(low_high)}:1"
