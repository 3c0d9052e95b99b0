"""What a run leaves to look at: a table with a row an iteration, TensorBoard curves, and a log for people."""

from __future__ import annotations

import csv
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from attn_sched.agents.rewards import TERMS
from attn_sched.agents.schema import AGENTS
from attn_sched.files import atomic_write
from attn_sched.progress import Advance, progress_bar

Row = dict[str, float | int | None]

# Of each agent's learner: column -> RLlib's or our learner's name of it.
_LEARNER = {
    "entropy": "entropy",
    "kl": "mean_kl_loss",
    "clip_share": "clip_share",
    "policy_rested": "policy_rested",
    "value_loss": "vf_loss",
    **{f"explained_{term}": f"explained_variance_{term}" for term in TERMS},
}
VALIDATION = ("score", "excess_mean_s", "wait_p99_s", "jain", "comm_overhead")
COLUMNS = (
    "iteration",
    "decisions",  # of the learning agents, since PPO began
    "seconds",  # since PPO began, over all sessions
    "decisions_per_s",
    "sampling_s",
    "learning_s",
    "episodes",
    "return_mean",
    *(f"cost_{term}" for term in TERMS),  # of ended episodes; 1 is the reference rule's
    *(f"{agent}_{name}" for agent in AGENTS for name in ("decisions", *_LEARNER)),
    *(f"validation_{name}" for name in VALIDATION),
)


def iteration_row(result: Mapping[str, Any], *, decisions: int, seconds: float, took: float) -> Row:
    """The row of an iteration, from what RLlib's ``train`` returned; what is missing there is left out.

    Args:
        result: RLlib's.
        decisions: since PPO began.
        seconds: since PPO began.
        took: seconds of this iteration.
    """
    runners, learners = (result.get(name, {}) for name in ("env_runners", "learners"))
    sampled = runners.get("num_env_steps_sampled", 0)
    sampling = sum(float(value) for value in runners.get("sampling_seconds", {}).values())
    row: Row = {
        "iteration": int(result["training_iteration"]),
        "decisions": decisions,
        "seconds": round(seconds, 2),
        "decisions_per_s": round(float(sampled) / took, 1) if took > 0 else None,
        "sampling_s": round(sampling, 3),
        "learning_s": round(max(0.0, took - sampling), 3),
        "episodes": _number(runners.get("num_episodes_lifetime")),
        "return_mean": _number(runners.get("episode_return_mean")),
    }
    for term in TERMS:
        row[f"cost_{term}"] = _number(runners.get("episode_cost", {}).get(term))
    for agent in AGENTS:
        row[f"{agent}_decisions"] = _number(runners.get("num_agent_steps_sampled", {}).get(agent))
        for name, theirs in _LEARNER.items():
            row[f"{agent}_{name}"] = _number(learners.get(agent, {}).get(theirs))
    return {name: value for name, value in row.items() if value is not None}


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


class Curves:
    """progress.csv and TensorBoard's event files of a run.

    Args:
        table: The CSV file.
        events: Folder of the event files.
        iteration: Of the checkpoint that the run goes on from; None for a new run. Later rows and points are dropped.
        decisions: By then; TensorBoard's steps are decisions.
    """

    def __init__(self, table: Path, events: Path, iteration: int | None = None, decisions: int = 0) -> None:
        from torch.utils.tensorboard import SummaryWriter

        kept = [] if iteration is None else read_rows(table, iteration)
        with atomic_write(table) as part, open(part, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(COLUMNS)
            writer.writerows(kept)
        self._file = open(table, "a", newline="", encoding="utf-8")  # noqa: SIM115 (open as long as the run)
        self._writer = csv.writer(self._file, lineterminator="\n")
        # Readers leave out what earlier files hold from this step on.
        self._events = SummaryWriter(str(events), purge_step=0 if iteration is None else decisions + 1)

    def add(self, row: Row) -> None:
        """A row of ``COLUMNS``; what it lacks is left empty, and has no point."""
        self._writer.writerow([row.get(name, "") for name in COLUMNS])
        self._file.flush()
        step = int(row["decisions"] or 0)
        for name in COLUMNS:
            value = row.get(name)
            if value is not None and name not in ("iteration", "decisions"):
                self._events.add_scalar(tag_of(name), value, step)
        self._events.flush()

    def close(self) -> None:
        """Close both."""
        self._file.close()
        self._events.close()


def tag_of(column: str) -> str:
    """TensorBoard's name of a column: grouped by what it is about."""
    for group in ("validation", "cost", *AGENTS):
        if column.startswith(f"{group}_"):
            return f"{group}/{column.removeprefix(f'{group}_')}"
    return f"run/{column}"


def read_rows(table: Path, last: int) -> list[list[str]]:
    """The whole rows of a progress.csv up to an iteration; a line that a killed process left half-written is none."""
    if not table.is_file():
        return []
    with open(table, newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    if not rows or tuple(rows[0]) != COLUMNS:
        return []
    return [row for row in rows[1:] if len(row) == len(COLUMNS) and row[0].isdigit() and int(row[0]) <= last]


class Reporter:
    """Tells a person how a run goes: lines to the log file and on, bars to the terminal.

    Args:
        log: The file; None before there is one.
        echo: Shows a line.
    """

    def __init__(self, echo: Callable[[str], None], log: Path | None = None) -> None:
        self._echo = echo
        self.log = log

    def line(self, text: str) -> None:
        """A line, dated in the log."""
        self._echo(text)
        if self.log is not None:
            with open(self.log, "a", encoding="utf-8") as file:
                file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")

    def bar(self, label: str, total: float) -> AbstractContextManager[Advance]:
        """A progress bar."""
        return progress_bar(label, total)


def iteration_line(row: Row, agents: Iterable[str]) -> str:
    """An iteration in a line."""
    parts = [
        f"iteration {row['iteration']}",
        f"{row['decisions']:,} decisions",
        f"{row.get('decisions_per_s', 0):,.0f}/s",
    ]
    if "return_mean" in row:
        parts.append(f"return {row['return_mean']:.2f}")
    for agent in agents:
        said = [
            f"{label} {row[f'{agent}_{name}']:.3f}"
            for label, name in (("entropy", "entropy"), ("kl", "kl"), ("explained", "explained_completion"))
            if f"{agent}_{name}" in row
        ]
        if said:
            parts.append(f"{agent}: {' '.join(said)}")
    return " | ".join(parts)
