"""Jobs on a Ray cluster, over HTTP: submit, follow, stop, list. Every failure is one line, in bounded time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import aiohttp
import requests
from ray.exceptions import AuthenticationError
from ray.job_submission import JobDetails, JobSubmissionClient, JobType

from attn_sched.errors import InputError

DEFAULT_ADDRESS = "http://127.0.0.1:8265"
ADDRESS_VARIABLES = ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS")
DEFAULT_TOKEN_FILE = Path(".ray", "auth_token")  # in the home folder
LONGEST_TOKEN = 4096
CONNECT_S = 5.0
ANSWER_S = 60.0
UPLOAD_S = 1800.0
PENDING_NOTE_S = 15.0  # after which people are told what a job waits for
POLL_S = 0.5
_RAY_LOGGERS = ("ray.dashboard.modules.dashboard_sdk", "ray.dashboard.modules.job.sdk", "ray._private.runtime_env")
_EXPECTED_ADDRESS = "the dashboard of a running cluster, as http://HEAD:8265"
_EXPECTED_TOKEN = "the cluster's own token by --token-file FILE"


@dataclass(frozen=True)
class JobState:
    """A job as the cluster knows it."""

    id: str
    status: str  # PENDING, RUNNING, SUCCEEDED, FAILED or STOPPED
    command: str
    message: str | None
    exit_code: int | None  # of the command; None while it runs, and where it was stopped or never began
    started_s: float | None  # since 1970
    ended_s: float | None

    @property
    def ended(self) -> bool:
        """Whether it will not change any more."""
        return self.status in ("SUCCEEDED", "FAILED", "STOPPED")

    @property
    def exit_status(self) -> int:
        """What a program that stands for the job exits with."""
        return 0 if self.status == "SUCCEEDED" else 1

    def told(self) -> str:
        """The state in one line."""
        if self.status == "FAILED" and self.exit_code is not None:
            return f"job {self.id} failed: its command ended with exit status {self.exit_code}"
        if self.status == "FAILED":
            return f"job {self.id} failed before its command began: {_last_line(self.message or 'nothing is known')}"
        said = {"PENDING": "has not begun yet", "RUNNING": "is running", "STOPPED": "was stopped"}
        return f"job {self.id} {said.get(self.status, self.status.lower())}"

    def as_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return asdict(self)


def find_address(given: str | None, environment: Mapping[str, str] = os.environ) -> str:
    """The address of a cluster's dashboard: the one given, else that of the environment, else that of this machine.

    Raises:
        InputError: it is no HTTP address.
    """
    where, text = next(
        (
            (name, value)
            for name, value in (("address", given), *((n, environment.get(n)) for n in ADDRESS_VARIABLES))
            if value
        ),
        ("address", DEFAULT_ADDRESS),
    )
    full = text if "://" in text or where == "RAY_ADDRESS" else f"http://{text}"
    try:
        parts = urlsplit(full)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, a bracket that is not closed
        usable = False
    if not usable or any(c.isspace() for c in full):
        raise InputError(f"{text!r} is no address to submit jobs to", field=where, expected=_EXPECTED_ADDRESS)
    return full.rstrip("/")


@dataclass(frozen=True)
class Token:
    """What shows to a cluster that its user may use it."""

    text: str = field(repr=False)
    source: str  # the file or the variable it is from, for people
    file: Path | None = None

    @property
    def open_to_others(self) -> bool:
        """Whether other users of this machine can read its file."""
        if self.file is None:
            return False
        readable = self.file.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH)
        reachable = all(folder.stat().st_mode & (stat.S_IXGRP | stat.S_IXOTH) for folder in self.file.resolve().parents)
        return bool(readable) and reachable


def find_token(file: str | None, environment: Mapping[str, str] = os.environ) -> Token | None:
    """The token to show to the cluster, by the order in which Ray looks for it.

    That is the file given, ``RAY_AUTH_TOKEN``, the file of ``RAY_AUTH_TOKEN_PATH``, ``~/.ray/auth_token`` if there is
    one; without a file given, ``RAY_AUTH_MODE=disabled`` means none.

    Raises:
        InputError: a file that was named cannot be read, is empty, or holds no token.
    """
    if file is None and environment.get("RAY_AUTH_MODE", "").lower() == "disabled":
        return None
    if file is None and environment.get("RAY_AUTH_TOKEN"):
        return _token(environment["RAY_AUTH_TOKEN"], None, "RAY_AUTH_TOKEN")
    option = "token-file" if file is not None else "RAY_AUTH_TOKEN_PATH"
    named = file if file is not None else environment.get("RAY_AUTH_TOKEN_PATH")
    if not named and file is None:
        option, default = "token-file", Path.home() / DEFAULT_TOKEN_FILE
        if not default.is_file():
            return None
        named = str(default)
    path = Path(str(named)).expanduser()
    try:
        with open(path, encoding="utf-8") as stream:
            text = stream.read(LONGEST_TOKEN + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is no text"
        raise InputError(
            f"cannot be read: {reason}", file=path, field=option, expected="a file that holds the cluster's token"
        ) from error
    return _token(text, path, option)


def _token(text: str, path: Path | None, option: str) -> Token:
    token = text.strip()
    if not token or len(token) > LONGEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        problem = "holds no token" if token else "is empty"
        raise InputError(problem, file=path, field=option, expected="the cluster's token, one word, and nothing else")
    return Token(token, option if path is None else str(path), path)


def _last_line(text: str) -> str:
    """Of a traceback, what it comes to."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


class _BoundedClient(JobSubmissionClient):
    """Ray's client with a limit on every answer; Ray's own waits as long as the network lets it."""

    def _do_request(self, method: str, endpoint: str, **given: Any) -> requests.Response:
        # Of an upload, the limit for connecting is on sending the whole body, too.
        given.setdefault("timeout", (UPLOAD_S if method == "PUT" else CONNECT_S, ANSWER_S))
        answer: requests.Response = super()._do_request(method, endpoint, **given)
        return answer


class Jobs:
    """The jobs of one cluster.

    Args:
        address: Of its dashboard, as ``find_address`` gives it.
        token: To show to it, if any.

    Raises:
        InputError: no cluster answers there, or it does not take the token.
    """

    def __init__(self, address: str, token: Token | None = None):
        self.address = address
        self.token = token
        for name in _RAY_LOGGERS:
            logging.getLogger(name).setLevel(logging.CRITICAL)  # what they say is said again in the one line
        headers = {"Authorization": f"Bearer {token.text}"} if token else None
        # Ray's client takes the environment's address, where there is one, over the one it is given.
        kept = {name: os.environ.pop(name) for name in ADDRESS_VARIABLES if name in os.environ}
        try:
            with self._one_line():
                self._client = _BoundedClient(address, headers=headers)
        finally:
            os.environ.update(kept)

    @contextlib.contextmanager
    def _one_line(self, job: str | None = None) -> Iterator[None]:
        """What goes wrong between here and the cluster as an InputError."""
        try:
            yield
        except AuthenticationError as error:
            problem = (
                f"the cluster at {self.address} wants a token"
                if self.token is None
                else f"the cluster at {self.address} does not take the token of {self.token.source}"
            )
            raise InputError(problem, field="token-file", expected=_EXPECTED_TOKEN) from error
        except (requests.exceptions.ConnectionError, requests.exceptions.Timeout, ConnectionError) as error:
            # Those of requests are OSErrors, but a full disk is not one of them.
            raise InputError(
                f"no Ray cluster answers at {self.address}", field="address", expected=_EXPECTED_ADDRESS
            ) from error
        except (requests.exceptions.RequestException, ValueError, KeyError, TypeError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(
                f"what answers at {self.address} is no Ray dashboard: {_last_line(str(error))}",
                field="address",
                expected=_EXPECTED_ADDRESS,
            ) from error
        except RuntimeError as error:
            raise self._refused(str(error), job) from error

    def _refused(self, text: str, job: str | None) -> InputError:
        """An answer of the cluster that is no success."""
        if "Version check returned 404" in text:
            return InputError(
                f"what answers at {self.address} is no Ray dashboard", field="address", expected=_EXPECTED_ADDRESS
            )
        if job is not None and "does not exist" in text:
            return InputError(
                f"there is no job {job!r} at {self.address}", field="id", expected="an id of `attn-sched jobs list`"
            )
        if job is not None and "already exists" in text:
            return InputError(
                f"there was a job {job!r} already", field="id", expected="a name that is new to the cluster"
            )
        return InputError(f"the cluster at {self.address} refuses: {_last_line(text)}")

    def submit(
        self,
        entrypoint: str,
        runtime_env: Mapping[str, Any],
        *,
        job: str | None = None,
        cpus: float | None = None,
        gpus: float | None = None,
    ) -> str:
        """Send a folder and start a command in it.

        Args:
            entrypoint: The command, for a shell.
            runtime_env: As ``packing.runtime_env`` makes it.
            job: Its id; drawn if None.
            cpus: To reserve for the command itself, which then runs on any node that has them; on the head if None.
            gpus: Likewise.

        Returns:
            The job's id.

        Raises:
            InputError: the cluster refuses, or does not answer.
        """
        job = job or f"attn-{secrets.token_hex(4)}"
        try:
            with self._one_line(job):
                self._client.submit_job(
                    entrypoint=entrypoint,
                    submission_id=job,
                    runtime_env=dict(runtime_env),
                    entrypoint_num_cpus=cpus,
                    entrypoint_num_gpus=gpus,
                )
        except OSError as error:  # a full disk, a file that went away; nothing has been submitted
            raise InputError(
                f"the folder to send cannot be packed: {error.strerror or error}",
                file=error.filename or tempfile.gettempdir(),
                expected="room for an archive of it, where TMPDIR says",
            ) from error
        return job

    def state(self, job: str) -> JobState:
        """How a job stands.

        Raises:
            InputError: there is none of that id.
        """
        with self._one_line(job):
            return _state(self._client.get_job_info(quote(job, safe="")))

    def states(self) -> list[JobState]:
        """All jobs that were submitted to the cluster, the newest first.

        Raises:
            InputError: the cluster does not answer.
        """
        with self._one_line():
            found = [_state(job) for job in self._client.list_jobs() if job.type == JobType.SUBMISSION]
        return sorted(found, key=lambda state: -(state.started_s or 0))

    def logs(self, job: str) -> str:
        """What a job has printed so far.

        Raises:
            InputError: there is none of that id.
        """
        with self._one_line(job):
            return str(self._client.get_job_logs(quote(job, safe="")))

    def follow(self, job: str, write: Callable[[str], None], note: Callable[[str], None]) -> JobState:
        """Write what a job prints, as it does, until it has ended.

        A connection that breaks is made again; nothing is written twice.

        Args:
            job: Its id.
            write: Takes pieces of the log.
            note: Takes a line for people, if the job does not begin for long.

        Returns:
            The last state.

        Raises:
            InputError: there is none of that id, or the cluster no longer answers.
        """
        state = self._begun(job, note)
        shown = 0
        while True:
            whole = True
            try:
                shown = asyncio.run(self._tail(job, shown, write))
            except _Broken as broken:
                shown, whole = broken.shown, False
            state = self.state(job)
            if state.ended:
                break
            time.sleep(POLL_S)
        if not whole:
            write(self.logs(job)[shown:])
        return state

    def _begun(self, job: str, note: Callable[[str], None]) -> JobState:
        """The state of a job once it waits no longer."""
        began, told = time.monotonic(), False
        while (state := self.state(job)).status == "PENDING":
            if not told and time.monotonic() - began > PENDING_NOTE_S:
                note(f"not begun yet: {_last_line(state.message or 'no reason is given')}")
                told = True
            time.sleep(POLL_S)
        return state

    async def _tail(self, job: str, shown: int, write: Callable[[str], None]) -> int:
        """Follow a log to its end, without the characters that were shown already; how many were shown in all."""
        seen = 0
        lines = self._client.tail_job_logs(quote(job, safe=""))
        while True:
            try:
                piece = await anext(lines)
            except StopAsyncIteration:
                return max(shown, seen)
            except (aiohttp.ClientError, OSError, RuntimeError) as error:
                raise _Broken(max(shown, seen)) from error
            fresh = piece[max(0, shown - seen) :]
            seen += len(piece)
            if fresh:
                write(fresh)

    def stop(self, job: str, limit_s: float) -> JobState:
        """Ask a job to stop and wait until it has.

        Args:
            job: Its id. One that has ended already is left as it is.
            limit_s: Seconds to wait at most.

        Returns:
            Its state; not ``ended`` where it takes longer.

        Raises:
            InputError: there is none of that id.
        """
        with self._one_line(job):
            self._client.stop_job(quote(job, safe=""))
        end = time.monotonic() + limit_s
        while not (state := self.state(job)).ended and time.monotonic() < end:
            time.sleep(POLL_S)
        return state


class _Broken(Exception):
    """The connection went while a log was followed."""

    def __init__(self, shown: int):
        super().__init__()
        self.shown = shown


def _state(job: JobDetails) -> JobState:
    return JobState(
        id=str(job.submission_id),
        status=str(job.status.value),
        command=str(job.entrypoint),
        message=job.message,
        exit_code=job.driver_exit_code,
        started_s=None if job.start_time is None else job.start_time / 1000,
        ended_s=None if not job.end_time else job.end_time / 1000,
    )
