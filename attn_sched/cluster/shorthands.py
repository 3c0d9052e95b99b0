"""Clusters by name: presets that ship with the package, ``count:96`` and ``nodes:12x8``."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import resources
from pathlib import Path

from attn_sched.cluster.spec import GB, ClusterSpec, GroupSpec, LinkSpec
from attn_sched.cluster.yamlfile import read_spec
from attn_sched.errors import InputError

NVLINK = LinkSpec(bandwidth=130 * GB, latency=3e-6)  # as in presets/dgx64.yaml; a test holds them equal
NIC = LinkSpec(bandwidth=11.5 * GB, latency=5e-6)


def _number(text: str, name: str, expected: str) -> int:
    if not re.fullmatch(r"\d{1,9}", text) or int(text) < 1:
        raise InputError(f"{text!r} in the cluster {name!r} is no count", expected=expected)
    return int(text)


def _counted(rest: str) -> ClusterSpec:
    """``count:N``: one pool of N GPUs without links, for replays in which GPUs are only counted."""
    name = f"count:{rest}"
    gpus = _number(rest, name, "count:N with N of at least 1, for example count:96")
    tree = (GroupSpec(level=0, count=gpus),)
    return ClusterSpec(name=name, levels=("gpu",), tree=tree, description=f"one pool of {gpus} GPUs, only counted")


def _nodes(rest: str) -> ClusterSpec:
    """``nodes:AxB``: A nodes of B GPUs under one switch, with the NVLink and NIC of dgx64."""
    name = f"nodes:{rest}"
    expected = "nodes:AxB with A and B of at least 1, for example nodes:12x8"
    nodes, cross, gpus = rest.partition("x")
    if not cross:
        raise InputError(f"the cluster {name!r} lacks the 'x'", expected=expected)
    count, size = _number(nodes, name, expected), _number(gpus, name, expected)
    tree = (GroupSpec(level=1, count=count, children=(GroupSpec(level=0, count=size),)),)
    return ClusterSpec(
        name=name,
        levels=("gpu", "node"),
        tree=tree,
        links={0: NVLINK, 1: NIC},
        description=f"{count} nodes of {size} GPUs under one switch",
    )


SHORTHANDS: dict[str, Callable[[str], ClusterSpec]] = {"count": _counted, "nodes": _nodes}


def _preset_folder() -> Path:
    return Path(str(resources.files("attn_sched.cluster") / "presets"))


def preset_names() -> tuple[str, ...]:
    """The presets that ship with the package, smallest cluster first."""
    order = ("testbed32", "dgx64", "eth64", "nvl72", "pod1024", "helios-venus", "philly")
    found = {path.stem for path in _preset_folder().glob("*.yaml")}
    return (*(name for name in order if name in found), *sorted(found - set(order)))


def find_spec(spec: str | Path) -> ClusterSpec:
    """The description behind a preset's name, a shorthand or the path of a YAML file.

    Raises:
        InputError: nothing of that name, or what is there is no cluster.
    """
    text = str(spec)
    if isinstance(spec, str):
        if text in preset_names():
            return read_spec(_preset_folder() / f"{text}.yaml")
        kind, colon, rest = text.partition(":")
        if colon and kind in SHORTHANDS:
            return SHORTHANDS[kind](rest)
    path = Path(spec)
    try:
        known_file = path.exists() or path.suffix in (".yaml", ".yml") or path.parent != Path()
    except (OSError, ValueError):  # too long a name, or one with a null byte
        known_file = False
    if text.strip() and (known_file or isinstance(spec, Path)):
        return read_spec(path)
    names = ", ".join(preset_names())
    raise InputError(f"no cluster {text!r}", expected=f"one of {names}, count:N, nodes:AxB, or the path of a YAML file")
