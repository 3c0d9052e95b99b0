"""The Workload: a trace made ready for replay, as arrays."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from attn_sched.errors import InputError

CHOICES_SHOWN = 12


@dataclass(frozen=True, eq=False)
class Workload:
    """Jobs in the order of submission (then of the log's rows). Every array has one entry a job (J)."""

    name: str
    job_id: np.ndarray  # object[J], str, unique
    submit_s: np.ndarray  # f8[J], ascending
    duration_s: np.ndarray  # f8[J], >= 0: running time when ideally placed and alone
    num_gpus: np.ndarray  # i4[J], >= 1
    estimate_s: np.ndarray  # f8[J]: the duration as policies see it
    requested_s: np.ndarray  # f8[J]: what the user asked for; NaN = unknown
    user: np.ndarray  # i4[J], index in user_names: whom fairness is measured over
    user_names: tuple[str, ...]
    trace_user: np.ndarray  # i4[J], index in trace_user_names: the log's own; -1 = unknown
    trace_user_names: tuple[str, ...]
    group: np.ndarray  # i4[J], index in group_names; -1 = unknown
    group_names: tuple[str, ...]
    gpu_type: np.ndarray  # i4[J], index in gpu_type_names; -1 = any
    gpu_type_names: tuple[str, ...]  # each may be "A|B"
    model: np.ndarray  # i4[J], index in model_names
    model_names: tuple[str, ...]
    grad_bytes: np.ndarray  # f8[J], bytes of gradients per iteration (S)
    compute_s: np.ndarray  # f8[J], seconds of compute per iteration (tau)
    overlap: np.ndarray  # f8[J], share of tau that can hide communication (phi), 0..1
    skewed: np.ndarray  # bool[J]: one tensor dominates the network
    priority: np.ndarray  # i4[J], higher first, for rules that know priorities
    cancel_s: np.ndarray  # f8[J], time at which the job is cancelled; inf = never
    counted: np.ndarray  # bool[J]: whether metrics count it
    info: Mapping[str, Any]  # what was done to it, JSON-able
    # GPUs each of group_names is entitled to, for rules that know quotas; () = none.
    group_quota: tuple[float, ...] = ()

    def __len__(self) -> int:
        return len(self.submit_s)

    def __post_init__(self) -> None:
        jobs = len(self.submit_s)
        for item in dataclasses.fields(self):
            value = getattr(self, item.name)
            if isinstance(value, np.ndarray) and len(value) != jobs:
                raise ValueError(f"{item.name} has {len(value)} entries, expected {jobs}")

    @property
    def gpu_seconds(self) -> np.ndarray:
        """f8[J], num_gpus x duration_s."""
        return np.asarray(self.num_gpus * self.duration_s)

    def select(self, index: np.ndarray) -> Workload:
        """The jobs at ``index`` (positions or a mask), in that order; names and info stay."""
        picked = {
            item.name: getattr(self, item.name)[index]
            for item in dataclasses.fields(self)
            if isinstance(getattr(self, item.name), np.ndarray)
        }
        return dataclasses.replace(self, **picked)

    def replace(self, **changes: Any) -> Workload:
        """A copy with some fields exchanged. ``info`` is merged into the old one, not put in its place."""
        if "info" in changes:
            changes["info"] = {**self.info, **changes["info"]}
        return dataclasses.replace(self, **changes)


def choices(names: tuple[str, ...]) -> str:
    """The first names of a list, for an error message."""
    shown = ", ".join(names[:CHOICES_SHOWN]) if names else "none"
    return shown + (f", ... ({len(names)} in all)" if len(names) > CHOICES_SHOWN else "")


def require_jobs(workload: Workload, what: str) -> None:
    """Raise InputError when there is no job to ``what``."""
    if not len(workload):
        raise InputError(f"there is no job to {what}", file=workload.name, expected="at least one job")
