"""The cost formulas against figures worked out by hand, compiled and not."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attn_sched.cluster import communication as comm


def test_ring_by_hand() -> None:
    # 4 GPUs, 100 MB: 6 steps of 5 us, 1.5 x 100 MB over 11.5 GB/s.
    assert comm.ring_time(4, 5e-6, 11.5e9, 1e8) == pytest.approx(6 * 5e-6 + 1.5e8 / 11.5e9, rel=1e-15)
    assert comm.ring_bytes(4, 1e8) == 1.5e8


def test_one_gpu_communicates_nothing() -> None:
    for n in (0, 1):
        assert comm.ring_time(n, 1.0, 1.0, 1e9) == 0.0 == comm.ring_bytes(n, 1e9)
    assert comm.hierarchical_time(1, 1.0, 1.0, 1, 1.0, 1.0, 1e9) == 0.0


def test_limits_of_the_share() -> None:
    assert comm.ring_time(8, 1e-6, math.inf, 1e9) == pytest.approx(14e-6)
    assert comm.ring_time(8, 0.0, 0.0, 0.0) == 0.0
    assert comm.ring_time(8, 0.0, 0.0, 1.0) == math.inf


def test_hierarchical_by_hand() -> None:
    # 2 islands of 4: 6 steps of 3 us and 1.5 S inside; 2 steps of 5 us and S between.
    inside = 6 * 3e-6 + 1.5e8 / 130e9
    between = 2 * 5e-6 + 1e8 / 11.5e9
    assert comm.hierarchical_intra_time(4, 3e-6, 130e9, 1e8) == pytest.approx(inside)
    assert comm.hierarchical_inter_time(2, 5e-6, 11.5e9, 1e8) == pytest.approx(between)
    assert comm.hierarchical_time(4, 3e-6, 130e9, 2, 5e-6, 11.5e9, 1e8) == pytest.approx(inside + between)


def test_overlap_hides_communication_up_to_its_share() -> None:
    assert comm.iteration_time(0.1, 0.5, 0.04) == 0.1
    assert comm.iteration_time(0.1, 0.5, 0.07) == pytest.approx(0.12)
    assert comm.iteration_time(0.1, 0.0, 0.07) == pytest.approx(0.17)
    assert comm.iteration_time(0.0, 0.5, 0.07) == 0.07


def test_slowdown_stops_at_one() -> None:
    assert comm.slowdown(3.0, 2.0) == 1.5
    assert comm.slowdown(1.0, 2.0) == 1.0
    assert comm.slowdown(1.0, 0.0) == 1.0


@given(
    n=st.integers(1, 4096), alpha=st.floats(0, 1e-3), share=st.floats(1e6, 1e12), grad=st.floats(0, 1e12),
    tau=st.floats(0, 10), phi=st.floats(0, 1),
)  # fmt: skip
def test_compiled_equals_interpreted_and_more_never_costs_less(n, alpha, share, grad, tau, phi) -> None:
    ring = comm.ring_time(n, alpha, share, grad)
    for compiled, arguments in (
        (comm.ring_time, (n, alpha, share, grad)),
        (comm.iteration_time, (tau, phi, ring)),
        (comm.slowdown, (tau + ring, tau)),
    ):
        assert compiled(*arguments) == compiled.py_func(*arguments)
    assert comm.ring_time(n + 1, alpha, share, grad) >= ring * (1 - 1e-12)
    assert comm.ring_time(n, alpha, share / 2, grad) >= ring
    assert comm.iteration_time(tau, phi, ring) >= tau
