"""What a command needs besides a replay's packages, asked for before it begins."""

from __future__ import annotations

import importlib.util

from attn_sched.errors import InputError


def check_packages(who_needs: str, names: tuple[str, ...]) -> None:
    """Raise InputError unless all are installed. Nothing is imported to find out.

    Args:
        who_needs: Begins the message, as in "training needs".
        names: Of packages.
    """
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        raise InputError(
            f"{who_needs} {', '.join(missing)}", expected="pip install 'attentive-sched[train]' to have been run"
        )
