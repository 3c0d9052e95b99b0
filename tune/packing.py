"""What a job takes with it to a Ray cluster: its folder, less what it does not need, and its environment variables."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from attn_sched.errors import InputError

RUNTIME_ENV = Path(__file__).with_name("runtime_env.yaml")
LARGEST_NAMED = 3
MOST_FILES = 100_000  # counting stops there: nobody means to send so many
ZIP_ENTRY_BYTES = 256  # headers and names of a file in an archive, at most on average
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass
class Contents:
    """What of a folder is sent.

    Attributes:
        files: How many.
        size: Bytes in all; Ray packs without compression.
        parts: Bytes by what lies at the top of the folder.
    """

    files: int = 0
    size: int = 0
    parts: dict[str, int] = field(default_factory=dict)

    def add(self, part: str, size: int) -> None:
        """Count a file."""
        self.files += 1
        self.size += size
        self.parts[part] = self.parts.get(part, 0) + size

    @property
    def packed(self) -> int:
        """Bytes of the archive, estimated from above."""
        return self.size + ZIP_ENTRY_BYTES * self.files

    def largest(self) -> str:
        """The largest parts, for people."""
        parts = sorted(self.parts.items(), key=lambda part: -part[1])[:LARGEST_NAMED]
        return ", ".join(f"{name} {megabytes(size)}" for name, size in parts)


class _Enough(Exception):
    """Ends the counting of a folder that is far too large."""


def megabytes(size: int) -> str:
    """Bytes as people read them."""
    return f"{size / 2**20:,.1f} MiB"


def project_folder(start: Path) -> Path | None:
    """The checkout of this project that a folder lies in, if it lies in one."""
    for folder in (start, *start.parents):
        if (folder / "pyproject.toml").is_file() and (folder / "attn_sched" / "__init__.py").is_file():
            return folder
    return None


def working_folder(given: str | None) -> Path:
    """The folder to send: the one given, else the checkout that the current folder lies in, else the current folder.

    Raises:
        InputError: it is no folder, or nobody named it and it is the home folder or the top of a file system.
    """
    if given is not None:
        folder = Path(given).absolute()
        if not folder.is_dir():
            problem = "is no folder" if folder.exists() else "no such folder"
            raise InputError(problem, file=given, field="working-dir", expected="the folder to send with the job")
        return folder
    here = Path.cwd()
    checkout = project_folder(here)
    if checkout is None and here in (Path.home(), Path(here.anchor)):
        raise InputError(
            "is not sent to a cluster unasked",
            file=here,
            expected="to be run in a project's folder, or --working-dir DIR",
        )
    return checkout or here


def largest_upload() -> int:
    """Bytes that Ray's dashboard takes in one piece."""
    from ray._private.ray_constants import DASHBOARD_CLIENT_MAX_SIZE

    return int(DASHBOARD_CLIENT_MAX_SIZE)


def measure(folder: Path, excludes: Iterable[str]) -> Contents:
    """Count what Ray will send of a folder, by Ray's own reading of excludes, .gitignore and .rayignore.

    Raises:
        InputError: something in it cannot be read, or it is larger than Ray's dashboard takes.
    """
    from ray._private.ray_constants import get_runtime_env_default_excludes
    from ray._private.runtime_env.packaging import _dir_travel, _get_excludes

    limit = largest_upload()
    contents = Contents()
    quiet = logging.Logger("quiet", logging.CRITICAL + 1)

    def count(path: Path) -> None:
        if path.is_file():
            contents.add(path.relative_to(folder).parts[0], path.stat().st_size)
            path.open("rb").close()  # Ray would leave out what it cannot read, or fail half-way
            if contents.files > MOST_FILES or contents.size > 20 * limit:
                raise _Enough

    try:
        patterns = [*get_runtime_env_default_excludes(), *excludes]
        _dir_travel(folder, [_get_excludes(folder, patterns)], count, include_gitignore=True, logger=quiet)
        counted = "holds"
    except _Enough:
        counted = "has more than can be counted, at least"
    except OSError as error:
        raise InputError(
            f"cannot be sent: {error.strerror}", file=error.filename or folder, field="working-dir"
        ) from error
    if contents.packed > limit or contents.files > MOST_FILES:
        raise InputError(
            f"{counted} {megabytes(contents.size)} in {contents.files:,} files, the largest of it {contents.largest()}",
            file=folder,
            field="working-dir",
            expected=f"at most {megabytes(limit)} to send: name what the job does not need in .rayignore",
        )
    return contents


def parse_variables(assignments: Iterable[str]) -> dict[str, str]:
    """``KEY=VALUE`` texts as environment variables; of two of one name the later holds.

    Raises:
        InputError: one is malformed.
    """
    found = {}
    for assignment in assignments:
        key, separator, value = assignment.partition("=")
        if not separator or not _VARIABLE.fullmatch(key) or "\0" in value:
            raise InputError(f"{assignment!r} sets no variable", field="env", expected="KEY=VALUE")
        found[key] = value
    return found


def runtime_env(folder: Path, variables: Mapping[str, str], private: Iterable[Path] = ()) -> dict[str, Any]:
    """Ray's runtime environment of a job: ``runtime_env.yaml`` with folder and variables.

    Args:
        folder: Sent along; the job runs in a copy of it on each node.
        variables: Set for the job, over those of the file.
        private: Files that are not sent even if they lie in the folder.
    """
    settings: dict[str, Any] = yaml.safe_load(RUNTIME_ENV.read_text(encoding="utf-8"))
    excludes = list(settings["excludes"])
    tops = {folder, folder.resolve()}
    for path in private:
        names = {path.absolute(), path.resolve()}
        inside = {name.relative_to(top) for name in names for top in tops if name.is_relative_to(top)}
        excludes += sorted("/" + re.sub(r"([\\*?\[\]!# ])", r"\\\1", name.as_posix()) for name in inside)
    return {
        "working_dir": str(folder),
        "excludes": excludes,
        "env_vars": {**settings["env_vars"], **variables},
    }
