"""The report stands alone, is well formed, and lets no name break out of its place."""

from __future__ import annotations

import re
import struct
import zlib
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from attn_sched.errors import InputError
from attn_sched.evaluation.charts import pareto
from attn_sched.evaluation.comparison import Comparison
from attn_sched.evaluation.formatting import (
    DASH,
    MAIN_FACTS,
    MINUS,
    describe_info,
    format_change,
    format_duration,
    format_number,
    format_range,
    format_value,
)
from attn_sched.evaluation.gantt import BINS, RANGE_S, ROWS, draw_range, gantt_of
from attn_sched.evaluation.gantt_chart import gantt_chart, png, size_class
from attn_sched.evaluation.report import render, write_report
from attn_sched.evaluation.setup import WorkloadSpec
from attn_sched.evaluation.svg import Scale, ticks
from tests.evaluation.hand import fifo, pool
from tests.evaluation.hand_comparison import comparison, jobs

VOID = {"meta", "link", "br", "hr", "img", "input", "wbr", "rect", "line", "circle", "path", "polyline", "image"}
NOW = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)


class Checker(HTMLParser):
    """Elements closed in order; attributes and text kept for questions."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:  # an element with a title inside it
            return
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("style", "script"):
            self.text.append(data)


def checked(page: str) -> Checker:
    checker = Checker()
    checker.feed(page)
    checker.close()
    assert checker.open == []
    return checker


@pytest.fixture(scope="module")
def page() -> str:
    return render(
        comparison(("fifo", "sjf+best-fit", "saf"), loads=(0.7, 0.9)), command="attn-sched compare x", now=NOW
    )


def test_well_formed_with_every_part(page: str) -> None:
    checker = checked(page)
    text = " ".join(checker.text)
    for part in (
        "Offered load 0.7",
        "Offered load 0.9",
        "Across loads",
        "Who ran where",
        "Provenance",
        "attn-sched compare x",
        "numpy",
    ):
        assert part in text, part
    ids = [value for _, name, value in checker.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    targets = [value[1:] for tag, name, value in checker.attributes if tag == "a" and name == "href"]
    assert targets and set(targets) <= set(ids)


def test_nothing_is_loaded_from_anywhere(page: str) -> None:
    assert not re.search(r"https?://", page)
    for tag, name, value in checked(page).attributes:
        assert tag not in ("link", "iframe", "img", "object")
        if name in ("src", "href", "xlink:href"):
            assert value.startswith(("#", "data:")), (tag, value)
    assert "@import" not in page and not re.search(r"url\(", page)


def test_pictures_are_labelled_for_those_who_cannot_see_them(page: str) -> None:
    checker = checked(page)
    pictures = sum(1 for tag, name, value in checker.attributes if tag == "svg" and name == "role" and value == "img")
    labels = [value for tag, name, value in checker.attributes if tag == "svg" and name == "aria-label"]
    assert pictures > 10 and len(labels) == pictures and all(labels)


def test_names_cannot_break_out() -> None:
    evil = '<script>alert("x")</script>&\'"'
    result = comparison((evil, "b<img src=x onerror=alert(1)>"), trace=evil, info={"dropped": {evil: 3}, "users": evil})
    result.cluster.name = evil  # type: ignore[misc]
    whole = render(result, command=evil, now=NOW)
    checker = checked(whole)
    assert checker.tags.count("script") == 1
    assert "img" not in checker.tags
    assert not any(name.startswith("on") for _, name, _ in checker.attributes)
    assert evil in "".join(checker.text)


def test_job_ids_in_tooltips_are_escaped() -> None:
    result = comparison()
    gantt = result.cells[0].windows[0].gantt
    assert gantt is not None
    object.__setattr__(gantt.bars[0], "job_id", "<b>&")
    assert "job &lt;b&gt;&amp;," in render(result, now=NOW)


def test_the_same_results_give_the_same_page() -> None:
    assert render(comparison(), now=NOW) == render(comparison(), now=NOW)


def test_whole_trace_many_policies_and_no_segments() -> None:
    many = comparison(tuple(f"policy-{k}" for k in range(12)), windows=None, size=300)
    text = " ".join(checked(render(many, now=NOW)).text)
    assert "seven policies with the lowest mean JCT" in text
    assert "Load as recorded" in text
    assert "under the first 2 of 12 policies" in text


def test_caveats_are_told_where_they_cannot_be_missed() -> None:
    result = comparison()
    assert "too narrow" not in render(result, now=NOW)
    result.__dict__["caveats"] = ["windows overlap: intervals are too narrow"]
    whole = render(result, now=NOW)
    assert "Windows overlap: intervals are too narrow." in " ".join(checked(whole).text)
    assert whole.index("too narrow") < whole.index("<main>")


def test_a_thinned_window_is_not_passed_off_as_all_its_jobs() -> None:
    result = comparison(loads=(0.7,))
    whole = " ".join(checked(render(result, now=NOW)).text)
    assert "Jobs 0 to 39 of the trace, offered load 0.7" in whole
    plan = replace(result.plan, workload=WorkloadSpec(load_by="thin"))
    whole = " ".join(checked(render(replace(result, plan=plan), now=NOW)).text)
    assert "Jobs 0 to 39 of the trace, as far as thinning left them, offered load 0.7" in whole


def test_one_policy_and_one_window() -> None:
    checked(render(comparison(("fifo",), windows=1), now=NOW))


def test_written_whole_or_not_at_all(tmp_path: Path) -> None:
    write_report(comparison(), tmp_path / "report.html", now=NOW)
    assert (tmp_path / "report.html").stat().st_size < 3_000_000
    with pytest.raises(InputError):
        write_report(comparison(), tmp_path / "missing" / "report.html")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_bars_cover_each_gpu_once() -> None:
    schedule = fifo(jobs(80), cluster=pool(islands=2, gpus=4))
    last = float(schedule.finish_s.max())
    gantt = gantt_of(schedule, 0.0, last)
    assert gantt is not None and gantt.rows == 8 and gantt.dividers == (4,)
    held = sum((bar.end_s - bar.start_s) * bar.rows for bar in gantt.bars)
    assert held == pytest.approx(float((schedule.seg_count * (schedule.seg_end - schedule.seg_start)).sum()))
    for row in range(gantt.rows):
        of_row = sorted((bar.start_s, bar.end_s) for bar in gantt.bars if bar.row <= row < bar.row + bar.rows)
        assert all(later[0] >= earlier[1] - 1e-9 for earlier, later in pairwise(of_row))


def test_large_clusters_are_drawn_by_occupancy() -> None:
    schedule = fifo([(0.0, 100.0, 1024, 0), (0.0, 100.0, 8, 0)], cluster=pool(islands=128, gpus=8))
    gantt = gantt_of(schedule, 0.0, 200.0)
    assert gantt is not None and gantt.occupancy is not None
    assert gantt.occupancy.shape == (ROWS, BINS) and gantt.gpus_per_row == 8
    assert gantt.occupancy[:, : BINS // 2 - 1] == pytest.approx(1)
    assert gantt.occupancy[0, BINS // 2 + 1 : -1] == pytest.approx(1)
    assert gantt.occupancy[1:, BINS // 2 + 1 :] == pytest.approx(0)


def test_a_long_log_on_a_large_cluster_is_drawn_over_its_busiest_day() -> None:
    day = 86_400.0
    quiet = [(k * 3_600.0, 60.0, 1, 0) for k in range(600)]
    busy = [(10 * day + k * 60.0, 60.0, 1, 0) for k in range(300)]
    schedule = fifo(sorted(quiet + busy), cluster=pool(islands=128, gpus=8))
    begin, end = draw_range(schedule.workload, schedule.cluster.num_gpus)
    assert end - begin == RANGE_S and begin <= 10 * day and end >= 10 * day + 299 * 60
    small = draw_range(schedule.workload, ROWS)
    assert small != (begin, end)
    gantt = gantt_of(schedule, begin, end)
    assert gantt is not None
    picture = gantt_chart(gantt, "fifo", "the start")
    assert ">0 h<" in picture and ">20 h<" in picture and "time since the start" in picture


def test_no_segments_no_gantt() -> None:
    assert gantt_of(fifo(jobs(5), segments=False), 0, 10) is None
    bare = comparison()
    assert isinstance(bare, Comparison)


def test_png_is_a_png() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 4), dtype=np.uint8)
    data = png(pixels)
    assert data.startswith(b"\x89PNG\r\n\x1a\n") and struct.unpack(">II", data[16:24]) == (7, 5)
    start = data.index(b"IDAT") + 4
    size = struct.unpack(">I", data[start - 8 : start - 4])[0]
    raw = np.frombuffer(zlib.decompress(data[start : start + size]), np.uint8).reshape(5, 29)
    np.testing.assert_array_equal(raw[:, 1:].reshape(5, 7, 4), pixels)


def test_pareto_front_by_hand() -> None:
    points = [(3.0, 0.9), (1.0, 0.2), (2.0, 0.1), (2.0, 0.5), (4.0, 0.8)]
    assert pareto(points) == [1, 3, 0]


def test_size_classes() -> None:
    assert [size_class(n) for n in (1, 2, 3, 4, 8, 9, 16, 17, 500)] == [
        "g0",
        "g1",
        "g2",
        "g2",
        "g3",
        "g4",
        "g4",
        "g5",
        "g5",
    ]


def test_scales_and_ticks() -> None:
    assert Scale(1, 100, 0, 10, log=True)(10) == pytest.approx(5)
    assert Scale(2, 2, 0, 10)(2) == 0
    assert ticks(0, 1, 4) == pytest.approx([0, 0.25, 0.5, 0.75, 1])
    assert ticks(3, 3) == [3]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 s"),
        (2.5e-5, "25 µs"),
        (0.25, "250 ms"),
        (59, "59 s"),
        (90, "1.5 min"),
        (7200, "2 h"),
        (864000, "10 d"),
        (-90, "-1.5 min"),
    ],
)
def test_durations_at_a_glance(value: float, text: str) -> None:
    assert format_duration(value) == text


def test_values_in_their_units() -> None:
    assert format_value(None, "s") == DASH
    assert format_value(float("nan"), "s") == DASH
    assert format_value(1234567.89, "s") == "1,234,568 s"
    assert format_value(0.1234, "share") == "12.3 %"
    assert format_value(1.25, "ratio") == "1.250"
    assert format_number(0.5) == "0.5000" and format_number(float("inf")) == DASH
    assert format_change(-90, "s") == f"{MINUS}1.5 min" and format_change(0.0, "ratio") == "±0.000"
    assert format_range(60, 120, "s", 90) == f"1{DASH}2 min" and format_range(0, 0, "s", 0) == "0 s"


def test_facts_of_a_workload_in_words() -> None:
    info = {
        "dropped": {"no end": 1200},
        "load": None,
        "restart_cost_s": 2.0,
        "comm": False,
        "seed": 3,
        "window": {"first": 1},
    }
    assert describe_info(info) == ["left out: no end: 1,200", "restart cost: 2 s", "comm: off", "window: first: 1"]
    assert describe_info(info, ("comm",)) == ["comm: off"]
    told = describe_info({"users": "per-job", "load_note": "0.4 is offered, 0.5 was asked for"}, MAIN_FACTS)
    assert told == ["users: per-job", "load note: 0.4 is offered, 0.5 was asked for"]
