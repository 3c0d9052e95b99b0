"""What replays gave, one Parquet file for a policy in a cell, whole or absent.

A file's name holds a hash of all that decides its numbers: the policy with its weights, the cluster, the jobs of the
windows, and the options of the replay. Not in it is the code, which changes with every comment; a file says which code
made it, and the page says where that is not the present one.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

import attn_sched
from attn_sched.errors import InputError
from attn_sched.evaluation.fairness import Floats
from attn_sched.evaluation.registry import METRICS
from attn_sched.files import atomic_write
from attn_sched.simulator import SimOptions

VERSION = 1  # of the files
OPTIONS = SimOptions(record_segments=False)
METADATA_KEY = b"attn_sched_results"
SECONDS = "engine_s"  # a column besides the metrics: seconds of engine and policy
_ROOMS = ("simulator", "policies", "agents", "cluster", "workload")
_MODULES = ("evaluation/metrics.py", "evaluation/outcomes.py", "evaluation/fairness.py")


@lru_cache(maxsize=1)
def code_digest() -> str:
    """Hash of the code that replays and measures, comments, formatting and docstrings aside."""
    root = Path(attn_sched.__file__).parent
    files = [*(file for room in _ROOMS for file in (root / room).rglob("*.py")), *(root / name for name in _MODULES)]
    digest = hashlib.sha256()
    for file in sorted(files):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node, clean=False):
                node.body = node.body[1:]
        digest.update(f"{file.relative_to(root)}{ast.dump(tree)}".encode())
    return digest.hexdigest()


@dataclass(frozen=True, eq=False)
class Stored:
    """A policy in a cell: f8[windows] of every metric, NaN where it is undefined, and of ``SECONDS``."""

    values: dict[str, Floats]
    code: str  # digest of the code that made them

    @property
    def windows(self) -> int:
        """Replays."""
        return len(self.values[SECONDS])


class Cache:
    """A folder of results.

    Args:
        folder: Made if it does not exist.

    Raises:
        InputError: it cannot be made.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot be made: {error.strerror}", file=folder, field="cache") from error

    def path(self, cell: str, label: str, fingerprint: str, windows: str) -> Path:
        """Where a result lies.

        Args:
            cell: Name of the cell.
            label: Name of the policy.
            fingerprint: Of the policy.
            windows: Digest of windows and cluster.
        """
        key = json.dumps([VERSION, fingerprint, windows, OPTIONS.as_dict()], sort_keys=True)
        digest = hashlib.sha256(key.encode()).hexdigest()
        return self.folder / _slug(cell) / f"{_slug(label)}.{digest[:16]}.parquet"

    def write(self, path: Path, rows: Iterable[dict[str, Any]], about: dict[str, Any]) -> None:
        """Keep one row a window: the registry's metrics and ``SECONDS``. Raises InputError."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        schema = pa.schema([(name, pa.float64()) for name in _columns()])
        plain = [{name: None if row[name] is None else float(row[name]) for name in _columns()} for row in rows]
        note = json.dumps({**about, "code": code_digest(), "release": attn_sched.__version__}).encode()
        table = pa.Table.from_pylist(plain, schema=schema).replace_schema_metadata({METADATA_KEY: note})
        path.parent.mkdir(exist_ok=True)
        with atomic_write(path) as part:
            pq.write_table(table, part)

    def read(self, path: Path) -> Stored | None:
        """What lies there; None if nothing does. Raises InputError if it is damaged."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        if not path.exists():
            return None
        try:
            table = pq.read_table(path)
            about = json.loads(table.schema.metadata[METADATA_KEY])
            values = {name: table.column(name).to_numpy().astype(np.float64) for name in _columns()}
            return Stored(values, str(about["code"]))
        except (OSError, pa.ArrowInvalid, KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"holds no results ({type(error).__name__})", file=path, expected="a file of this command; delete it"
            ) from error


def _columns() -> list[str]:
    return [*(metric.key for metric in METRICS), SECONDS]


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9.,()_-]+", "-", text).strip("-")
