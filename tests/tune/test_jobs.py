"""Addresses, tokens, and what a cluster that is none answers: without Ray running."""

from __future__ import annotations

import http.server
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from attn_sched.errors import InputError
from tests.tune.ray_cluster import free_ports, write_token
from tune import jobs
from tune.jobs import Jobs, JobState, Token, find_address, find_token


@pytest.mark.parametrize(
    ("given", "environment", "found"),
    [
        (None, {}, "http://127.0.0.1:8265"),
        ("http://head:8265/", {}, "http://head:8265"),
        ("head:8265", {}, "http://head:8265"),
        ("https://[::1]:80", {}, "https://[::1]:80"),
        ("a:1", {"RAY_API_SERVER_ADDRESS": "b:1", "RAY_ADDRESS": "http://c:1"}, "http://a:1"),
        (None, {"RAY_API_SERVER_ADDRESS": "b:1", "RAY_ADDRESS": "http://c:1"}, "http://b:1"),
        (None, {"RAY_API_SERVER_ADDRESS": "", "RAY_ADDRESS": "http://c:1"}, "http://c:1"),
    ],
)
def test_the_address_is_the_nearest_one_given(given: str | None, environment: dict[str, str], found: str) -> None:
    assert find_address(given, environment) == found


@pytest.mark.parametrize(
    "given", ["ray://head:10001", "http://", "http://head:x", "http://[::1", "http://a b", "auto:x"]
)
def test_other_addresses_are_refused(given: str) -> None:
    with pytest.raises(
        InputError, match=r"field 'address': .* is no address to submit jobs to; expected the dashboard"
    ):
        find_address(given, {})


@pytest.mark.parametrize("value", ["auto", "head:6379", "ray://head:10001"])
def test_rays_own_port_is_told_apart(value: str) -> None:
    with pytest.raises(InputError, match=r"field 'RAY_ADDRESS': .* expected the dashboard .* http://HEAD:8265"):
        find_address(None, {"RAY_ADDRESS": value})


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def text_of(token: Token | None) -> str | None:
    return None if token is None else token.text


def test_tokens_are_looked_for_as_ray_does(home: Path) -> None:
    assert find_token(None, {}) is None
    (home / ".ray").mkdir()
    (home / ".ray" / "auth_token").write_text("of-home\n")
    (home / "one").write_text(" first ")
    (home / "two").write_text("second")
    paths = {"RAY_AUTH_TOKEN_PATH": str(home / "two")}
    assert text_of(find_token(None, {})) == "of-home"
    assert text_of(find_token(None, paths)) == "second"
    assert text_of(find_token(None, {**paths, "RAY_AUTH_TOKEN": "third"})) == "third"
    assert text_of(find_token(str(home / "one"), {**paths, "RAY_AUTH_TOKEN": "third"})) == "first"
    assert find_token(None, {**paths, "RAY_AUTH_MODE": "disabled"}) is None
    assert text_of(find_token("~/one", {"RAY_AUTH_MODE": "disabled"})) == "first"
    assert "second" not in repr(find_token(None, paths))


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "cannot be read: No such file"), (b"", "is empty"), (b" \n", "is empty"), (b"a b", "holds no token"),
     (b"\xff\xfe", "cannot be read: is no text"), ("tök".encode(), "holds no token"), (b"x" * 5000, "holds no token")],
)  # fmt: skip
def test_files_without_a_token_are_refused(home: Path, content: bytes | None, said: str) -> None:
    if content is not None:
        (home / "file").write_bytes(content)
    for given, environment, field in (
        (str(home / "file"), {}, "token-file"),
        (None, {"RAY_AUTH_TOKEN_PATH": str(home / "file")}, "RAY_AUTH_TOKEN_PATH"),
    ):
        with pytest.raises(InputError, match=f"file, field '{field}': {said}"):
            find_token(given, environment)
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        find_token(str(home), {})


def test_a_token_that_others_can_read_is_noticed() -> None:
    def noticed() -> bool:
        token = find_token(str(file), {})
        assert token is not None
        return token.open_to_others

    with tempfile.TemporaryDirectory(dir="/tmp") as name:  # others cannot reach what is in pytest's folders
        folder = Path(name)
        file = write_token(folder / "token")
        folder.chmod(0o755)
        assert not noticed()
        file.chmod(0o644)
        assert noticed()
        folder.chmod(0o700)
        assert not noticed()


@pytest.mark.parametrize("listening", [False, True])
def test_no_cluster_is_found_out_soon(monkeypatch: pytest.MonkeyPatch, listening: bool) -> None:
    monkeypatch.setattr(jobs, "ANSWER_S", 1.0)
    (port,) = free_ports(1)
    with socket.create_server(("127.0.0.1", port)) if listening else socket.socket():
        began = time.monotonic()
        with pytest.raises(InputError, match=f"field 'address': no Ray cluster answers at http://127.0.0.1:{port}"):
            Jobs(f"http://127.0.0.1:{port}")
        assert time.monotonic() - began < 10


class _Other(http.server.BaseHTTPRequestHandler):
    """Some web server that is no dashboard."""

    answer: tuple[int, bytes] = (200, b"<html>")

    def do_GET(self) -> None:
        self.send_response(self.answer[0])
        self.end_headers()
        self.wfile.write(self.answer[1])

    def log_message(self, *given: object) -> None:
        """Quiet."""


@pytest.fixture
def other() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Other)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(
    "answer", [(200, b"<html>"), (404, b""), (500, b"x\ny"), (200, b"{}"), (200, b"[]"), (200, b'{"ray_version": "x"}')]
)
def test_another_server_is_no_dashboard(other: str, answer: tuple[int, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Other, "answer", answer)
    with pytest.raises(
        InputError, match=r"field 'address': what answers at .* is no Ray dashboard.*; expected the dash"
    ):
        Jobs(other)


def test_uploads_may_take_longer_than_connecting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The body is sent under the limit that connecting has."""
    limits = {}
    client = object.__new__(jobs._BoundedClient)
    client._address, client._cookies, client._headers, client._verify = "http://x", None, {}, True

    def request(method: str, url: str, **given: object) -> requests.Response:
        limits[method] = given["timeout"]
        answer = requests.Response()
        answer.status_code = 200
        return answer

    monkeypatch.setattr(requests, "request", request)
    for method in ("GET", "PUT", "POST"):
        client._do_request(method, "/y")
    assert limits["GET"] == limits["POST"] == (jobs.CONNECT_S, jobs.ANSWER_S)
    assert limits["PUT"] == (jobs.UPLOAD_S, jobs.ANSWER_S)


def state(status: str, code: int | None = None, message: str | None = None) -> JobState:
    return JobState("j", status, "c", message, code, None, None)


def test_states_are_told_in_a_line() -> None:
    assert state("FAILED", 3).told() == "job j failed: its command ended with exit status 3"
    assert state("FAILED", None, "Traceback\n  x\nNo such env\n").told().endswith("its command began: No such env")
    assert state("STOPPED").told() == "job j was stopped"
    assert state("RUNNING").told() == "job j is running"
    assert [state(s).exit_status for s in ("SUCCEEDED", "FAILED", "STOPPED")] == [0, 1, 1]
    assert [state(s).ended for s in ("PENDING", "RUNNING", "STOPPED")] == [False, False, True]
