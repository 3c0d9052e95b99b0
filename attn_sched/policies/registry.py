"""One registry of the parts a policy's name is made of: orderings, queueings, placements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np

from attn_sched.errors import InputError
from attn_sched.policies.views import PlacementView, QueueView
from attn_sched.simulator import layout as at
from attn_sched.simulator.layout import F8, I8
from attn_sched.simulator.rule import StaticKeys

CalledKeys = Callable[[QueueView], F8]
CalledPlacement = Callable[[PlacementView], I8]


@dataclass(frozen=True)
class Learned:
    """A part of a policy that was trained: which file answers for it. Nothing is loaded yet."""

    kind: str  # one of LEARNED_KINDS
    name: str  # released, or a path

    @property
    def text(self) -> str:
        """As it stands in a policy's name."""
        return TUNED if self.kind == self.name == TUNED else f"{self.kind}:{self.name}"


@dataclass(frozen=True)
class Ordering:
    """Which waiting job comes first."""

    name: str
    line: str  # what it does, in one line
    source: str
    code: int = at.STATIC  # of layout: STATIC with keys, a dynamic ordering, or CALLED
    keys: StaticKeys | None = None
    called: CalledKeys | None = None
    queueing: int = at.SKIP  # when the name gives none
    preempt: int = at.NO_PREEMPTION
    learned: Learned | None = None  # answers from outside; code is then AGENT


@dataclass(frozen=True)
class Placement:
    """Which GPUs a gang gets."""

    name: str
    line: str
    source: str
    code: int
    called: CalledPlacement | None = None
    learned: Learned | None = None  # answers from outside; code is then PLACE_AGENT


@dataclass(frozen=True)
class Queueing:
    """Whether a job that does not fit holds up the others."""

    name: str
    line: str
    source: str
    code: int


@dataclass(frozen=True)
class Alias:
    """A short name for an ordering with a queueing."""

    name: str
    line: str
    source: str
    meaning: str


AGENTS, TUNED = LEARNED_KINDS = ("agents", "tuned")  # how the names of learned parts begin

P = TypeVar("P", Ordering, Placement, Queueing, Alias)


@dataclass
class Registry(Generic[P]):
    """Names of one kind of part. An unknown name lists what exists; a name is given once."""

    kind: str
    parts: dict[str, P] = field(default_factory=dict)

    def add(self, part: P) -> None:
        """Register a part. Raises InputError if its name is taken or could not stand in a policy's name."""
        if part.name in self.parts:
            raise InputError(f"there is a {self.kind} {part.name!r} already", field=self.kind, expected="another name")
        if not part.name or set(part.name) & set("+:,() \t\n"):
            raise InputError(
                f"{part.name!r} cannot name a {self.kind}",
                field=self.kind,
                expected="a name without + : , ( ) or blanks",
            )
        if part.name in LEARNED_KINDS:
            raise InputError(f"{part.name!r} names learned policies", field=self.kind, expected="another name")
        self.parts[part.name] = part

    def get(self, name: str) -> P:
        """The part called ``name``. Raises InputError that lists what exists."""
        if name not in self.parts:
            raise InputError(
                f"there is no {self.kind} {name!r}", field="policy", expected=f"one of {', '.join(sorted(self.parts))}"
            )
        return self.parts[name]

    def remove(self, name: str) -> None:
        """Forget a part, for tests that register their own."""
        self.parts.pop(name, None)


ORDERINGS: Registry[Ordering] = Registry("ordering")
PLACEMENTS: Registry[Placement] = Registry("placement")
QUEUEINGS: Registry[Queueing] = Registry("queueing")
ALIASES: Registry[Alias] = Registry("alias")


def register_ordering(
    name: str, line: str = "", source: str = "user's own", *, static: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator that makes a Python function an ordering under ``name``.

    The function gets a :class:`QueueView` of the waiting jobs at each event and returns one key a job, f8[W], smallest
    first; ties go to the earlier submission. With ``static=True`` it gets ``(workload, generator)`` once and returns
    one key for every job, f8[J]; the whole replay then runs compiled, as fast as a built-in rule.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        if name in ALIASES.parts:
            raise InputError(
                f"{name!r} is short for {ALIASES.parts[name].meaning!r}", field="ordering", expected="another name"
            )
        said = line or _first_line(function) or name
        if static:
            ORDERINGS.add(Ordering(name, said, source, keys=function))
        else:
            ORDERINGS.add(Ordering(name, said, source, code=at.CALLED, called=function))
        return function

    return register


def register_placement(
    name: str, line: str = "", source: str = "user's own"
) -> Callable[[CalledPlacement], CalledPlacement]:
    """Decorator that makes a Python function a placement under ``name``.

    The function gets a :class:`PlacementView` and returns how many GPUs to take of each node, i8[nodes]; the counts
    must add up to the gang and must be free.
    """

    def register(function: CalledPlacement) -> CalledPlacement:
        said = line or _first_line(function) or name
        PLACEMENTS.add(Placement(name, said, source, at.PLACE_CALLED, called=function))
        return function

    return register


def _first_line(function: Callable[..., Any]) -> str:
    return ((function.__doc__ or "").strip().splitlines() or [""])[0]


def check_keys(keys: Any, count: int, name: str) -> F8:
    """Keys a user's ordering returned, as f8[count]. Raises InputError that says what is wrong with them."""
    try:
        values = np.asarray(keys).astype(np.float64)
    except (TypeError, ValueError):
        raise InputError(
            f"the ordering {name!r} returned {type(keys).__name__} that is no numbers",
            field="policy",
            expected=f"{count} numbers, one a waiting job",
        ) from None
    if values.shape != (count,) or np.isnan(values).any():
        what = f"keys of shape {values.shape}" if values.shape != (count,) else "a NaN key"
        raise InputError(
            f"the ordering {name!r} returned {what}", field="policy", expected=f"{count} numbers, one a waiting job"
        )
    return values
