"""Compiled kernels loaded from the disk do what freshly compiled ones do.

numba crashed when it loaded recursive functions from its cache (its issue 6061), so a second process is worth a test.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Every kernel that recursion might creep into: several levels, gangs that split, contention, preemption, agents.
PROGRAM = """
import time
import numpy as np
from attn_sched.cluster import load_cluster
from attn_sched.policies import simulate
from attn_sched.simulator import Engine, EngineRule, SimOptions, layout
from tests.reference.shapes import make_jobs
from tests.simulator.agents import Imitator, play

began = time.perf_counter()
rng = np.random.default_rng(0)
jobs = make_jobs(np.sort(rng.uniform(0, 99, 80)).tolist(), rng.uniform(1, 60, 80).tolist(),
                 rng.integers(1, 40, 80).tolist(), grad_bytes=1e9)
total = 0.0
for policy in ("fifo", "sjf+contention+hold(1.1,1)", "easy+lwf", "srtf+best-fit"):
    for contention in ("equal", "maxmin"):
        schedule = simulate(jobs, load_cluster("pod1024"), policy, SimOptions(contention=contention))
        total += float(schedule.finish_s @ np.arange(1, 81))
engine = Engine(load_cluster("dgx64"), [jobs], EngineRule(order=layout.AGENT, placement=layout.PLACE_AGENT), window=80)
play(engine, Imitator([jobs.submit_s]))
total += float(engine.schedule().finish_s @ np.arange(1, 81))
print(total.hex(), time.perf_counter() - began)
"""


def run(cache: Path) -> tuple[str, float]:
    """Result and seconds of a process of its own."""
    env = {**os.environ, "NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, env=env, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr[-2000:]
    value, seconds = done.stdout.split()
    return value, float(seconds)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_second_process_loads_what_the_first_compiled(tmp_path: Path) -> None:
    first, compiling = run(tmp_path)
    files = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.nb?")}
    assert files, "nothing was cached"
    second, loading = run(tmp_path)
    assert second == first
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.nb?")} == files, "kernels were compiled anew"
    assert loading < compiling / 2


SMALL = """
import attn_sched
from attn_sched.cluster import load_cluster
from attn_sched.policies import simulate
from tests.reference.shapes import make_jobs

assert attn_sched.__file__.startswith({where!r}), attn_sched.__file__
print(simulate(make_jobs([0.0, 1.0], [5.0, 6.0], [4, 8]), load_cluster("nodes:2x4"), "sjf+best-fit").finish_s.tolist())
"""


@pytest.mark.slow
def test_a_copy_elsewhere_uses_what_is_compiled(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    for package in ("attn_sched", "tests"):
        shutil.copytree(ROOT / package, copy / package, ignore=shutil.ignore_patterns("__pycache__"))
    said, files = [], []
    for where in (ROOT, copy):
        env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(where)}
        done = subprocess.run(
            [sys.executable, "-c", SMALL.format(where=str(where))],
            cwd=where, env=env, capture_output=True, text=True, timeout=280, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-2000:]
        said.append(done.stdout)
        files.append({path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.nb?")})
    assert said[0] == said[1]
    assert files[0] and files[0] == files[1], "kernels were compiled anew"
