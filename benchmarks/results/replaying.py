"""Replays of what is not in the cache: rules window by window, learned policies many windows side by side."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from attn_sched.evaluation.metrics import evaluate
from attn_sched.policies import simulate_many
from attn_sched.policies.learned import BATCH, check_policy
from benchmarks.results.cache import OPTIONS, SECONDS, Cache, Stored
from benchmarks.results.entrants import AGENTS, Entrant
from benchmarks.results.material import Material
from benchmarks.results.plan import Cell

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Task:
    """Replays that go together: some policies in some cells of one cluster."""

    entrants: tuple[Entrant, ...]
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Done:
    """What a task took."""

    task: Task
    windows: int
    seconds: float  # of wall time, cutting and measuring included
    decisions: float
    engine_s: float  # engine and policy alone


class Bench:
    """Material and cache: all that a task needs."""

    def __init__(self, material: Material, cache: Cache) -> None:
        self.material = material
        self.cache = cache
        self._digests: dict[Cell, str] = {}

    def stored(self, entrant: Entrant, cell: Cell) -> Stored | None:
        """The result of a policy in a cell, if it is in the cache. Raises InputError."""
        return self.cache.read(self._path(entrant, cell))

    def has(self, entrant: Entrant, cell: Cell) -> bool:
        """Whether it is. Raises InputError."""
        return self._path(entrant, cell).exists()

    def _path(self, entrant: Entrant, cell: Cell) -> Path:
        if cell not in self._digests:
            self._digests[cell] = self.material.digest(cell)
        return self.cache.path(cell.name, entrant.label, entrant.fingerprint, self._digests[cell])

    def run(self, task: Task) -> Done:
        """Replay a task and keep what it gave, cell by cell. Raises InputError."""
        began = time.perf_counter()
        windows = {cell: self.material.windows(cell) for cell in task.cells}
        together = [window for cell in task.cells for window in windows[cell]]
        cluster = self.material.cluster(task.cells[0].cluster)
        decisions = engine_s = 0.0
        for entrant in task.entrants:
            schedules = simulate_many(together, cluster, entrant.policy, OPTIONS)
            rows = [{**evaluate(schedule), SECONDS: schedule.engine_s} for schedule in schedules]
            decisions += sum(schedule.decisions for schedule in schedules)
            engine_s += sum(schedule.engine_s for schedule in schedules)
            for cell in task.cells:
                mine, rows = rows[: len(windows[cell])], rows[len(windows[cell]) :]
                self.cache.write(self._path(entrant, cell), mine, {"cell": cell.name, "policy": entrant.label})
        return Done(task, len(together) * len(task.entrants), time.perf_counter() - began, decisions, engine_s)


def tasks_of(bench: Bench, entrants: Sequence[Entrant], cells: Sequence[Cell]) -> list[Task]:
    """What is to be replayed: first the rules, all in a cell at once; then each learned policy, as many cells of a
    cluster as go side by side.

    Raises:
        InputError: windows that cannot be cut.
    """
    tasks = []
    quick = [entrant for entrant in entrants if entrant.kind != AGENTS]
    for cell in cells:
        missing = tuple(one for one in quick if one.plays(cell) and not bench.has(one, cell))
        if missing:
            tasks.append(Task(missing, (cell,)))
    for entrant in entrants:
        if entrant.kind == AGENTS:
            wanted = [cell for cell in cells if entrant.plays(cell) and not bench.has(entrant, cell)]
            tasks += [Task((entrant,), group) for group in _side_by_side(bench.material, wanted)]
    return tasks


def _side_by_side(material: Material, cells: Sequence[Cell]) -> Iterator[tuple[Cell, ...]]:
    """Cells of one cluster and size of window in groups of at most ``BATCH`` windows (one cell at least)."""
    kinds: dict[tuple[str, int], list[Cell]] = {}
    for cell in cells:
        kinds.setdefault((cell.cluster, cell.jobs), []).append(cell)
    for alike in kinds.values():
        group: list[Cell] = []
        size = 0
        for cell in alike:
            windows = len(material.windows(cell))
            if group and size + windows > BATCH:
                yield tuple(group)
                group, size = [], 0
            group.append(cell)
            size += windows
        yield tuple(group)


def check_entrants(material: Material, entrants: Sequence[Entrant], cells: Sequence[Cell]) -> None:
    """Load every learned policy once, and see that it can be shown the clusters it is to play on.

    Raises:
        InputError: damaged weights, or a cluster that is too deep.
    """
    for entrant in entrants:
        if entrant.role:
            for name in dict.fromkeys(cell.cluster for cell in cells if entrant.plays(cell)):
                check_policy(entrant.policy, material.cluster(name))


_worker: Bench | None = None


def _start_worker(bench: Bench) -> None:
    global _worker  # one bench a process, so that logs travel once and not with every task
    _worker = bench


def _work(task: Task) -> Done:
    assert _worker is not None
    return _worker.run(task)


def run_tasks(bench: Bench, tasks: Sequence[Task], processes: int, tell: Tell) -> list[Done]:
    """Replay all tasks; ``tell`` is given a line after each. Raises InputError."""
    done: list[Done] = []
    total = len(tasks)

    def took(one: Done) -> None:
        done.append(one)
        what = one.task.entrants[0].label if len(one.task.entrants) == 1 else f"{len(one.task.entrants)} policies"
        where = one.task.cells[0].name + (f" and {len(one.task.cells) - 1} more" if len(one.task.cells) > 1 else "")
        tell(f"{len(done)}/{total}: {what} in {where}: {one.windows} replays in {one.seconds:.1f} s")

    if processes <= 1 or total <= 1:
        for task in tasks:
            took(bench.run(task))
    else:
        from concurrent.futures import ProcessPoolExecutor

        with ProcessPoolExecutor(min(processes, total), initializer=_start_worker, initargs=(bench,)) as pool:
            for one in pool.map(_work, tasks):
                took(one)
    return done
