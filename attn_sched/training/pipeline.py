"""A training run from logs to weights: rules, tuned rule, imitation, PPO; each stage once, however often it is resumed.

Imports torch; Ray only where PPO begins.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attn_sched.agents.limits import check_depth
from attn_sched.errors import InputError
from attn_sched.policies.linear import LinearRule, load_linear, save_linear
from attn_sched.training.configs import TrainingConfig
from attn_sched.training.curves import Reporter
from attn_sched.training.data import ClusterPools
from attn_sched.training.provenance import changed_data, describe_data, model_card
from attn_sched.training.run_folder import RunFolder, read_object, write_object
from attn_sched.training.start import Start, load_start, make_start, save_start
from attn_sched.training.tuned import tune_rule
from attn_sched.training.validation import (
    RuleScores,
    Scores,
    Validation,
    agents_player,
    load_rule_scores,
    save_rule_scores,
    tuned_player,
)

POPULATION = 12  # CMA-ES's own for so many weights; for the progress bar
RULES, TUNED, IMITATION, PPO = "rules", "tuned", "imitation", "ppo"  # stages, as they stand in stages.json


@dataclass(frozen=True)
class Outcome:
    """What a run came to."""

    folder: Path
    rules: RuleScores
    stages: dict[str, dict[str, Any]]  # RunFolder.finished

    def rows(self) -> list[dict[str, Any]]:
        """A row a policy, what was learned first: name, score and what stands beside it on the validation windows."""
        learned = [("best agents", PPO), ("imitation (start)", IMITATION), ("tuned rule", TUNED)]
        found = [
            (name, Scores.from_dict(self.stages[stage]["cells"])) for name, stage in learned if stage in self.stages
        ]
        ordered = sorted(self.rules.scores.items(), key=lambda item: item[1].ratio(self.rules.reference))
        return [{"policy": name, **scores.summary(self.rules.reference)} for name, scores in [*found, *ordered]]

    def as_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return {
            "folder": str(self.folder),
            "reference": self.rules.best,
            "policies": self.rows(),
            "stages": {name: {k: v for k, v in told.items() if k != "cells"} for name, told in self.stages.items()},
        }


class Run:
    """One session of a run.

    Args:
        config: What to train.
        folder: Where.
        resume: Whether the run has begun already.
        command: As typed, for the model cards; those of a resumed run name the command that began it.
        report: Tells people how it goes.
    """

    def __init__(self, config: TrainingConfig, folder: RunFolder, *, resume: bool, command: str, report: Reporter):
        self.config = config
        self.folder = folder
        self.resume = resume
        self.command = command
        self.report = report
        self.data: list[dict[str, Any]] = []

    def run(self) -> Outcome:
        """Do what is left of it. Nothing is written before config, logs and windows are found to be usable.

        Raises:
            InputError: an input cannot be used, or the folder holds another run.
            Interrupted: asked to end by a signal while PPO ran; a checkpoint is written.
        """
        if self.resume:
            self.folder.check_same(self.config)
        else:
            self.folder.check_new()
        pools, validation = self._data()
        with ExitStack() as stack:
            if not self.resume:
                self.folder.create(self.config)
            stack.enter_context(self.folder.locked())
            if self.resume:
                self.folder.reopen(self.config)
                self._take_up_data()
            else:
                self._keep_data()
            self.report.log = self.folder.log
            self.report.line(f"{'resuming' if self.resume else 'training'} {self.config.name} in {self.folder.path}")
            rules = self._rules(validation)
            rule = self._tuned(pools, validation, rules)
            start = self._imitation(validation, rules, rule)
            self._ppo(validation, rules, start)
        return Outcome(self.folder.path, rules, self.folder.finished())

    # Data

    def _data(self) -> tuple[list[ClusterPools], Validation]:
        """Logs, clusters and validation windows, checked."""
        data = self.config.data
        with self.report.bar("reading logs", 3) as advance:
            pools = data.pools("train")
            advance(1)
            for pool in pools:
                check_depth(pool.cluster)
                pool.source(self.config.episodes)
            validation = Validation(data.pools("validation"), self.config.validation)
            advance(2)
            self.data = describe_data(data)
        return pools, validation

    def _keep_data(self) -> None:
        """Write down what the run learns from, and by which command."""
        write_object(self.folder.data, {"command": self.command, "logs": self.data})

    def _take_up_data(self) -> None:
        """Go on under the command that began the run. Raise InputError if a log is not what it was then."""
        if not self.folder.data.exists():  # killed before it was written
            self._keep_data()
        kept = read_object(self.folder.data)
        if not {"command", "logs"} <= set(kept):
            raise InputError("lacks command or logs", file=self.folder.data, expected="a file of a training run")
        self.command = kept["command"]
        changed = changed_data(kept["logs"], self.data)
        if changed is not None:
            raise InputError(
                "has changed since the run began",
                file=changed,
                field="traces",
                expected="the same files, or another run",
            )

    # Stages

    def _stage(self, name: str, told: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """What is recorded of a stage, after doing it if it is not finished."""
        finished = self.folder.finished()
        if name not in finished:
            began = time.perf_counter()
            record = told()
            self.folder.finish(name, {"seconds": round(time.perf_counter() - began, 2), **record})
            finished = self.folder.finished()
        return finished[name]

    def _rules(self, validation: Validation) -> RuleScores:
        def score() -> dict[str, Any]:
            with self.report.bar("hand-written rules", len(self.config.validation.rules)) as advance:
                rules = validation.score_rules(advance)
            save_rule_scores(rules, self.folder.rules)
            self.report.line(
                f"{validation.windows} validation windows in {len(validation.cells)} cells; of "
                f"{len(rules.scores)} hand-written rules {rules.best} is best"
            )
            return {"best": rules.best}

        self._stage(RULES, score)
        return load_rule_scores(self.folder.rules)

    def _tuned(self, pools: Sequence[ClusterPools], validation: Validation, rules: RuleScores) -> LinearRule | None:
        if "job" not in self.config.agents:
            return None

        def tune() -> dict[str, Any]:
            settings = self.config.tune_settings
            with self.report.bar("tuned rule", settings.evaluations) as advance:
                rule = tune_rule(
                    pools,
                    settings,
                    self.config.seed,
                    progress=lambda generations, score: advance(generations * POPULATION),
                    resume=self.folder.tuning,
                    card={"command": self.command, "data": self.data},
                )
            scores = validation.score_player(tuned_player(self.config, rule))
            save_linear(rule, self.folder.tuned)
            return self._told("tuned rule", scores, rules)

        self._stage(TUNED, tune)
        self.folder.tuning.unlink(missing_ok=True)
        return load_linear(self.folder.tuned)

    def _told(self, what: str, scores: Scores, rules: RuleScores) -> dict[str, Any]:
        """Record and report a stage's scores."""
        summary = scores.summary(rules.reference)
        self.report.line(f"{what}: {summary['score']:.4f} of {rules.best} on the validation windows")
        return {**summary, "cells": scores.as_dict()}

    def _imitation(self, validation: Validation, rules: RuleScores, rule: LinearRule | None) -> tuple[Start, Scores]:
        config = self.config

        def learn() -> dict[str, Any]:
            with self.report.bar("imitation", config.imitation.rounds) as advance:
                start, metrics = make_start(config, rule, advance)
            scores = validation.score_player(agents_player(config, start.pair))
            start.pair.card = self._card(IMITATION, 0, {}, scores.summary(rules.reference), rules)
            save_start(start, self.folder.agents(self.folder.imitation, config))
            self.report.line("imitation: " + ", ".join(f"{name} {value:,.3f}" for name, value in metrics.items()))
            return {**self._told("imitation", scores, rules), **metrics}

        told = self._stage(IMITATION, learn)
        return load_start(self.folder.imitation), Scores.from_dict(told["cells"])

    def _card(
        self, stage: str, iteration: int, budget: dict[str, Any], scores: dict[str, Any], rules: RuleScores
    ) -> dict[str, Any]:
        earlier = {f"{name}_seconds": told["seconds"] for name, told in self.folder.finished().items() if name != PPO}
        return model_card(
            self.config,
            command=self.command,
            data=self.data,
            stage=stage,
            iteration=iteration,
            budget={**earlier, **budget},
            validation={**scores, "reference": rules.best},
        )

    def _ppo(self, validation: Validation, rules: RuleScores, start: tuple[Start, Scores]) -> None:
        finished = self.folder.finished()
        spent = sum(told["seconds"] for name, told in finished.items() if name != PPO)
        before = finished.get(PPO)
        more_time = before is not None and before["stopped"] == "time" and before["minutes"] < self.config.minutes
        if before is not None and not more_time:
            self.report.line("this run is finished")
            return
        from attn_sched.training.ppo_stage import PPOStage, PPOState

        def card(state: PPOState, scores: Scores) -> dict[str, Any]:
            budget = {"ppo_seconds": state.seconds, "decisions": state.decisions, "iterations": state.iteration}
            told = {**scores.summary(rules.reference), "cells": scores.ratios(rules.reference)}
            return self._card(PPO if state.best_iteration else IMITATION, state.best_iteration, budget, told, rules)

        stage = PPOStage(self.config, self.folder, validation, rules, card, self.report, spent)
        state = stage.run(*start)
        scores = Scores.from_dict(state.best_cells)
        record = {
            "seconds": state.seconds,
            "minutes": self.config.minutes,
            "stopped": state.stopped,
            "iterations": state.iteration,
            "decisions": state.decisions,
            "best_iteration": state.best_iteration,
        }
        told = self._told(f"best agents (iteration {state.best_iteration}; ended by {state.stopped})", scores, rules)
        self.folder.finish(PPO, record | told)
