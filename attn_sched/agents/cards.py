"""Model cards: the JSON file that stands for trained agents, says where they come from, and names their weights.

A card and the weights file it names lie in one folder. The card holds the hash of the weights and is written last: what
has a card is whole. Nothing here imports torch, so that listing and checking cost nothing.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from attn_sched.agents.rewards import DEFAULT_WEIGHTS, TERMS
from attn_sched.agents.schema import AGENTS, FEATURES_VERSION
from attn_sched.agents.spec import NetworkSpec
from attn_sched.errors import InputError

FORMAT = "attn-sched agents"
FORMAT_VERSION = 1
CARD_SUFFIX = ".json"
WEIGHTS_SUFFIX = ".safetensors"
LARGEST_CARD = 4 << 20  # bytes; more is no card

# What a card says of the agents' making: field -> (type, what it is taken to be when the maker says nothing, meaning).
PROVENANCE: dict[str, tuple[type, Any, str]] = {
    "command": (str, "", "the command that trained them"),
    "data": (list, [], "one object a source: its name, source, licence, and what part of it was seen"),
    "seeds": (list, [], "the seeds of the training"),
    "budget": (dict, {}, "what the training took: decisions, seconds, ..."),
    "scores": (dict, {"validation": None, "test": None}, "an object with validation and test"),
}


def checkpoints_folder() -> Path:
    """Where released weights lie: beside the package, in a checkout as in an installation."""
    return Path(str(files("attn_sched"))).parent / "checkpoints"


def is_path(name: str | os.PathLike[str]) -> bool:
    """Whether ``name`` means a file (or folder) of one's own and not something released."""
    return not isinstance(name, str) or "/" in name or os.sep in name or name.endswith((CARD_SUFFIX, WEIGHTS_SUFFIX))


def released(file_format: str) -> dict[str, Path]:
    """Name -> file of everything released that says it is of ``file_format``, by name."""
    return dict(_files_of(file_format, checkpoints_folder()))


def _files_of(file_format: str, folder: Path) -> Iterator[tuple[str, Path]]:
    for path in sorted(folder.glob(f"*{CARD_SUFFIX}")):
        try:
            content = read_json(path)
        except InputError:
            continue  # whoever names it is told what is wrong with it
        if content.get("format") == file_format:
            yield path.name.removesuffix(CARD_SUFFIX), path


def find_released(name: str, file_format: str, what: str) -> Path:
    """The released file called ``name``. Raises InputError that lists what exists; ``what`` is said of it there."""
    path = checkpoints_folder() / f"{name}{CARD_SUFFIX}"
    if path.is_file():  # of whatever format: who reads it says what is wrong with it
        return path
    known = ", ".join(released(file_format))
    exists = f"one of {known}, or the path of a .json file" if known else "the path of a .json file: none are released"
    raise InputError(f"there {what} {name!r}", field="policy", expected=exists)


def find_card(name: str | os.PathLike[str]) -> Path:
    """The card of released agents, or that of a path: the card itself, its weights file, the two without their
    suffix, or a folder with one card in it.

    Raises:
        InputError: there is none; lists what exists.
    """
    if not is_path(name):
        return find_released(str(name), FORMAT, "are no agents")
    path = Path(name)
    if path.is_dir():
        cards = [card for _, card in _files_of(FORMAT, path)]
        if len(cards) != 1:
            found = ", ".join(card.name for card in cards) or "none"
            raise InputError("is no folder with one model card", file=path, expected=f"one; it has {found}")
        return cards[0]
    if path.suffix == WEIGHTS_SUFFIX:
        card = path.with_name(path.name.removesuffix(WEIGHTS_SUFFIX) + CARD_SUFFIX)
        if path.exists() and not card.exists():
            raise InputError("has no model card beside it", file=path, expected=card.name)
        return card
    beside = path.with_name(path.name + CARD_SUFFIX)
    return beside if not path.exists() and beside.exists() else path


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file. Raises InputError for whatever is not one."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no JSON")

    try:
        with open(path, "rb") as file:
            data = file.read(LARGEST_CARD + 1)
    except OSError as error:
        what = "does not exist" if isinstance(error, FileNotFoundError) else f"cannot be read: {error.strerror}"
        raise InputError(what, file=path, expected="a JSON file") from error
    if len(data) > LARGEST_CARD:
        raise InputError(f"has more than {LARGEST_CARD:,} bytes", file=path, expected="a JSON file")
    try:
        value = json.loads(data.decode(), parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise InputError(f"is no JSON ({error})", file=path, expected="a whole JSON object") from error
    if not isinstance(value, dict):
        raise InputError(f"holds a {type(value).__name__}", file=path, expected="a JSON object")
    return value


def read_card(path: Path) -> dict[str, Any]:
    """A card, checked but for the weights it names.

    Raises:
        InputError: the file is missing or no card, of another format or feature version, or a field is wrong.
    """
    card = read_json(path)
    _check_versions(card, path)
    try:
        check_card(card)
    except InputError as error:
        raise InputError(error.problem, file=path, field=error.field, expected=error.expected) from None
    weights = card.get("weights")
    file, size, digest = (_get(weights, key) for key in ("file", "bytes", "sha256"))
    if not (isinstance(file, str) and file and Path(file).name == file):
        raise InputError(f"{file!r} is no file beside it", file=path, field="weights.file", expected="a file name")
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise InputError(f"{size!r} is no size", file=path, field="weights.bytes", expected="a number of bytes")
    if not (isinstance(digest, str) and re.fullmatch("[0-9a-f]{64}", digest)):
        raise InputError(f"{digest!r} is no hash", file=path, field="weights.sha256", expected="64 hexadecimal digits")
    return card


def _check_versions(card: Mapping[str, Any], path: Path) -> None:
    if card.get("format") != FORMAT:
        raise InputError(f"is of format {card.get('format')!r}", file=path, field="format", expected=repr(FORMAT))
    for field, own, newer in (
        ("format_version", FORMAT_VERSION, "a release that reads it"),
        ("features_version", FEATURES_VERSION, "weights trained with it, or the release they came with"),
    ):
        given = card.get(field)
        if given != own or isinstance(given, bool):
            raise InputError(f"{given!r} is not the version of this release", file=path, field=field,
                             expected=f"{own}: {newer}")  # fmt: skip


def check_card(card: Mapping[str, Any]) -> None:
    """Check what a card says of the agents and of their making.

    Raises:
        InputError: a field is missing or wrong.
    """
    spec_of(card)
    agents = card.get("agents")
    if not (isinstance(agents, list) and agents and agents == [agent for agent in AGENTS if agent in agents]):
        raise InputError(f"{agents!r} names no agents", field="agents", expected=f"some of {list(AGENTS)}, in order")
    weights_of(card)
    for field, (kind, _, meaning) in PROVENANCE.items():
        if not isinstance(card.get(field), kind):
            raise InputError(f"{card.get(field)!r} will not do", field=field, expected=meaning)
    if not all(isinstance(source, dict) for source in card["data"]):
        raise InputError("a source is no object", field="data", expected=PROVENANCE["data"][2])
    if not all(isinstance(seed, int) and not isinstance(seed, bool) for seed in card["seeds"]):
        raise InputError("a seed is no whole number", field="seeds", expected="a list of whole numbers")
    if not {"validation", "test"} <= set(card["scores"]):
        raise InputError("a score is missing", field="scores", expected=PROVENANCE["scores"][2])


def spec_of(card: Mapping[str, Any]) -> NetworkSpec:
    """The networks of a card. Raises InputError."""
    spec = card.get("spec")
    if not isinstance(spec, dict):
        raise InputError(f"{spec!r} describes no networks", field="spec", expected="an object")
    return NetworkSpec.from_dict(spec)


def weights_of(card: Mapping[str, Any]) -> tuple[float, float, float]:
    """The objective weights (completion, fairness, communication) the agents were trained for. Raises InputError."""
    given = card.get("objective_weights")
    if not (
        isinstance(given, list)
        and len(given) == len(TERMS)
        and all(isinstance(value, int | float) and not isinstance(value, bool) for value in given)
        and all(math.isfinite(value) and value >= 0 for value in given)
    ):
        raise InputError(
            f"{given!r} weighs no objectives",
            field="objective_weights",
            expected=f"{len(TERMS)} numbers of at least 0: {', '.join(TERMS)}",
        )
    return float(given[0]), float(given[1]), float(given[2])


def complete_card(card: Mapping[str, Any], name: str, spec: NetworkSpec, agents: list[str]) -> dict[str, Any]:
    """``card`` with the fields that follow from the agents put in, and what its maker left out at "not said".

    Raises:
        InputError: a field is wrong, or something in it cannot stand in JSON (NaN cannot).
    """
    whole = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "name": name,
        "features_version": FEATURES_VERSION,
        "spec": spec.as_dict(),
        "agents": agents,
        "objective_weights": list(card.get("objective_weights", DEFAULT_WEIGHTS)),
        **{field: card.get(field, default) for field, (_, default, _) in PROVENANCE.items()},
    }
    whole = {**whole, **{key: value for key, value in card.items() if key not in whole and key != "weights"}}
    try:
        whole = json.loads(json.dumps(whole, allow_nan=False, default=_plain))
    except (TypeError, ValueError) as error:
        raise InputError(f"cannot be written as JSON ({error})", field="card", expected="finite JSON values") from error
    check_card(whole)
    return whole


def _plain(value: Any) -> Any:
    """Numbers and arrays of numpy as JSON has them."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is no JSON")


def _get(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, dict) else None
