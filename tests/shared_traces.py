"""Where the real traces lie, for the tests that need them."""

from __future__ import annotations

from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared" / "traces"


def shared_traces() -> Path:
    """The folder of real traces beside the checkout; skips the calling test where it is absent."""
    if not SHARED.is_dir():
        pytest.skip("the real traces are not beside this checkout (../shared/traces)")
    return SHARED
