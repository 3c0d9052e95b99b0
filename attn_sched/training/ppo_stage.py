"""The PPO stage of a run: iterate, validate, keep the best weights, write checkpoints, stop in time."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from types import FrameType
from typing import Any

from ray.rllib.algorithms.ppo.ppo import PPO

from attn_sched.agents.pair import AgentPair
from attn_sched.agents.weights import save_agents
from attn_sched.errors import InputError
from attn_sched.training.algorithm import (
    build_config,
    load_pair_into,
    pair_from,
    ray_session,
    restore_checkpoint,
    save_checkpoint,
)
from attn_sched.training.configs import TrainingConfig
from attn_sched.training.curves import VALIDATION, Curves, Reporter, Row, iteration_line, iteration_row
from attn_sched.training.run_folder import RunFolder, read_object, write_object
from attn_sched.training.start import Start, data_source, load_critics_into
from attn_sched.training.validation import RuleScores, Scores, Validation, agents_player

TIME, DECISIONS, PATIENCE = "time", "decisions", "patience"  # why training ended

MakeCard = Callable[["PPOState", Scores], dict[str, Any]]


class Interrupted(KeyboardInterrupt):
    """Somebody asked the run to end, and it has written a checkpoint."""

    def __init__(self, number: int) -> None:
        super().__init__(f"signal {number}")
        self.number = number


@dataclass
class PPOState:
    """What a run knows beside RLlib's checkpoint; stored with each."""

    iteration: int = 0
    decisions: int = 0
    seconds: float = 0.0  # in PPO, over all sessions
    best_score: float = math.inf  # on the validation windows
    best_iteration: int = 0
    best_cells: dict[str, Any] = field(default_factory=dict)  # Scores.as_dict
    without_better: int = 0  # validations since then
    validated: int = -1  # iteration of the last validation
    history: list[tuple[int, int, float]] = field(default_factory=list)  # iteration, decisions, score of each
    longest_s: float = 0.0  # of an iteration, validation and checkpoint included
    stopped: str = ""  # why training ended

    @classmethod
    def load(cls, folder: RunFolder, iteration: int) -> PPOState:
        """The state beside a checkpoint. Raises InputError if it is damaged."""
        path = folder.checkpoint_state(iteration)
        try:
            state = cls(**read_object(path))
        except TypeError as error:
            raise InputError(f"is no state of a run: {error}", file=path, expected="a file of a training run") from None
        state.history = [(int(i), int(d), float(s)) for i, d, s in state.history]
        return state


class PPOStage:
    """PPO of a run, from the imitation's agents or the last checkpoint to the end.

    Args:
        config: Of the run.
        folder: Of the run, open.
        validation: Its windows.
        rules: The hand-written rules' scores on them.
        make_card: The model card of the best agents.
        report: Tells people.
        spent_s: Seconds that earlier stages took, of the time the run may take.
    """

    def __init__(
        self,
        config: TrainingConfig,
        folder: RunFolder,
        validation: Validation,
        rules: RuleScores,
        make_card: MakeCard,
        report: Reporter,
        spent_s: float,
    ) -> None:
        self.config = config
        self.folder = folder
        self.validation = validation
        self.rules = rules
        self.make_card = make_card
        self.report = report
        self.limit_s = 60.0 * config.minutes - spent_s
        self.state = PPOState()
        self._earlier_s = self._began = 0.0
        self._warm = False
        self._signal = 0

    def run(self, start: Start, start_scores: Scores) -> PPOState:
        """Train to the end.

        Args:
            start: What to start from where there is no checkpoint yet.
            start_scores: Theirs on the validation windows.

        Raises:
            Interrupted: asked to end by a signal; a checkpoint is written.
            InputError: a checkpoint or log that cannot be used.
        """
        self._began = time.perf_counter()
        with ray_session(max(1, self.config.ppo.runners + 1)):
            algorithm = self._build()
            try:
                return self._run(algorithm, start, start_scores)
            finally:
                algorithm.stop()

    def _build(self) -> PPO:
        config = self.config
        logging.getLogger("ray.rllib").setLevel(logging.ERROR)
        algorithm = build_config(config.ppo_settings, config.network, data_source(config)).build_algo()
        assert isinstance(algorithm, PPO)
        with contextlib.suppress(OSError):  # not empty, then: somebody's callback writes there
            os.rmdir(algorithm.logdir)  # RLlib makes it in the home folder and leaves it empty
        return algorithm

    def _run(self, algorithm: PPO, start: Start, start_scores: Scores) -> PPOState:
        number = self.folder.last_checkpoint()
        if number is not None:
            self._restore(algorithm, number)
        state = self.state
        self._earlier_s = state.seconds
        curves = Curves(self.folder.progress, self.folder.path, number, state.decisions)
        try:
            if number is None:
                load_critics_into(algorithm, start.critics)
                load_pair_into(algorithm, start.pair)
                self._settle(algorithm, curves, {"iteration": 0, "decisions": 0}, start.pair, start_scores)
            with self._signals():
                if self._over() and state.validated != state.iteration and self._policy_learns:
                    self._validate(algorithm)  # there was no time left for it; the iteration has its row already
                while not state.stopped:
                    self._iterate(algorithm, curves)
                    if self._signal:
                        self._checkpoint(algorithm)
                        raise Interrupted(self._signal)
                self._checkpoint(algorithm)
        finally:
            curves.close()
        return state

    def _restore(self, algorithm: PPO, number: int) -> None:
        restore_checkpoint(algorithm, self.folder.checkpoint(number))
        state = self.state = PPOState.load(self.folder, number)
        if state.stopped == TIME:  # more may have been given since
            state.stopped = ""
        self.report.line(
            f"going on from the checkpoint after iteration {number}: {state.decisions:,} decisions, best validation "
            f"score {state.best_score:.4f} at iteration {state.best_iteration}"
        )
        if state.best_iteration == number:  # it may have ended between the checkpoint and the best agents
            self._export(pair_from(algorithm), Scores.from_dict(state.best_cells))

    @property
    def _policy_learns(self) -> bool:
        """Whether the policies have moved: at first the critics learn alone."""
        return self.state.iteration > self.config.ppo.value_warmup

    def _over(self) -> bool:
        """Whether training is to end; ``state.stopped`` then says why."""
        state = self.state
        if not state.stopped:
            if state.without_better >= self.config.validation.patience:
                state.stopped = PATIENCE
            elif state.decisions >= self.config.ppo.total_decisions:
                state.stopped = DECISIONS
            elif self._seconds() + state.longest_s > self.limit_s:
                state.stopped = TIME
        return bool(state.stopped)

    def _seconds(self) -> float:
        """In PPO so far, over all sessions."""
        return self._earlier_s + time.perf_counter() - self._began

    def _iterate(self, algorithm: PPO, curves: Curves) -> None:
        """One iteration, with the validation and the checkpoint that are due after it."""
        state = self.state
        began = time.perf_counter()
        try:
            result = algorithm.train()
        except FloatingPointError as error:
            raise InputError(
                f"{error}; the last checkpoint is whole", file=self.folder.path, expected="lower learning rates"
            ) from error
        took = time.perf_counter() - began
        state.iteration = int(result["training_iteration"])
        state.decisions = int(result["env_runners"]["num_env_steps_sampled_lifetime"])
        row = iteration_row(result, decisions=state.decisions, seconds=self._seconds(), took=took)
        self.report.line(iteration_line(row, self.config.agents))
        last = not self._signal and self._over()
        if self._policy_learns and (last or self._due(self.config.validation.every)):
            self._validate(algorithm, curves, row)
            self._over()
        else:
            curves.add(row)
            if self._due(self.config.checkpoint_every):
                self._checkpoint(algorithm)
        if self._warm:  # the first one of a session compiles
            state.longest_s = max(state.longest_s, time.perf_counter() - began)
        self._warm = True

    def _due(self, every: int) -> bool:
        """Whether something that comes every so many iterations does now; nothing does when the run is to end."""
        return self.state.iteration % every == 0 and not self._signal

    def _validate(self, algorithm: PPO, curves: Curves | None = None, row: Row | None = None) -> None:
        """Score the agents as they are now."""
        pair = pair_from(algorithm)
        scores = self.validation.score_player(agents_player(self.config, pair))
        self._settle(algorithm, curves, row or {}, pair, scores)

    def _settle(self, algorithm: PPO, curves: Curves | None, row: Row, pair: AgentPair, scores: Scores) -> None:
        """What follows a validation: the row, a checkpoint, and the best agents if these are.

        In this order: rows after the last checkpoint are dropped when a run goes on, and the best agents are always
        those of a checkpoint, so that whoever is killed in between finds them in it.
        """
        told = scores.summary(self.rules.reference)
        better = self._judge(told, scores)
        if curves is not None:
            curves.add(row | {f"validation_{name}": told[name] for name in VALIDATION})
        self._checkpoint(algorithm)
        if better:
            self._export(pair, scores)

    def _judge(self, told: dict[str, float], scores: Scores) -> bool:
        """Take note of a validation; whether it is the best so far."""
        state, score = self.state, told["score"]
        better = score < state.best_score
        if better:
            state.best_score, state.best_iteration, state.best_cells = score, state.iteration, scores.as_dict()
        state.without_better = 0 if better else state.without_better + 1
        state.validated = state.iteration
        state.history.append((state.iteration, state.decisions, score))
        self.report.line(
            f"validation after iteration {state.iteration}: {score:.4f} of {self.rules.best}"
            f"{' (best so far)' if better else f' (best {state.best_score:.4f})'}, "
            f"p99 wait {told['wait_p99_s'] / 3600:.2f} h, Jain {told['jain']:.3f}, "
            f"communication {told['comm_overhead']:.3f}"
        )
        return better

    def _checkpoint(self, algorithm: PPO) -> None:
        """Write a checkpoint; where there is one of this iteration, only the state of the run beside it is new."""
        state, folder = self.state, self.folder
        state.seconds = round(self._seconds(), 3)
        write_object(folder.checkpoint_state(state.iteration), asdict(state))
        if not folder.checkpoint(state.iteration).exists():
            save_checkpoint(algorithm, folder.checkpoint(state.iteration))
            folder.prune_checkpoints()

    def _export(self, pair: AgentPair, scores: Scores) -> None:
        pair.card = self.make_card(self.state, scores)
        save_agents(pair, self.folder.agents(self.folder.best, self.config))

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Within, Ctrl-C and SIGTERM end training after the iteration under way; a second Ctrl-C ends it at once."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def note(number: int, frame: FrameType | None) -> None:
            if self._signal:
                raise KeyboardInterrupt
            self._signal = number
            self.report.line("stopping after this iteration; again to stop at once")

        before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
