"""Orderings and placements that a user registers, and the page that explains them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from attn_sched.cluster import Cluster, load_cluster
from attn_sched.errors import InputError
from attn_sched.policies import PlacementView, QueueView, register_ordering, register_placement, simulate
from attn_sched.policies.registry import ORDERINGS, PLACEMENTS
from attn_sched.simulator import Schedule, SimOptions
from tests.reference.shapes import count_cluster, make_jobs, node_cluster
from tests.simulator.drawn import Replay, replays, runs_of

DOCS = Path(__file__).parents[2] / "docs" / "own-rules.md"
OFF = SimOptions(comm=False)
JOBS = make_jobs([0, 0, 1, 2], [5, 3, 4, 1], [2, 2, 3, 4], user=[0, 1, 0, 1], grad_bytes=1e8)


def run(replay: Replay, policy: str) -> Schedule:
    return simulate(replay.jobs, replay.cluster, policy, replay.options)


def same(a: Schedule, b: Schedule) -> None:
    """Equal to the last bit."""
    for name in ("start_s", "finish_s", "wait_s", "held_s", "level"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
    assert [(x.job, x.start, x.gang) for x in runs_of(a)] == [(x.job, x.start, x.gang) for x in runs_of(b)]


# -- rules that repeat built-in ones -----------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(replays(orders=("sjf",), max_jobs=10))
def test_called_ordering_repeats_sjf(replay: Replay) -> None:
    """``estimate_s`` as key is ``sjf``, with every queueing, hold and guard; so is a static one."""
    jobs = replay.jobs.replace(estimate_s=np.maximum(replay.jobs.estimate_s, 1.0))
    replay = replace(replay, jobs=jobs)
    expected = run(replay, replay.policy)
    for name, static, keys in (
        ("called-sjf", False, lambda v: v.estimate_s),
        ("static-sjf", True, lambda jobs, rng: jobs.estimate_s),
    ):
        register_ordering(name, static=static)(keys)
        try:
            same(run(replay, replay.policy.replace("sjf", name, 1)), expected)
        finally:
            ORDERINGS.remove(name)


@settings(max_examples=30, deadline=None)
@given(replays(orders=("hrrn",), placements=("topo-best-fit",), failures=False, max_jobs=10))
def test_called_ordering_repeats_hrrn(replay: Replay) -> None:
    """A key that changes with time."""
    register_ordering("called-hrrn")(
        lambda v: -(v.wait_s + np.maximum(v.estimate_s, 1.0)) / np.maximum(v.estimate_s, 1.0)
    )
    try:
        same(run(replay, replay.policy.replace("hrrn", "called-hrrn", 1)), run(replay, replay.policy))
    finally:
        ORDERINGS.remove("called-hrrn")


def first_fit(view: PlacementView) -> np.ndarray:
    """Nodes by number, each as far as it goes."""
    before = np.cumsum(view.free) - view.free
    return np.clip(view.num_gpus - before, 0, view.free)


@settings(max_examples=80, deadline=None)
@given(
    replays(queueings=("strict", "skip", "commit"), placements=("first-fit",), guard=False, cancels=False, max_jobs=10)
)
def test_called_placement_repeats_first_fit(replay: Replay) -> None:
    register_placement("called-first-fit")(first_fit)
    try:
        same(run(replay, replay.policy.replace("first-fit", "called-first-fit")), run(replay, replay.policy))
    finally:
        PLACEMENTS.remove("called-first-fit")


def test_both_are_called() -> None:
    """An ordering and a placement of one's own, in one policy."""
    register_ordering("mine")(lambda v: v.estimate_s)
    register_placement("here")(first_fit)
    cluster = load_cluster("testbed32")
    rng = np.random.default_rng(1)
    jobs = make_jobs(
        np.sort(rng.uniform(0, 99, 60)).tolist(),
        rng.uniform(1, 50, 60).tolist(),
        rng.integers(1, 20, 60).tolist(),
        grad_bytes=1e9,
    )
    same(simulate(jobs, cluster, "mine+here"), simulate(jobs, cluster, "sjf+first-fit"))


# -- what a rule sees --------------------------------------------------------------------------------------------------


def test_what_an_ordering_sees() -> None:
    """Every field at 2 s: two jobs run on a node of 4 each taking 2, a gang of 3 and one of 4 wait."""
    seen: list[QueueView] = []

    def look(view: QueueView) -> np.ndarray:
        seen.append(view)
        return view.submit_s

    register_ordering("look")(look)
    cluster = node_cluster(1, 4)
    jobs = JOBS.replace(priority=np.array([0, 0, 7, 1], dtype=np.int32), estimate_s=np.array([5.0, 3, 9, 1]))
    simulate(jobs, cluster, "look:strict")
    view = next(view for view in seen if view.now_s == 2)
    assert view.job.tolist() == [2, 3]
    assert view.submit_s.tolist() == [1, 2]
    assert view.wait_s.tolist() == [1, 0]
    assert view.estimate_s.tolist() == [9, 1]
    assert view.num_gpus.tolist() == [3, 4]
    assert view.user.tolist() == [0, 1]
    assert view.group.tolist() == [-1, -1]
    assert view.priority.tolist() == [7, 1]
    assert view.fits.tolist() == [0, 0]
    assert view.best_slowdown.tolist() == [np.inf, np.inf]
    assert view.user_gpu_s.tolist() == [4, 4]
    assert view.free_gpus == 0
    assert view.workload is jobs and view.cluster is cluster
    assert seen[0].now_s == 0 and seen[0].fits.tolist() == [1, 1] and seen[0].best_slowdown.tolist() == [1, 1]


def test_what_a_placement_sees() -> None:
    seen: list[PlacementView] = []

    def look(view: PlacementView) -> np.ndarray:
        seen.append(view)
        return first_fit(view)

    register_placement("look")(look)
    cluster = load_cluster("testbed32")
    simulate(JOBS, cluster, "fifo+look")
    assert [(view.now_s, view.job, view.num_gpus) for view in seen] == [(0, 0, 2), (0, 1, 2), (1, 2, 3), (2, 3, 4)]
    assert seen[0].free.tolist() == seen[0].size.tolist() == [4] * 8
    assert seen[2].free.tolist() == [0] + [4] * 7
    assert seen[0].rack.tolist() == [0] * 4 + [1] * 4
    assert seen[0].cluster is cluster and seen[0].workload is JOBS


def test_types_are_kept_apart() -> None:
    """A placement sees the nodes' GPUs of the one type that the gang goes to."""
    cluster: Cluster = replace(
        node_cluster(3, 2), island_type=np.array([0, 1, 1], dtype=np.int32), gpu_types=("V100", "A100")
    )
    jobs = make_jobs([0, 0], [5, 5], [2, 3], gpu_type=[0, -1], gpu_type_names=("V100",))
    seen = []

    def look(view: PlacementView) -> np.ndarray:
        seen.append((view.free.tolist(), view.size.tolist()))
        return first_fit(view)

    register_placement("look")(look)
    simulate(jobs, cluster, "fifo+look")
    assert seen == [([2, 0, 0], [2, 0, 0]), ([0, 2, 2], [0, 2, 2])]


def test_a_rule_cannot_change_anything() -> None:
    """The arrays are copies: a rule that scribbles on them spoils nothing."""

    def scribble(view: Any) -> np.ndarray:
        answer = first_fit(view) if isinstance(view, PlacementView) else view.estimate_s.copy()
        for name, value in vars(view).items():
            if isinstance(value, np.ndarray) and name not in ("workload", "cluster"):
                value[:] = 0
        return np.array(answer)

    register_ordering("scribble")(scribble)
    register_placement("scribble")(scribble)
    same(simulate(JOBS, node_cluster(2, 2), "scribble+scribble"), simulate(JOBS, node_cluster(2, 2), "sjf+first-fit"))


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda v: v.estimate_s[:-1], "keys of shape"),
        (lambda v: [v.estimate_s, v.estimate_s], "keys of shape"),
        (lambda v: 1.0, "keys of shape"),
        (lambda v: None, "no numbers|keys of shape"),
        (lambda v: ["soon"] * len(v.job), "no numbers"),
        (lambda v: [[1], [2, 3]], "no numbers"),
        (lambda v: np.full(len(v.job), np.nan), "a NaN key"),
        (lambda v: {"a": 1}, "no numbers"),
    ],
)
def test_bad_keys(answer: Callable[[QueueView], Any], says: str) -> None:
    register_ordering("bad")(answer)
    with pytest.raises(InputError, match=says) as error:
        simulate(JOBS, count_cluster(4), "bad", OFF)
    assert "'bad'" in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda jobs, rng: jobs.estimate_s[:-1], "shape"),
        (lambda jobs, rng: ["soon"] * len(jobs), "no numbers"),
        (lambda jobs, rng: np.where(np.arange(len(jobs)) == 2, np.nan, 1.0), "the key of job 2 is NaN"),
    ],
)
def test_bad_static_keys(answer: Callable[..., Any], says: str) -> None:
    register_ordering("bad", static=True)(answer)
    with pytest.raises(InputError, match=says) as error:
        simulate(JOBS, count_cluster(4), "bad", OFF)
    assert "\n" not in str(error.value)


def test_infinite_keys_are_keys() -> None:
    """inf is last, -inf first."""
    register_ordering("ends")(lambda v: np.where(v.job == 3, -np.inf, np.where(v.job == 2, np.inf, 0)))
    assert simulate(JOBS, count_cluster(4), "ends:strict", OFF).start_s.tolist() == [0, 0, 6, 5]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda v: v.free, "took 4 GPUs for a gang of 2"),
        (lambda v: np.array([1, 0]), "took 1 GPUs for a gang of 2"),
        (lambda v: np.array([3, -1]), "not free"),
        (lambda v: np.array([-1, 3]), "not free"),
        (lambda v: np.array([1.0, 1.0]), "whole numbers"),
        (lambda v: np.array([True, True]), "whole numbers"),
        (lambda v: np.array([2]), "whole numbers"),
        (lambda v: [2, 0, 0], "whole numbers"),
        (lambda v: [[2], [0, 1]], "whole numbers"),
        (lambda v: None, "whole numbers"),
        (lambda v: "ab", "whole numbers"),
    ],
)
def test_bad_placements(answer: Callable[[PlacementView], Any], says: str) -> None:
    register_placement("bad")(answer)
    with pytest.raises(InputError, match=says) as error:
        simulate(JOBS, node_cluster(2, 2), "fifo+bad", OFF)
    assert "'bad'" in str(error.value) and "\n" not in str(error.value)


def test_a_rule_that_fails_itself() -> None:
    """An error inside the user's function is the user's to see, unchanged."""

    def broken(view: QueueView) -> np.ndarray:
        raise ZeroDivisionError("in the rule")

    register_ordering("broken")(broken)
    register_ordering("broken-static", static=True)(lambda jobs, rng: jobs.estimate_s.reshape(2, 99))
    with pytest.raises(ZeroDivisionError, match="in the rule"):
        simulate(JOBS, count_cluster(4), "broken", OFF)
    with pytest.raises(ValueError, match="reshape"):
        simulate(JOBS, count_cluster(4), "broken-static", OFF)


# -- the page ----------------------------------------------------------------------------------------------------------


def test_the_examples_of_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    """They run one after another, as they stand."""
    blocks = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(blocks) >= 5
    scope: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, str(DOCS), "exec"), scope)
    out = capsys.readouterr().out
    assert re.search(r"^aging\S*: mean JCT [\d,]+ s$", out, re.MULTILINE)
    assert "the placement 'greedy' took" in out
    schedule = scope["schedule"]
    assert np.isfinite(schedule.finish_s).all()


def test_the_page_names_every_field() -> None:
    text = DOCS.read_text(encoding="utf-8")
    for view in (QueueView, PlacementView):
        for field in view.__dataclass_fields__:
            assert f"`{field}`" in text, field
