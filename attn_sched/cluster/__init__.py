"""Where jobs run: trees of GPUs and links, from presets, shorthands or YAML files (docs/clusters.md)."""

from __future__ import annotations

from pathlib import Path

from attn_sched.cluster.build import build_cluster
from attn_sched.cluster.shorthands import find_spec, preset_names
from attn_sched.cluster.topology import Cluster

__all__ = ["Cluster", "load_cluster", "preset_names"]


def load_cluster(spec: str | Path) -> Cluster:
    """The cluster called ``spec``: a preset's name, ``count:N``, ``nodes:AxB`` or the path of a YAML file.

    Raises:
        InputError: an unknown name (the message lists what exists), or a file with a mistake (file, line, expected).
    """
    return build_cluster(find_spec(spec))
