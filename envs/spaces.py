"""The spaces of the two agents, and an observation as a dictionary.

Bounds hold for every workload that the engine takes, and nothing is clipped to them. Features lie in about [-1, 1] for
times up to some weeks, a thousand jobs and a thousand GPUs, but seconds, bytes and counts have no natural limit: their
logarithms are bounded by that of the largest number their type holds.
"""

from __future__ import annotations

import math

import numpy as np
from gymnasium import spaces

from attn_sched.agents.observations import Observations
from attn_sched.agents.schema import GLOBAL_FEATURES, JOB_FEATURES, UNIT_FEATURES, UNIT_GROUPS

Observation = dict[str, np.ndarray]

MAX_WEIGHT = 10.0  # of an objective

_LARGEST = float(np.finfo(np.float64).max)
_SECONDS = math.ceil(math.log1p(_LARGEST) / math.log1p(7 * 86_400))
_RATIO = math.ceil(math.log1p(_LARGEST) / 5)
_BYTES = math.ceil(math.log10(_LARGEST) / 4)
_COUNT = math.ceil(math.log1p(2.0**63) / math.log1p(1000))
_GPUS = math.ceil(math.log2(1 + 2.0**31) / 10)
_JAIN = 1.001  # from running sums, so that it may pass 1 by their rounding

# Least and largest value by feature; all others lie in 0 .. 1.
_JOB_BOUNDS: dict[str, tuple[float, float]] = {
    "wait": (0, _SECONDS),
    "estimate": (0, _SECONDS),
    "wait_over_estimate": (0, _RATIO),
    "gpus": (0, _GPUS),
    "grad_bytes": (0, _BYTES),
    "until_fits": (0, _SECONDS),
    "time_lost": (0, _SECONDS),
    "user_slowdown": (-1, 1),
    "user_pending": (0, _COUNT),
}
_UNIT_BOUNDS: dict[str, tuple[float, float]] = {
    "next_release": (0, _SECONDS),
    "until_free": (0, _SECONDS),
    "uplink_jobs": (0, _COUNT),
    "rack_uplink_jobs": (0, _COUNT),
}
_GLOBAL_BOUNDS: dict[str, tuple[float, float]] = {
    "queue": (0, _COUNT),
    "asked": (0, _COUNT),
    "mean_wait": (0, _SECONDS),
    "max_wait": (0, _SECONDS),
    "jain": (0, _JAIN),
    "need": (0, _GPUS),
    "weight_completion": (0, MAX_WEIGHT),
    "weight_fairness": (0, MAX_WEIGHT),
    "weight_communication": (0, MAX_WEIGHT),
}


def _features(names: tuple[str, ...], bounds: dict[str, tuple[float, float]], rows: int | None = None) -> spaces.Box:
    """A row of features, or ``rows`` of them."""
    low, high = np.array([bounds.get(name, (0.0, 1.0)) for name in names], dtype=np.float32).T
    if rows is not None:
        low, high = np.tile(low, (rows, 1)), np.tile(high, (rows, 1))
    return spaces.Box(low, high, dtype=np.float32)


def _mask(actions: int) -> spaces.Box:
    return spaces.Box(0, 1, (actions,), dtype=np.int8)


def observation_spaces(window: int, units: int) -> dict[str, spaces.Dict]:
    """What each agent sees of ``window`` jobs (K) and ``units`` placement units (U); see ``envs.session.Session``."""
    shared: dict[str, spaces.Space] = {
        "jobs": _features(JOB_FEATURES, _JOB_BOUNDS, window),
        "units": _features(UNIT_FEATURES, _UNIT_BOUNDS, units),
        "unit_groups": spaces.Box(-1, np.iinfo(np.int32).max, (units, UNIT_GROUPS), dtype=np.int32),
        "globals": _features(GLOBAL_FEATURES, _GLOBAL_BOUNDS),
    }
    chosen = {"chosen": _features(JOB_FEATURES, _JOB_BOUNDS)}
    return {
        "job": spaces.Dict({**shared, "action_mask": _mask(window + 1)}),
        "gpu": spaces.Dict({**shared, **chosen, "action_mask": _mask(units)}),
    }


def action_spaces(window: int, units: int) -> dict[str, spaces.Discrete]:
    """What each agent may answer: a place in the window or ``window`` to hold; a placement unit."""
    return {"job": spaces.Discrete(window + 1), "gpu": spaces.Discrete(units)}


def observation(observations: Observations, b: int, agent: str) -> Observation:
    """Copies of what ``agent`` sees of cluster ``b`` as ``observations`` was last filled.

    The mask of an agent that is not asked is all zero.
    """
    seen = {
        "jobs": observations.jobs[b].copy(),
        "units": observations.units[b].copy(),
        "unit_groups": observations.groups.copy(),
        "globals": observations.glob[b].copy(),
        "action_mask": (observations.job_mask if agent == "job" else observations.unit_mask)[b].copy(),
    }
    if agent == "gpu":
        seen["chosen"] = observations.chosen[b].copy()
    return seen
