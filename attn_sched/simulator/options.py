"""What a replay assumes besides workload, cluster and policy."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

from attn_sched.choices import ALLREDUCE, CONTENTION, check_choice
from attn_sched.errors import InputError


@dataclass(frozen=True)
class NodeChange:
    """A part of the cluster fails or returns."""

    time_s: float
    vertex: str  # its name in ``Cluster.vertex_names``, for example "rack0/node3"
    up: bool

    def __post_init__(self) -> None:
        if not (math.isfinite(self.time_s) and self.time_s >= 0):
            raise InputError(f"{self.time_s} is not a time", field="changes", expected="seconds, at least 0")


@dataclass(frozen=True)
class SimOptions:
    """Options of a replay, checked when made. Times in seconds.

    Raises:
        InputError: a value is not among the choices or out of range.
    """

    comm: bool = True  # off: every placement is as good as any other
    contention: str = "equal"  # how jobs share a link: none | equal | maxmin
    allreduce: str = "ring"  # ring | hierarchical
    restart_cost_s: float = 0.0  # extra work of a job each time it is resumed or restarted
    max_wait_s: float | None = None  # starvation guard: reserve GPUs for the oldest job after this wait
    seed: int = 0
    record_segments: bool = True  # who held which GPUs when; needed for Gantt charts and exact utilisation
    changes: tuple[NodeChange, ...] = ()
    # Jobs on failed nodes restart from the last multiple of this much work; None: from zero.
    checkpoint_s: float | None = None

    def __post_init__(self) -> None:
        check_choice(self.contention, CONTENTION, "contention", "model")
        check_choice(self.allreduce, ALLREDUCE, "allreduce", "algorithm")
        for field in ("restart_cost_s", "max_wait_s", "checkpoint_s"):
            value = getattr(self, field)
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise InputError(f"{value} is not a time", field=field, expected="seconds, at least 0")
        if self.checkpoint_s == 0:
            raise InputError(
                "0 would checkpoint without end", field="checkpoint_s", expected="seconds above 0, or None"
            )
        if self.seed < 0:
            raise InputError(f"{self.seed} is negative", field="seed", expected="a whole number of at least 0")

    def as_dict(self) -> dict[str, object]:
        """JSON-able form, without the fields that stand at "nothing"."""
        values = asdict(self)
        for field in ("changes", "record_segments"):
            values.pop(field)
        if self.changes:
            values["changes"] = len(self.changes)
        return values
