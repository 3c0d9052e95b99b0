"""Replays of learned policies: the same side by side as alone, under every kind of rule beside them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from attn_sched.agents import Observations
from attn_sched.agents.greedy import greedy
from attn_sched.agents.pair import AgentPair
from attn_sched.agents.weights import load_agents, save_agents
from attn_sched.cluster import Cluster, load_cluster
from attn_sched.errors import InputError
from attn_sched.policies import (
    PlacementView,
    QueueView,
    check_policy,
    explain_decision,
    learned,
    parse_policy,
    register_ordering,
    register_placement,
    replay,
    simulate,
    simulate_many,
)
from attn_sched.policies.linear import save_linear, sjf_rule
from attn_sched.simulator import Engine, EngineRule, Schedule, SimOptions, fit_to_cluster
from attn_sched.simulator import layout as at
from attn_sched.workload import Workload, build_workload, scale_load, synth, window
from tests.agents.test_limits import tree
from tests.agents.tiny import save_tiny, tiny_pair

SAME = (
    "start_s",
    "finish_s",
    "wait_s",
    "held_s",
    "level",
    "seg_job",
    "seg_island",
    "seg_count",
    "seg_start",
    "seg_end",
)
POLICIES = (
    "agents:PAIR",
    "fifo+agents:PAIR",
    "easy+agents:PAIR",
    "hrrn+agents:PAIR+hold(1.5,0.5)",
    "agents:PAIR+topo-best-fit",
    "agents:PAIR+random",
    "random+agents:PAIR",
    "agents:PAIR+agents:OTHER",
    "tuned:RULE",
    "tuned:RULE+random",
    "tuned:RULE+agents:PAIR",
    "agents:PAIR+called",
    "called:strict+agents:PAIR",
    "called:skip+agents:PAIR",
)


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    return load_cluster("dgx64")


@pytest.fixture(scope="module")
def logs(cluster: Cluster) -> list[Workload]:
    """Five workloads of different lengths, users and loads."""
    made = []
    for seed, jobs in enumerate((50, 25, 60, 35, 1)):
        family = ("helios", "pai")[seed % 2]
        log = fit_to_cluster(build_workload(synth(family, jobs, seed=seed), estimate="lognormal(0.3)"), cluster)
        made.append(scale_load(log, cluster.num_gpus, 0.8 + 0.2 * seed) if jobs > 1 else log)
    return made


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """PAIR, OTHER, RULE: paths of files."""
    folder = tmp_path_factory.mktemp("weights")
    save_linear(sjf_rule(1.2), folder / "rule.json")
    return {
        "PAIR": save_tiny(folder, "pair", seed=1),
        "OTHER": save_tiny(folder, "other", seed=5),
        "RULE": str(folder / "rule.json"),
    }


def named(policy: str, names: dict[str, str]) -> str:
    for name, path in names.items():
        policy = policy.replace(name, path)
    return policy


def first_fit(view: PlacementView) -> np.ndarray:
    before = np.cumsum(view.free) - view.free
    return np.clip(view.num_gpus - before, 0, view.free)


def by_user(view: QueueView) -> np.ndarray:
    """Whose users had least so far; ties by estimate."""
    assert len(view.user_gpu_s) == len(view.workload.user_names)
    return view.user_gpu_s[view.user] + view.estimate_s / 1e9


def same(one: Schedule, other: Schedule) -> None:
    """Equal to the last bit."""
    for field in SAME:
        np.testing.assert_array_equal(getattr(one, field), getattr(other, field), err_msg=field)
    assert (one.decisions, one.policy, one.options) == (other.decisions, other.policy, other.options)


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize("policy", POLICIES)
def test_side_by_side_as_alone(policy: str, cluster: Cluster, logs: list[Workload], names: dict[str, str]) -> None:
    register_ordering("called")(by_user)
    register_placement("called")(first_fit)
    name = named(policy, names)
    together = simulate_many(logs, cluster, name)
    for log, schedule in zip(logs, together, strict=True):
        assert np.isfinite(schedule.finish_s).all() and schedule.workload is log
        same(schedule, simulate(log, cluster, name))
    assert together[0].policy == name and together[0].options["policy"] == parse_policy(name).full_name


@pytest.mark.parametrize(
    "options",
    [
        SimOptions(max_wait_s=600.0),
        SimOptions(contention="maxmin", allreduce="hierarchical"),
        SimOptions(comm=False),
        SimOptions(record_segments=False, restart_cost_s=5.0),
    ],
)
def test_options_reach_the_batch(
    options: SimOptions, cluster: Cluster, logs: list[Workload], names: dict[str, str]
) -> None:
    """Contention, the starvation guard and what is recorded, side by side as alone."""
    some, name = logs[:2], named("agents:PAIR", names)
    together = simulate_many(some, cluster, name, options)
    for log, schedule in zip(some, together, strict=True):
        same(schedule, simulate(log, cluster, name, options))
        assert schedule.options == {"policy": parse_policy(name).full_name, **options.as_dict()}
    if options.max_wait_s is not None:
        plain = simulate_many(some, cluster, name)
        assert max(s.wait_s.max() for s in together) < max(s.wait_s.max() for s in plain)


def test_the_seed_reaches_the_batch(cluster: Cluster, logs: list[Workload], names: dict[str, str]) -> None:
    name = named("agents:PAIR+random", names)
    drawn = [simulate_many(logs[:2], cluster, name, SimOptions(seed=seed)) for seed in (1, 1, 2)]
    same(drawn[0][1], drawn[1][1])
    assert not np.array_equal(drawn[0][1].finish_s, drawn[2][1].finish_s)


def test_it_is_the_pair_that_answers(cluster: Cluster, logs: list[Workload], tmp_path: Path) -> None:
    """The schedule is that of an engine stepped by hand, with the objective weights of the card in the observations."""
    pair = tiny_pair()
    pair.card = {"objective_weights": [0.0, 0.0, 3.0]}
    path = save_agents(pair, tmp_path / "a")
    rule = EngineRule(order=at.AGENT, placement=at.PLACE_AGENT)
    engine = Engine(cluster, [logs[0]], rule, SimOptions(), window=pair.spec.window)
    seen = Observations(engine)
    seen.weights[:] = [0.0, 0.0, 3.0]
    while not (ask := engine.ask()).done:
        seen.update(ask)
        engine.apply(greedy(pair, seen, ask.phases))
    schedule = simulate(logs[0], cluster, f"agents:{path}")
    np.testing.assert_array_equal(schedule.start_s, engine.schedule().start_s)
    np.testing.assert_array_equal(schedule.seg_island, engine.schedule().seg_island)
    save_agents(tiny_pair(), tmp_path / "a")
    assert not np.array_equal(simulate(logs[0], cluster, f"agents:{path}").start_s, schedule.start_s)


def test_tuned_repeats_the_rule_it_imitates(cluster: Cluster, logs: list[Workload], tmp_path: Path) -> None:
    short = [log.select(np.arange(min(len(log), 30))) for log in logs]  # queues that a window of 32 shows whole
    save_linear(sjf_rule(), tmp_path / "sjf.json")
    for name, log in zip(("topo-best-fit", "best-fit") * 3, short, strict=False):
        mine = simulate(log, cluster, f"tuned:{tmp_path}/sjf.json+{name}")
        np.testing.assert_array_equal(mine.finish_s, simulate(log, cluster, f"sjf+{name}").finish_s)


def test_gpu_agents_follow_their_rule(cluster: Cluster, logs: list[Workload], names: dict[str, str]) -> None:
    """Under ``fifo`` jobs start in order of submission, whatever units the agent picks."""
    for schedule in simulate_many(logs, cluster, named("fifo+agents:PAIR", names)):
        assert (np.diff(schedule.start_s) >= 0).all()


def test_many_rules_are_as_one_by_one(cluster: Cluster, logs: list[Workload]) -> None:
    told: list[float] = []
    for name in ("sjf+random", "srtf", "easy"):
        together = simulate_many(logs, cluster, name, progress=told.append)
        for log, schedule in zip(logs, together, strict=True):
            same(schedule, simulate(log, cluster, name))
        assert told[-1] == len(logs) == max(told)
    assert simulate_many([], cluster, "sjf") == []


def test_no_workloads(cluster: Cluster, names: dict[str, str]) -> None:
    assert simulate_many([], cluster, named("agents:PAIR", names)) == []


# -- windows -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def windows(cluster: Cluster) -> list[Workload]:
    log = scale_load(fit_to_cluster(build_workload(synth("helios", 400, seed=9)), cluster), cluster.num_gpus, 0.9)
    return [window(log, first, first + 20, warmup=10) for first in (30, 200, 350)]


@pytest.fixture(scope="module")
def whole(cluster: Cluster, windows: list[Workload], names: dict[str, str]) -> list[Schedule]:
    """Replays of the windows with all their later jobs."""
    return simulate_many(windows, cluster, named("sjf+agents:PAIR", names))


@pytest.mark.parametrize(("batch", "later"), [(1, 3), (2, 3), (64, 3), (2, 40)])
def test_later_jobs_are_tried_until_they_suffice(
    cluster: Cluster,
    windows: list[Workload],
    whole: list[Schedule],
    names: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    batch: int,
    later: int,
) -> None:
    """Few later jobs first, then four times as many, and the counted jobs fare as if all had been there."""
    monkeypatch.setattr(replay, "LATER_JOBS", later)
    monkeypatch.setattr(learned, "BATCH", batch)
    sizes: list[list[int]] = []
    replayed = learned.replay_batch

    def count(workloads: list[Workload], *args: Any) -> list[Schedule]:
        sizes.append([len(log) for log in workloads])
        return replayed(workloads, *args)

    monkeypatch.setattr(learned, "replay_batch", count)
    some = simulate_many(windows, cluster, named("sjf+agents:PAIR", names))
    for one, other, log in zip(whole, some, windows, strict=True):
        last = int(np.flatnonzero(log.counted)[-1]) + 1
        for field in ("start_s", "finish_s", "wait_s", "level"):
            np.testing.assert_array_equal(getattr(one, field)[:last], getattr(other, field)[:last])
    assert sizes[0] == [1] and sizes[1][0] == 30 + later  # one job first, to have things compiled
    assert max(map(len, sizes)) == min(batch, len(windows))
    tried = sorted({size for batch_sizes in sizes[1:] for size in batch_sizes})
    assert set(tried) <= {min(30 + later * 4**k, len(log)) for k in range(9) for log in windows}
    if later == 3:
        assert len(tried) > 1, "three later jobs are too few for some window"
        assert any(len(schedule.workload) < len(log) for schedule, log in zip(some, windows, strict=True))


def test_batches_stay_small_in_memory(
    cluster: Cluster,
    windows: list[Workload],
    whole: list[Schedule],
    names: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As many side by side as their jobs allow; the results are the same."""
    monkeypatch.setattr(learned, "MOST_ROWS", 2 * max(len(schedule.workload) for schedule in whole))
    sizes: list[int] = []
    replayed = learned.replay_batch

    def count(workloads: list[Workload], *args: Any) -> list[Schedule]:
        sizes.append(len(workloads))
        return replayed(workloads, *args)

    monkeypatch.setattr(learned, "replay_batch", count)
    some = simulate_many(windows, cluster, named("sjf+agents:PAIR", names))
    assert max(sizes) == 2
    for one, other in zip(whole, some, strict=True):
        np.testing.assert_array_equal(one.finish_s, other.finish_s)


def test_time_and_progress(cluster: Cluster, windows: list[Workload], names: dict[str, str]) -> None:
    told: list[float] = []
    schedules = simulate_many(windows, cluster, named("sjf+agents:PAIR", names), progress=told.append)
    assert told and min(told) >= 0 and max(told) <= 3
    assert all(s.engine_s > 0 for s in schedules)
    assert all(0 < len(s.decision_latency_s) <= learned.BATCH_LATENCY_SAMPLES for s in schedules)
    assert all((s.decision_latency_s > 0).all() for s in schedules)
    alone = simulate(windows[0], cluster, named("sjf+agents:PAIR", names))
    assert learned.BATCH_LATENCY_SAMPLES >= len(alone.decision_latency_s) > 0 and told[-1] == 3


def test_threads_are_as_before(cluster: Cluster, logs: list[Workload], names: dict[str, str]) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    seen = []

    def look(part: float) -> None:
        seen.append(torch.get_num_threads())

    try:
        simulate(logs[2], cluster, named("agents:PAIR", names), progress=look)
        assert seen[0] == 1 and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


# -- files -------------------------------------------------------------------------------------------------------------


def test_weights_are_loaded_once_and_again_when_they_change(
    cluster: Cluster, logs: list[Workload], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import attn_sched.agents.weights as weights

    loads: list[Path] = []
    load = weights.load_agents

    def count(name: Path) -> AgentPair:
        loads.append(name)
        return load(name)

    monkeypatch.setattr(weights, "load_agents", count)
    path = save_tiny(tmp_path, "a", seed=1)
    first = simulate(logs[0], cluster, f"agents:{path}")
    same(simulate(logs[0], cluster, f"agents:{path}"), first)
    check_policy(f"fifo+agents:{path}", cluster)
    assert len(loads) == 1
    save_tiny(tmp_path, "a", seed=2)
    for file in tmp_path.iterdir():
        os.utime(file, ns=(1, 1))
    assert not np.array_equal(simulate(logs[0], cluster, f"agents:{path}").start_s, first.start_s)
    assert len(loads) == 2


def test_what_is_told_before_anything_runs(cluster: Cluster, logs: list[Workload], tmp_path: Path) -> None:
    path = save_tiny(tmp_path)
    deep = tree(5)
    with pytest.raises(InputError, match="4 levels above its placement unit"):
        check_policy(f"agents:{path}", deep)
    with pytest.raises(InputError, match="4 levels above its placement unit"):
        simulate(logs[4], deep, f"fifo+agents:{path}")
    save_linear(sjf_rule(), tmp_path / "rule.json")
    check_policy(f"tuned:{tmp_path}/rule.json", deep)
    narrow = save_tiny(tmp_path, "narrow", window=4)
    with pytest.raises(InputError, match="see 8 and 4 jobs; expected agents trained with one window"):
        check_policy(f"agents:{path}+agents:{narrow}", cluster)
    weights = Path(path).with_suffix(".safetensors")
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(InputError, match="is truncated"):
        check_policy(f"agents:{path}", cluster)
    with pytest.raises(InputError, match="is truncated"):
        simulate_many([], cluster, f"agents:{path}")


def test_nan_in_observations(
    cluster: Cluster, logs: list[Workload], names: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    update = Observations.update

    def spoil(self: Observations, ask: Any) -> None:
        update(self, ask)
        self.units[0, 0, 0] = np.nan

    monkeypatch.setattr(Observations, "update", spoil)
    with pytest.raises(InputError, match="field 'units': the observation of decision 0 is not finite"):
        simulate(logs[0], cluster, named("agents:PAIR", names))


# -- explanations ------------------------------------------------------------------------------------------------------


def test_decisions_of_a_replay_are_explained(cluster: Cluster, logs: list[Workload], names: dict[str, str]) -> None:
    """Following the explained choices makes the schedule of the replay."""
    name, log = named("agents:PAIR", names), logs[1]
    rule = EngineRule(order=at.AGENT, placement=at.PLACE_AGENT)
    engine = Engine(cluster, [log], rule, SimOptions(), window=8)
    seen, pair = Observations(engine), load_agents(names["PAIR"])
    number = 0
    while not (ask := engine.ask()).done:
        number += 1
        if number <= 25:
            shown = explain_decision(log, cluster, name, number)
            assert shown.decision == number and shown.time_s == engine.view(0).sf[at.NOW]
            assert shown.agent == ("job" if ask.phases[0] == at.JOB_PHASE else "gpu")
            if shown.agent == "job":
                waiting = [str(log.job_id[job]) for job in ask.windows[0] if job >= 0]
                assert [c.name for c in shown.candidates] == [*waiting, "HOLD"]
            else:
                assert shown.placing == str(log.job_id[int(engine.view(0).si[at.PICK_JOB])])
                assert [c.name for c in shown.candidates] == [cluster.vertex_names[v] for v in engine.units]
            engine.apply(np.array([shown.choice]))
        else:
            seen.update(ask)
            engine.apply(greedy(pair, seen, ask.phases))
    np.testing.assert_array_equal(engine.schedule().start_s, simulate(log, cluster, name).start_s)
    with pytest.raises(InputError, match=f"no decision {number + 1}; expected at most {number}"):
        explain_decision(log, cluster, name, number + 1)
    with pytest.raises(InputError, match="no decision 0"):
        explain_decision(log, cluster, name, 0)


def test_only_agents_are_explained(cluster: Cluster, logs: list[Workload], names: dict[str, str]) -> None:
    for name in ("sjf", named("tuned:RULE", names)):
        with pytest.raises(InputError, match="has no agents to explain"):
            explain_decision(logs[0], cluster, name, 1)
    both = named("tuned:RULE+agents:PAIR", names)
    with pytest.raises(InputError, match="decision 1 was made by the linear rule"):
        explain_decision(logs[0], cluster, both, 1)
    assert explain_decision(logs[0], cluster, both, 2).agent == "gpu"


def test_single_gpus_have_names(logs: list[Workload], names: dict[str, str]) -> None:
    cluster = load_cluster("nodes:2x4").with_unit("gpu")
    one = logs[4].replace(num_gpus=np.array([3], np.int32))
    shown = explain_decision(one, cluster, named("fifo+agents:PAIR", names), 1)
    assert [c.name for c in shown.candidates] == [f"node{n}/gpu{g}" for n in range(2) for g in range(4)]
