"""Which Ray is used: a new one, or a cluster that is there."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from attn_sched.errors import InputError
from attn_sched.training.ray_address import cluster_address
from tests.cli.test_train_cli import refused, run

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def listening() -> Iterator[int]:
    """The port of something that listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def closed_port() -> int:
    """One where nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.mark.parametrize("environment", [{}, {"RAY_ADDRESS": ""}, {"RAY_ADDRESS": "local"}])
def test_without_an_address_there_is_a_new_ray(environment: dict[str, str]) -> None:
    assert cluster_address(None, environment) is None


def test_a_cluster_that_listens_is_used(listening: int) -> None:
    address = f"127.0.0.1:{listening}"
    assert cluster_address(None, {"RAY_ADDRESS": address}) == address
    assert cluster_address(address, {"RAY_ADDRESS": "127.0.0.1:1"}) == address
    assert cluster_address(f"ray://{address}", {}) == f"ray://{address}"
    assert cluster_address("auto", {}) == "auto"


@pytest.mark.parametrize("address", ["head", "head:", ":6379", "head:x", "head:70000", "head:0", "http://head:8265"])
def test_malformed_addresses_are_refused(address: str) -> None:
    with pytest.raises(InputError, match=r"field 'RAY_ADDRESS': .* is no address of a cluster; expected HOST:PORT"):
        cluster_address(None, {"RAY_ADDRESS": address})


def test_a_training_says_at_once_that_its_cluster_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{closed_port()}")
    began = time.monotonic()
    line = refused(run("--config", "quick", "--out", tmp_path / "run"))
    assert "field 'RAY_ADDRESS': no cluster answers at 127.0.0.1:" in line
    assert time.monotonic() - began < 30
    assert list(tmp_path.iterdir()) == []


def test_choosing_imports_no_ray() -> None:
    code = "import sys, attn_sched.training.ray_address as m; m.cluster_address(None, {}); print('ray' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "False", done.stdout + done.stderr
