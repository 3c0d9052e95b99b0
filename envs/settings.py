"""The arguments that every face of the environment takes, checked before anything runs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from attn_sched.agents.rewards import DEFAULT_WEIGHTS, TERMS
from attn_sched.choices import FAIRNESS, FAMILIES, check_choice
from attn_sched.cluster import Cluster, load_cluster
from attn_sched.errors import InputError
from attn_sched.simulator import SimOptions
from envs.episodes import DrawEpisode, SyntheticEpisodes
from envs.spaces import MAX_WEIGHT

Weights = tuple[float, float, float]

RANDOM = "random"
ANY_FAMILY = "synthetic"
MOST_WINDOW = 4096
RENDER_MODES = ("ansi",)


@dataclass(frozen=True)
class Settings:
    """What an environment plays; made by ``make_settings``."""

    cluster: Cluster
    draw: DrawEpisode  # one workload an episode
    window: int  # K, waiting jobs shown
    weights: Weights | None  # of completion, fairness, communication; None: drawn for each episode
    options: SimOptions
    fairness: str  # the fairness term of the reward
    seed: int | None
    max_decisions: int | None  # decisions after which an episode is cut off


def make_settings(
    cluster: str | Path | Cluster = "dgx64",
    episodes: DrawEpisode | str | Mapping[str, Any] = "helios",
    window: int = 32,
    weights: Sequence[float] | str = DEFAULT_WEIGHTS,
    options: SimOptions | Mapping[str, Any] | None = None,
    fairness: str = "wait",
    seed: int | None = None,
    max_decisions: int | None = None,
) -> Settings:
    """Check and complete the arguments of an environment. All but a callable or a cluster of your own can be JSON.

    Args:
        cluster: A preset, ``count:N``, ``nodes:AxB``, the path of a YAML file, or a ``Cluster``.
        episodes: Where each episode's jobs come from: a function from a ``numpy.random.Generator`` to a ``Workload``
            that the cluster can run; the name of a synthetic family, or ``synthetic`` for one drawn from all of them;
            or a mapping with the fields of ``envs.episodes.SyntheticEpisodes`` (families, jobs, loads, estimate).
        window: Waiting jobs the agents see (K): all of them, or half the oldest and half the newest.
        weights: Of completion, fairness and communication in the reward, each 0 to 10, or ``random``: each drawn
            uniformly from 0 to 1 for every episode, then divided by the largest.
        options: Of the simulator; a mapping has the fields of ``SimOptions``. Default: its defaults, but no record of
            segments.
        fairness: Fairness term of the reward: ``wait``, ``jain`` or ``worst-user``.
        seed: Of the first episode's draw if ``reset`` names none; None: from the operating system. Episodes after it
            are drawn from the same stream.
        max_decisions: Decisions of both agents after which an episode is truncated; None: never.

    Raises:
        InputError: one of them cannot be used; the message says what could.
    """
    if not isinstance(cluster, Cluster):
        cluster = load_cluster(cluster)
    _check_whole("window", window, 1, MOST_WINDOW)
    if seed is not None:
        check_seed(seed)
    if max_decisions is not None:
        _check_whole("max_decisions", max_decisions, 1, None)
    check_choice(fairness, FAIRNESS, "fairness", "term")
    return Settings(
        cluster=cluster,
        draw=_drawer(episodes, cluster),
        window=int(window),
        weights=_weights(weights),
        options=_options(options),
        fairness=fairness,
        seed=seed,
        max_decisions=max_decisions,
    )


def check_seed(seed: int) -> None:
    """Raise InputError where ``seed`` is none."""
    _check_whole("seed", seed, 0, None)


def check_render_mode(mode: str | None) -> str | None:
    """``mode``, when it is None or one there is; InputError otherwise."""
    return None if mode is None else check_choice(mode, RENDER_MODES, "render_mode", "mode")


def draw_weights(generator: np.random.Generator) -> Weights:
    """Objective weights, each uniform from 0 to 1, then divided by the largest."""
    drawn = generator.random(len(TERMS))
    completion, fairness, communication = (drawn / drawn.max()).tolist()
    return completion, fairness, communication


def _check_whole(field: str, value: object, least: int, most: int | None) -> None:
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or value < least or (most is not None and value > most):  # type: ignore[operator]
        expected = f"a whole number of at least {least}" if most is None else f"a whole number, {least} to {most}"
        raise InputError(f"{value!r} is out of range", field=field, expected=expected)


def _drawer(episodes: DrawEpisode | str | Mapping[str, Any], cluster: Cluster) -> DrawEpisode:
    if isinstance(episodes, str):
        check_choice(episodes, (*FAMILIES, ANY_FAMILY), "episodes", "family")
        return SyntheticEpisodes(cluster, FAMILIES if episodes == ANY_FAMILY else (episodes,))
    if isinstance(episodes, Mapping):
        names = [field.name for field in dataclasses.fields(SyntheticEpisodes) if field.name != "cluster"]
        return SyntheticEpisodes(cluster, **_known(episodes, names, "episodes"))
    if not callable(episodes):
        raise InputError(
            f"{type(episodes).__name__} draws no episodes",
            field="episodes",
            expected="a function of a numpy Generator, a family's name or a mapping",
        )
    return episodes


def _weights(weights: Sequence[float] | str) -> Weights | None:
    if isinstance(weights, str):
        check_choice(weights, (RANDOM,), "weights", "way to weigh")
        return None
    expected = f"{len(TERMS)} numbers of 0 to {MAX_WEIGHT:g}, not all 0, for {', '.join(TERMS)}; or {RANDOM!r}"
    try:
        completion, fairness, communication = (float(weight) for weight in weights)
    except (TypeError, ValueError):
        raise InputError(f"{weights!r} cannot be read", field="weights", expected=expected) from None
    values = (completion, fairness, communication)
    if not all(math.isfinite(value) and 0 <= value <= MAX_WEIGHT for value in values) or not any(values):
        raise InputError(f"{values} are no weights", field="weights", expected=expected)
    return values


def _options(options: SimOptions | Mapping[str, Any] | None) -> SimOptions:
    if isinstance(options, SimOptions):
        return options
    if options is None:
        options = {}
    if not isinstance(options, Mapping):
        raise InputError(
            f"{type(options).__name__} holds no options", field="options", expected="SimOptions or a mapping"
        )
    given = _known(options, [field.name for field in dataclasses.fields(SimOptions)], "options")
    return SimOptions(**{"record_segments": False, **given})


def _known(values: Mapping[str, Any], names: Sequence[str], field: str) -> dict[str, Any]:
    for name in values:
        if name not in names:
            raise InputError(f"unknown {name!r}", field=field, expected=f"some of {', '.join(names)}")
    return dict(values)
