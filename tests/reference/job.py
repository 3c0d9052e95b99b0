"""Jobs as plain objects, what a run of one remembers, and the watch on close calls."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from tests.reference.tree import Placement, Tree


@dataclass(frozen=True)
class Job:
    """One job of the workload; ``kinds`` are the GPU types (indices) of the cluster that it may use."""

    index: int
    submit: float
    duration: float
    gpus: int
    estimate: float
    user: int
    kinds: tuple[int, ...]
    grad_bytes: float
    compute: float
    overlap: float
    cancel: float
    skewed: bool

    @property
    def d(self) -> float:
        """The duration that rules and ratios use: the estimate, at least one second."""
        return max(self.estimate, 1.0)


def read_jobs(workload: Any, tree: Tree) -> list[Job]:
    """The jobs of a ``Workload`` (duck-typed), in index order, with their GPU-type wishes resolved on ``tree``."""
    every = tuple(range(len(tree.gpu_types)))
    count = len(workload.submit_s)
    wishes = getattr(workload, "gpu_type", None)
    cancel = getattr(workload, "cancel_s", None)
    skewed = getattr(workload, "skewed", None)
    jobs = []
    for j in range(count):
        kinds = every
        if tree.typed and wishes is not None and int(wishes[j]) >= 0:
            named = str(workload.gpu_type_names[int(wishes[j])]).split("|")
            kinds = tuple(k for k in every if tree.gpu_types[k] in named)
        jobs.append(
            Job(
                index=j,
                submit=float(workload.submit_s[j]),
                duration=float(workload.duration_s[j]),
                gpus=int(workload.num_gpus[j]),
                estimate=float(workload.estimate_s[j]),
                user=int(workload.user[j]),
                kinds=kinds,
                grad_bytes=float(workload.grad_bytes[j]),
                compute=float(workload.compute_s[j]),
                overlap=float(workload.overlap[j]),
                cancel=math.inf if cancel is None else float(cancel[j]),
                skewed=False if skewed is None else bool(skewed[j]),
            )
        )
    return jobs


@dataclass
class Run:
    """A job that holds GPUs. ``left`` and ``estimate_left`` are ideal seconds of work as of time ``since``.

    Work is booked only when the slowdown changes, so that a job which is never slowed ends at start + duration exactly.
    """

    job: Job
    placement: Placement
    started: float
    since: float
    left: float
    estimate_left: float
    slowdown: float = 1.0
    exact: bool = True  # no correct program computes the work left at ``since``, or the finish, to another last bit

    @property
    def finish(self) -> float:
        """When the work ends if the slowdown stays."""
        return self.since + self.left * self.slowdown

    def expected_end(self, now: float) -> float:
        """When a scheduler that knows only the estimate expects the end; ``now`` once the estimate is used up."""
        return max(now, self.since + self.estimate_left * self.slowdown)

    def estimate_left_at(self, now: float) -> float:
        """Estimated remaining work at ``now``, ideal seconds; negative for a job past its estimate."""
        return self.estimate_left - (now - self.since) / self.slowdown

    def exact_at(self, now: float) -> bool:
        """Whether no correct program computes the work left at ``now`` to another last bit."""
        return self.exact and (now == self.since or whole(now, self.since, self.left, self.estimate_left))

    def change_rate(self, now: float, slowdown: float) -> None:
        """Go on at another rate from ``now``."""
        if slowdown == self.slowdown:
            return
        done = (now - self.since) / self.slowdown
        self.left = max(0.0, self.left - done)
        self.estimate_left -= done
        self.since = now
        self.slowdown = slowdown
        self.exact = False  # one program multiplies by the slowdown, another divides by the rate


def whole(*numbers: float) -> bool:
    """Whether sums and differences of these are free of rounding, and so the same whatever the order of the terms."""
    return all(number.is_integer() for number in numbers)


@dataclass
class CloseCalls:
    """The least relative difference between two numbers whose order decided something.

    Two correct programs may round differently and then decide differently where this is tiny: a test that compares
    programs should discard such an instance (``margin`` below 1e-9, say). Equal numbers count as well, unless any
    program computes them to the same last bit: then the tie is one that the specification has a rule for.
    """

    margin: float = field(default=math.inf)

    def note(self, a: float, b: float, *, exact: bool = True) -> None:
        """Two numbers were compared; ``exact`` tells whether, if equal, they come out equal in any program."""
        if a == b and exact:
            return
        if math.isfinite(a) and math.isfinite(b):
            self.margin = min(self.margin, abs(a - b) / max(1.0, abs(a), abs(b)))

    def not_below_zero(self, a: float, *, exact: bool) -> tuple[float, bool]:
        """``max(0, a)``, and whether any program computes that to the same last bit."""
        self.note(a, 0.0, exact=exact)
        return max(0.0, a), exact or a <= 0.0
