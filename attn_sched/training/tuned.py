"""The ``tuned`` rule: weights of a linear rule found by CMA-ES on windows of several logs and clusters at once.

Hansen and Ostermeier, Completely derandomized self-adaptation in evolution strategies, Evolutionary Computation 9(2),
2001; the search itself is the ``cma`` library's. A cell is one log on one cluster. On each window a candidate's excess
completion time is divided by a reference rule's; a candidate's score is the mean over cells of two means of these
ratios: one in which all windows of the cell weigh the same, and one in which they weigh as much as the reference rule's
excess on them, which is the ratio of the sums. The first alone neglects the bursts in which most of the waiting is
done, the second hangs on few windows.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from os import PathLike
from pathlib import Path
from typing import Any

import cma
import numpy as np

from attn_sched.agents.rewards import REFERENCE, reference_scales
from attn_sched.cluster import Cluster
from attn_sched.errors import InputError
from attn_sched.files import atomic_write
from attn_sched.policies.linear import JOB_AGENT, LinearRule, play, sjf_rule
from attn_sched.seeding import stream
from attn_sched.simulator import Engine, SimOptions
from attn_sched.simulator import layout as at
from attn_sched.simulator.layout import F8, I8
from attn_sched.simulator.state import FIELDS
from attn_sched.training.data import ClusterPools
from attn_sched.workload import Workload
from attn_sched.workload.episodes import EpisodeSpec

START_THETA = 1.5  # the search begins at sjf that holds gangs whose best slowdown now is above this

Progress = Callable[[int, float], None]  # generations done, score of the last one's mean


@dataclass(frozen=True)
class TuneSettings:
    """How long and on what to search. Validated when made.

    Raises:
        InputError: a value is out of range.
    """

    evaluations: int = 2500  # candidate rules
    windows: int = 100  # of all clusters together that a candidate is tried on
    bank: int = 600  # windows of each cluster that those are drawn from, anew in each generation
    finalists: int = 16  # rules compared at the end, on the whole bank
    clip: float = 4.0  # a window's ratio counts at most this much: one that went wrong must not decide alone
    sigma: float = 0.15  # of the first generation
    window: int = 32  # waiting jobs that the rule sees (K)
    episodes: EpisodeSpec = field(default_factory=EpisodeSpec)

    def __post_init__(self) -> None:
        for name, least in (("evaluations", 1), ("windows", 1), ("bank", 1), ("finalists", 1), ("window", 1)):
            if getattr(self, name) < least:
                raise InputError(
                    f"{getattr(self, name)} is too few", field=name, expected=f"a whole number of at least {least}"
                )
        for name in ("clip", "sigma"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise InputError(f"{value} will not do", field=name, expected="a number above 0")


class WindowBank:
    """Windows on one cluster that linear rules are tried on again and again.

    Args:
        cluster: The cluster of all of them.
        workloads: W windows, all of whose jobs count.
        window: K, waiting jobs that a rule sees.
    """

    def __init__(self, cluster: Cluster, workloads: Sequence[Workload], window: int) -> None:
        options = SimOptions(record_segments=False)
        self.reference: F8 = reference_scales(cluster, workloads, options)[:, 0]  # f8[W] summed excess (s)
        self.log = np.unique([workload.name for workload in workloads], return_inverse=True)[1]  # [W] number of its log
        self.engine = Engine(cluster, workloads, JOB_AGENT, options, window=window)
        arrays = self.engine.batch.arrays
        self._fresh = {name: arrays[name].copy() for name, kind in FIELDS.items() if not kind.shared}

    def __len__(self) -> int:
        return len(self.reference)

    def ratios(self, weights: F8, which: I8) -> F8:
        """Excess completion time under a rule over the reference rule's, f8[len(which)], of the windows ``which``."""
        arrays = self.engine.batch.arrays
        for name, fresh in self._fresh.items():
            arrays[name][which] = fresh[which]
        for b in which:
            play(weights, self.engine, int(b))
        return np.asarray(arrays["sf"][which, at.DONE_EXCESS] / self.reference[which])


class Scorer:
    """Banks of all clusters, drawn from their training pools: the same for the same seed."""

    def __init__(self, pools: Sequence[ClusterPools], settings: TuneSettings, seed: int) -> None:
        self.settings = settings
        self.banks = []
        for pool in pools:
            source = pool.source(settings.episodes)
            generator = stream(seed, f"tuning windows:{pool.cluster.name}")
            windows = [source.draw(generator) for _ in range(settings.bank)]
            self.banks.append(WindowBank(pool.cluster, windows, settings.window))

    def score(self, weights: F8, which: Sequence[I8]) -> float:
        """Of a rule on the windows ``which`` of each bank; see the module. A ratio counts at most ``settings.clip``."""
        cells = []
        for bank, numbers in zip(self.banks, which, strict=True):
            ratios = np.minimum(bank.ratios(weights, numbers), self.settings.clip)
            for log in np.unique(bank.log[numbers]):
                mine = bank.log[numbers] == log
                weight = bank.reference[numbers][mine]
                cells.append(0.5 * ratios[mine].mean() + 0.5 * np.average(ratios[mine], weights=weight))
        return float(np.mean(cells))

    def draw(self, generator: np.random.Generator) -> list[I8]:
        """Windows for one generation: all clusters have the same share of them."""
        share = min(self.settings.bank, max(1, round(self.settings.windows / len(self.banks))))
        return [np.sort(generator.choice(len(bank), share, replace=False)) for bank in self.banks]

    def everything(self) -> list[I8]:
        """All windows of all banks."""
        return [np.arange(len(bank)) for bank in self.banks]


_scorer: Scorer | None = None


def _start_worker(pools: Sequence[ClusterPools], settings: TuneSettings, seed: int) -> None:
    global _scorer  # one a process, so that its windows are laid out once
    _scorer = Scorer(pools, settings, seed)


def _score(task: tuple[F8, list[I8]]) -> float:
    assert _scorer is not None
    return _scorer.score(*task)


Evaluate = Callable[[Sequence[F8], list[I8]], list[float]]


@contextmanager
def _evaluator(
    pools: Sequence[ClusterPools], settings: TuneSettings, seed: int, processes: int
) -> Iterator[tuple[Scorer, Evaluate]]:
    """The scorer of this process, and a function that scores many rules on the same windows."""
    scorer = Scorer(pools, settings, seed)
    if processes <= 1:
        yield scorer, lambda rules, which: [scorer.score(rule, which) for rule in rules]
        return
    # Not forked: torch and Ray, which a caller may have loaded, do not survive that.
    with ProcessPoolExecutor(
        processes, mp_context=get_context("spawn"), initializer=_start_worker, initargs=(pools, settings, seed)
    ) as pool:
        yield scorer, lambda rules, which: list(pool.map(_score, [(rule, which) for rule in rules]))


def tune_rule(
    pools: Sequence[ClusterPools],
    settings: TuneSettings | None = None,
    seed: int = 0,
    *,
    processes: int = 1,
    progress: Progress | None = None,
    resume: str | PathLike[str] | None = None,
    card: dict[str, Any] | None = None,
) -> LinearRule:
    """Search for the linear rule with the least excess completion time on the training parts of several logs.

    All candidates of a generation are tried on the same windows, the next generation on others. At the end the means
    and best candidates of the last generations, and the rule the search began with, are compared on the whole bank.

    Args:
        pools: Training parts, by cluster.
        settings: Budget and windows.
        seed: Fixes the search and its windows; the result does not depend on ``processes``.
        processes: Candidates tried at a time.
        progress: Told after each generation.
        resume: A file that the scores of all generations so far are kept in; where it exists already, the search goes
            on from there.
        card: Entries for the rule's card besides those about the search itself.

    Raises:
        InputError: no pool, or a file to resume from that belongs to another search.
    """
    settings = settings or TuneSettings()
    if not pools:
        raise InputError("there is no cluster to tune for", field="clusters", expected="at least one")
    began = time.perf_counter()
    journal = _Journal(resume, _fingerprint(pools, settings, seed))
    start = sjf_rule(START_THETA).vector
    noise = stream(seed, "cma")
    search = cma.CMAEvolutionStrategy(
        start,
        settings.sigma,
        # A generator of its own: the library would otherwise seed and use numpy's global one.
        {"seed": np.nan, "randn": lambda *shape: noise.standard_normal(shape), "verbose": -9, "verb_log": 0},
    )
    generations = max(1, round(settings.evaluations / search.popsize))
    picker = stream(seed, "tuning generations")
    candidates: list[F8] = []
    with _evaluator(pools, settings, seed, processes) as (scorer, evaluate):
        for number in range(generations):
            rules = [np.asarray(rule) for rule in search.ask()]
            which = scorer.draw(picker)
            scores = journal.get(number) or evaluate(rules, which)
            journal.put(number, scores)
            search.tell(rules, scores)
            candidates += [rules[int(np.argmin(scores))], np.asarray(search.mean).copy()]
            if progress is not None:
                progress(number + 1, float(np.mean(scores)))
        finalists = [start, *candidates[-settings.finalists :]]
        final = evaluate(finalists, scorer.everything())
    best = int(np.argmin(final))
    told = {
        "method": "CMA-ES over windows of the training parts; score: excess completion time over that of "
        f"{REFERENCE} on the same window, at most {settings.clip:g}; mean over cells (log on cluster), of the mean "
        "over windows and the mean weighted by the reference's excess",
        "settings": asdict(settings),
        "seed": seed,
        "clusters": [pool.cluster.name for pool in pools],
        "logs": sorted({log.name for pool in pools for log in pool.pools}),
        "budget": {"evaluations": generations * search.popsize, "seconds": round(time.perf_counter() - began, 1)},
        "training_score": {"first": round(final[0], 4), "chosen": round(final[best], 4)},
    }
    return LinearRule.from_vector(finalists[best], json.loads(json.dumps(told | (card or {}))))


def _fingerprint(pools: Sequence[ClusterPools], settings: TuneSettings, seed: int) -> dict[str, Any]:
    """What a search depends on, as far as a short text can tell."""
    logs = [
        [pool.cluster.name, log.name, len(log), float(log.duration_s.sum())] for pool in pools for log in pool.pools
    ]
    told = {"settings": asdict(settings), "seed": seed, "logs": logs}
    whole: dict[str, Any] = json.loads(json.dumps(told))
    return whole


class _Journal:
    """The scores of the generations so far. The search is repeated from them: it draws the same candidates again."""

    def __init__(self, path: str | PathLike[str] | None, search: dict[str, Any]) -> None:
        self._path = None if path is None else Path(path)
        self._search = search
        self._scores: list[list[float]] = []
        if self._path is None or not self._path.exists():
            return
        try:
            content = json.loads(self._path.read_text(encoding="utf-8"))
            same = content["search"] == search
            self._scores = [[float(score) for score in scores] for scores in content["scores"]]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"holds no search: {error}", file=path, expected="a file that tuning has written"
            ) from None
        if not same:
            expected = "the same logs, clusters, settings and seed"
            raise InputError("belongs to another search", file=path, expected=expected)

    def get(self, number: int) -> list[float] | None:
        return self._scores[number] if number < len(self._scores) else None

    def put(self, number: int, scores: list[float]) -> None:
        if number < len(self._scores):
            return
        self._scores.append(scores)
        if self._path is not None:
            with atomic_write(self._path) as part:
                part.write_text(json.dumps({"search": self._search, "scores": self._scores}), encoding="utf-8")
