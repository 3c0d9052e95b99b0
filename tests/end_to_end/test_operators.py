"""Every command of docs/operators.md, in its order, at a made-up site."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from attn_sched.cluster import load_cluster
from attn_sched.workload import Trace, read_trace
from attn_sched.workload.readers.sacct import COMMAND
from tests.end_to_end import site
from tests.training.tiny_run import assignments

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs" / "operators.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```\n(.*?)^```$", GUIDE, re.DOTALL | re.MULTILINE)
SLOW_COMMANDS = ("attn-sched train", "attn-sched compare", "attn-sched simulate")


def run(folder: Path, script: str, timeout: float = 280) -> str:
    """What a script prints when bash runs it at the site; it must succeed."""
    path = os.pathsep.join([str(folder / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env={**os.environ, "PATH": path, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
    return done.stdout


def block(words: str) -> str:
    """The one block that holds these words."""
    found = [text for text in BLOCKS if words in text]
    assert len(found) == 1, (words, len(found))
    return found[0]


def quick(text: str) -> str:
    """A block without the commands that replay or train."""
    return "\n".join(line for line in text.splitlines() if not line.startswith(SLOW_COMMANDS))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    site.build(tmp_path)
    return tmp_path


def jobs(trace: Trace) -> list[tuple[str, float, float, int]]:
    names = ("job_id", "submit_time", "duration", "num_gpus")
    return list(zip(*(trace.table[name].to_pylist() for name in names), strict=True))


def test_the_log_of_a_slurm_cluster(folder: Path) -> None:
    text = block("traces info sacct.txt")
    assert f"{COMMAND} > sacct.txt\n" in text
    said = run(folder, text)
    trace = read_trace(folder / "mine.parquet")
    assert "sacct" in said and f"{len(trace):,} of {site.JOBS:,} rows" in said
    assert trace.provenance.format == "sacct" and trace.provenance.epoch is not None
    assert trace.provenance.epoch.startswith("2025-01-01")
    assert set(trace.provenance.dropped) == {"still waiting", "zero GPUs"} and 800 < len(trace) < 1100
    assert trace.has("requested_time") and trace.has("user") and trace.has("group")
    assert set(trace.numbers("num_gpus")) == {1, 2, 4, 8, 16}


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
def test_the_jobs_of_kubernetes(folder: Path) -> None:
    run(folder, block("kubectl get jobs"))
    trace = read_trace(folder / "jobs.parquet")
    assert jobs(trace) == [("a-1", 0.0, 3600.0, 16), ("a-2", 600.0, 1800.0, 1)]
    assert trace.provenance.dropped == {"no end time": 1, "zero GPUs": 1}
    assert trace.table["group"].to_pylist() == ["team-a"] * 2
    run(folder, block("kubectl get pods"))
    trace = read_trace(folder / "pods.parquet")
    assert jobs(trace) == [("b-1", 0.0, 54 * 60.0, 8), ("p-3", 540.0, 600.0, 4)]
    assert trace.provenance.dropped == {"no end time": 1}


def test_the_maps_take_what_the_commands_print(folder: Path) -> None:
    """As above where there is no jq: its output, by hand."""
    header = '"uid","namespace","created","started","ended","cards"\n'
    rows = '"a-1","team-a","2025-01-01T00:00:00Z","2025-01-01T00:05:00Z","2025-01-01T01:05:00Z",16\n'
    rows += '"a-3","team-a","2025-01-01T00:20:00Z","2025-01-01T00:30:00Z",,8\n'
    for words, owner in (("kubectl get jobs", "uid"), ("kubectl get pods", "owner")):
        text = block(words)
        assert f'["{owner}", "namespace", "created", "started", "ended", "cards"]' in text
        name = text.rpartition("' > ")[2].split()[0]
        (folder / name).write_text(header.replace("uid", owner) + rows)
        run(folder, text.splitlines()[-1])
        trace = read_trace(folder / name.replace(".csv", ".parquet"))
        assert jobs(trace) == [("a-1", 0.0, 3600.0, 16)] and trace.provenance.dropped == {"no end time": 1}


def test_the_clusters(folder: Path) -> None:
    said = run(folder, block("nvidia-smi topo -m >"))
    cluster = load_cluster(folder / "my.yaml")
    assert (cluster.num_gpus, cluster.level_names) == (64, ("gpu", "node", "rack"))
    assert cluster.vertex_names[0] == "leaf0/dgx01" and cluster.gpu_types == ("a100",)
    assert "login01" in said and (folder / "my.png").read_bytes().startswith(b"\x89PNG")
    run(folder, block("alike.yaml"))
    assert load_cluster(folder / "alike.yaml").num_gpus == 64


def test_the_queue(folder: Path) -> None:
    run(folder, quick(block("squeue --noheader")))
    trace = read_trace(folder / "queue.parquet")
    assert jobs(trace) == [("4150", 0.0, 604_800.0, 32), ("4170_1", 600.0, 1800.0, 2), ("4172", 720.0, 93_784.0, 40)]
    assert trace.table["user"].to_pylist() == ["bob", "ann", "ann"]


def test_the_last_weeks(folder: Path) -> None:
    run(folder, block("traces info sacct.txt"))
    run(folder, quick(block("--part test")))
    whole, last = read_trace(folder / "mine.parquet"), read_trace(folder / "last.parquet")
    assert len(last) == len(whole) - round(len(whole) / 2)  # a short log: by job count
    assert last.table["job_id"].to_pylist() == whole.table["job_id"].to_pylist()[-len(last) :]


def test_linked_files_exist() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", GUIDE):
        assert (ROOT / "docs" / target).exists(), target


def small(script: str) -> str:
    """The same training at a size that takes seconds."""
    options = " ".join(
        f"--set {key}={text}" for key, text in assignments().items() if not key.startswith("data.") and key != "name"
    )
    return re.sub(r"^(attn-sched train .*)$", rf"\1 {options}", script, flags=re.MULTILINE)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_whole_guide(folder: Path) -> None:
    needs_jq = [text for text in BLOCKS if "jq -r" in text]
    assert len(needs_jq) == 2
    for text in BLOCKS:
        if shutil.which("jq") is None and text in needs_jq:
            continue
        run(folder, small(text), timeout=600)
    assert "wfp3:easy+topo-best-fit" in (folder / "rules.html").read_text()
    assert "agents:out/mine/best" in (folder / "last.html").read_text()
    assert {path.suffix for path in (folder / "out" / "mine" / "best").iterdir()} == {".json", ".safetensors"}
    plan = pq.read_table(folder / "plan.parquet")
    assert sorted(plan["job_id"].to_pylist()) == ["4150", "4170_1", "4172"]
