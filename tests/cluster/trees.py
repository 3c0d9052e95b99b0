"""Random cluster documents for hypothesis."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

LEVELS = ("nvlink", "node", "rack", "spine")
BANDWIDTHS = st.sampled_from([0.5, 1.17, 11.5, 12, 25, 130])
LATENCIES = st.sampled_from([0, 1, 3.5, 50])
TYPES = ("A100", "V100", "T4")


@st.composite
def links(draw: st.DrawFn, level: int, whole: bool) -> dict[str, Any]:
    """One link; ``whole`` ones have a capacity and a latency."""
    kinds = ["bandwidth"] if level == 0 else ["bandwidth", "bandwidth", "oversubscription"]
    kind = draw(st.sampled_from(kinds if whole else [*kinds, "none"]))
    link: dict[str, Any] = {}
    if kind == "bandwidth":
        link["bandwidth_GBps"] = draw(BANDWIDTHS)
    elif kind == "oversubscription":
        link["oversubscription"] = draw(st.sampled_from([1, 2, 3.5]))
    if whole or kind == "none" or draw(st.booleans()):
        link["latency_us"] = draw(LATENCIES)
    return link


@st.composite
def groups(draw: st.DrawFn, levels: list[str], level: int, parent: int, typed: bool) -> dict[str, Any]:
    """A group of ``level`` (at least 1) inside a vertex of ``parent``."""
    group: dict[str, Any] = {levels[level]: draw(st.integers(1, 4))}
    top = level
    if parent - level > 1 and draw(st.booleans()):
        between = draw(st.lists(st.sampled_from(levels[level + 1 : parent]), min_size=1, unique=True))
        group["per"] = {name: draw(st.integers(1, 3)) for name in between}
        top = max(levels.index(name) for name in between)
    if draw(st.integers(0, 3)) == 0:
        changed = draw(st.lists(st.integers(0, top), min_size=1, max_size=2, unique=True))
        group["links"] = {levels[at]: draw(links(at, whole=False)) for at in changed}
    if typed and draw(st.booleans()):
        group["gpu_type"] = draw(st.sampled_from(TYPES))
    if level == 1 or draw(st.booleans()):
        group["gpus"] = draw(st.integers(1, 9))
    else:
        inner = draw(st.lists(st.integers(1, level - 1), min_size=1, max_size=3))
        group["children"] = [draw(groups(levels, at, level, typed)) for at in inner]
        if draw(st.integers(0, 3)) == 0:
            group["children"].append({"gpu": draw(st.integers(1, 4))})
    return group


def _used(items: list[dict[str, Any]], levels: list[str]) -> set[str]:
    found: set[str] = set()
    for group in items:
        found |= {name for name in levels if name in group} | set(group.get("per", {}))
        found |= {"gpu"} if "gpus" in group else set()
        found |= _used(group.get("children", []), levels)
    return found


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """A whole valid document, small enough to be expanded object by object."""
    levels = ["gpu", *sorted(draw(st.sets(st.sampled_from(LEVELS), min_size=1)), key=LEVELS.index)]
    top = len(levels)
    typed = draw(st.booleans())
    tops = draw(st.lists(st.integers(1, top - 1), min_size=1, max_size=3))
    tree = [draw(groups(levels, at, top, typed)) for at in tops]
    missing = [at for at, name in enumerate(levels) if name not in _used(tree, levels)]
    for at in missing:
        tree.append({levels[at]: 1, "gpus": 1} if at else {"gpu": 1})
    document: dict[str, Any] = {"name": "random", "levels": levels, "tree": tree}
    if typed:
        document["gpu_type"] = draw(st.sampled_from(TYPES))
    document["links"] = {name: draw(links(at, whole=True)) for at, name in enumerate(levels)}
    return document
