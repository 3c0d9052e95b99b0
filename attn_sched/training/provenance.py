"""Where weights come from: the logs behind them, and what their model card says of their making."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attn_sched import __version__
from attn_sched.errors import InputError
from attn_sched.training.configs import TrainingConfig
from attn_sched.training.data import TrainingData

BLOCK = 1 << 20
LONGEST_NOTE = 600  # characters of a line that is copied from a README
_NOTES = ("README.md", "README.txt", "README", "LICENSE", "LICENCE")
_TELLING = re.compile(r"\b(licen[cs]e[ds]?|source)\b", re.IGNORECASE)
_MARKUP = " \t-*#>|"


def describe_data(data: TrainingData) -> list[dict[str, Any]]:
    """One object a log: its name, source, jobs and what was used for what; of files also size, hash, and what a README
    beside them says of source and licence.

    Raises:
        InputError: a file cannot be read.
    """
    rows = data.describe()
    for row, path in zip(rows, data.traces, strict=False):  # synthetic logs have no files
        row |= {"bytes": Path(path).stat().st_size, "sha256": file_hash(path), "notes": notes_beside(path)}
    return rows


def file_hash(path: str | Path) -> str:
    """SHA-256 of a file, or of all files of a folder by name. Raises InputError if one cannot be read."""
    digest = hashlib.sha256()
    root = Path(path)
    files = [root] if not root.is_dir() else sorted(file for file in root.rglob("*") if file.is_file())
    for file in files:
        if file != root:
            digest.update(str(file.relative_to(root)).encode())
        try:
            with open(file, "rb") as opened:
                while block := opened.read(BLOCK):
                    digest.update(block)
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", file=file, field="traces") from error
    return digest.hexdigest()


def notes_beside(path: str | Path) -> list[str]:
    """Lines about source and licence in a README or licence file beside a log; [] where there is none."""
    found = []
    for name in _NOTES:
        beside = Path(path).parent / name
        if not beside.is_file():
            continue
        text = beside.read_text(encoding="utf-8", errors="replace")
        lines = [line.strip(_MARKUP) for line in text.splitlines() if _TELLING.search(line)]
        found += [line[:LONGEST_NOTE] for line in lines]
    return found


def changed_data(before: list[dict[str, Any]], now: list[dict[str, Any]]) -> str | None:
    """The name of the first log that is not what it was; None if all are."""
    for one, other in zip(before, now, strict=False):
        if one.get("sha256") != other.get("sha256") or one.get("jobs") != other.get("jobs"):
            return str(other["name"])
    return None if len(before) == len(now) else "the number of logs"


def model_card(
    config: TrainingConfig,
    *,
    command: str,
    data: list[dict[str, Any]],
    stage: str,
    iteration: int,
    budget: Mapping[str, Any],
    validation: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """What the card of a run's agents says beyond what follows from the networks.

    Args:
        config: Of the run.
        command: As it was typed.
        data: ``describe_data``.
        stage: What the weights come from: imitation or ppo.
        iteration: Of PPO; 0 for what it started from.
        budget: Seconds by stage, decisions.
        validation: Scores on the validation windows.
    """
    return {
        "name": config.name,
        "command": command,
        "objective_weights": list(config.objective.effective),
        "data": data,
        "clusters": list(config.data.clusters),
        "seeds": [config.seed],
        "budget": dict(budget),
        "scores": {"validation": None if validation is None else dict(validation), "test": None},
        "stage": stage,
        "iteration": iteration,
        "release": __version__,
        "training": config.flat(),
    }
