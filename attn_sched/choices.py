"""The words that options may take, each list once: the command line offers what its owner checks.

The lists stand here, away from the code that acts on them, so that ``--help`` imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Sequence

from attn_sched.errors import InputError

USERS = ("trace", "per-job", "synthetic")  # workload.users
LOAD_BY = ("stretch", "thin")  # workload.load
LATER = ("same", "steady")  # workload.load
PARTS = ("train", "validation", "test")  # workload.windows
FAMILIES = ("philly", "helios", "pai", "acme")  # workload.synthetic
OVERSIZED = ("drop", "clip", "refuse")  # simulator.fit
FAIRNESS = ("wait", "jain", "worst-user")  # agents.rewards
CONTENTION = ("none", "equal", "maxmin")  # simulator.options
ALLREDUCE = ("ring", "hierarchical")  # simulator.options


def check_choice(value: str, choices: Sequence[str], field: str, what: str) -> str:
    """``value``, when it is among ``choices``.

    Args:
        value: what was given.
        choices: what may be given.
        field: the option or argument, for the message.
        what: what the value names, for the message: ``unknown WHAT 'value'``.

    Raises:
        InputError: it is not.
    """
    if value not in choices:
        raise InputError(f"unknown {what} {value!r}", field=field, expected=f"one of {', '.join(choices)}")
    return value
