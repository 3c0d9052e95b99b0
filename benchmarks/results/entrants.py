"""The policies that are compared: hand-written rules, and whatever of the trained ones is there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from attn_sched.agents.cards import FORMAT as AGENTS_FORMAT
from attn_sched.agents.cards import find_card, read_card, released
from attn_sched.errors import InputError
from attn_sched.policies.linear import FORMAT as LINEAR_FORMAT
from attn_sched.policies.linear import load_linear
from attn_sched.policies.names import parse_policy
from benchmarks.results.plan import DGX256, LONG, MAIN, SIZES, TRACES, Cell

RULE, PREEMPTIVE, TUNED, AGENTS = "rule", "preemptive", "tuned", "agents"  # kinds

PLACEMENT = "topo-best-fit"
HOLD = "hold(1.5,0.5)"
LONGER_HOLD = "hold(1.2,1)"
SJF = f"sjf+{PLACEMENT}"

ORDERS = (
    "fifo", "fifo-skip", "easy", "sjf", "ljf", "smallest", "largest", "saf", "hrrn", "wfp3", "unicep", "f1",
    "user-fair", "ftf", "qssf", "random", "sjf:easy", "saf:easy", "hrrn:easy", "unicep:easy",
)  # fmt: skip
HOLDING = ("fifo-skip", "sjf", "saf", "hrrn", "wfp3", "unicep", "ftf")
HOLDING_LONGER = ("sjf", "saf", "hrrn", "sjf:easy", "saf:easy", "unicep:easy")
BY_BEST_FIT = ("easy", "sjf", "saf", "hrrn", "wfp3", "unicep", "ftf", "user-fair", "sjf:easy")
FIFO_PLACEMENTS = ("random", "first-fit", "load-balance", "best-fit", "tiresias-skew", "lwf", "contention")

# All hand-written rules: every ordering with one placement, and the variants of it that do well somewhere.
RULES = (
    *(f"{order}+{PLACEMENT}" for order in ORDERS),
    *(f"{order}+{PLACEMENT}+{HOLD}" for order in HOLDING),
    *(f"{order}+{PLACEMENT}+{LONGER_HOLD}" for order in HOLDING_LONGER),
    *(f"{order}+best-fit" for order in BY_BEST_FIT),
    *(f"{order}+best-fit+{HOLD}" for order in ("sjf", "saf", "hrrn")),
    *(f"sjf+{placement}" for placement in ("load-balance", "tiresias-skew", "lwf", "contention")),
    f"sjf+contention+{HOLD}",
    *(f"fifo+{placement}" for placement in FIFO_PLACEMENTS),
)
PREEMPTIVE_RULES = (f"srtf+{PLACEMENT}", f"srsf+{PLACEMENT}", "tiresias+tiresias-skew", f"themis-like+{PLACEMENT}")

FULL, START, TUNED_NAME, RETRAINED = "full", "imitation", "tuned", "retrained-256"
MEDIUM = ("medium-0", "medium-1", "medium-2")
JOB_ONLY, GPU_ONLY = "job-only", "gpu-only"


@dataclass(frozen=True)
class Role:
    """Agents that should be there: released under the role's name, or in a folder of it among the training runs."""

    key: str
    what: str  # in words
    run: str  # below the folder of runs
    sections: tuple[str, ...] = (MAIN,)
    clusters: tuple[str, ...] | None = None  # None: all
    alone: bool = False  # also with each agent alone, a rule doing the other's part
    training: Mapping[str, Any] = field(default_factory=dict)  # what the card must say of their training


ROLES = (
    Role(FULL, "the released agents", "full/best", (MAIN, LONG, TRACES, SIZES), alone=True),
    Role(START, "what PPO started from: imitation of the tuned rule", "full/imitation"),
    *(
        Role(key, f"medium budget, seed {seed}", f"{key}/best", training={"seed": seed})
        for seed, key in enumerate(MEDIUM)
    ),
    Role("no-attention", "no attention: every token through its own layers", "no-attention/best",
         training={"network.attention": False}),
    Role("no-topology", "attention that does not know how far apart units are", "no-topology/best",
         training={"network.topology_bias": False}),
    Role(JOB_ONLY, "job agent alone, a rule places", "job-only/best", training={"ppo.agents": ["job"]}),
    Role(GPU_ONLY, "GPU agent alone, a rule picks the jobs", "gpu-only/best", training={"ppo.agents": ["gpu"]}),
    Role("no-hold", "no HOLD: the job agent must start a job that fits", "no-hold/best",
         training={"network.hold": False}),
    *(
        Role(f"no-{term}", f"without the {term} reward", f"no-{term}/best", training={"objective.off": [term]})
        for term in ("completion", "fairness", "communication")
    ),
    Role(RETRAINED, "trained on 256 GPUs", f"{RETRAINED}/best", (SIZES,), (DGX256.stem,),
         training={"data.clusters": [DGX256.stem]}),
)  # fmt: skip
ABLATIONS = tuple(role.key for role in ROLES if role.key.startswith("no-") or role.key in (JOB_ONLY, GPU_ONLY))


@dataclass(frozen=True)
class Entrant:
    """A policy that is compared."""

    label: str  # on the page
    policy: str  # as it is replayed: paths instead of names
    kind: str
    fingerprint: str  # of all that its decisions depend on besides code
    placement: str = ""
    role: str = ""
    sections: tuple[str, ...] | None = None  # None: all
    clusters: tuple[str, ...] | None = None  # None: all

    def plays(self, cell: Cell) -> bool:
        """Whether it is replayed in a cell."""
        return (self.sections is None or cell.section in self.sections) and (
            self.clusters is None or cell.cluster_name in self.clusters
        )


@dataclass(frozen=True)
class Field:
    """All who are there, and what is missing."""

    entrants: tuple[Entrant, ...]
    missing: tuple[str, ...]  # what they are, and where they were looked for
    cards: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # role -> model card

    def of_kind(self, *kinds: str) -> tuple[Entrant, ...]:
        """Those of some kinds, in order."""
        return tuple(entrant for entrant in self.entrants if entrant.kind in kinds)

    def find(self, label: str) -> Entrant | None:
        """By label."""
        return next((entrant for entrant in self.entrants if entrant.label == label), None)

    def limited(self, labels: Sequence[str]) -> Field:
        """Those whose label contains one of ``labels``; all without. Raises InputError if no rule is left."""
        left = tuple(one for one in self.entrants if not labels or any(text in one.label for text in labels))
        if not any(one.kind == RULE for one in left):
            raise InputError(
                f"no hand-written rule is called {' or '.join(labels)}",
                field="policies",
                expected="at least one rule to compare with",
            )
        return Field(left, self.missing, self.cards)


def agents_label(role: str) -> str:
    """How agents are called on the page."""
    return f"agents:{role}"


def find_entrants(runs: Path | None, rules: Iterable[str] = (*RULES, *PREEMPTIVE_RULES)) -> Field:
    """The rules, and the trained policies that are released or lie in the folder of training runs.

    Raises:
        InputError: weights that cannot be used, or that were trained otherwise than their place says.
    """
    found = [rule_entrant(name) for name in rules]
    missing: list[str] = []
    cards: dict[str, Mapping[str, Any]] = {}
    tuned = _tuned_file(runs)
    if tuned is None:
        missing.append(_missing(TUNED_NAME, "the linear rule found by CMA-ES", f"{FULL}/tuned.json"))
    else:
        found.append(_tuned_entrant(tuned))
    for role in ROLES:
        path = _card_file(role, runs)
        if path is None:
            missing.append(_missing(agents_label(role.key), role.what, role.run))
            continue
        card = read_card(path)
        _check_training(card, role, path)
        cards[role.key] = card
        found += _agents_entrants(role, path, card)
    return Field(tuple(found), tuple(missing), cards)


def _missing(label: str, what: str, run: str) -> str:
    return f"`{label}` ({what}; `RUNS/{run}`)"


def rule_entrant(name: str) -> Entrant:
    """A hand-written rule. Raises InputError."""
    policy = parse_policy(name)
    kind = PREEMPTIVE if policy.ordering.preempt else RULE
    return Entrant(name, name, kind, _hash(policy.full_name), placement=policy.placement.name)


def _tuned_file(runs: Path | None) -> Path | None:
    there = released(LINEAR_FORMAT).get(TUNED_NAME)
    beside = None if runs is None else runs / FULL / f"{TUNED_NAME}.json"
    return there if there is not None or beside is None or not beside.exists() else beside


def _tuned_entrant(path: Path) -> Entrant:
    print_ = _hash([*load_linear(path).vector.tolist(), PLACEMENT])
    policy = f"tuned:{path.resolve()}+{PLACEMENT}"
    return Entrant(TUNED_NAME, parse_policy(policy).name, TUNED, print_, role=TUNED_NAME, placement=PLACEMENT)


def _card_file(role: Role, runs: Path | None) -> Path | None:
    there = released(AGENTS_FORMAT).get(role.key)
    folder = None if runs is None else runs / role.run
    if there is not None or folder is None or not any(folder.glob("*.json")):  # a run that goes on may have none yet
        return there
    return find_card(folder)


def _check_training(card: Mapping[str, Any], role: Role, path: Path) -> None:
    """Raise InputError if the agents were trained otherwise than their role says."""
    said = card.get("training")
    for key, wanted in role.training.items():
        given = said.get(key) if isinstance(said, dict) else None
        plain = [Path(str(value)).stem for value in given] if key == "data.clusters" and given else given
        if plain != wanted:
            raise InputError(
                f"was trained with {key} = {given!r}", file=path, field=role.key, expected=f"{key} = {wanted!r}"
            )


def _agents_entrants(role: Role, path: Path, card: Mapping[str, Any]) -> list[Entrant]:
    """Agents as they were trained, and where wanted each alone; @ stands for them."""
    said = card.get("training", {})
    placement, order = str(said.get("placement", PLACEMENT)), str(said.get("order", "fifo"))
    forms = {("job", "gpu"): "@", ("job",): f"@+{placement}", ("gpu",): _under(order, "@")}
    found = [_form(forms[tuple(card["agents"])], role, role.sections, path, card)]
    if role.alone and len(card["agents"]) > 1:
        alone = (f"@+{PLACEMENT}", _under("fifo", "@"), _under("sjf", "@"))
        found += [_form(form, role, role.sections[:1], path, card) for form in alone]
    return found


def _form(form: str, role: Role, sections: tuple[str, ...], path: Path, card: Mapping[str, Any]) -> Entrant:
    name = f"agents:{path.resolve()}"
    policy = parse_policy(form.replace("@", name))
    plain = policy.full_name.replace(name, "@")  # without the place of the weights
    return Entrant(
        label=form.replace("@", agents_label(role.key)),
        policy=policy.name,
        kind=AGENTS,
        fingerprint=_hash([card["weights"]["sha256"], card["objective_weights"], card["spec"], plain]),
        placement=policy.placement.name.replace(name, agents_label(role.key)),
        role=role.key,
        sections=sections,
        clusters=role.clusters,
    )


def _under(order: str, agents: str) -> str:
    """A GPU agent under ORDER[+hold(..)]."""
    head, plus, hold = order.partition("+")
    return f"{head}+{agents}{plus}{hold}"


def _hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
