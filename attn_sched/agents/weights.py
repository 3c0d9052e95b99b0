"""Trained agents on disk: a safetensors file and the model card that names it. Nothing is ever unpickled.

Both files are written whole or not at all. Where they replace older ones, the old weights stay beside them until the
new card is in place: a save that is killed half-way leaves the old agents, and ``load_agents`` finds them.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attn_sched.agents.cards import (
    CARD_SUFFIX,
    WEIGHTS_SUFFIX,
    complete_card,
    find_card,
    read_card,
    read_json,
    spec_of,
)
from attn_sched.agents.schema import AGENTS
from attn_sched.errors import InputError
from attn_sched.files import atomic_write

if TYPE_CHECKING:
    from torch import Tensor

    from attn_sched.agents.pair import AgentPair
    from attn_sched.agents.spec import NetworkSpec

SHOWN = 4  # names of tensors in a message


def save_agents(pair: AgentPair, target: str | os.PathLike[str]) -> Path:
    """Write ``NAME.safetensors`` and then ``NAME.json``, the model card; returns the path of the card.

    The card is ``pair.card`` with what follows from the networks put in (``cards.complete_card``); what it may say of
    their making is listed in ``cards.PROVENANCE``, and ``objective_weights`` are the defaults unless said. Weights are
    stored as 32-bit floats.

    Args:
        pair: At least one agent. It is not changed.
        target: ``FOLDER/NAME``, with or without one of the two suffixes; NAME can then stand in ``agents:NAME``. An
            existing folder: NAME is the card's, or the folder's own.

    Raises:
        InputError: weights that are not finite, a card that will not do, a file that cannot be written, or a NAME that
        could not stand in a policy's name.
    """
    from safetensors.torch import save

    folder, name = _target(Path(target), pair.card)
    agents = [agent for agent in AGENTS if getattr(pair, agent) is not None]
    weights_path, card_path = folder / f"{name}{WEIGHTS_SUFFIX}", folder / f"{name}{CARD_SUFFIX}"
    tensors = {
        f"{agent}.{key}": value.detach().cpu().float().contiguous()
        for agent in agents
        for key, value in pair.net(agent).state_dict().items()
    }
    _check_tensors(tensors, _fresh(pair.spec, agents), weights_path)
    card = complete_card(pair.card, name, pair.spec, agents)
    data = save(tensors)  # nothing of the name in them: renamed agents have the same hash
    digest = hashlib.sha256(data).hexdigest()
    card["weights"] = {"file": weights_path.name, "bytes": len(data), "sha256": digest}
    with atomic_write(card_path) as card_part:
        card_part.write_text(json.dumps(card, indent=1, allow_nan=False, ensure_ascii=False) + "\n", encoding="utf-8")
        _keep_old(card_path, weights_path)
        with atomic_write(weights_path) as part:
            part.write_bytes(data)
    _kept(weights_path).unlink(missing_ok=True)
    return card_path


def _target(path: Path, card: Mapping[str, Any]) -> tuple[Path, str]:
    folder, name = path.parent, path.name
    for suffix in (CARD_SUFFIX, WEIGHTS_SUFFIX):
        name = name.removesuffix(suffix)
    if path.is_dir():
        folder, name = path, str(card.get("name") or path.resolve().name)
    if not name or set(name) & set("+:,()/\\ \t\n"):
        raise InputError(f"{name!r} cannot name agents", field="name", expected="a name without + : , ( ) / or blanks")
    return folder, name


def _kept(weights_path: Path) -> Path:
    """Where the old weights stay while new ones take their place."""
    return weights_path.with_name(weights_path.name.removesuffix(WEIGHTS_SUFFIX) + ".old" + WEIGHTS_SUFFIX)


def _keep_old(card_path: Path, weights_path: Path) -> None:
    """Keep the weights that the card now in place names, if these are they (after a killed save the kept ones are)."""
    try:
        named = read_json(card_path)["weights"]["sha256"]
        present = hashlib.sha256(weights_path.read_bytes()).hexdigest()
    except (InputError, OSError, KeyError, TypeError):
        return  # nothing whole to lose
    if named == present:
        with atomic_write(_kept(weights_path)) as part:
            part.unlink()
            try:
                os.link(weights_path, part)
            except OSError:  # a file system without links
                shutil.copyfile(weights_path, part)


def load_agents(name: str | os.PathLike[str]) -> AgentPair:
    """The agents of a released name, or of a path (card, weights file, or a folder with one card in it).

    Raises:
        InputError: there are none of that name (lists what exists), the card or the weights are missing, damaged, of
        another version or not the ones that belong together, or tensors are missing, unknown, of another shape or not
        finite.
    """
    from attn_sched.agents.pair import AgentPair

    card_path = find_card(name)
    card = read_card(card_path)
    spec = spec_of(card)
    weights_path = card_path.with_name(card["weights"]["file"])
    tensors = _parse(_weights_bytes(weights_path, card["weights"]), weights_path)
    fresh = _fresh(spec, card["agents"])
    _check_tensors(tensors, fresh, weights_path)
    for agent in card["agents"]:
        net = fresh.net(agent)
        net.load_state_dict({key: tensors[f"{agent}.{key}"] for key in net.state_dict()})
        net.eval()
    return AgentPair(spec, fresh.job, fresh.gpu, card)


def _fresh(spec: NetworkSpec, agents: Sequence[str]) -> AgentPair:
    from attn_sched.agents.pair import AgentPair

    return AgentPair.fresh(spec, tuple(agents), seed=0)


def _weights_bytes(path: Path, said: Mapping[str, Any]) -> bytes:
    """The weights file that the card means, or the one kept aside when the save of another was killed."""
    try:
        data = path.read_bytes()
    except OSError as error:
        what = "does not exist" if isinstance(error, FileNotFoundError) else f"cannot be read: {error.strerror}"
        raise InputError(what, file=path, expected="the weights that the model card names") from error
    if hashlib.sha256(data).hexdigest() == said["sha256"]:
        return data
    if _kept(path).is_file():
        kept = _kept(path).read_bytes()
        if hashlib.sha256(kept).hexdigest() == said["sha256"]:
            return kept
    if len(data) < said["bytes"]:
        raise InputError(f"is truncated: {len(data):,} bytes", file=path, expected=f"{said['bytes']:,} bytes")
    raise InputError(
        "is damaged, or belongs to another model card: its hash is not the one the card names",
        file=path,
        expected=f"sha256 {said['sha256'][:12]}...",
    )


def _parse(data: bytes, path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        return load(data)
    except (SafetensorError, KeyError, ValueError, TypeError) as error:  # the last ones: dtypes torch does not have
        raise InputError(
            f"is no safetensors file ({error})", file=path, expected="weights that were saved here"
        ) from error


def _check_tensors(tensors: Mapping[str, Tensor], fresh: AgentPair, path: Path) -> None:
    """Raise InputError unless these are exactly the tensors of the networks, and finite."""
    wanted = {
        f"{agent}.{key}": value
        for agent in AGENTS
        if getattr(fresh, agent) is not None
        for key, value in fresh.net(agent).state_dict().items()
    }
    for what, names in (("lacks", wanted.keys() - tensors.keys()), ("has unknown", tensors.keys() - wanted.keys())):
        if names:
            shown = ", ".join(sorted(names)[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
            raise InputError(
                f"{what} tensors: {shown}", file=path, expected=f"the {len(wanted)} of the card's networks"
            )
    for key, value in wanted.items():
        given = tensors[key]
        if given.shape != value.shape or given.dtype != value.dtype:
            raise InputError(
                f"{key} is {given.dtype}{list(given.shape)}".replace("torch.", ""),
                file=path,
                expected=f"{value.dtype}{list(value.shape)}, as the card's networks have it".replace("torch.", ""),
            )
        if not bool(given.isfinite().all()):
            raise InputError(f"{key} is not finite", file=path, expected="weights without NaN and infinity")
