"""The window: those of the waiting jobs that a learned policy sees.

A queue of at most K jobs is seen whole. Of a longer one: the K - K // 2 oldest, and of the others the K // 2 that are
shortest by their estimates, those that fit now before those that do not. (Showing the newest instead hides short jobs
in the middle of a burst, and no policy can then come near shortest-job-first.)
"""

from __future__ import annotations

from attn_sched.jit import njit
from attn_sched.simulator import layout as at
from attn_sched.simulator.fitting import job_fits
from attn_sched.simulator.layout import I8
from attn_sched.simulator.state import World


@njit
def _comes_first(w: World, job: int, fits: bool, other: int) -> bool:
    """Whether ``job`` is shown rather than ``other``, which arrived before it."""
    if fits != job_fits(w, other):
        return fits
    return w.jf[job, at.ESTIMATE] < w.jf[other, at.ESTIMATE]


@njit
def window_jobs(w: World, out: I8) -> int:
    """Fill ``out[K]`` with the jobs of the window in arrival order; -1 pads. Returns how many were filled in."""
    size = out.shape[0]
    shown = min(w.si[at.N_WAITING], size)
    oldest = shown if w.si[at.N_WAITING] <= size else size - size // 2
    job = w.si[at.Q_HEAD]
    for i in range(oldest):
        out[i] = job
        job = w.ji[job, at.NEXT]
    filled = oldest  # out[oldest : filled] stands best first
    while job >= 0 and oldest < shown:
        fits = job_fits(w, job)
        if filled < shown or _comes_first(w, job, fits, out[filled - 1]):
            if filled < shown:
                filled += 1
            place = filled - 1
            while place > oldest and _comes_first(w, job, fits, out[place - 1]):
                out[place] = out[place - 1]
                place -= 1
            out[place] = job
        job = w.ji[job, at.NEXT]
    for i in range(oldest + 1, shown):  # back into arrival order
        job = out[i]
        place = i
        while place > oldest and out[place - 1] > job:
            out[place] = out[place - 1]
            place -= 1
        out[place] = job
    for i in range(shown, size):
        out[i] = -1
    return shown
