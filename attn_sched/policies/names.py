"""Policy names: ``ORDER[:QUEUEING][+PLACEMENT][+hold(theta,patience)]``, for example ``sjf+best-fit+hold(1.5,0.5)``."""

from __future__ import annotations

import re
from dataclasses import dataclass

import attn_sched.policies.orderings
import attn_sched.policies.placements  # noqa: F401  # both fill the registries
from attn_sched.errors import InputError
from attn_sched.policies.registry import ALIASES, ORDERINGS, PLACEMENTS, QUEUEINGS, Ordering, Placement, Queueing
from attn_sched.simulator import layout as at
from attn_sched.simulator.rule import EngineRule

SHAPE = "ORDER[:QUEUEING][+PLACEMENT][+hold(theta,patience)], for example sjf+topo-best-fit+hold(1.5,0.5)"
DEFAULT_PLACEMENT = "topo-best-fit"


@dataclass(frozen=True)
class Policy:
    """A parsed name."""

    name: str  # as given
    ordering: Ordering
    queueing: Queueing
    placement: Placement
    hold: tuple[float, float] | None  # theta, patience

    @property
    def full_name(self) -> str:
        """The name with everything said that was left to the defaults."""
        parts = [
            self.ordering.name if self.ordering.preempt else f"{self.ordering.name}:{self.queueing.name}",
            self.placement.name,
        ]
        if self.hold is not None:
            parts.append(f"hold({self.hold[0]:g},{self.hold[1]:g})")
        return "+".join(parts)

    def engine_rule(self) -> EngineRule:
        """The policy in the engine's terms. Raises InputError for theta below 1 or a preemptive policy that holds."""
        theta, patience = self.hold if self.hold is not None else (None, 0.0)
        return EngineRule(
            order=self.ordering.code,
            queueing=self.queueing.code,
            placement=self.placement.code,
            keys=self.ordering.keys,
            theta=theta,
            patience=patience,
            preempt=self.ordering.preempt,
        )


def split_policy_list(text: str) -> list[str]:
    """Split ``P1,P2,..``; commas inside parentheses do not separate.

    Raises InputError if it names none or has open brackets.
    """
    names: list[str] = []
    depth = 0
    current = ""
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if depth < 0:
            break
        if letter == "," and depth == 0:
            names.append(current.strip())
            current = ""
        else:
            current += letter
    names.append(current.strip())
    if depth != 0:
        raise InputError(f"{text!r} has brackets that do not match", field="policies", expected=SHAPE)
    names = [name for name in names if name]
    if not names:
        raise InputError("names no policy", field="policies", expected="P1,P2,.. as in fifo,sjf+best-fit")
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise InputError(f"{sorted(twice)[0]!r} stands twice", field="policies", expected="every policy once")
    return names


def parse_policy(name: str) -> Policy:
    """Parse and check a policy's name. Raises InputError that says which part is unknown and what exists."""
    parts = [part.strip() for part in re.split(r"\+(?![^()]*\))", name)]  # not the plus of a number in brackets
    if not all(parts):
        raise InputError(f"{name!r} has an empty part", field="policy", expected=SHAPE)
    head = ALIASES.parts[parts[0]].meaning if parts[0] in ALIASES.parts else parts[0]
    order_name, colon, queue_name = head.partition(":")
    ordering = ORDERINGS.get(order_name)
    if colon and ordering.preempt:
        raise InputError(
            f"{order_name!r} is preemptive and ranks all jobs at every event", field="policy", expected="no :QUEUEING"
        )
    by_code = {queueing.code: queueing for queueing in QUEUEINGS.parts.values()}
    queueing = QUEUEINGS.get(queue_name) if colon else by_code[ordering.queueing]
    placement: Placement | None = None
    hold: tuple[float, float] | None = None
    for part in parts[1:]:
        if part.startswith("hold(") and part.endswith(")"):
            if hold is not None:
                raise InputError(f"{name!r} holds twice", field="policy", expected=SHAPE)
            hold = _hold(part)
        elif placement is None and hold is None:
            placement = PLACEMENTS.get(part)
        else:
            raise InputError(f"{part!r} stands where nothing can follow", field="policy", expected=SHAPE)
    policy = Policy(name, ordering, queueing, placement or PLACEMENTS.get(DEFAULT_PLACEMENT), hold)
    policy.engine_rule()
    if policy.ordering.preempt and policy.placement.code == at.PLACE_CALLED:
        raise InputError(
            "a preemptive policy places several jobs at once", field="policy", expected="a built-in placement"
        )
    return policy


def _hold(part: str) -> tuple[float, float]:
    values = part[len("hold(") : -1].split(",")
    try:
        theta, patience = (float(value) for value in values)
    except ValueError:
        raise InputError(
            f"{part!r} cannot be read", field="policy", expected="hold(theta,patience), as in hold(1.5,0.5)"
        ) from None
    return theta, patience


def list_policies() -> list[tuple[str, str, str, str]]:
    """(name, kind, one line, source) of every part a policy's name can be made of."""
    rows = []
    for part in ORDERINGS.parts.values():
        rows.append((part.name, "ordering, preemptive" if part.preempt else "ordering", part.line, part.source))
    rows += [(alias.name, f"short for {alias.meaning}", alias.line, alias.source) for alias in ALIASES.parts.values()]
    rows += [(queueing.name, "queueing", queueing.line, queueing.source) for queueing in QUEUEINGS.parts.values()]
    rows += [(placement.name, "placement", placement.line, placement.source) for placement in PLACEMENTS.parts.values()]
    rows.append(
        (
            "hold(theta,patience)",
            "hold",
            "a gang whose best slowdown now exceeds theta waits, at most patience times its duration",
            "Zaharia et al. (delay scheduling), EuroSys 2010",
        )
    )
    return rows
