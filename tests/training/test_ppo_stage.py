"""The PPO stage with a stand-in for RLlib: validation, what is kept, why it ends, how it goes on after a crash."""

from __future__ import annotations

import csv
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from attn_sched.agents.pair import AgentPair
from attn_sched.agents.weights import load_agents
from attn_sched.training import ppo_stage
from attn_sched.training.configs import TrainingConfig
from attn_sched.training.curves import Reporter
from attn_sched.training.ppo_stage import Interrupted, PPOStage, PPOState
from attn_sched.training.run_folder import RunFolder
from attn_sched.training.start import Start
from attn_sched.training.validation import CellScore, RuleScores, Scores
from tests.training.tiny_run import tiny_config

# Score after each iteration that is validated; the best is that of iteration 6.
SCORES = {0: 1.0, 2: 0.9, 4: 0.95, 6: 0.7, 8: 0.8, 10: 0.75, 12: 0.9}
DECISIONS = 100  # an iteration


class Crash(Exception):
    """Stands for the end of the process."""


class StandIn:
    """What the stage sees of RLlib: its weights are the number of iterations."""

    def __init__(self) -> None:
        self.iteration = 0
        self.logdir = "nowhere"

    def train(self) -> dict[str, Any]:
        self.iteration += 1
        return {
            "training_iteration": self.iteration,
            "env_runners": {"num_env_steps_sampled_lifetime": DECISIONS * self.iteration},
        }

    def stop(self) -> None:
        """Nothing to do."""


def pair_after(config: TrainingConfig, iteration: int) -> AgentPair:
    return AgentPair.fresh(config.network, config.agents, seed=iteration)


def scores_after(iteration: int) -> Scores:
    return Scores({"cell": CellScore(1, 1, 0.0, 1000.0 * SCORES[iteration], 0.0, 1.0, 1.0)})


class World:
    """A run's folder and everything around the stage replaced; the n-th write can be made to crash."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, path: Path, **changes: Any) -> None:
        self.config = tiny_config(**{"ppo__total_decisions": 1000, **changes})
        self.folder = RunFolder(path / "run")
        self.lines: list[str] = []
        self.writes = 0
        self.crash_at: int | None = None
        self.on_train: Callable[[int], None] = lambda iteration: None
        replaced = {
            "ray_session": lambda cpus: nullcontext(),
            "pair_from": lambda algorithm: pair_after(self.config, algorithm.iteration),
            "load_pair_into": lambda algorithm, pair: None,
            "load_critics_into": lambda algorithm, critics: None,
            "restore_checkpoint": self._restore,
            "save_checkpoint": self._write(self._save),
            "write_object": self._write(ppo_stage.write_object),
            "save_agents": self._write(ppo_stage.save_agents),
        }
        for name, function in replaced.items():
            monkeypatch.setattr(ppo_stage, name, function)
        monkeypatch.setattr(PPOStage, "_build", lambda stage: self._algorithm())
        monkeypatch.setattr(ppo_stage.Curves, "add", self._write(ppo_stage.Curves.add))
        monkeypatch.setattr(RunFolder, "prune_checkpoints", self._write(RunFolder.prune_checkpoints))

    def _write(self, function: Any) -> Any:
        def call(*args: Any) -> Any:
            self.writes += 1
            if self.writes == self.crash_at:
                raise Crash
            return function(*args)

        return call

    def _algorithm(self) -> StandIn:
        algorithm = StandIn()
        train = algorithm.train

        def watched() -> dict[str, Any]:
            self.on_train(algorithm.iteration + 1)
            return train()

        algorithm.train = watched  # type: ignore[method-assign]
        return algorithm

    @staticmethod
    def _save(algorithm: StandIn, folder: Path) -> None:
        folder.mkdir()
        (folder / "iteration").write_text(str(algorithm.iteration))

    @staticmethod
    def _restore(algorithm: StandIn, folder: Path) -> None:
        algorithm.iteration = int((folder / "iteration").read_text())

    def run(self, spent_s: float = 0.0) -> PPOState:
        """A session of the run."""
        if self.folder.config.exists():
            self.folder.reopen(self.config)
        else:
            self.folder.create(self.config)
        validation = SimpleNamespace(score_player=self._score)
        stage = PPOStage(
            self.config,
            self.folder,
            validation,  # type: ignore[arg-type]
            RuleScores({"rule": scores_after(0)}),
            lambda state, scores: {"iteration": state.best_iteration},
            Reporter(self.lines.append),
            spent_s,
        )
        return stage.run(Start(pair_after(self.config, 0), {}), scores_after(0))

    def _score(self, player: Any) -> Scores:
        weights = player.job.net("job").state_dict()
        for iteration in SCORES:
            wanted = pair_after(self.config, iteration).net("job").state_dict()
            if all(torch.equal(value, wanted[name]) for name, value in weights.items()):
                return scores_after(iteration)
        raise AssertionError("an iteration was validated that should not have been")

    def rows(self) -> list[dict[str, str]]:
        with open(self.folder.progress, newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    def best(self) -> int:
        """The iteration of the agents in best/; their weights and card must agree."""
        pair = load_agents(self.folder.best)
        iteration = int(pair.card["iteration"])
        wanted = pair_after(self.config, iteration).net("gpu").state_dict()
        assert all(torch.equal(value, wanted[name]) for name, value in pair.net("gpu").state_dict().items())
        return iteration


def check_whole(world: World, state: PPOState) -> None:
    """What must hold at the end of a run of ten iterations, whatever happened on the way."""
    assert (state.iteration, state.decisions, state.stopped) == (10, 1000, "decisions")
    assert [int(row["iteration"]) for row in world.rows()] == list(range(11))
    assert {
        int(row["iteration"]): float(row["validation_score"]) for row in world.rows() if row["validation_score"]
    } == {iteration: score for iteration, score in SCORES.items() if iteration <= 10}
    assert [(iteration, score) for iteration, _, score in state.history] == [
        (iteration, score) for iteration, score in SCORES.items() if iteration <= 10
    ]
    assert (state.best_iteration, state.best_score, world.best()) == (6, 0.7, 6)
    assert world.folder.last_checkpoint() == 10
    assert PPOState.load(world.folder, 10) == state


def test_it_validates_keeps_the_best_and_ends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    world = World(monkeypatch, tmp_path)
    check_whole(world, world.run())
    assert world.writes < MOST_WRITES
    assert sum(line.startswith("validation after") for line in world.lines) == 6


MOST_WRITES = 60  # of a session


@pytest.mark.parametrize("first", range(1, MOST_WRITES, 3))
def test_a_crash_before_any_write_loses_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, first: int) -> None:
    for crash in range(first, first + 3):
        with monkeypatch.context() as patch:
            world = World(patch, tmp_path / str(crash))
            world.crash_at = crash
            try:
                state = world.run()
                assert world.writes < crash
            except Crash:
                last = world.folder.last_checkpoint()
                before = None if last is None else PPOState.load(world.folder, last)
                world.lines.clear()
                state = world.run()
                if before is not None:
                    said = f"going on from the checkpoint after iteration {last}: {before.decisions:,} decisions"
                    assert world.lines[0].startswith(said)
                    assert state.history[: len(before.history)] == before.history
            check_whole(world, state)


def test_the_critics_learn_alone_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    world = World(monkeypatch, tmp_path, ppo__value_warmup=5)
    state = world.run()
    assert [iteration for iteration, _, _ in state.history] == [0, 6, 8, 10]


def test_it_ends_when_nothing_gets_better(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    world = World(monkeypatch, tmp_path, ppo__total_decisions=10_000, validation__patience=2)
    state = world.run()
    assert (state.stopped, state.iteration, state.best_iteration) == ("patience", 10, 6)
    assert world.run().iteration == 10  # nothing more is done


def test_the_last_iteration_is_validated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    world = World(monkeypatch, tmp_path, ppo__total_decisions=600, validation__every=4)
    assert [iteration for iteration, _, _ in world.run().history] == [0, 4, 6]
    assert world.best() == 6


def test_it_ends_in_time_and_goes_on_with_more(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    world = World(monkeypatch, tmp_path, minutes=1.0)
    state = world.run(spent_s=61.0)
    assert (state.stopped, state.iteration) == ("time", 0)
    world.config = world.config.with_values({"minutes": 5.0})
    check_whole(world, world.run(spent_s=61.0))


def test_a_signal_ends_it_after_the_iteration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import os
    import signal

    world = World(monkeypatch, tmp_path, checkpoint_every=100)
    world.on_train = lambda iteration: os.kill(os.getpid(), signal.SIGTERM) if iteration == 3 else None
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Interrupted) as stopped:
        world.run()
    assert stopped.value.number == signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before
    assert world.folder.last_checkpoint() == 3
    world.on_train = lambda iteration: None
    check_whole(world, world.run())


def test_a_second_signal_ends_it_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import os
    import signal

    world = World(monkeypatch, tmp_path)

    def twice(iteration: int) -> None:
        if iteration == 3:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    world.on_train = twice
    with pytest.raises(KeyboardInterrupt) as stopped:
        world.run()
    assert not isinstance(stopped.value, Interrupted)
    world.on_train = lambda iteration: None
    check_whole(world, world.run())


def test_training_that_diverges_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    world = World(monkeypatch, tmp_path)

    def diverge(iteration: int) -> None:
        if iteration == 5:
            raise FloatingPointError("the policy gradient of the job agent is nan")

    world.on_train = diverge
    with pytest.raises(ValueError, match="gradient of the job agent is nan; the last checkpoint is whole"):
        world.run()
    assert world.folder.last_checkpoint() == 4
