"""The command over small logs: what it replays, what it keeps, what it says."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attn_sched.agents.weights import save_agents
from attn_sched.errors import InputError
from attn_sched.evaluation.metrics import evaluate
from attn_sched.policies import parse_policy, simulate, simulate_many
from attn_sched.policies.linear import save_linear, sjf_rule
from attn_sched.workload import Workload, build_workload, synth
from attn_sched.workload.episodes import period
from benchmarks.results import __main__ as command
from benchmarks.results import entrants, replaying
from benchmarks.results.cache import OPTIONS, SECONDS, Cache, code_digest
from benchmarks.results.entrants import find_entrants
from benchmarks.results.material import Material, Overlap, overlaps
from benchmarks.results.plan import DGX256, PLAN, Log
from tests.agents.tiny import tiny_pair
from tests.benchmarks.small import LOGS, RULES, options, small_plan, write_logs
from tests.shared_traces import shared_traces

PLAN_CELLS = 8  # of the small plan: 2 logs at 2 loads, for test and for validation


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_logs(tmp_path_factory.mktemp("traces"))


@pytest.fixture(autouse=True)
def nothing_released(monkeypatch: pytest.MonkeyPatch) -> None:
    """What this repository releases goes before training runs, and would come in everywhere."""
    monkeypatch.setattr("benchmarks.results.entrants.released", lambda kind: {})


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Training runs: the released pair, its tuned rule, one seed."""
    folder = tmp_path / "runs"
    save(folder / "full" / "best", seed=1)
    save_linear(sjf_rule(1.5), folder / "full" / "tuned.json")
    save(folder / "medium-0" / "best", seed=2, training={"seed": 0})
    return folder


def save(folder: Path, seed: int, agents: tuple[str, ...] = ("job", "gpu"), **card: Any) -> Path:
    folder.mkdir(parents=True)
    pair = tiny_pair(agents, seed, spread=0.5, hold=False)
    pair.card = card
    return save_agents(pair, folder / "pair")


class Counter:
    """Counts replays, and can be told to stop the command."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[str] = []
        self.stop_after: int | None = None
        monkeypatch.setattr(replaying, "simulate_many", self)

    def __call__(self, workloads: list[Workload], cluster: Any, policy: str, *rest: Any) -> Any:
        if self.stop_after is not None and len(self.calls) >= self.stop_after:
            raise KeyboardInterrupt
        self.calls.append(policy)
        return simulate_many(workloads, cluster, policy, *rest)


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter]:
    yield Counter(monkeypatch)


def page_of(traces: Path, cache: Path, runs: Path | None = None, *more: str, rules: tuple[str, ...] = RULES) -> str:
    return command.run(options(traces, cache, *more), small_plan(), find_entrants(runs, rules))


def test_an_interrupted_command_goes_on_and_writes_the_same_page(
    traces: Path, runs: Path, tmp_path: Path, counter: Counter
) -> None:
    whole = page_of(traces, tmp_path / "whole", runs)
    calls = len(counter.calls)
    # Rules and the tuned one in every cell; agents side by side, in 4 forms and one; validation is for rules.
    assert calls == 5 * PLAN_CELLS + 5
    counter.calls.clear()
    counter.stop_after = calls // 2
    with pytest.raises(KeyboardInterrupt):
        page_of(traces, tmp_path / "cut", runs)
    counter.stop_after = None
    assert page_of(traces, tmp_path / "cut", runs) == whole
    assert len(counter.calls) == calls
    assert page_of(traces, tmp_path / "cut", runs) == whole
    assert len(counter.calls) == calls


def test_a_new_policy_costs_its_own_replays(traces: Path, tmp_path: Path, runs: Path, counter: Counter) -> None:
    first = page_of(traces, tmp_path / "cache")
    counter.calls.clear()
    second = page_of(traces, tmp_path / "cache", rules=(*RULES, "saf+best-fit"))
    assert counter.calls == ["saf+best-fit"] * PLAN_CELLS
    assert "saf+best-fit" not in first and "`saf+best-fit`" in second
    counter.calls.clear()
    third = page_of(traces, tmp_path / "cache", runs)
    assert {parse_policy(name).name for name in counter.calls} == {
        entrant.policy for entrant in find_entrants(runs, RULES).entrants if entrant.role
    }
    assert "`agents:full`" in third


def test_other_weights_of_the_same_name_are_replayed(
    traces: Path, tmp_path: Path, runs: Path, counter: Counter
) -> None:
    before = page_of(traces, tmp_path / "cache", runs)
    counter.calls.clear()
    (path,) = (runs / "medium-0" / "best").glob("*.json")
    pair = tiny_pair(seed=9, spread=0.5, hold=False)
    pair.card = {"training": {"seed": 0}}
    save_agents(pair, path)
    after = page_of(traces, tmp_path / "cache", runs)
    assert len(counter.calls) == 1 and "medium-0" in counter.calls[0]
    assert after != before


def test_what_is_kept_is_what_a_replay_gives(traces: Path, runs: Path, tmp_path: Path) -> None:
    plan, field = small_plan(), find_entrants(runs, RULES)
    given = options(traces, tmp_path / "cache", "--processes", "2")
    by_two = command.run(given, plan, field)
    material = Material(traces)
    bench = replaying.Bench(material, Cache(tmp_path / "cache"))
    for cell in (plan.cells[0], plan.cells[-1]):
        for entrant in field.entrants:
            found = bench.stored(entrant, cell)
            assert (found is None) is not entrant.plays(cell)
            if found is None:
                continue
            windows = material.windows(cell)
            cluster = material.cluster(cell.cluster)
            assert found.windows == len(windows) == 3 and found.code == code_digest()
            alone = [evaluate(simulate(window, cluster, entrant.policy, OPTIONS)) for window in windows]
            for key in ("excess_mean_s", "wait_p99_s", "jain_user", "comm_overhead"):
                assert found.values[key].tolist() == [row[key] for row in alone]
            assert (found.values[SECONDS] > 0).all()
    assert by_two == page_of(traces, tmp_path / "other", runs)


def test_windows_lie_in_their_part(traces: Path) -> None:
    material = Material(traces)
    for cell in small_plan().cells:
        allowed = set(period(material.log(cell.log), cell.part).job_id)
        windows = material.windows(cell)
        assert all(set(window.job_id) <= allowed for window in windows)
        counted = [job for window in windows for job in window.job_id[window.counted]]
        assert len(counted) == len(set(counted)) == 3 * 8
        assert [window.info["load"] for window in windows] == [cell.load] * 3
        assert material.facts(cell).windows == 3


def test_digests_tell_windows_apart(traces: Path) -> None:
    digests = [Material(traces).digest(cell) for cell in small_plan().cells]
    assert len(set(digests)) == PLAN_CELLS
    assert digests == [Material(traces).digest(cell) for cell in small_plan().cells]
    assert Material(traces).digest(small_plan(clusters=("nodes:2x8",)).cells[0]) not in digests


def test_what_is_missing_is_said(traces: Path, runs: Path, tmp_path: Path) -> None:
    page = page_of(traces, tmp_path / "cache", runs)
    said = " ".join(page.split())
    assert "Left out, since there are no such weights: `agents:imitation` (what PPO started from" in said
    assert "`agents:no-hold`" in said and "`RUNS/no-hold/best`" in said
    assert "`agents:full` (the released agents" not in said
    without = " ".join(page_of(traces, tmp_path / "cache").split())
    assert "`tuned` (the linear rule found by CMA-ES; `RUNS/full/tuned.json`)" in without
    assert "`agents:full` (the released agents; `RUNS/full/best`)" in without
    assert "not measured" in without


def test_the_page_names_command_rule_and_preemptive_rules(traces: Path, runs: Path, tmp_path: Path) -> None:
    page = page_of(traces, tmp_path / "cache", runs, "--runs", str(runs), "--windows", "2")
    lines = page.splitlines()
    assert "Written by `python -m benchmarks.results TRACES --runs RUNS --windows 2 --write docs/results.md`" in page
    assert str(tmp_path) not in page
    assert sum(line.startswith("| gate ") for line in lines) == 5
    competing = page[page.index("## All policies") : page.index("## By data set")]
    assert "srtf" not in competing and "`sjf+best-fit`" in competing
    assert "`srtf+topo-best-fit`" in page[page.index("## Preemptive rules") : page.index("## The best rule")]
    assert max(map(len, (line for line in lines if not line.startswith(("|", "-"))))) <= 120


def test_only_some_cells_and_policies(traces: Path, tmp_path: Path, counter: Counter) -> None:
    page = page_of(traces, tmp_path / "cache", None, "--only", "one on nodes:2x4 at 0.9", "--policies", "sjf")
    assert sorted(set(counter.calls)) == ["sjf+best-fit", "sjf+topo-best-fit"]
    assert len(counter.calls) == 2 * 3  # one cell, and the validation cells of the same log and cluster
    assert "helios on" not in page
    for more, field in ((("--only", "nowhere"), "only"), (("--policies", "nobody"), "policies")):
        with pytest.raises(InputError) as caught:
            page_of(traces, tmp_path / "cache", None, *more)
        assert caught.value.field == field


def test_bad_input_is_told_before_anything_runs(
    traces: Path, runs: Path, tmp_path: Path, counter: Counter, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InputError, match="does not exist"):
        page_of(tmp_path / "nowhere", tmp_path / "cache")
    weights = next((runs / "medium-0" / "best").glob("*.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-8])
    with pytest.raises(InputError, match="truncated"):
        page_of(traces, tmp_path / "cache", runs)
    assert not counter.calls
    assert command.main([str(traces), "--windows", "0"]) == 2
    assert "windows" in capsys.readouterr().err


def test_a_damaged_result_is_an_error(traces: Path, tmp_path: Path) -> None:
    page_of(traces, tmp_path / "cache")
    file = next((tmp_path / "cache").rglob("sjf-best-fit.*.parquet"))
    file.write_bytes(file.read_bytes()[:40])
    with pytest.raises(InputError) as caught:
        page_of(traces, tmp_path / "cache")
    assert caught.value.file == str(file)


def test_the_command_writes_the_page_or_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [str(tmp_path), "--write", str(tmp_path / "page.md")]

    def interrupted(_: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "run", interrupted)
    assert command.main(given) == 130
    assert "goes on from here" in capsys.readouterr().err and not list(tmp_path.iterdir())
    monkeypatch.setattr(command, "run", lambda _: "# Page\n")
    assert command.main(given) == 0
    assert (tmp_path / "page.md").read_text() == "# Page\n"
    assert command.main([str(tmp_path), "--write", str(tmp_path / "no" / "page.md")]) == 2


def test_results_of_other_code_are_told(
    traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counter: Counter
) -> None:
    assert "earlier code" not in page_of(traces, tmp_path / "cache")
    counter.calls.clear()
    monkeypatch.setattr("benchmarks.results.texts.code_digest", lambda: "another")
    assert f"{4 * PLAN_CELLS} of {4 * PLAN_CELLS} results were kept from a run of earlier code" in page_of(
        traces, tmp_path / "cache"
    )
    assert not counter.calls


def test_agents_of_every_kind_are_found(tmp_path: Path) -> None:
    save(tmp_path / "full" / "best", 1)
    save(tmp_path / "job-only" / "best", 2, ("job",), training={"ppo.agents": ["job"], "placement": "best-fit"})
    order = "sjf+hold(1.5,0.5)"
    save(tmp_path / "gpu-only" / "best", 3, ("gpu",), training={"ppo.agents": ["gpu"], "order": order})
    where = {"data.clusters": ["some/where/dgx256.yaml"]}
    save(tmp_path / "retrained-256" / "best", 4, training=where)
    field = find_entrants(tmp_path, RULES)
    labels = [entrant.label for entrant in field.of_kind(entrants.AGENTS)]
    assert labels == [
        "agents:full",
        "agents:full+topo-best-fit",
        "fifo+agents:full",
        "sjf+agents:full",
        "agents:job-only+best-fit",
        "sjf+agents:gpu-only+hold(1.5,0.5)",
        "agents:retrained-256",
    ]
    assert len({entrant.fingerprint for entrant in field.entrants}) == len(field.entrants)
    for entrant in field.entrants:
        parse_policy(entrant.policy)
    retrained = field.find("agents:retrained-256")
    assert retrained is not None
    assert {cell.cluster for cell in PLAN.cells if retrained.plays(cell)} == {str(DGX256)}


def test_a_run_that_has_no_agents_yet_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "full" / "best").mkdir(parents=True)
    assert not find_entrants(tmp_path, RULES).of_kind(entrants.AGENTS)


def test_agents_trained_otherwise_than_said_are_refused(tmp_path: Path) -> None:
    save(tmp_path / "no-hold" / "best", 1, training={"network.hold": True})
    with pytest.raises(InputError) as caught:
        find_entrants(tmp_path, RULES)
    assert caught.value.field == "no-hold"


def test_the_plan_of_the_page() -> None:
    names = [cell.name for cell in PLAN.cells]
    assert len(names) == len(set(names))
    main = PLAN.section("main")
    assert len(main) == 5 * 2 * 3 and {cell.part for cell in main} == {"test"}
    assert {cell.part for cell in PLAN.validation} == {"validation"}
    assert [cell.place for cell in PLAN.validation] == [cell.place for cell in main]
    limited = PLAN.limited(2, ["acme-kalos"])
    assert {cell.log.key for section in limited.sections for cell in section.cells} == {"acme-kalos"}
    assert limited.validation and max(cell.most for cell in limited.cells) == 2
    for name in (*entrants.RULES, *entrants.PREEMPTIVE_RULES):
        assert (entrants.rule_entrant(name).kind == entrants.PREEMPTIVE) is (name in entrants.PREEMPTIVE_RULES)
    assert len(set(entrants.RULES)) == len(entrants.RULES)


def test_the_logs_of_the_plan_are_there() -> None:
    material = Material(shared_traces())
    material.check(PLAN.logs)
    assert material.cluster(str(DGX256)).num_gpus == 256
    kalos = next(cell for cell in PLAN.cells if cell.log.key == "acme-kalos")
    facts = material.facts(kalos)
    assert (facts.windows, facts.jobs, facts.too_large, facts.synthetic_users) == (3, 128, 0, True)


def test_overlaps_by_hand(traces: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = build_workload(synth("philly", 20, seed=0), seed=0)
    first = base.replace(submit_s=np.arange(20) * 100.0, num_gpus=np.ones(20, np.int32))
    # Starts 1,000 s later: its first 7 jobs are the first log's 11th to 17th, all of that log's test part.
    second = base.replace(submit_s=np.arange(20) * 100.0, num_gpus=np.where(np.arange(20) == 2, 8, 1).astype(np.int32))
    logs = [Log("a", "a", "a"), Log("b", "b", "b"), Log("c", "c", "c")]
    material = Material(traces)
    clocks = {"a": datetime(2020, 1, 1), "b": datetime(2020, 1, 1, 0, 16, 40), "c": None}
    monkeypatch.setattr(material, "log", lambda log: {"a": first, "b": second}[log.key])
    monkeypatch.setattr(material, "clock", lambda log: clocks[log.key])
    assert overlaps(material, logs) == [Overlap("a", 10, "b", "train", 6), Overlap("a", 10, "b", "validation", 3)]


def test_clocks(traces: Path) -> None:
    material = Material(traces)
    assert material.clock(Log("x", "x", LOGS[0].path, clock="2017-08-18T21:20:18")) == datetime(2017, 8, 18, 21, 20, 18)
