"""Every example and every figure of docs/clusters.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from attn_sched.cluster import load_cluster, preset_names
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
