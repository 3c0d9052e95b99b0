"""One seed fixes everything; every purpose draws from a stream of its own."""

from __future__ import annotations

import hashlib

import numpy as np


def stream(seed: int, purpose: str) -> np.random.Generator:
    """A generator that depends on ``seed`` and ``purpose`` alone: drawing more for one purpose changes no other."""
    digest = hashlib.blake2b(purpose.encode(), digest_size=8).digest()
    return np.random.default_rng([seed, int.from_bytes(digest, "little")])
