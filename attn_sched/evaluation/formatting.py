"""Numbers and facts in words, the same in the terminal and in the report."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

DASH = "\u2013"  # between the ends of a range
MINUS = "\u2212"
MISSING = DASH

_TIMES = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


def format_number(value: float) -> str:
    """Four significant digits, thousands separated; whole numbers in full."""
    if not math.isfinite(value):
        return MISSING
    if float(value).is_integer():
        return f"{int(value):,}"
    size = abs(value)
    if size >= 1000:
        return f"{value:,.0f}"
    if size < 1e-3:
        return f"{value:.3g}"
    return f"{value:,.{max(0, 3 - math.floor(math.log10(size)))}f}"


def _time_unit(seconds: float) -> tuple[float, str]:
    return next(((size, name) for size, name in _TIMES if abs(seconds) >= size), _TIMES[-1])


def format_duration(seconds: float) -> str:
    """A time at a glance: ``340 ms``, ``12.3 s``, ``4.2 min``, ``3.1 h``, ``2.4 d``."""
    if seconds == 0:
        return "0 s"
    size, name = _time_unit(seconds)
    value = seconds / size
    return f"{value:,.0f} {name}" if abs(value) >= 1000 else f"{value:.3g} {name}"


def format_value(value: float | int | None, unit: str, *, short: bool = False) -> str:
    """A metric's value in its unit, a dash for what is undefined; ``short`` picks the unit of time that reads best."""
    if value is None or not math.isfinite(value):
        return MISSING
    if unit == "s":
        return format_duration(value) if short or (abs(value) < 1 and value) else f"{format_number(value)} s"
    if unit == "share":
        return f"{100 * value:.1f} %"
    if unit in ("ratio", "index"):
        return f"{value:,.3f}" if abs(value) < 100 else format_number(value)
    return format_number(value)


def format_range(low: float, high: float, unit: str, like: float) -> str:
    """An interval in one unit, the one that the value ``like`` inside it is told in."""
    if unit == "s":
        if low == high == 0:
            return "0 s"
        size, name = _time_unit(like or high)
        return f"{low / size:,.3g}{DASH}{high / size:,.3g} {name}"
    if unit == "share":
        return f"{100 * low:.1f}{DASH}{100 * high:.1f} %"
    return f"{format_value(low, unit)}{DASH}{format_value(high, unit)}"


def format_change(value: float | None, unit: str) -> str:
    """A difference with its sign."""
    if value is None or not math.isfinite(value):
        return MISSING
    sign = "+" if value > 0 else MINUS if value < 0 else "±"
    return f"{sign}{format_value(abs(value), unit, short=True)}"


def describe_load(load: float | None) -> str:
    """A load as a heading."""
    return "Load as recorded" if load is None else f"Offered load {load:g}"


def format_counts(values: object) -> str:
    """``reason: 1,234, other: 5``; empty for nothing."""
    if not isinstance(values, Mapping):
        return ""
    return ", ".join(f"{reason}: {n:,}" if isinstance(n, int) else f"{reason}: {n}" for reason, n in values.items())


# What a terminal shows of a workload's facts; the report shows all of them.
MAIN_FACTS = (
    "dropped",
    "notes",
    "users",
    "estimates",
    "estimate_notes",
    "group",
    "load",
    "load_by",
    "load_later",
    "load_note",
    "window",
)
_TOLD_ELSEWHERE = ("source", "seed")


def describe_info(info: Mapping[str, object], keys: Sequence[str] | None = None) -> list[str]:
    """What a workload was made of, one fact a line; without ``keys`` all that is known."""
    lines = []
    for key in info if keys is None else keys:
        value = info.get(key)
        told = _told(value)
        if told and key not in _TOLD_ELSEWHERE:
            name = "left out" if key == "dropped" else key.removesuffix("_s").replace("_", " ")
            lines.append(f"{name}: {told}{' s' if key.endswith('_s') else ''}")
    return lines


def _told(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, Mapping):
        return format_counts(value)
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int | float):
        return f"{value:,.6g}" if isinstance(value, float) else f"{value:,}"
    return str(value)
