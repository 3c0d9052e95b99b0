"""The files of learned policies: found by name or path, and listed; nothing here imports torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from attn_sched.agents.cards import FORMAT, find_card, find_released, is_path, read_card, read_json, released
from attn_sched.errors import InputError
from attn_sched.policies.linear import FORMAT as TUNED_FORMAT
from attn_sched.policies.linear import load_linear
from attn_sched.policies.registry import AGENTS, TUNED, Learned


def agents_card(name: str) -> dict[str, Any]:
    """The model card of ``agents:NAME``. Raises InputError."""
    return read_card(find_card(name))


def find_tuned(name: str) -> Path:
    """The file of ``tuned:NAME``, which can be read. Raises InputError."""
    path = Path(name) if is_path(name) else find_released(name, TUNED_FORMAT, "is no tuned rule")
    load_linear(path)
    return path


def list_released() -> list[tuple[str, str, str, str]]:
    """(name, kind, one line, source) of every released pair of agents and tuned rule."""
    rows = []
    for name, path in released(FORMAT).items():
        try:
            card = read_card(path)
            line = f"trained attention network{'s' * (len(card['agents']) > 1)} ({' and '.join(card['agents'])} agent)"
            source = _data(card)
        except InputError as error:
            line, source = f"cannot be used: {error.problem}", "this project"
        rows.append((Learned(AGENTS, name).text, "learned", line, source))
    for name, path in released(TUNED_FORMAT).items():
        made = read_json(path).get("card")
        line = "a linear rule with hold, its weights found by CMA-ES"
        rows.append((Learned(TUNED, name).text, "learned", line, _data(made if isinstance(made, dict) else {})))
    return rows


def _data(card: dict[str, Any]) -> str:
    """What the weights were trained on, in a few words."""
    data = card.get("data")
    names = [str(source["name"]) for source in data or [] if isinstance(source, dict) and "name" in source]
    return f"this project, trained on {', '.join(names)}" if names else "this project"
