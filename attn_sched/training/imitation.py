"""Imitation on the student's own states (DAgger: Ross, Gordon and Bagnell, AISTATS 2011), the start that PPO needs.

The job agent learns the choices of a linear rule, HOLD among them; the GPU agent the picks of ``topo-best-fit``. The
clusters are driven by teacher and student in turn, less and less by the teacher, and whatever state comes up the
teacher says what it would have done. All that was ever seen is kept and learned from. At the end the student acts
alone, and the critics are fitted to what its decisions brought about.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from attn_sched.agents.networks import Critic, GpuNet, JobNet
from attn_sched.agents.pair import AgentPair, arrays
from attn_sched.agents.schema import AGENTS
from attn_sched.agents.teaching import picks_of_rule
from attn_sched.errors import InputError
from attn_sched.policies.linear import LinearRule, answer
from attn_sched.seeding import stream
from attn_sched.simulator import Ask
from attn_sched.training.batch import EpisodeBatch
from attn_sched.training.critics import fit_critics, gradient_step
from attn_sched.training.rollout import PHASES

F4 = npt.NDArray[np.float32]
I8 = npt.NDArray[np.int64]
Rows = dict[str, np.ndarray]
Progress = Callable[[str, int, Mapping[str, float]], None]  # stage, round of it, metrics

NEVER_HOLD = 1e9  # on top of the start sum


@dataclass(frozen=True)
class ImitationSettings:
    """How much to learn from the teacher. Validated when made.

    Raises:
        InputError: a value is out of range.
    """

    rounds: int = 24
    decisions: int = 8_000  # of both agents a round, those with a single legal answer not counted
    teacher: float = 0.5  # the teacher's share of the decisions in the first round is 1, then falls by this factor
    epochs: int = 2  # over the newest decisions and as many older ones
    last_epochs: int = 4  # over all decisions, after the last round
    minibatch: int = 512
    rate: float = 1e-3  # of Adam; falls to a tenth over all epochs, along a cosine
    gradient_clip: float = 1.0
    value_decisions: int = 60_000  # of the finished student, to fit the critics to; those of whole episodes count
    value_epochs: int = 6
    value_rate: float = 1e-3
    huber: float = 1.0  # from which error on the value loss grows linearly

    def __post_init__(self) -> None:
        for name, least in (
            ("rounds", 1), ("decisions", 1), ("epochs", 0), ("last_epochs", 0), ("minibatch", 1),
            ("value_decisions", 0), ("value_epochs", 0),
        ):  # fmt: skip
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise InputError(f"{value!r} is out of range", field=name, expected=f"a whole number from {least} up")
        for name in ("rate", "gradient_clip", "value_rate", "huber"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise InputError(f"{value!r} is out of range", field=name, expected="a number above 0")
        if not 0 <= self.teacher <= 1:
            raise InputError(f"{self.teacher!r} is no share", field="teacher", expected="0 to 1")


class _Lessons:
    """Decisions of one agent, and what the teacher would have done: ``target`` f4[n, A], rows that sum to 1."""

    def __init__(self) -> None:
        self._store: Rows = {}  # rows past ``_count`` are room to grow
        self._count = 0

    def add(self, obs: Rows, target: F4) -> None:
        """Decisions as ``pair.arrays`` gives them; what only critics see is left out."""
        rows = {**obs, "target": target}
        rows.pop("outlook", None)
        needed = self._count + len(target)
        for name, values in rows.items():
            store = self._store.get(name)
            if store is None or len(store) < needed:
                larger = np.empty((max(1024, 2 * needed), *values.shape[1:]), values.dtype)
                if store is not None:
                    larger[: self._count] = store[: self._count]
                self._store[name] = store = larger
            store[self._count : needed] = values
        self._count = needed

    def __len__(self) -> int:
        return self._count

    def rows(self, first: int = 0) -> dict[str, Tensor]:
        """All decisions from number ``first`` on."""
        return {name: torch.from_numpy(store[first : self._count]) for name, store in self._store.items()}


class Teacher:
    """What rule and placement would do for every cluster of a batch.

    Args:
        batch: The clusters.
        rule: For the job agent; None where there is none.
        hold: Whether the student may hold; if not, the rule's HOLD is taken from it.
    """

    def __init__(self, batch: EpisodeBatch, rule: LinearRule | None, hold: bool = True) -> None:
        if rule is not None and not hold:
            rule = replace(rule, start={**rule.start, "constant": NEVER_HOLD})
        self.batch = batch
        self.rule = rule

    def targets(self) -> dict[str, tuple[I8, F4]]:
        """By agent: the clusters that ask it and have a choice, and the teacher's choice of each, f4[n, answers].

        A row spreads 1 evenly over the answers that are equally good to the teacher. A cluster where it has none is
        left out.
        """
        batch = self.batch
        choice = batch.forced() < 0
        jobs = np.full(batch.size, -1, np.int64)
        units = np.zeros(batch.unit_mask.shape, np.int8)
        for group in batch.groups_of:
            part = slice(group.lo, group.lo + group.shape.count)
            ask = Ask(batch.phases[part], batch.windows[part])
            if self.rule is not None:
                answer(self.rule, group.engine, ask, jobs[part])
            units[part, : len(group.engine.units)] = picks_of_rule(group.engine, ask)
        rows = np.flatnonzero(choice & (batch.phases == PHASES["job"]) & (jobs >= 0))
        best = np.zeros((len(rows), batch.job_mask.shape[1]), np.float32)
        best[np.arange(len(rows)), jobs[rows]] = 1.0
        made = {"job": (rows, best)}
        rows = np.flatnonzero(choice & (batch.phases == PHASES["gpu"]) & units.any(1))
        even = units[rows].astype(np.float32)
        made["gpu"] = rows, even / even.sum(1, keepdims=True)
        return made


def imitate(
    batch: EpisodeBatch,
    pair: AgentPair,
    critics: Mapping[str, Critic],
    rule: LinearRule | None,
    settings: ImitationSettings | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> dict[str, float]:
    """Teach the agents of ``pair`` in place, then fit their critics to the student.

    Args:
        batch: Clusters whose rule asks for the agents that ``pair`` has, no others.
        pair: The students.
        critics: Of the agents to fit; none, to leave them as they are.
        rule: The job agent's teacher; None where there is no job agent.
        settings: How much.
        seed: Fixes mixture, draws and minibatches.
        progress: Told after each round.

    Returns:
        By agent: ``agreement.AGENT``, the share of decisions in the last round, before learning from it, in which the
        student's best answer is one of the teacher's; ``loss.AGENT``, its cross-entropy then less that of the teacher's
        own spread; ``decisions.AGENT``; and with critics ``explained.AGENT``, the share of the variance of the
        (weighted) returns that they explain, on clusters that they were not fitted to.

    Raises:
        InputError: there is no rule for the job agent.
    """
    settings = settings or ImitationSettings()
    agents = [agent for agent in AGENTS if getattr(pair, agent) is not None]
    if rule is None and "job" in agents:
        raise InputError("the job agent has no teacher", field="rule", expected="a linear rule")
    learners = {agent: _Learner(pair.net(agent), settings, stream(seed, f"imitation:{agent}")) for agent in agents}
    teacher = Teacher(batch, rule, pair.spec.hold)
    mixture = stream(seed, "imitation mixture")
    draws = torch.Generator().manual_seed(int(stream(seed, "imitation draws").integers(1 << 62)))
    metrics: dict[str, float] = {}
    for number in range(settings.rounds):
        share = settings.teacher**number
        known = {agent: len(learner.lessons) for agent, learner in learners.items()}
        lessons = {agent: learner.lessons for agent, learner in learners.items()}
        _collect(batch, pair, teacher, lessons, share, settings.decisions, mixture, draws)
        for agent, learner in learners.items():
            if number == 0:
                learner.scale()
            metrics |= learner.look(agent, known[agent])
            learner.learn(known[agent])
        if progress is not None:
            progress("imitation", number, dict(metrics))
    for agent, learner in learners.items():
        learner.finish()
        metrics[f"decisions.{agent}"] = float(len(learner.lessons))
    if critics and settings.value_decisions and settings.value_epochs:
        metrics |= fit_critics(
            batch,
            pair,
            critics,
            settings.value_decisions,
            epochs=settings.value_epochs,
            minibatch=settings.minibatch,
            rate=settings.value_rate,
            huber=settings.huber,
            gradient_clip=settings.gradient_clip,
            seed=seed,
        )
        if progress is not None:
            progress("critics", 0, dict(metrics))
    return metrics


def _collect(
    batch: EpisodeBatch,
    pair: AgentPair,
    teacher: Teacher,
    lessons: Mapping[str, _Lessons],
    share: float,
    decisions: int,
    mixture: np.random.Generator,
    draws: torch.Generator,
) -> None:
    """Run the clusters, a decision being the teacher's with chance ``share`` and else drawn from the student.

    Adds ``decisions`` or some more to the lessons of both agents together.
    """
    taken = 0
    while taken < decisions:
        batch.ask()
        answers = batch.forced()
        targets = teacher.targets()
        for agent, (rows, target) in targets.items():
            if len(rows):
                lessons[agent].add(arrays(batch, rows, agent), target)
                # Of equally good answers any one: the student learns them all.
                answers[rows] = (target * (1.0 + mixture.random(target.shape))).argmax(1)
                taken += len(rows)
        student = answers < 0  # what the teacher has no opinion on
        if share < 1.0:
            student |= (mixture.random(batch.size) >= share) & (batch.forced() < 0)
        if student.any():
            own = pair.act(batch, np.where(student, batch.phases, 0), draws)
            answers = np.where(student, own, answers)
        batch.apply(answers)


class _Learner:
    """One network, its optimiser and what it has been shown."""

    def __init__(self, net: JobNet | GpuNet, settings: ImitationSettings, generator: np.random.Generator) -> None:
        self.net = net
        self.settings = settings
        self.lessons = _Lessons()
        self._generator = generator
        self._optimiser = torch.optim.Adam(net.parameters(), lr=settings.rate)
        self._done = 0.0  # of all learning
        self._planned = float(max(1, settings.rounds * settings.epochs + settings.last_epochs))

    @torch.no_grad()
    def look(self, agent: str, first: int) -> dict[str, float]:
        """How well the student does on the decisions from number ``first`` on."""
        if first == len(self.lessons):
            return {}
        rows = self.lessons.rows(first)
        hits, losses = [], []
        for start in range(0, len(rows["target"]), self.settings.minibatch):
            some = {name: values[start : start + self.settings.minibatch] for name, values in rows.items()}
            logits = self.net(some)
            assert isinstance(logits, Tensor)
            target = some["target"]
            hits.append(target.gather(1, logits.argmax(1, keepdim=True))[:, 0] > 0)
            losses.append(_cross_entropy(logits, target) + torch.xlogy(target, target).sum(1))
        return {
            f"agreement.{agent}": float(torch.cat(hits).float().mean()),
            f"loss.{agent}": float(torch.cat(losses).mean()),
        }

    def scale(self) -> None:
        """Let the network bring features to one scale by the decisions so far."""
        if len(self.lessons):
            self.net.inputs.fit(self.lessons.rows())

    def learn(self, first: int) -> None:
        """Go through the decisions from number ``first`` on, with as many older ones in between."""
        count = len(self.lessons)
        if first == count:
            return
        rows = self.lessons.rows()
        for _ in range(self.settings.epochs):
            older = self._generator.integers(first, size=min(first, count - first)) if first else np.empty(0, np.int64)
            self._epoch(rows, np.concatenate([np.arange(first, count), older]))

    def finish(self) -> None:
        """Go through all decisions."""
        if len(self.lessons):
            for _ in range(self.settings.last_epochs):
                self._epoch(self.lessons.rows(), np.arange(len(self.lessons)))

    def _epoch(self, rows: Mapping[str, Tensor], which: I8) -> None:
        rate = 0.1 + 0.9 * 0.5 * (1.0 + math.cos(math.pi * min(1.0, self._done / self._planned)))
        self._optimiser.param_groups[0]["lr"] = self.settings.rate * rate
        self._done += 1.0
        self._generator.shuffle(which)
        for first in range(0, len(which), self.settings.minibatch):
            part = torch.from_numpy(which[first : first + self.settings.minibatch])
            some = {name: values[part] for name, values in rows.items()}
            logits = self.net(some)
            assert isinstance(logits, Tensor)
            gradient_step(
                _cross_entropy(logits, some["target"]).mean(), self.net, self._optimiser, self.settings.gradient_clip
            )


def _cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """f4[N]; masked logits are finite and their targets 0."""
    return -(target * torch.log_softmax(logits, dim=1)).sum(1)
