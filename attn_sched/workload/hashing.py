"""Seeded draws that depend on names alone, so that a job gets the same draw in every run and every subset."""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa

_CHUNK = 1 << 17
_PRIME = np.uint64(0x100000001B3)  # FNV's 64-bit prime, odd: its powers never vanish modulo 2^64


def text_key(text: str) -> int:
    """A 64-bit key of one string."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest(), "little")


def mix(values: np.ndarray) -> np.ndarray:
    """The finaliser of splitmix64 (Steele et al., OOPSLA '14), on uint64."""
    with np.errstate(over="ignore"):
        z = values + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(z ^ (z >> np.uint64(31)), dtype=np.uint64)


def text_keys(texts: pa.Array) -> np.ndarray:
    """64-bit keys of many strings (null = empty): a polynomial over the UTF-8 bytes, then mixed. Vectorised."""
    result = np.empty(len(texts), np.uint64)
    for start in range(0, len(texts), _CHUNK):
        part = pa.concat_arrays([texts.slice(start, _CHUNK)]).cast(pa.large_binary())
        offsets = np.frombuffer(part.buffers()[1], np.int64)[part.offset : part.offset + len(part) + 1]
        lengths = np.diff(offsets)
        total = int(lengths.sum())
        key = np.zeros(len(part), np.uint64)
        if total:
            raw = np.frombuffer(part.buffers()[2], np.uint8)[offsets[0] : offsets[0] + total]
            data = raw.astype(np.uint64) + np.uint64(1)
            starts = offsets[:-1] - offsets[0]
            with np.errstate(over="ignore"):
                powers = np.full(int(lengths.max()), _PRIME).cumprod(dtype=np.uint64)
                terms = data * powers[np.arange(total) - np.repeat(starts, lengths)]
                filled = lengths > 0
                key[filled] = np.add.reduceat(terms, starts[filled])
        result[start : start + len(part)] = mix(key)
    return result


def uniform(*keys: np.ndarray | int) -> np.ndarray:
    """Numbers in [0, 1) that depend on every key; at least one key is an array."""
    state = np.zeros(1, np.uint64)
    for key in keys:
        value = np.uint64(key & (2**64 - 1)) if isinstance(key, int) else key
        state = mix(state ^ value)
    return np.asarray((state >> np.uint64(11)) * 2.0**-53)
