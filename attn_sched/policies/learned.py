"""Policies that answer from outside the engine: trained agents and linear rules, many clusters at a time.

Scoring one decision costs little less than scoring sixty, so windows are replayed side by side in one engine. The
schedule of each is the one it would have alone, to the last bit: random streams are those of a batch of one, and scores
are compared so that the size of the batch does not tell (``agents.greedy``). Networks run on one thread, which for
their size is the fastest anyhow and keeps sums in one order.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from attn_sched.agents.cards import find_card, weights_of
from attn_sched.agents.limits import check_depth
from attn_sched.agents.observations import Observations
from attn_sched.cluster import Cluster
from attn_sched.errors import InputError
from attn_sched.policies.called import answer_called
from attn_sched.policies.linear import LinearRule, answer, load_linear
from attn_sched.policies.names import Policy, parse_policy
from attn_sched.policies.registry import AGENTS, Learned
from attn_sched.policies.released import find_tuned
from attn_sched.seeding import stream
from attn_sched.simulator import layout as at
from attn_sched.simulator.engine import Ask, Engine, Progress
from attn_sched.simulator.layout import F8, I8
from attn_sched.simulator.options import SimOptions
from attn_sched.simulator.schedule import Schedule
from attn_sched.workload import Workload

if TYPE_CHECKING:
    from attn_sched.agents.explain import Explanation
    from attn_sched.agents.pair import AgentPair

BATCH = 64  # clusters replayed side by side
MOST_ROWS = 500_000  # jobs of a batch, padding included: some 300 MB
LATENCY_SAMPLES = 2000  # decisions of a replay of one workload whose time is kept ...
BATCH_LATENCY_SAMPLES = 200  # ... and those that are made again for a batch, one workload alone
PROGRESS_ROUNDS = 64  # answers between two looks at the progress bar
WINDOW = 32  # jobs a linear rule is shown


@dataclass(frozen=True, eq=False)
class Player:
    """The learned parts of a policy, loaded: who answers for jobs and who for units (None: a rule of the engine)."""

    policy: Policy
    job: AgentPair | LinearRule | None
    gpu: AgentPair | None

    @property
    def pairs(self) -> tuple[AgentPair, ...]:
        """The agents among the learned parts, each once."""
        pairs = [part for part in (self.job, self.gpu) if part is not None and not isinstance(part, LinearRule)]
        return tuple(dict.fromkeys(pairs))

    @property
    def window(self) -> int:
        """Jobs shown."""
        return self.pairs[0].spec.window if self.pairs else WINDOW

    def check(self, cluster: Cluster) -> None:
        """Raise InputError for a cluster that the agents cannot be shown."""
        if self.pairs:
            check_depth(cluster)


def load_player(policy: Policy) -> Player:
    """Load the learned parts of a policy; a file that has not changed is loaded once.

    Raises:
        InputError: a file is damaged or of another version, or agents of different windows stand in one policy.
    """
    by_name = {part: _load(part) for part in policy.learned}
    job = None if policy.ordering.learned is None else by_name[policy.ordering.learned]
    gpu = None if policy.placement.learned is None else by_name[policy.placement.learned]
    assert not isinstance(gpu, LinearRule)  # names refuse it
    player = Player(policy, job, gpu)
    windows = [pair.spec.window for pair in player.pairs]
    if len(set(windows)) > 1:
        raise InputError(
            f"the agents of {policy.name!r} see {windows[0]} and {windows[1]} jobs",
            field="policy",
            expected="agents trained with one window",
        )
    return player


def check_policy(name: str, cluster: Cluster) -> Policy:
    """Parse a policy's name, and load what it has learned: whatever is wrong with it is told before the long work.

    Raises:
        InputError: as :func:`parse_policy` and :func:`load_player`, or the agents cannot be shown the cluster.
    """
    policy = parse_policy(name)
    if policy.learned:
        load_player(policy).check(cluster)
    return policy


def _load(part: Learned) -> AgentPair | LinearRule:
    if part.kind != AGENTS:
        return load_linear(find_tuned(part.name))
    card = find_card(part.name)
    files = sorted(card.parent.glob(f"{card.stem}*")) if card.exists() else []
    return _load_agents(card, tuple((file.stat().st_mtime_ns, file.stat().st_size) for file in files))


@lru_cache(maxsize=8)
def _load_agents(card: Path, stamps: tuple[tuple[int, int], ...]) -> AgentPair:
    from attn_sched.agents.weights import load_agents

    return load_agents(card)


@contextmanager
def _one_thread(player: Player) -> Iterator[None]:
    """Networks on one thread, then as many as before."""
    if not player.pairs:
        yield
        return
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Session:
    """An engine whose questions a player answers."""

    def __init__(self, workloads: Sequence[Workload], cluster: Cluster, player: Player, options: SimOptions) -> None:
        self.player = player
        rule = player.policy.engine_rule()
        if rule.keys is not None:
            keys = rule.keys
            # Every cluster draws as if it were alone; so does a random placement, below.
            rule = replace(rule, keys=lambda workload, _: keys(workload, stream(options.seed, "ordering")))
        self.engine = Engine(cluster, workloads, rule, options, window=player.window)
        streams = self.engine.batch.arrays["rng"]
        streams[:] = streams[0]
        self.observations: Observations | None = None
        self._weights: dict[AgentPair, np.ndarray] = {}
        if player.pairs:
            self.observations = Observations(self.engine)
            self._weights = {pair: np.array(weights_of(pair.card), np.float32) for pair in player.pairs}

    def ask(self) -> Ask:
        """What the clusters wait for, those with rules in Python already answered."""
        while True:
            ask = self.engine.ask()
            called = np.flatnonzero((ask.phases == at.KEYS_PHASE) | (ask.phases == at.PLACE_PHASE))
            if not len(called):
                return ask
            for b in called.tolist():
                answer_called(self.engine, self.player.policy, int(ask.phases[b]), b)

    def apply(self, answers: I8) -> None:
        """Give the answers; where a job was picked for which a rule in Python places, it places at once."""
        self.engine.apply(answers)
        if self.player.policy.placement.called is not None:
            phases = self.engine.batch.arrays["si"][:, at.PHASE]
            for b in np.flatnonzero(phases == at.PLACE_PHASE).tolist():
                answer_called(self.engine, self.player.policy, at.PLACE_PHASE, b)

    def answers(self, ask: Ask) -> I8:
        """i8[B]: the answers of the learned parts; what they were shown stays in ``observations``."""
        out = np.zeros(len(ask.phases), dtype=np.int64)
        job = self.player.job
        if isinstance(job, LinearRule):
            answer(job, self.engine, ask, out)
            job = None
        if self.player.pairs:
            from attn_sched.agents.greedy import greedy
        for pair in self.player.pairs:
            mine = np.zeros(len(ask.phases), dtype=bool)
            for part, phase in ((job, at.JOB_PHASE), (self.player.gpu, at.UNIT_PHASE)):
                if part is pair:
                    mine |= ask.phases == phase
            if mine.any():
                out[mine] = greedy(pair, self.shown(ask, pair), np.where(mine, ask.phases, at.DONE_PHASE))[mine]
        return out

    def shown(self, ask: Ask, pair: AgentPair) -> Observations:
        """What ``pair`` is shown: the state, and the objective weights that it was trained for."""
        assert self.observations is not None
        self.observations.weights[:] = self._weights[pair]
        self.observations.update(ask)
        return self.observations


def replay_batch(
    workloads: Sequence[Workload],
    cluster: Cluster,
    player: Player,
    options: SimOptions,
    progress: Progress | None = None,
) -> list[Schedule]:
    """Replay workloads side by side until every counted job of each has ended; each schedule is the one it has alone.

    ``Schedule.engine_s`` is the time of the batch, answers included, shared out by decisions. Decision latency is
    that of the first decisions of one workload alone.

    Args:
        progress: told the share of counted jobs that have ended, over all workloads.

    Raises:
        InputError: a workload or cluster that cannot be replayed, or observations that are not finite.
    """
    player.check(cluster)
    with _one_thread(player):
        session = Session(workloads, cluster, player, options)
        latencies = _play(session, LATENCY_SAMPLES if len(workloads) == 1 else 0, progress)
        if len(workloads) > 1:
            latencies = _play(Session(workloads[:1], cluster, player, options), BATCH_LATENCY_SAMPLES, stop=True)
    engine = session.engine
    about = {"policy": player.policy.full_name, **options.as_dict()}
    schedules = [engine.schedule(b, policy=player.policy.name, options=about) for b in range(len(workloads))]
    every = max(1, sum(schedule.decisions for schedule in schedules))
    for schedule in schedules:
        schedule.engine_s = engine.engine_s * max(1, schedule.decisions) / every
        schedule.decision_latency_s = latencies
    return schedules


def _play(session: Session, samples: int, progress: Progress | None = None, *, stop: bool = False) -> F8:
    """Answer until all is done, or with ``stop`` until so many ``samples`` of decisions are taken: their seconds."""
    engine = session.engine
    left = engine.batch.arrays["si"][:, at.COUNTED_LEFT]
    total = np.maximum(1, left.copy())
    took: list[float] = []
    rounds = 0
    while not (stop and len(took) >= samples):
        ask = session.ask()
        if ask.done:
            break
        began = time.perf_counter()
        answers = session.answers(ask)
        seconds = time.perf_counter() - began
        engine.engine_s += seconds
        if len(took) < samples:
            took.append(seconds)
        session.apply(answers)
        rounds += 1
        if progress is not None and rounds % PROGRESS_ROUNDS == 0:
            progress(float(np.mean(1.0 - left / total)))
    return np.array(took)


def explain_decision(
    workload: Workload, cluster: Cluster, policy: str, decision: int, options: SimOptions | None = None
) -> Explanation:
    """Why the agents answered as they did: the ``decision``-th answer from outside the engine, the first being 1.

    Raises:
        InputError: the policy has no agents, the replay has fewer decisions, or that one was made by a linear rule.
    """
    from attn_sched.agents.explain import explain

    player = load_player(parse_policy(policy))
    if not player.pairs:
        raise InputError(f"{policy!r} has no agents to explain", field="policy", expected=f"{AGENTS}:NAME in it")
    if decision < 1:
        raise InputError(f"there is no decision {decision}", field="explain", expected="1 for the first, 2, ...")
    player.check(cluster)
    with _one_thread(player):
        session = Session([workload], cluster, player, options or SimOptions(record_segments=False))
        for number in range(1, decision + 1):
            ask = session.ask()
            if ask.done:
                raise InputError(
                    f"there is no decision {decision:,}", field="explain", expected=f"at most {number - 1:,}"
                )
            if number < decision:
                session.apply(session.answers(ask))
        phase = int(ask.phases[0])
        pair = player.job if phase == at.JOB_PHASE else player.gpu
        if pair is None or isinstance(pair, LinearRule):
            raise InputError(f"decision {decision:,} was made by the linear rule", field="explain", expected="another")
        jobs = [str(workload.job_id[job]) for job in ask.windows[0] if job >= 0]
        w = session.engine.view(0)
        return explain(
            pair,
            session.shown(ask, pair),
            0,
            phase,
            jobs=jobs,
            units=unit_names(session.engine),
            placing=str(workload.job_id[int(w.si[at.PICK_JOB])]) if phase == at.UNIT_PHASE else None,
            decision=decision,
            time_s=float(w.sf[at.NOW]),
        )


def unit_names(engine: Engine) -> list[str]:
    """Names of the units a GPU agent chooses among; single GPUs are numbered within their island."""
    names = [engine.cluster.vertex_names[vertex] for vertex in engine.units]
    if engine.cluster.unit_level > 0:
        return names
    seen: dict[str, int] = {}
    numbered = []
    for name in names:
        numbered.append(f"{name}/gpu{seen.get(name, 0)}")
        seen[name] = seen.get(name, 0) + 1
    return numbered
