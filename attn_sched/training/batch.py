"""Many clusters that run episode after episode, of several shapes side by side.

One engine per shape does the work; observations of all stand in arrays padded to the largest shape, so that one forward
pass of a network answers for every cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from attn_sched.agents import Observations
from attn_sched.agents.rewards import DEFAULT_WEIGHTS, TERMS, Rewards, reference_scales
from attn_sched.agents.schema import GLOBAL_FEATURES, JOB_FEATURES, OUTLOOK_FEATURES, UNIT_FEATURES, UNIT_GROUPS
from attn_sched.cluster import Cluster
from attn_sched.errors import InputError
from attn_sched.seeding import stream
from attn_sched.simulator import Engine, EngineRule, SimOptions
from attn_sched.simulator import layout as at
from attn_sched.training.outlook import Outlook
from attn_sched.workload import Workload

F4 = npt.NDArray[np.float32]
F8 = npt.NDArray[np.float64]
I8 = npt.NDArray[np.int64]

Draw = Callable[[np.random.Generator], Workload]
DrawWeights = Callable[[np.random.Generator], Sequence[float]]


def default_weights(generator: np.random.Generator) -> Sequence[float]:
    """The default objective weights, whatever is drawn."""
    return DEFAULT_WEIGHTS


@dataclass(frozen=True)
class Shape:
    """``count`` clusters of one shape and where their episodes come from."""

    cluster: Cluster
    draw: Draw  # the next episode: all jobs counted
    count: int


@dataclass(frozen=True)
class Ended:
    """An episode that has just ended."""

    cluster: int  # which of the B
    episode: int  # its number
    costs: F8  # [3] normalised costs of the whole episode
    jobs: int
    decisions: int


@dataclass(eq=False)
class _Group:
    """The clusters of one shape: rows ``lo .. lo + count - 1`` of the batch."""

    lo: int
    shape: Shape
    engine: Engine
    seen: Observations
    rewards: Rewards
    outlook: Outlook


class EpisodeBatch:
    """B clusters under one rule; each starts a new episode when its last one has ended.

    Arrays are those of ``Observations`` for all clusters, U the units of the largest shape: ``jobs`` f4[B, K, F],
    ``job_mask`` i1[B, K + 1], ``units`` f4[B, U, Fu], ``unit_mask`` i1[B, U], ``glob`` f4[B, G], ``chosen`` f4[B, F],
    ``groups`` i4[B, U, UNIT_GROUPS] (-1 pads), ``weights`` f4[B, 3], and ``outlook`` f4[B, O] for critics alone.

    Args:
        shapes: Clusters and their episodes.
        rule: Whom the engine asks: job agent, GPU agent or both.
        options: Of the replay; segments are not recorded.
        window: K.
        weights: Draws the objective weights of an episode.
        fairness: The fairness term.
        seed: Fixes episodes and weights; each cluster draws from its own streams.
    """

    def __init__(
        self,
        shapes: Sequence[Shape],
        rule: EngineRule,
        options: SimOptions | None = None,
        *,
        window: int = 32,
        weights: DrawWeights = default_weights,
        fairness: str = "wait",
        seed: int = 0,
    ) -> None:
        self.size = sum(shape.count for shape in shapes)
        if self.size < 1:
            raise InputError("there is no cluster", field="shapes", expected="at least one")
        options = options or SimOptions(record_segments=False)
        self.fairness = fairness
        self._draw_weights = weights
        self._streams = [stream(seed, f"episodes:{b}") for b in range(self.size)]
        self._weight_streams = [stream(seed, f"objective weights:{b}") for b in range(self.size)]
        self.groups_of: list[_Group] = []
        lo = 0
        for shape in shapes:
            workloads = [shape.draw(self._streams[b]) for b in range(lo, lo + shape.count)]
            scales = reference_scales(shape.cluster, workloads, options, fairness)
            engine = Engine(shape.cluster, workloads, rule, options, window=window)
            self.groups_of.append(
                _Group(lo, shape, engine, Observations(engine), Rewards(engine, scales, fairness), Outlook(engine))
            )
            lo += shape.count
        units = max(len(group.engine.units) for group in self.groups_of)
        b = self.size
        self.jobs: F4 = np.zeros((b, window, len(JOB_FEATURES)), np.float32)
        self.job_mask = np.zeros((b, window + 1), np.int8)
        self.units: F4 = np.zeros((b, units, len(UNIT_FEATURES)), np.float32)
        self.unit_mask = np.zeros((b, units), np.int8)
        self.glob: F4 = np.zeros((b, len(GLOBAL_FEATURES)), np.float32)
        self.chosen: F4 = np.zeros((b, len(JOB_FEATURES)), np.float32)
        self.groups = np.full((b, units, UNIT_GROUPS), -1, np.int32)
        self.weights: F4 = np.zeros((b, len(TERMS)), np.float32)
        self.outlook: F4 = np.zeros((b, len(OUTLOOK_FEATURES)), np.float32)
        self.phases: I8 = np.zeros(b, np.int64)
        self.costs: F8 = np.zeros((b, len(TERMS)))  # at the present decision
        self.episode: I8 = np.arange(b)  # number of the episode each cluster is in
        self.windows: I8 = np.full((b, window), -1, np.int64)
        self._next_episode = b
        self._decisions: I8 = np.zeros(b, np.int64)
        self._waiting = False  # for answers
        for group in self.groups_of:
            rows = slice(group.lo, group.lo + group.shape.count)
            self.groups[rows, : len(group.engine.units)] = group.seen.groups
            for row in range(rows.start, rows.stop):
                self._new_weights(group, row)

    def _new_weights(self, group: _Group, row: int) -> None:
        self.weights[row] = self._draw_weights(self._weight_streams[row])
        group.seen.weights[row - group.lo] = self.weights[row]

    def ask(self) -> list[Ended]:
        """Run every cluster to its next decision; fills all arrays. Returns the episodes that ended on the way."""
        ended: list[Ended] = []
        for group in self.groups_of:
            self._ask_group(group, ended)
        return ended

    def _ask_group(self, group: _Group, ended: list[Ended]) -> None:
        count = group.shape.count
        rows = slice(group.lo, group.lo + count)
        ask = group.engine.ask()
        while not ask.phases.all():
            costs = group.rewards.costs()
            for b in np.flatnonzero(ask.phases == at.DONE_PHASE):
                row = group.lo + int(b)
                jobs = len(group.engine.workloads[b])
                ended.append(Ended(row, int(self.episode[row]), costs[b].copy(), jobs, int(self._decisions[row])))
                self._restart(group, int(b))
            ask = group.engine.ask()
        group.seen.update(ask)
        units = len(group.engine.units)
        self.phases[rows] = ask.phases
        self.windows[rows] = ask.windows
        self.jobs[rows] = group.seen.jobs
        self.job_mask[rows] = group.seen.job_mask
        self.units[rows, :units] = group.seen.units
        self.unit_mask[rows, :units] = group.seen.unit_mask
        self.glob[rows] = group.seen.glob
        self.chosen[rows] = group.seen.chosen
        self.costs[rows] = group.rewards.costs()
        group.outlook.fill(self.costs[rows], group.rewards.scales, self.outlook[rows])

    def _restart(self, group: _Group, b: int) -> None:
        row = group.lo + b
        workload = group.shape.draw(self._streams[row])
        options = group.engine.options
        group.engine.restart(b, workload)
        group.seen.reset(b)
        group.outlook.reset(b)
        group.rewards.reset(b, reference_scales(group.shape.cluster, [workload], options, self.fairness)[0])
        self._new_weights(group, row)
        self.episode[row] = self._next_episode
        self._next_episode += 1
        self._decisions[row] = 0

    def apply(self, actions: I8) -> None:
        """Answer i8[B]: window indices (K to hold) or units. Raises InputError for an illegal one."""
        for group in self.groups_of:
            group.engine.apply(actions[group.lo : group.lo + group.shape.count])
        self._decisions += 1

    def forced(self) -> I8:
        """i8[B]: the only legal answer of each cluster that has just one, else -1."""
        mask = np.where((self.phases == at.JOB_PHASE)[:, None], _wide(self.job_mask, self.unit_mask), 0)
        mask = mask + np.where((self.phases == at.UNIT_PHASE)[:, None], _wide(self.unit_mask, self.job_mask), 0)
        return np.where(mask.sum(1) == 1, mask.argmax(1), -1)

    def get_state(self) -> dict[str, object]:
        """What a restored run draws from next. Clusters themselves start with new episodes."""
        return {
            "episodes": [generator.bit_generator.state for generator in self._streams],
            "weights": [generator.bit_generator.state for generator in self._weight_streams],
            "next": self._next_episode,
        }

    def set_state(self, state: dict[str, object]) -> None:
        """Go on where ``get_state`` was called: every cluster starts its next episode."""
        for generators, key in ((self._streams, "episodes"), (self._weight_streams, "weights")):
            for generator, saved in zip(generators, state[key], strict=True):  # type: ignore[call-overload]
                generator.bit_generator.state = saved
        self._next_episode = int(state["next"])  # type: ignore[call-overload]
        for group in self.groups_of:
            for b in range(group.shape.count):
                self._restart(group, b)


def _wide(mask: np.ndarray, other: np.ndarray) -> np.ndarray:
    width = max(mask.shape[1], other.shape[1])
    return np.pad(mask, ((0, 0), (0, width - mask.shape[1])))
