"""What a pair of networks looks like: enough to build it, and to tell whether its weights suit an observation."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from attn_sched.agents.schema import FEATURES_VERSION
from attn_sched.errors import InputError


@dataclass(frozen=True)
class NetworkSpec:
    """Shape of both agents' networks. Validated when made.

    Raises:
        InputError: a size out of range, or one that does not go with another.
    """

    features_version: int = FEATURES_VERSION
    window: int = 32  # K, jobs shown; weights run on shorter queues and windows
    width: int = 64  # d
    heads: int = 4
    layers: int = 2
    feedforward: int = 128
    critic_width: int = 64
    attention: bool = True  # False: every token through its own feed-forward layers only
    topology_bias: bool = True  # whether the GPU agent's attention knows how far apart units are
    hold: bool = True  # whether the job agent may let time pass while a job could start

    def __post_init__(self) -> None:
        for field, least, most in (
            ("window", 1, 4096),
            ("width", 4, 1024),
            ("heads", 1, 64),
            ("layers", 1, 16),
            ("feedforward", 4, 4096),
            ("critic_width", 4, 1024),
        ):
            value = getattr(self, field)
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
                raise InputError(f"{value!r} is out of range", field=field, expected=f"{least} to {most}")
        for field in ("attention", "topology_bias", "hold"):
            if not isinstance(getattr(self, field), bool):
                raise InputError(f"{getattr(self, field)!r} is neither", field=field, expected="true or false")
        if self.width % self.heads:
            raise InputError(
                f"{self.width} does not divide among {self.heads} heads", field="width", expected="a multiple of heads"
            )
        if self.features_version != FEATURES_VERSION:
            raise InputError(
                f"features of version {self.features_version} are not the ones this release computes",
                field="features_version",
                expected=f"{FEATURES_VERSION}: weights trained with it, or the release they came with",
            )

    def as_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> NetworkSpec:
        """The spec that ``as_dict`` gave. Raises InputError for an unknown or missing field."""
        names = {field.name for field in dataclasses.fields(cls)}
        for name in sorted(set(values) ^ names):
            what = "is unknown" if name in values else "is missing"
            raise InputError(f"{name!r} {what}", field="spec", expected=", ".join(sorted(names)))
        return cls(**values)
