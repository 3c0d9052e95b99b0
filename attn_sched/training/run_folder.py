"""The folder of a training run: what lies where, and how it stays whole whenever the process ends.

Every file but the growing ones (progress.csv, train.log, events) is written beside its place and renamed. A stage is
finished once it stands in stages.json, which is written after its output. A checkpoint is a folder of RLlib's and a
small JSON file; the JSON file is there first, so a folder without it is none. Folders that are to go are renamed before
they are emptied. What a killed process left half-way is removed when the run is opened again.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attn_sched.errors import InputError
from attn_sched.files import atomic_write
from attn_sched.training.configs import TrainingConfig, load_config, save_config
from attn_sched.training.overrides import difference

KEPT_CHECKPOINTS = 2
RESUMABLE = frozenset({"minutes"})  # what may be another when a run goes on
_PART = ".part"


class RunFolder:
    """Paths of a run. Nothing is read or written by making one."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.config = self.path / "config.json"
        self.data = self.path / "data.json"  # the command, and the logs with their hashes
        self.stages = self.path / "stages.json"  # what each finished stage took and found
        self.rules = self.path / "rules.json"  # the hand-written rules on the validation windows
        self.tuned = self.path / "tuned.json"  # the linear rule
        self.tuning = self.path / "tuning.json"  # its search so far; gone once it is found
        self.imitation = self.path / "imitation"  # the agents PPO starts from
        self.checkpoints = self.path / "checkpoints"
        self.best = self.path / "best"  # the agents with the best validation score
        self.progress = self.path / "progress.csv"
        self.log = self.path / "train.log"
        self.lock = self.path / ".lock"

    def agents(self, stage: Path, config: TrainingConfig) -> Path:
        """Where the agents of ``imitation`` or ``best`` are saved, without suffix."""
        return stage / config.name

    # Opening

    def check_new(self) -> None:
        """Raise InputError unless a new run can be put here."""
        if self.path.exists() and not self.path.is_dir():
            raise InputError("is no folder", file=self.path, field="out", expected="a new or empty folder")
        if self.config.exists():
            raise InputError(
                "holds a training run", file=self.path, field="out", expected="--resume to go on, or a new folder"
            )
        if self.path.is_dir() and any(self.path.iterdir()):
            raise InputError("is not empty", file=self.path, field="out", expected="a new or empty folder")
        parent = next(folder for folder in (self.path, *self.path.absolute().parents) if folder.exists())
        if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
            raise InputError("cannot be made", file=self.path, field="out", expected="a folder that can be written to")

    def check_existing(self) -> None:
        """Raise InputError unless a run is here that can go on."""
        if not self.config.is_file():
            raise InputError(
                "holds no training run", file=self.path, field="out", expected="the folder of an interrupted run"
            )

    def create(self, config: TrainingConfig) -> None:
        """Make the folder of a new run. Raises InputError."""
        self.check_new()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot be made: {error.strerror}", file=self.path, field="out") from error
        self.checkpoints.mkdir(exist_ok=True)
        self.imitation.mkdir(exist_ok=True)
        self.best.mkdir(exist_ok=True)
        save_config(config, self.config)

    def check_same(self, config: TrainingConfig) -> None:
        """Raise InputError unless a run is here that ``config`` can go on with: the one it was started with, but for
        the time it may take.
        """
        self.check_existing()
        before, now = load_config(self.config).flat(), config.flat()
        for key in difference(before, now):
            if key not in RESUMABLE:
                raise InputError(
                    f"was started with {_said(before[key])}, not {_said(now[key])}",
                    file=self.path,
                    field=key,
                    expected="the same configuration, or another folder",
                )

    def reopen(self, config: TrainingConfig) -> None:
        """Take up a run again, and tidy up after a process that was killed. Raises InputError as ``check_same``."""
        self.check_same(config)
        for folder in (self.checkpoints, self.imitation, self.best):
            folder.mkdir(exist_ok=True)
        self._clean()
        save_config(config, self.config)

    def _clean(self) -> None:
        """Remove what a process that was killed has left half-written."""
        for folder in (self.path, self.checkpoints, self.imitation, self.best):
            for path in folder.glob(f".*{_PART}"):
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink()
        numbers = set(self._checkpoint_numbers())
        for path in self.checkpoints.glob("*.json"):
            if path.stem.isdigit() and int(path.stem) not in numbers:
                path.unlink()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from training here; the lock goes with the process, however that ends.

        Raises:
            InputError: another process trains here.
        """
        with open(self.lock, "w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise InputError(
                    "another process trains in it", file=self.path, field="out", expected="to wait for its end"
                ) from None
            yield

    # Stages

    def finished(self) -> dict[str, dict[str, Any]]:
        """Stage -> what it took and found, of those that are finished. Raises InputError if the file is damaged."""
        if not self.stages.exists():
            return {}
        return read_object(self.stages)

    def finish(self, stage: str, told: Mapping[str, Any]) -> None:
        """Record that a stage is finished."""
        write_object(self.stages, {**self.finished(), stage: dict(told)})

    # Checkpoints

    def _checkpoint_numbers(self) -> list[int]:
        return sorted(int(path.name) for path in self.checkpoints.iterdir() if path.is_dir() and path.name.isdigit())

    def checkpoint(self, iteration: int) -> Path:
        """RLlib's folder of the checkpoint after an iteration."""
        return self.checkpoints / f"{iteration:06d}"

    def checkpoint_state(self, iteration: int) -> Path:
        """The state of the run beside it."""
        return self.checkpoints / f"{iteration:06d}.json"

    def last_checkpoint(self) -> int | None:
        """Iteration of the newest whole checkpoint; None without any."""
        whole = [number for number in self._checkpoint_numbers() if self.checkpoint_state(number).is_file()]
        return whole[-1] if whole else None

    def prune_checkpoints(self) -> None:
        """Leave the newest ``KEPT_CHECKPOINTS``."""
        for number in self._checkpoint_numbers()[:-KEPT_CHECKPOINTS]:
            doomed = self.checkpoints / f".{number:06d}{_PART}"
            self.checkpoint(number).rename(doomed)
            shutil.rmtree(doomed)
            self.checkpoint_state(number).unlink(missing_ok=True)


def _said(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def write_object(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON object, whole or not at all."""
    with atomic_write(path) as part:
        part.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object. Raises InputError if the file is missing or damaged."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"cannot be read: {error}", file=path, expected="a file of a training run") from None
    if not isinstance(content, dict):
        raise InputError("is no JSON object", file=path, expected="a file of a training run")
    return content
