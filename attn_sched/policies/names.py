"""Policy names: ``ORDER[:QUEUEING][+PLACEMENT][+hold(theta,patience)]``, for example ``sjf+best-fit+hold(1.5,0.5)``.

Learned parts stand in the same places: ``agents:NAME`` as ORDER is a job agent and as PLACEMENT a GPU agent (alone it
is both), ``tuned`` or ``tuned:NAME`` as ORDER a linear rule that also holds. NAME is released, or a path.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import attn_sched.policies.orderings
import attn_sched.policies.placements  # noqa: F401  # both fill the registries
from attn_sched.errors import InputError
from attn_sched.policies.registry import (
    AGENTS,
    ALIASES,
    LEARNED_KINDS,
    ORDERINGS,
    PLACEMENTS,
    QUEUEINGS,
    TUNED,
    Learned,
    Ordering,
    Placement,
    Queueing,
)
from attn_sched.simulator import layout as at
from attn_sched.simulator.rule import EngineRule

SHAPE = "ORDER[:QUEUEING][+PLACEMENT][+hold(theta,patience)], for example sjf+topo-best-fit+hold(1.5,0.5)"
LEARNED_SHAPE = "agents:NAME, ORDER[:QUEUEING]+agents:NAME, agents:NAME+PLACEMENT or tuned[:NAME][+PLACEMENT]"
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
    def learned(self) -> tuple[Learned, ...]:
        """The learned parts, each once; they are loaded only when the policy is replayed."""
        parts = (self.ordering.learned, self.placement.learned)
        return tuple(dict.fromkeys(part for part in parts if part is not None))

    @property
    def full_name(self) -> str:
        """The name with everything said that was left to the defaults."""
        plain = self.ordering.preempt or self.ordering.learned
        parts = [self.ordering.name if plain else f"{self.ordering.name}:{self.queueing.name}"]
        if self.placement.learned is None or self.placement.learned != self.ordering.learned:
            parts.append(self.placement.name)
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
    """Parse and check a policy's name.

    The files of learned parts are looked up and their cards read; weights are loaded by who replays them.

    Raises:
        InputError: says which part is unknown and what exists, or what is wrong with a card.
    """
    parts = [part.strip() for part in re.split(r"\+(?![^()]*\))", name)]  # not the plus of a number in brackets
    if not all(parts):
        raise InputError(f"{name!r} has an empty part", field="policy", expected=SHAPE)
    ordering, queueing = _ordering(parts[0])
    placement: Placement | None = None
    hold: tuple[float, float] | None = None
    for part in parts[1:]:
        if part.startswith("hold(") and part.endswith(")"):
            if hold is not None:
                raise InputError(f"{name!r} holds twice", field="policy", expected=SHAPE)
            hold = _hold(part)
        elif placement is None and hold is None:
            learned = _learned(part)
            placement = PLACEMENTS.get(part) if learned is None else _learned_placement(learned)
        else:
            raise InputError(f"{part!r} stands where nothing can follow", field="policy", expected=SHAPE)
    if placement is None and ordering.learned is not None and ordering.learned.kind == AGENTS:
        placement = _learned_placement(ordering.learned)
    policy = Policy(name, ordering, queueing, placement or PLACEMENTS.get(DEFAULT_PLACEMENT), hold)
    policy.engine_rule()
    if policy.ordering.preempt and policy.placement.code in (at.PLACE_CALLED, at.PLACE_AGENT):
        raise InputError(
            "a preemptive policy places several jobs at once", field="policy", expected="a built-in placement"
        )
    if policy.ordering.learned is not None and hold is not None:
        raise InputError(
            f"{policy.ordering.name!r} decides itself when to hold", field="policy", expected="no hold(...)"
        )
    return policy


def _ordering(head: str) -> tuple[Ordering, Queueing]:
    """The first part of a name: ``ORDER[:QUEUEING]``, an alias, or a learned part."""
    learned = _learned(head)
    if learned is not None:
        _check_card(learned, "job", "agents of which NAME has the job agent, or ORDER+agents:NAME")
        return Ordering(learned.text, "", "", code=at.AGENT, learned=learned), QUEUEINGS.get("skip")
    head = ALIASES.parts[head].meaning if head in ALIASES.parts else head
    order_name, colon, queue_name = head.partition(":")
    ordering = ORDERINGS.get(order_name)
    if colon and ordering.preempt:
        raise InputError(
            f"{order_name!r} is preemptive and ranks all jobs at every event", field="policy", expected="no :QUEUEING"
        )
    by_code = {queueing.code: queueing for queueing in QUEUEINGS.parts.values()}
    return ordering, QUEUEINGS.get(queue_name) if colon else by_code[ordering.queueing]


def _learned(part: str) -> Learned | None:
    """A part that names a file: ``agents:NAME``, ``tuned``, ``tuned:NAME``; None for all others."""
    kind, colon, name = part.partition(":")
    if kind not in LEARNED_KINDS:
        return None
    if kind == TUNED and not colon:
        return Learned(TUNED, TUNED)
    if not name:
        raise InputError(f"{part!r} names no file", field="policy", expected=LEARNED_SHAPE)
    return Learned(kind, name)


def _learned_placement(learned: Learned) -> Placement:
    if learned.kind != AGENTS:
        raise InputError(f"{learned.text!r} picks jobs, not GPUs", field="policy", expected=LEARNED_SHAPE)
    _check_card(learned, "gpu", f"{learned.text}+PLACEMENT")
    return Placement(learned.text, "", "", at.PLACE_AGENT, learned=learned)


def _check_card(learned: Learned, agent: str, instead: str) -> None:
    """Find the file of a learned part and see that it is one, and has the agent that is wanted of it."""
    from attn_sched.policies.released import agents_card, find_tuned

    if learned.kind == TUNED:
        find_tuned(learned.name)
    elif agent not in agents_card(learned.name)["agents"]:
        raise InputError(f"{learned.text!r} has no {agent} agent", field="policy", expected=instead)


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
    """(name, kind, one line, source) of every part a policy's name can be made of, released weights included."""
    from attn_sched.policies.released import list_released

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
    return rows + list_released()
