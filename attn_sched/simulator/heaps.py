"""Indexed binary heaps of job numbers, ordered by a float column of the job table; ties go to the lower job number.

``pcol`` is the integer column that remembers a job's place, so that any job can be removed or re-keyed in O(log n).
"""

from __future__ import annotations

from attn_sched.jit import njit
from attn_sched.simulator.layout import F8, I8


@njit
def heap_up(heap: I8, jf: F8, ji: I8, kcol: int, pcol: int, base: int, at: int) -> int:
    """Move the entry at place ``at`` (counted from ``base``) up to where it belongs; returns its new place."""
    job = heap[base + at]
    key = jf[job, kcol]
    while at > 0:
        up = (at - 1) >> 1
        other = heap[base + up]
        other_key = jf[other, kcol]
        if other_key < key or (other_key == key and other < job):
            break
        heap[base + at] = other
        ji[other, pcol] = base + at
        at = up
    heap[base + at] = job
    ji[job, pcol] = base + at
    return at


@njit
def heap_down(heap: I8, jf: F8, ji: I8, kcol: int, pcol: int, base: int, size: int, at: int) -> None:
    """Move the entry at place ``at`` down to where it belongs in a heap of ``size`` entries."""
    job = heap[base + at]
    key = jf[job, kcol]
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        best = heap[base + child]
        best_key = jf[best, kcol]
        if child + 1 < size:
            other = heap[base + child + 1]
            other_key = jf[other, kcol]
            if other_key < best_key or (other_key == best_key and other < best):
                child += 1
                best = other
                best_key = other_key
        if key < best_key or (key == best_key and job < best):
            break
        heap[base + at] = best
        ji[best, pcol] = base + at
        at = child
    heap[base + at] = job
    ji[job, pcol] = base + at


@njit
def heap_push(heap: I8, jf: F8, ji: I8, kcol: int, pcol: int, base: int, size: int, job: int) -> None:
    """Add ``job`` to a heap that holds ``size`` entries (the caller counts)."""
    heap[base + size] = job
    ji[job, pcol] = base + size
    heap_up(heap, jf, ji, kcol, pcol, base, size)


@njit
def heap_remove(heap: I8, jf: F8, ji: I8, kcol: int, pcol: int, base: int, size: int, job: int) -> None:
    """Remove ``job`` from a heap that holds ``size`` entries (the caller counts)."""
    at = ji[job, pcol] - base
    ji[job, pcol] = -1
    last = heap[base + size - 1]
    if last == job:
        return
    heap[base + at] = last
    ji[last, pcol] = base + at
    at = heap_up(heap, jf, ji, kcol, pcol, base, at)
    heap_down(heap, jf, ji, kcol, pcol, base, size - 1, at)


@njit
def heap_moved(heap: I8, jf: F8, ji: I8, kcol: int, pcol: int, base: int, size: int, job: int) -> None:
    """Restore order after the key of ``job`` changed."""
    at = heap_up(heap, jf, ji, kcol, pcol, base, ji[job, pcol] - base)
    heap_down(heap, jf, ji, kcol, pcol, base, size, at)
