"""The Gantt pictures of the report: vector bars for small clusters, a small image of occupancy for large ones."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from attn_sched.evaluation.formatting import DASH, format_duration
from attn_sched.evaluation.gantt import Bar, Gantt
from attn_sched.evaluation.svg import Scale, drawing, line, number, tag, text, time_ticks

WIDTH = 940.0
LEFT, RIGHT = 84.0, WIDTH - 10.0
TITLED_BARS = 1_200  # more bars than this go without a tooltip, to keep the file small

# Upper ends of the classes of gang size that bars are coloured by.
SIZES = (1, 2, 4, 8, 16)
SIZE_LABELS = ("1 GPU", "2", f"3{DASH}4", f"5{DASH}8", f"9{DASH}16", "more")
BLUE = (0, 114, 178)


def size_class(gpus: int) -> str:
    """Colour of a job by its number of GPUs."""
    return f"g{int(np.searchsorted(SIZES, gpus))}"


def gantt_chart(gantt: Gantt, policy: str, since: str) -> Markup:
    """GPUs down, time across; every job a bar or every row its occupancy. ``since`` says what the picture begins with.

    Times count from the picture's left edge.
    """
    origin_s = gantt.from_s
    row = min(12.0, max(3.4, 420.0 / gantt.rows))
    top, bottom = 6.0, 6.0 + row * gantt.rows
    x = Scale(gantt.from_s, gantt.to_s, LEFT, RIGHT)
    parts = [tag("rect", x=LEFT, y=top, width=RIGHT - LEFT, height=bottom - top, class_="idle")]
    if gantt.occupancy is not None:
        parts.append(_image(gantt.occupancy, top, bottom))
    titled = len(gantt.bars) <= TITLED_BARS
    parts += [_bar(bar, x, top + row * bar.row, row * bar.rows, titled, origin_s) for bar in gantt.bars]
    parts += [line(LEFT, top + row * at, RIGHT, top + row * at, "divider") for at in gantt.dividers]
    step = next(s for s in (1, 2, 4, 8, 16, 32, 64, 128, 256) if row * s >= 24)
    parts += [
        text(LEFT - 6, top + row * at + min(row, 10.0), f"GPU {at * gantt.gpus_per_row}", "t axis", "end")
        for at in range(0, gantt.rows, step)
    ]
    for tick, label in time_ticks(gantt.from_s - origin_s, gantt.to_s - origin_s, 7):
        at = x(tick + origin_s)
        parts += [line(at, bottom, at, bottom + 4, "tickmark"), text(at, bottom + 17, label, "t axis", "middle")]
    parts.append(text((LEFT + RIGHT) / 2, bottom + 33, f"time since {since}", "t axis", "middle"))
    span = format_duration(gantt.to_s - gantt.from_s)
    label = f"Gantt chart under {policy}: {gantt.rows * gantt.gpus_per_row} GPUs over {span}"
    return drawing(WIDTH, bottom + 40, label, parts, "chart wide")


def _bar(bar: Bar, x: Scale, y: float, height: float, titled: bool, origin_s: float) -> Markup:
    left, right = x(bar.start_s), x(bar.end_s)
    title: str | Markup = ""
    if titled:
        when = f"{format_duration(bar.start_s - origin_s)} to {format_duration(bar.end_s - origin_s)}"
        title = tag("title", f"job {bar.job_id}, {bar.gpus} GPUs, {when}")
    return tag(
        "rect",
        title,
        x=number(left),
        y=number(y),
        width=number(max(right - left, 0.4)),
        height=number(height),
        class_=size_class(bar.gpus),
    )


def _image(occupancy: NDArray[np.float64], top: float, bottom: float) -> Markup:
    """One pixel a row and time step, the more opaque the busier, so that it suits a light and a dark page."""
    pixels = np.zeros((*occupancy.shape, 4), np.uint8)
    pixels[..., :3] = BLUE
    pixels[..., 3] = np.round(255 * occupancy)
    data = base64.b64encode(png(pixels)).decode()
    return tag(
        "image",
        x=LEFT,
        y=top,
        width=RIGHT - LEFT,
        height=bottom - top,
        preserveAspectRatio="none",
        style="image-rendering:pixelated",
        href=f"data:image/png;base64,{data}",
    )


def png(pixels: NDArray[np.uint8]) -> bytes:
    """An RGBA image, u1[height, width, 4], as a PNG file (ISO/IEC 15948), without an imaging library."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    height, width, _ = pixels.shape
    unfiltered = np.zeros((height, 1), np.uint8)
    body = np.concatenate([unfiltered, pixels.reshape(height, width * 4)], axis=1).tobytes()
    header = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(body, 9)) + chunk(b"IEND", b"")
