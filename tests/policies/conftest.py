"""Rules that a test registers are gone when it ends."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import attn_sched.policies  # noqa: F401  # fills the registries before the fixture looks at them
from attn_sched.policies.registry import ORDERINGS, PLACEMENTS


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    """Forget the rules that a test registers."""
    orderings, placements = set(ORDERINGS.parts), set(PLACEMENTS.parts)
    yield
    for name in set(ORDERINGS.parts) - orderings:
        ORDERINGS.remove(name)
    for name in set(PLACEMENTS.parts) - placements:
        PLACEMENTS.remove(name)
