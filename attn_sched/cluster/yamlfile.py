"""The YAML form of a cluster (docs/clusters.md), read into a checked ``ClusterSpec``."""

from __future__ import annotations

import math
import re
from pathlib import Path

from attn_sched.cluster.spec import GB, ClusterSpec, GroupSpec, LinkSpec
from attn_sched.cluster.yamlnodes import Value, read_document

_TOP_KEYS = ("name", "description", "levels", "links", "gpu_type", "unit", "tree")
_GROUP_KEYS = ("gpus", "children", "name", "gpu_type", "links", "per")
_LINK_KEYS = ("bandwidth_GBps", "oversubscription", "latency_us")
_MAX_LEVELS = 16

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_LEVEL = re.compile(r"[A-Za-z](?:[A-Za-z0-9_-]*[A-Za-z_-])?")
_UNLIMITED = {"unlimited": math.inf, ".inf": math.inf}


class _Reader:
    def __init__(self, file: Path) -> None:
        self.file = file
        self.levels: tuple[str, ...] = ()
        self.used: set[int] = set()

    # ---- small things ----

    def _text(self, value: Value, pattern: re.Pattern[str], expected: str) -> str:
        text = value.text(expected)
        if not pattern.fullmatch(text):
            raise value.wrong(expected)
        return text

    def _gpu_type(self, value: Value) -> str:
        return self._text(value, _NAME, "the name of a GPU type: letters, digits, '_', '.' and '-'")

    def _level(self, value: Value, levels: tuple[str, ...]) -> int:
        name = value.text(f"one of the levels {', '.join(levels)}")
        if name not in levels:
            raise value.wrong(f"one of the levels {', '.join(levels)}")
        return self.levels.index(name)

    def _levels(self, value: Value) -> tuple[str, ...]:
        names: list[str] = []
        entries = value.items("a list of level names, leaves first, such as [gpu, node, rack]")
        for entry in entries:
            name = self._text(entry, _LEVEL, "the name of a level: letters, digits, '_' and '-', the last no digit")
            if not names and name != "gpu":
                raise entry.error(f"the first level is {name!r}", "levels that start with gpu, leaves first")
            if name in (*_GROUP_KEYS, *_TOP_KEYS):
                raise entry.error(f"{name!r} cannot name a level", "a name that is no key of this format")
            if name in names:
                raise entry.error(f"level {name!r} appears twice", "each level once, leaves first")
            names.append(name)
        if len(names) > _MAX_LEVELS:
            raise value.error(f"{len(names)} levels", f"at most {_MAX_LEVELS}")
        return tuple(names)

    # ---- links ----

    def _link(self, value: Value, level: int, *, whole: bool) -> LinkSpec:
        name = self.levels[level]
        fields = value.mapping(_LINK_KEYS, f"a mapping with {', '.join(_LINK_KEYS)}")
        bandwidth = oversubscription = latency = None
        if "bandwidth_GBps" in fields:
            expected = "GB/s per direction: a number above 0, or 'unlimited'"
            bandwidth = fields["bandwidth_GBps"].number(expected, above=True, words=_UNLIMITED) * GB
        if "oversubscription" in fields:
            given = fields["oversubscription"]
            if level == 0:
                raise given.error("a GPU has no links below it to oversubscribe", "bandwidth_GBps")
            if bandwidth is not None:
                raise given.error(f"level {name!r} has both bandwidth_GBps and oversubscription", "one of the two")
            oversubscription = given.number("a ratio above 0, such as 2 for 2:1", above=True)
        if "latency_us" in fields:
            latency = fields["latency_us"].number("microseconds, a number of at least 0") / 1e6
        if whole and bandwidth is None and oversubscription is None:
            raise value.error(f"the link of level {name!r} has no capacity", "bandwidth_GBps or oversubscription")
        if not fields:
            raise value.error(f"the link of level {name!r} says nothing", f"one of {', '.join(_LINK_KEYS)}")
        return LinkSpec(bandwidth, oversubscription, latency, value.line)

    def _links(self, value: Value, highest: int, *, whole: bool) -> dict[int, LinkSpec]:
        """The links of a mapping level -> link, up to ``highest``; all of them when ``whole``."""
        names = self.levels[: highest + 1]
        entries = value.mapping(names, "a mapping from level to link")
        links = {
            self.levels.index(name): self._link(entry, self.levels.index(name), whole=whole)
            for name, entry in entries.items()
        }
        if whole and len(links) < len(names):
            missing = next(name for at, name in enumerate(names) if at not in links)
            raise value.error(
                f"no link for level {missing!r}",
                "a link for every level (bandwidth_GBps: unlimited where there is none), or no 'links' at all",
            )
        return links

    # ---- groups ----

    def _group(self, value: Value, parent: int) -> GroupSpec:
        below = self.levels[:parent]
        parent_name = self.levels[parent] if parent < len(self.levels) else "the cluster"
        fields = value.mapping(
            (*self.levels, *_GROUP_KEYS),
            f"a mapping such as {{{below[-1]}: 4, ...}}: a level, how many, what each holds",
        )
        named = [name for name in self.levels if name in fields]
        if len(named) != 1:
            found = " and ".join(repr(name) for name in named) or "no level"
            raise value.error(f"{value.label} counts {found}", f"exactly one of {', '.join(below)}")
        level = self.levels.index(named[0])
        if level >= parent:
            problem = f"level {named[0]!r} lies inside {parent_name!r}, against the order {' < '.join(self.levels)}"
            raise fields[named[0]].error(problem, f"one of {', '.join(below)}")
        count = fields[named[0]].count()
        self.used.add(level)
        per = self._per(fields["per"], level, parent) if "per" in fields else ()
        name = None
        if "name" in fields:
            name = self._text(fields["name"], _NAME, "a name: letters, digits, '_', '.' and '-'")
        links = {}
        if "links" in fields:
            links = self._links(fields["links"], per[-1][0] if per else level, whole=False)
        return GroupSpec(
            level=level,
            count=count,
            children=self._content(value, fields, level),
            name=name,
            gpu_type=self._gpu_type(fields["gpu_type"]) if "gpu_type" in fields else None,
            links=links,
            per=per,
            line=value.line,
        )

    def _content(self, value: Value, fields: dict[str, Value], level: int) -> tuple[GroupSpec, ...]:
        given = [key for key in ("gpus", "children") if key in fields]
        if level == 0:
            for key in (*given, *(key for key in ("name", "per") if key in fields)):
                raise fields[key].error(f"GPUs have no {key!r}", "gpu: N with gpu_type and links at most")
            return ()
        if len(given) != 1:
            name = self.levels[level]
            found = "both gpus and children" if given else "neither gpus nor children"
            raise value.error(f"this {name!r} has {found}", "one of them: gpus: N, or a list of children")
        if given == ["gpus"]:
            self.used.add(0)
            gpus = fields["gpus"]
            return (GroupSpec(level=0, count=gpus.count(), line=gpus.line),)
        return tuple(self._group(child, level) for child in fields["children"].items("a list of at least one group"))

    def _per(self, value: Value, level: int, parent: int) -> tuple[tuple[int, int], ...]:
        between = self.levels[level + 1 : parent]
        name = self.levels[level]
        if not between:
            raise value.error(
                f"'per' of {name!r} has no level to group by", "a level between this one and its parent's"
            )
        entries = value.mapping(between, f"a mapping such as {{{between[0]}: 8}}")
        if not entries:
            raise value.wrong(f"a mapping such as {{{between[0]}: 8}}")
        steps = sorted((self.levels.index(key), entry.count()) for key, entry in entries.items())
        self.used.update(at for at, _ in steps)
        return tuple(steps)

    # ---- the file ----

    def read(self) -> ClusterSpec:
        top = read_document(self.file)
        fields = top.mapping(_TOP_KEYS, f"a mapping with {', '.join(_TOP_KEYS)}")
        for key in ("levels", "tree"):
            if key not in fields:
                raise top.error(f"no {key!r}", f"a mapping with {', '.join(_TOP_KEYS)}")
        self.levels = self._levels(fields["levels"])
        name = self.file.stem
        if "name" in fields:
            name = self._text(fields["name"], _NAME, "a name: letters, digits, '_', '.' and '-'")
        links = self._links(fields["links"], len(self.levels) - 1, whole=True) if "links" in fields else {}
        tree = tuple(
            self._group(value, len(self.levels)) for value in fields["tree"].items("a list of at least one group")
        )
        for at, level in enumerate(self.levels):
            if at not in self.used:
                raise fields["levels"].error(f"nothing in the tree is of level {level!r}", "only levels that are used")
        return ClusterSpec(
            name=name,
            levels=self.levels,
            tree=tree,
            description=fields["description"].text() if "description" in fields else "",
            links=links,
            gpu_type=self._gpu_type(fields["gpu_type"]) if "gpu_type" in fields else None,
            unit=self._level(fields["unit"], self.levels) if "unit" in fields else None,
            file=self.file,
        )


def read_spec(file: Path) -> ClusterSpec:
    """Read and check a cluster's YAML file.

    Raises:
        InputError: whatever is wrong, with file, line and what was expected.
    """
    return _Reader(file).read()
