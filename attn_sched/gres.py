"""Slurm's lists of generic resources: ``gpu:2``, ``gpu:v100:4(S:0-1)``, ``gres:gpu:2``, ``PER_NODE:gpu:2``.

The form of ``Gres=`` in slurm.conf, of ``sbatch --gres`` and of the ``ReqGRES`` of older versions of sacct.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_PARENTHESES = re.compile(r"\([^)]*\)")
_GPU = re.compile(r"(?i)(?:per_(node|job):)?(?:gres[:/])?gpu(?:$|:)")
_COUNT = re.compile(r"\d{1,9}")


@dataclass(frozen=True)
class GpuCount:
    """One entry of a list: so many GPUs of a type."""

    count: int
    gpu_type: str | None = None
    per_job: bool = False  # of the job; otherwise of each node


def gres_gpus(text: str) -> tuple[GpuCount, ...] | None:
    """The entries of a list that are of GPUs; None where one is not ``gpu[:TYPE][:COUNT]``. Without a count it is 1."""
    found = []
    for part in _PARENTHESES.sub("", text).split(","):
        match = _GPU.match(part.strip())
        if match is None:
            continue
        words = [word for word in part.strip()[match.end() :].split(":") if word.lower() != "no_consume"]
        count = int(words.pop()) if words and _COUNT.fullmatch(words[-1]) else 1
        if len(words) > 1:
            return None
        kind = words[0] if words and words[0] else None
        found.append(GpuCount(count, kind, (match.group(1) or "").lower() == "job"))
    return tuple(found)
