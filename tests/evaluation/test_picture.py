"""The comparison as one picture."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from attn_sched.evaluation.picture import _colour, _dashes, _draw_means, write_picture
from tests.evaluation.hand_comparison import comparison


@pytest.mark.parametrize("policies", [1, 2, 13])
def test_it_is_written(policies: int, tmp_path: Path) -> None:
    path = tmp_path / "x.png"
    write_picture(comparison(tuple(f"policy-{k}" for k in range(policies))), path)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert list(tmp_path.iterdir()) == [path]


def test_every_policy_has_a_line_of_its_own() -> None:
    assert len({(_colour(k), _dashes(k)) for k in range(40)}) == 40
    assert all(_dashes(k) != _dashes(k + 1) for k in range(40))


def test_lengths_begin_at_zero_and_intervals_are_named_where_there_are_some(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = list(comparison().cells)
    linear, log = Figure().subplots(1, 2)
    _draw_means(linear, cells)
    assert len(linear.patches) == 2 and linear.get_xlim()[0] == 0 and "(95 % interval)" in linear.get_xlabel()
    monkeypatch.setattr("attn_sched.evaluation.picture.LOG_FROM", 1.0)
    _draw_means(log, list(comparison(windows=2).cells))
    assert log.get_xscale() == "log" and not log.patches and len(log.collections) == 1
    assert "95 %" not in log.get_xlabel()
