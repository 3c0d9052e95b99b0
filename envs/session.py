"""What the faces of the environment share: episodes of one cluster, asked, answered, observed and rewarded."""

from __future__ import annotations

import operator

import numpy as np
import numpy.typing as npt

from attn_sched.agents.observations import Observations
from attn_sched.agents.rewards import TERMS, Rewards, reference_scales
from attn_sched.agents.schema import AGENTS
from attn_sched.errors import InputError
from attn_sched.seeding import stream
from attn_sched.simulator import Engine, EngineRule, Schedule
from attn_sched.simulator import layout as at
from attn_sched.workload import Workload, build_workload, synth
from attn_sched.workload.workload import choices
from envs.settings import Settings, check_seed, draw_weights
from envs.spaces import Observation, action_spaces, observation, observation_spaces

F8 = npt.NDArray[np.float64]

JOB, GPU = AGENTS
BOTH_AGENTS = EngineRule(order=at.AGENT, placement=at.PLACE_AGENT)
TRIES = 100  # episodes drawn before a source is given up that leaves nothing to decide
# What times, bytes and seconds of compute may be: beyond, squares of times would overflow in rewards and observations.
LIMITS = {
    "submit_s": (-1e15, 1e15),
    "duration_s": (0.0, 1e15),
    "estimate_s": (-1e15, 1e15),
    "grad_bytes": (0.0, 1e18),
    "compute_s": (1e-9, 1e9),
}


class Session:
    """One cluster that plays episode after episode; ``begin`` one, then ``step`` until it has ended.

    Observations are those of ``attn_sched.agents.Observations``, which trained and deployed agents get too. K jobs of
    the window, U placement units; F, Fu and G are the numbers of features named in ``attn_sched.agents.schema``::

        jobs          float32[K, F]   waiting jobs in order of arrival; rows of zeros pad
        units         float32[U, Fu]  placement units: nodes, or whatever the cluster's unit is
        unit_groups   int32[U, 3]     vertices a unit lies in, near to far: equal ids mean the same node, rack, ...
        globals       float32[G]      the queue, the cluster, the objective weights
        chosen        float32[F]      the job whose gang is being placed (GPU agent only)
        action_mask   int8[K + 1]     1: legal (job agent: a place in the window, or K to hold)
                      int8[U]         (GPU agent: a unit, which gives all the GPUs it can and the gang needs)

    Rewards are minus the growth of three costs (``attn_sched.agents.rewards``), each divided by its reference on the
    same jobs, from one decision to the next; the first counts from the start of the episode. So the undiscounted sums
    of an episode that ends by itself are the objectives.

    Args:
        settings: What is played.
        rule: Who decides: ``order`` or ``placement`` must be an agent's.

    Raises:
        InputError: settings that only show on the cluster to be wrong, such as an unknown vertex that fails.
    """

    def __init__(self, settings: Settings, rule: EngineRule) -> None:
        self.settings = settings
        self.rule = rule
        one = build_workload(synth("philly", 1))
        self._engine = self._start(one.replace(num_gpus=np.ones(1, np.int32)))
        units = len(self._engine.units)
        self.observation_spaces = observation_spaces(settings.window, units)
        self.action_spaces = action_spaces(settings.window, units)
        self.workload: Workload | None = None  # of the episode begun last
        self.weights: F8 = np.zeros(len(TERMS))  # of the episode begun last
        self.agent = JOB  # whose decision is awaited; in an ended episode: who decided last, or would have next
        self.terminated = False  # every counted job has ended
        self.truncated = False  # the decisions allowed are used up
        self.decisions = 0
        self._seed(settings.seed)
        self._told = "no episode has begun"

    @property
    def ended(self) -> bool:
        """Whether the episode leaves no decision any more."""
        return self.terminated or self.truncated

    @property
    def awaiting(self) -> bool:
        """Whether an episode has begun and waits for a decision."""
        return self.workload is not None and not self.ended

    def begin(self, seed: int | None = None) -> None:
        """Begin the next episode; with ``seed``, the first of those that it gives.

        Raises:
            InputError: the seed or the source's workload cannot be used, or its episodes leave nothing to decide.
        """
        if seed is not None:
            self._seed(seed)
        settings = self.settings
        for _ in range(TRIES):
            workload = settings.draw(self._episodes)
            _check_episode(workload)
            engine = self._start(workload)
            ask = engine.ask()
            if not ask.done:
                break
        else:
            raise InputError(f"{TRIES} episodes left nothing to decide", field="episodes", expected="jobs that wait")
        self._engine, self._ask, self.workload = engine, ask, workload
        self.weights = np.array(settings.weights or draw_weights(self._weights))
        self._observations = Observations(engine)
        self._observations.weights[:] = self.weights
        scales = reference_scales(settings.cluster, [workload], settings.options, settings.fairness)
        self._rewards = Rewards(engine, scales, settings.fairness)
        self._costs: F8 = np.zeros(len(TERMS))
        self.terminated = self.truncated = False
        self.decisions = 0
        self._told = "nothing is decided yet"
        self._look()

    def step(self, action: object) -> F8:
        """Take the awaited agent's ``action`` and go on to the next decision: reward terms, f8[3].

        They are unweighted: completion, fairness, communication.

        Raises:
            InputError: no decision is awaited, or the action is not legal; nothing has changed then.
        """
        if not self.awaiting:
            state = "has ended" if self.workload is not None else "has not begun"
            raise InputError(f"the episode {state}", expected="reset() before a step")
        number = self._legal(action)
        self._tell(number)
        self._engine.apply(np.array([number]))
        self._ask = self._engine.ask()
        self.decisions += 1
        self.terminated = self._ask.done
        self.truncated = not self.terminated and self.decisions == self.settings.max_decisions
        self._look()
        costs = self._rewards.costs()[0].copy()
        terms = self._costs - costs
        self._costs = costs
        return terms

    def reward(self, terms: F8) -> float:
        """The weighted sum of reward terms."""
        return float(terms @ self.weights)

    def observe(self, agent: str) -> Observation:
        """What ``agent`` sees now; its mask is zero unless its decision is awaited, all is zero once all jobs ended."""
        return observation(self._observations, 0, agent)

    def mask(self, agent: str) -> np.ndarray:
        """Legal actions of ``agent``, int8[K + 1] or int8[U]; all zero unless its decision is awaited."""
        seen = self._observations
        return (seen.job_mask if agent == JOB else seen.unit_mask)[0].copy()

    def schedule(self) -> Schedule:
        """What has been scheduled in this episode so far."""
        return self._engine.schedule(policy="agents")

    def describe(self) -> str:
        """One line: the last decision, and the state it led to."""
        w = self._engine.view(0)
        queue, free = int(w.si[at.N_WAITING]), int(w.free[:, -1].sum())
        state = f"{queue} waiting, {free} of {self.settings.cluster.num_gpus} GPUs free"
        return f"{w.sf[at.NOW]:.0f} s: {self._told}; {state}"

    def _start(self, workload: Workload) -> Engine:
        # An engine of its own: what a rule draws at random must not depend on the episodes played before.
        settings = self.settings
        return Engine(settings.cluster, [workload], self.rule, settings.options, window=settings.window)

    def _seed(self, seed: int | None) -> None:
        if seed is None:
            seed = int(np.random.default_rng().integers(1 << 62))
        check_seed(seed)
        self._episodes = stream(seed, "environment episodes")
        self._weights = stream(seed, "environment weights")

    def _look(self) -> None:
        self._observations.update(self._ask)
        if not self.terminated:
            self.agent = JOB if self._ask.phases[0] == at.JOB_PHASE else GPU

    def _legal(self, action: object) -> int:
        mask = self.mask(self.agent)
        try:
            number = operator.index(action)  # type: ignore[arg-type]
        except TypeError:
            number = -1
        if not (0 <= number < len(mask) and mask[number]):
            names = [str(legal) for legal in np.flatnonzero(mask)]
            if self.agent == JOB and mask[-1]:
                names = [f"{names[-1]} to hold", *names[:-1]]
            raise InputError(
                f"{self.agent} action {action!r} is not legal now", expected=f"one of {choices(tuple(names))}"
            )
        return number

    def _tell(self, action: int) -> None:
        """Keep what the awaited agent does, for ``describe``."""
        assert self.workload is not None
        w = self._engine.view(0)
        if self.agent == GPU:
            unit = self.settings.cluster.vertex_names[self._engine.units[action]]
            self._told = f"gpu agent takes {unit} for job {self.workload.job_id[w.si[at.PICK_JOB]]}"
        elif action == self.settings.window:
            self._told = "job agent holds"
        else:
            job = self._ask.windows[0, action]
            self._told = f"job agent starts job {self.workload.job_id[job]} ({self.workload.num_gpus[job]} GPUs)"


def _check_episode(workload: object) -> None:
    if not isinstance(workload, Workload):
        raise InputError(f"{type(workload).__name__} was drawn", field="episodes", expected="a Workload")
    for field, (least, most) in LIMITS.items():
        values = getattr(workload, field)
        bad = np.flatnonzero((values < least) | (values > most))
        if len(bad):
            raise InputError(
                f"job {workload.job_id[bad[0]]} has {values[bad[0]]:g}",
                file=workload.name,
                field=field,
                expected=f"{least:g} to {most:g}",
            )
