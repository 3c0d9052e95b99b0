"""Small pieces for hand-made SVG: escaped elements, scales and tick marks. Colours come from the page's style sheet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from attn_sched.evaluation.formatting import format_duration

TIME_UNITS = ((1.0, "s"), (60.0, "min"), (3_600.0, "h"), (86_400.0, "d"))
LOG_TIMES = (1e-3, 1e-2, 0.1, 1.0, 10.0, 60.0, 600.0, 3_600.0, 36_000.0, 86_400.0, 864_000.0, 8_640_000.0, 86_400_000.0)


def number(value: float) -> str:
    """A coordinate: two decimals, no trailing zeros."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def tag(name: str, content: str | Markup = "", **attributes: object) -> Markup:
    """An element. Attributes and text are escaped, Markup is not; ``class_`` stands for ``class``, ``_`` for ``-``."""
    parts = []
    for key, value in attributes.items():
        text = number(value) if isinstance(value, float) else str(value)
        parts.append(f' {key.rstrip("_").replace("_", "-")}="{escape(text)}"')
    body = escape(content)
    return Markup(f"<{name}{''.join(parts)}>{body}</{name}>") if body else Markup(f"<{name}{''.join(parts)}/>")


def join(parts: Sequence[Markup]) -> Markup:
    """Elements one after another."""
    return Markup("").join(parts)


def drawing(width: float, height: float, label: str, parts: Sequence[Markup], class_: str = "chart") -> Markup:
    """A whole picture that scales with its column and tells screen readers what it shows."""
    content = join([tag("title", label), *parts])
    return tag(
        "svg", content, viewBox=f"0 0 {number(width)} {number(height)}", role="img", aria_label=label, class_=class_
    )


def text(x: float, y: float, content: str, class_: str = "t", anchor: str = "start") -> Markup:
    """A line of text with its baseline at ``y``."""
    return tag("text", content, x=x, y=y, class_=class_, text_anchor=anchor)


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Markup:
    """A straight line."""
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def polyline(points: Sequence[tuple[float, float]], class_: str) -> Markup:
    """A line through points."""
    return tag("polyline", points=" ".join(f"{number(x)},{number(y)}" for x, y in points), class_=class_)


@dataclass(frozen=True)
class Scale:
    """Data to pixels, linear or logarithmic."""

    low: float
    high: float
    start: float  # pixel of low
    stop: float  # pixel of high
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high = (math.log10(self.low), math.log10(self.high)) if self.log else (self.low, self.high)
        at = math.log10(max(value, self.low)) if self.log else value
        return self.start + (self.stop - self.start) * (at - low) / ((high - low) or 1.0)


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """About ``count`` round numbers between ``low`` and ``high``."""
    if not high > low:
        return [low]
    raw = (high - low) / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]


def time_ticks(low: float, high: float, count: int = 5) -> list[tuple[float, str]]:
    """Round times in one unit, with labels."""
    size, name = max((unit for unit in TIME_UNITS if unit[0] * 1.5 <= max(abs(low), abs(high))), default=TIME_UNITS[0])
    return [(tick * size, f"{tick:,.6g} {name}") for tick in ticks(low / size, high / size, count)]


def value_ticks(low: float, high: float, unit: str, count: int = 4) -> list[tuple[float, str]]:
    """Ticks in a metric's unit, with labels."""
    if unit == "s":
        return time_ticks(low, high, count)
    if unit == "share":
        return [(tick, f"{100 * tick:.3g} %") for tick in ticks(low, high, count)]
    return [(tick, f"{tick:,.6g}") for tick in ticks(low, high, count)]


def log_ticks(low: float, high: float, unit: str) -> list[tuple[float, str]]:
    """Ticks of a logarithmic axis, with labels."""
    if unit == "s":
        return [(tick, format_duration(tick)) for tick in LOG_TIMES if low <= tick <= high]
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [(10.0**k, f"{10.0**k:,.6g}") for k in powers if low <= 10.0**k <= high]
