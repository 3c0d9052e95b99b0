"""A real Ray cluster of one node, as ``ray start`` makes it, with a token; ended by process id."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

START_S = 90.0
STOP_S = 20.0


@dataclass(frozen=True)
class Cluster:
    """Where it is and what opens it."""

    address: str  # of the dashboard
    token_file: Path
    folder: Path  # for what a test wants to lie on shared storage

    @property
    def options(self) -> list[str]:
        """Of ``attn-sched submit`` and ``attn-sched jobs``."""
        return ["--address", self.address, "--token-file", str(self.token_file)]


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now."""
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [int(server.getsockname()[1]) for server in servers]


def write_token(path: Path) -> Path:
    """A token that only its owner can read."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(secrets.token_hex(32))
    return path


def _environment(token_file: Path) -> dict[str, str]:
    """Of the nodes: the token, this interpreter as ``python``; the project is found in a job's own folder alone."""
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("RAY_", "PYTEST")) and key != "PYTHONPATH"
    }
    return {
        **kept,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{kept.get('PATH', '')}",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token_file),
        "RAY_USAGE_STATS_ENABLED": "0",
    }


@contextlib.contextmanager
def ray_cluster(cpus: int = 2) -> Iterator[Cluster]:
    """Start a cluster, and end it whatever happens.

    Ray's sockets need a short path, so its folder is not one of pytest's.
    """
    folder = Path(tempfile.mkdtemp(prefix="as-", dir="/tmp"))
    token_file = write_token(folder / "token")
    port, dashboard, client = free_ports(3)
    command = [
        str(Path(sys.executable).with_name("ray")), "start", "--head", "--block", "--disable-usage-stats",
        f"--port={port}", f"--dashboard-port={dashboard}", f"--ray-client-server-port={client}",
        "--dashboard-agent-listen-port=0", "--min-worker-port=0", "--max-worker-port=0", f"--num-cpus={cpus}",
        "--object-store-memory=100000000", f"--temp-dir={folder / 'ray'}",
    ]  # fmt: skip
    log = folder / "head.log"
    with open(log, "wb") as output:
        head = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=_environment(token_file), start_new_session=True
        )
    try:
        _wait(f"http://127.0.0.1:{dashboard}", token_file, head, log)
        shared = folder / "shared"
        shared.mkdir()
        yield Cluster(f"http://127.0.0.1:{dashboard}", token_file, shared)
    finally:
        _stop(head)
        shutil.rmtree(folder, ignore_errors=True)


def _wait(address: str, token_file: Path, head: subprocess.Popen[bytes], log: Path) -> None:
    """Until the dashboard answers."""
    request = urllib.request.Request(
        f"{address}/api/version", headers={"Authorization": f"Bearer {token_file.read_text()}"}
    )
    deadline = time.monotonic() + START_S
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while head.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError), opener.open(request, timeout=5):
            return
        time.sleep(0.2)
    raise RuntimeError(f"no cluster within {START_S:g} s:\n{log.read_text()[-2000:]}")


def _descendants(pid: int) -> list[int]:
    """All processes below one, by their parents in /proc."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found, left = [], [pid]
    while left:
        below = children.get(left.pop(), [])
        found += below
        left += below
    return found


def _stop(head: subprocess.Popen[bytes]) -> None:
    """Ask ``ray start --block`` to end its processes, then end those that are left."""
    below = _descendants(head.pid)
    head.send_signal(signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        head.wait(STOP_S)
    head.kill()
    head.wait()
    for pid in below:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
