"""Comparisons with learned policies: neither batches nor processes show in the results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attn_sched.cluster import Cluster, load_cluster
from attn_sched.errors import InputError
from attn_sched.evaluation.comparison import Comparison, ComparisonPlan, compare, reduce
from attn_sched.evaluation.registry import TIMING_KEYS
from attn_sched.evaluation.replays import Task, groups_of
from attn_sched.evaluation.results import rows
from attn_sched.evaluation.setup import WorkloadSpec, cut
from attn_sched.policies import learned, simulate
from attn_sched.simulator import SimOptions, fit_to_cluster
from attn_sched.workload import Workload, build_workload, synth
from tests.agents.test_limits import tree
from tests.agents.tiny import save_tiny

LOADS = (0.7, 1.0)


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    return load_cluster("testbed32")


@pytest.fixture(scope="module")
def kept(cluster: Cluster) -> Workload:
    return fit_to_cluster(build_workload(synth("helios", 200, seed=4)), cluster)


@pytest.fixture(scope="module")
def policies(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    path = save_tiny(tmp_path_factory.mktemp("weights"))
    return ("random+random", f"sjf+agents:{path}", "fifo+first-fit", f"agents:{path}+random")


def run(kept: Workload, cluster: Cluster, policies: tuple[str, ...], **given: Any) -> Comparison:
    plan = ComparisonPlan(policies, LOADS, windows=3, window_jobs=12, workload=WorkloadSpec(seed=2))
    return compare(kept, cluster, plan, SimOptions(seed=2), **given)


@pytest.fixture(scope="module")
def once(kept: Workload, cluster: Cluster, policies: tuple[str, ...]) -> Comparison:
    return run(kept, cluster, policies)


def told(comparison: Comparison) -> list[dict[str, Any]]:
    """All that is reported but for what depends on the machine."""
    table = rows(comparison)
    for row in table:
        for key in list(row):
            if key.removesuffix("_low").removesuffix("_high") in TIMING_KEYS:
                del row[key]
        for window in row["by_window"]:
            for key in TIMING_KEYS:
                del window[key]
    return table


@pytest.mark.parametrize(("processes", "batch"), [(2, 64), (1, 1), (3, 4)])
def test_neither_processes_nor_batches_show(
    kept: Workload,
    cluster: Cluster,
    policies: tuple[str, ...],
    once: Comparison,
    monkeypatch: pytest.MonkeyPatch,
    processes: int,
    batch: int,
) -> None:
    monkeypatch.setattr(learned, "BATCH", batch)
    assert told(run(kept, cluster, policies, processes=processes)) == told(once)


def test_every_window_is_that_of_simulate(
    kept: Workload, cluster: Cluster, policies: tuple[str, ...], once: Comparison
) -> None:
    bounds = once.plan.bounds(len(kept))
    for cell in once.cells:
        for place, found in zip(bounds, cell.windows, strict=True):
            log = cut(kept, cluster, once.plan.workload, bounds=place, load=cell.load)
            alone = reduce(simulate(log, cluster, cell.policy, SimOptions(seed=2)), place)
            assert found.bounds == place
            for key, value in alone.values.items():
                if key not in TIMING_KEYS:
                    assert found.values[key] == value, key
            assert found.waits.tolist() == alone.waits.tolist()


def test_rules_fare_as_without_learned_ones(
    kept: Workload, cluster: Cluster, policies: tuple[str, ...], once: Comparison
) -> None:
    rules = tuple(policy for policy in policies if "agents" not in policy)
    assert told(run(kept, cluster, rules)) == [row for row in told(once) if row["policy"] in rules]


def test_whole_traces_go_side_by_side(kept: Workload, cluster: Cluster, policies: tuple[str, ...]) -> None:
    few = kept.select(np.arange(40))
    plan = ComparisonPlan(policies[:2], LOADS)
    together = compare(few, cluster, plan, SimOptions())
    for cell in together.cells:
        log = cut(few, cluster, plan.workload, load=cell.load)
        alone = simulate(log, cluster, cell.policy)
        assert cell.windows[0].values["jct_mean_s"] == reduce(alone, None).values["jct_mean_s"]


def test_how_the_work_is_shared_out(policies: tuple[str, ...]) -> None:
    """Learned policies first, each in as many parts as there are processes; nothing twice and nothing left out."""
    tasks = [Task(load, (k, k + 1), policy, False) for load in LOADS for k in range(50) for policy in policies]
    for processes in (1, 2, 7):
        groups = groups_of(tasks, processes)
        assert sorted(number for group in groups for number in group) == list(range(len(tasks)))
        parts = max(2, processes)  # 100 windows of one policy, and no more than 64 side by side
        assert all(len({tasks[number].policy for number in group}) == 1 for group in groups)
        assert {len(group) for group in groups[2 * parts :]} == {1}
        assert all("agents" in tasks[group[0]].policy for group in groups[: 2 * parts])
        assert max(map(len, groups[: 2 * parts])) - min(map(len, groups[: 2 * parts])) <= 1


def test_progress(kept: Workload, cluster: Cluster, policies: tuple[str, ...]) -> None:
    seen: list[float] = []
    run(kept, cluster, policies, progress=seen.append)
    assert seen[-1] == 3 * len(LOADS) * len(policies) and seen == sorted(seen)


def test_what_is_told_before_the_long_work(
    kept: Workload, cluster: Cluster, policies: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attn_sched.evaluation.replays.run_all", None)  # the work itself
    with pytest.raises(InputError, match="levels above its placement unit"):
        run(kept.replace(num_gpus=np.ones(len(kept), np.int32)), tree(5), policies)
    path = Path(save_tiny(tmp_path))
    path.with_suffix(".safetensors").write_bytes(b"")
    with pytest.raises(InputError, match="is truncated: 0 bytes"):
        run(kept, cluster, (*policies, f"agents:{path}"))
