"""Every example and every figure of docs/clusters.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from attn_sched.cluster import load_cluster, preset_names
from attn_sched.cluster.imported import LINKS, SWITCHES, UNKNOWN_GPU, gpu_link
from attn_sched.cluster.nodetopology import CLASSES, LEVELS
from attn_sched.cluster.yamltext import LinkDefault
from tests.cluster.reference import check_arrays

DOCS = Path(__file__).parents[2] / "docs" / "clusters.md"
EXAMPLES = re.findall(r"```yaml\n(.*?)```", DOCS.read_text(encoding="utf-8"), flags=re.DOTALL)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 5


@pytest.mark.parametrize("text", EXAMPLES, ids=lambda text: text.splitlines()[0])
def test_example(text: str, tmp_path: Path) -> None:
    path = tmp_path / "example.yaml"
    path.write_text(text)
    cluster = load_cluster(str(path))
    check_arrays(cluster)
    promised = re.match(r"# (\d+) GPUs in (\d+) nodes\n", text)
    assert promised is not None
    assert (cluster.num_gpus, len(cluster.vertices(cluster.node_level))) == tuple(map(int, promised.groups()))


def test_the_table_of_presets() -> None:
    rows = re.findall(
        r"^\| `([\w-]+)` \| ([\d,]+) \|.*\| ([\d.,]+) \|$", DOCS.read_text(encoding="utf-8"), re.MULTILINE
    )
    assert {name for name, _, _ in rows} == set(preset_names())
    for name, gpus, bisection in rows:
        cluster = load_cluster(name)
        assert cluster.num_gpus == int(gpus.replace(",", ""))
        assert cluster.bisection_bandwidth() / 1e9 == pytest.approx(float(bisection.replace(",", "")))


def test_the_table_of_link_defaults() -> None:
    text = DOCS.read_text(encoding="utf-8").partition("| link | default | assumed |")[2].partition("\n\n")[0]
    table = dict(re.findall(r"^\| (`.*) \| (.* us \| .*) \|$", text, re.MULTILINE))

    def row(link: LinkDefault) -> str:
        size = f"{link.bandwidth_GBps:g}" if link.oversubscription is None else f"{link.oversubscription:g}:1"
        return f"{size}, {link.latency_us:g} us | {link.why}"

    assert table.pop("`gpu`, with a matrix") == "25 for each NVLink, 3 us | NVLink 2 to 4; NVLink 5 has 50"
    assert (gpu_link(1).bandwidth_GBps, gpu_link(4).bandwidth_GBps, gpu_link(4).latency_us) == (25, 100, 3)
    assert table.pop("`gpu`, without NVLink") == row(gpu_link(0))
    assert table.pop("`gpu`, no matrix") == row(UNKNOWN_GPU)
    above = table.pop("`spine`, `core`, `tier-d` to `tier-g`")
    assert {row(LINKS[level]) for level in SWITCHES[1:]} == {above} and SWITCHES[-1] == "tier-g"
    assert table == {f"`{level}`": row(LINKS[level]) for level in LINKS if level not in SWITCHES[1:]}


def test_the_table_of_levels_inside_nodes() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (?:`(\S+)`: )?.+ \|$", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    told = {level: token for level, token in rows if level in LEVELS and token}
    assert told == dict(zip(LEVELS, ["NV#", *CLASSES[1:-1]], strict=True))
