"""The compiled engine against the plain reference simulator, on random small clusters, workloads and policies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings

from attn_sched.policies import simulate
from attn_sched.simulator import SimOptions
from tests.reference import simulate_reference
from tests.reference.instances import MARGIN, Instance, instances


def policy_name(options: dict[str, Any]) -> str:
    """The name of the policy that the reference's keyword arguments describe."""
    name = options["order"]
    if "queueing" in options:
        name += f":{options['queueing']}"
    name += f"+{options['placement']}"
    if options.get("hold") is not None:
        name += f"+hold({options['hold'][0]!r},{options['hold'][1]!r})"
    return name


def check(instance: Instance) -> None:
    """Replay both ways and compare everything a schedule says."""
    options = instance.options
    expected = simulate_reference(instance.cluster, instance.jobs, **options)
    assume(expected.margin > MARGIN)  # a tie that rounding may break either way proves nothing
    got = simulate(
        instance.jobs,
        instance.cluster,
        policy_name(options),
        SimOptions(
            comm=options["comm"],
            contention=options["contention"],
            allreduce=options["allreduce"],
            restart_cost_s=options.get("restart_cost", 0.0),
            max_wait_s=options.get("max_wait"),
        ),
    )
    close: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-9, "equal_nan": True}
    np.testing.assert_allclose(got.start_s, expected.start, **close)
    # The reference leaves no finish where a suspended job is cancelled; the engine tells when it left.
    told = ~(expected.cancelled & np.isnan(expected.finish))
    np.testing.assert_allclose(got.finish_s[told], expected.finish[told], **close)
    np.testing.assert_allclose(got.wait_s, expected.wait, **close)
    np.testing.assert_allclose(got.held_s, expected.held, **close)
    np.testing.assert_array_equal(got.preemptions, expected.preemptions)
    np.testing.assert_array_equal(got.cancelled, expected.cancelled)
    last: list[dict[int, int]] = [{} for _ in range(len(instance.jobs))]
    began = np.full(len(instance.jobs), -np.inf)
    for job, island, count, start in zip(got.seg_job, got.seg_island, got.seg_count, got.seg_start, strict=True):
        if start > began[job]:
            began[job] = start
            last[job] = {}
        last[job][int(island)] = last[job].get(int(island), 0) + int(count)
    for job, (mine, theirs) in enumerate(zip(last, expected.placement, strict=True)):
        if got.preemptions[job] and np.count_nonzero((got.seg_job == job) & (got.seg_start == got.seg_end)):
            continue  # suspended the moment it started: its runs cannot be told apart by time
        assert mine == dict(theirs), f"job {job}"


@settings(max_examples=200, deadline=None)
@given(instances(comm=False))
def test_without_communication(instance: Instance) -> None:
    check(instance)


@settings(max_examples=400, deadline=None)
@given(instances(comm=True))
def test_with_communication(instance: Instance) -> None:
    check(instance)


@settings(max_examples=150, deadline=None)
@given(instances(preemptive=True, types=1))
def test_preemptive(instance: Instance) -> None:
    check(instance)


@pytest.mark.slow
@pytest.mark.timeout(1200)  # two minutes of a core, several on one that others use too
@settings(max_examples=5000, deadline=None)
@given(instances(max_jobs=20) | instances(preemptive=True, types=1, max_jobs=20))
def test_at_length(instance: Instance) -> None:
    check(instance)
