"""``attn-sched submit`` and ``attn-sched jobs``, against a real cluster with a token."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from attn_sched.cli import main
from attn_sched.cli.submit import job_command
from attn_sched.errors import InputError
from attn_sched.training.run_folder import RunFolder
from tests.training.tiny_run import arguments
from tests.tune.ray_cluster import Cluster, free_ports, ray_cluster, write_token

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with ray_cluster() as started:
        yield started


@pytest.fixture(autouse=True)
def _no_cluster_of_this_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No address and no token from outside."""
    for name in [name for name in os.environ if name.startswith(("RAY_ADDRESS", "RAY_API", "RAY_AUTH"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))


def run(*given: object) -> Result:
    return CliRunner(env={"COLUMNS": "200"}).invoke(main, [str(one) for one in given])


def refused(result: Result) -> str:
    """The line of an error, before which there may be the one of what is sent."""
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    *notes, line = result.stderr.splitlines()
    assert all(note.startswith("sending ") for note in notes), result.stderr
    assert line.startswith("attn-sched: error: ")
    return line


def small(tmp_path: Path) -> Path:
    """A folder to send where the project is not needed."""
    folder = tmp_path / "work"
    folder.mkdir(exist_ok=True)
    (folder / "note.txt").write_text("with the job\n")
    return folder


# Without a cluster


def test_help_is_light() -> None:
    for words in (["submit", "--help"], ["jobs", "list", "--help"]):
        code = (
            f"import sys; from attn_sched.cli import main\ntry: main({words})\nexcept SystemExit: pass\n"
            "print('LOADED', sorted({m.split('.')[0] for m in sys.modules} & {'torch', 'ray', 'numba', 'aiohttp'}))"
        )
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
        assert "LOADED []" in done.stdout, done.stdout + done.stderr
        assert "--token-file" in done.stdout


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "field 'command': no command is given; expected attn-sched submit [OPTIONS] -- COMMAND..."),
        (["--", ""], "no command is given"),
        (["--env", "A", "--", "true"], "field 'env': 'A' sets no variable; expected KEY=VALUE"),
        (["--id", "../x", "--", "true"], "'../x' is no name of a job"),
        (["--gpus", "-1", "--", "true"], "field 'gpus': -1 is out of range"),
        (["--cpus", "nan", "--", "true"], "field 'cpus': nan is out of range"),
        (["--working-dir", "absent", "--", "true"], "absent, field 'working-dir': no such folder"),
        (["--address", "ray://h:1", "--", "true"], "is no address to submit jobs to"),
        (["--token-file", "absent", "--", "true"], "absent, field 'token-file': cannot be read: No such file"),
        (["--", "attn-sched", "train", "--out", "out/x"], "field 'out': 'out/x' would be lost"),
        (["--", "python", "-m", "tune.search", "--storage=x"], "field 'storage': 'x' would be lost"),
        (["--adress", "x", "--", "true"], "No such option"),
    ],
)
def test_wrong_input_is_one_line(given: list[str], said: str) -> None:
    assert said in refused(run("submit", *given))


@pytest.mark.parametrize(
    ("before", "after"),
    [("submit", ["--", "true"]), ("jobs list", []), ("jobs status", ["x"]), ("jobs logs", ["x"]), ("jobs stop", ["x"])],
)
def test_no_cluster_is_one_line_soon(before: str, after: list[str]) -> None:
    (port,) = free_ports(1)
    began = time.monotonic()
    line = refused(run(*before.split(), "--address", f"127.0.0.1:{port}", *after))
    assert f"no Ray cluster answers at http://127.0.0.1:{port}; expected the dashboard of a running cluster" in line
    assert time.monotonic() - began < 30


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attn_sched.cli.jobs.NEEDED", ("json", "no_such_package"))
    assert "need no_such_package; expected pip install 'attentive-sched[train]'" in refused(run("jobs", "list"))


def test_commands_become_what_a_node_can_run() -> None:
    module = ["python", "-m", "attn_sched.cli"]
    assert job_command(["attn-sched", "train", "--out", "/x"]) == [*module, "train", "--out", "/x"]
    assert job_command([".venv/bin/attn-sched", "jobs"]) == [*module, "jobs"]
    assert job_command(["python", "-m", "tune.search", "--storage", "s3://x"])[-1] == "s3://x"
    assert job_command(["cc", "-o", "x", "--out", "x"]) == ["cc", "-o", "x", "--out", "x"]
    for kept in ("--out", "--report"):
        with pytest.raises(InputError, match=f"field '{kept[2:]}': 'a/b' would be lost with the job's copy"):
            job_command(["attn-sched", "compare", kept, "a/b"])


# On a cluster


def test_a_job_runs_in_a_copy_of_the_project(cluster: Cluster) -> None:
    program = (
        "import os, sys, attn_sched, envs, tune; print(sorted(os.listdir('.'))); "
        "print([os.path.relpath(m.__file__) for m in (attn_sched, envs, tune)]); "
        "print(os.environ['OMP_NUM_THREADS'], os.environ['MINE']); sys.exit(5)"
    )
    given = ["--id", "first", "--env", "MINE=a b", "--", "python", "-c", program]
    result = run("submit", *cluster.options, *given)
    assert result.exit_code == 1, result.output
    names = re.search(r"^\[.*'attn_sched'.*\]$", result.stdout, re.MULTILINE)
    assert names is not None, result.stdout
    listed = set(json.loads(names.group().replace("'", '"')))
    assert {"attn_sched", "envs", "tune", "checkpoints", "benchmarks"} <= listed
    assert not listed & {".venv", ".git", "tests", "docs", "out", ".ci", ".pytest_cache"}
    assert "['attn_sched/__init__.py', 'envs/__init__.py', 'tune/__init__.py']" in result.stdout
    assert "1 a b" in result.stdout
    first, second, last = result.stderr.splitlines()
    assert re.fullmatch(rf"sending {re.escape(str(ROOT))} \(\d+ files, \d\.\d MiB\) to {cluster.address}", first)
    assert (second, last) == ("job first is submitted", "job first failed: its command ended with exit status 5")

    # No token, and another: refused, and nothing of the job is known.
    wrong = write_token(cluster.folder / "wrong")
    for given_token, said in (
        ([], f"the cluster at {cluster.address} wants a token; expected the cluster's own token by --token-file FILE"),
        (["--token-file", wrong], f"does not take the token of {wrong}; expected the cluster's own token"),
    ):
        assert said in refused(run("submit", "--address", cluster.address, *given_token, "--id", "sly", "--", "true"))
    assert "there is no job 'sly'" in refused(run("jobs", "status", "sly", *cluster.options))
    assert "there was a job 'first' already" in refused(
        run("submit", *cluster.options, "--id", "first", "--working-dir", ROOT / "envs", "--", "true")
    )


@pytest.mark.slow
def test_success_status_logs_and_list(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Told by variables, the options may be left out; an address in RAY_ADDRESS does not go over --address.
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(cluster.token_file))
    monkeypatch.setenv("RAY_ADDRESS", "http://127.0.0.1:1")
    with_address = ["--address", cluster.address]
    result = run("submit", *with_address, "--id", "good", "--working-dir", small(tmp_path), "--", "cat", "note.txt")
    assert result.exit_code == 0, result.output
    assert "with the job" in result.stdout
    assert result.stderr.splitlines()[-1] == "job good succeeded"
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", cluster.address)
    assert run("jobs", "logs", "good").stdout == result.stdout
    followed = run("jobs", "logs", "good", "--follow")
    assert (followed.exit_code, followed.stdout) == (0, result.stdout)
    state = json.loads(run("jobs", "status", "good", "--json").stdout)
    assert (state["status"], state["exit_code"], state["command"]) == ("SUCCEEDED", 0, "cat note.txt")
    assert "job good succeeded" in run("jobs", "status", "good").stdout
    listed = json.loads(run("jobs", "list", "--json").stdout)["jobs"]
    assert "good" in [job["id"] for job in listed]
    assert re.search(r"good +succeeded .* cat note.txt", run("jobs", "list").stdout)
    for words in (["status"], ["logs"], ["logs", "--follow"], ["stop"]):
        assert "field 'id': there is no job 'none' at" in refused(run("jobs", *words, "none"))


@pytest.mark.slow
def test_stop(cluster: Cluster, tmp_path: Path) -> None:
    """A job is given time to end in its own way, and whoever follows it is told."""
    program = "trap 'echo tidied; exit 0' TERM; echo begun; while true; do sleep 0.2; done"
    submitted = run("submit", *cluster.options, "--id", "long", "--working-dir", small(tmp_path), "--no-wait", "--",
                    "bash", "-c", program)  # fmt: skip
    assert (submitted.exit_code, submitted.stdout) == (0, "long\n")
    wait_for_log(cluster, "long", "begun")
    assert "job long is running" in run("jobs", "status", "long", *cluster.options).stdout
    stopped = run("jobs", "stop", "long", *cluster.options)
    assert (stopped.exit_code, stopped.stdout) == (0, "job long was stopped\n")
    followed = run("jobs", "logs", "long", "--follow", *cluster.options)
    assert followed.exit_code == 1
    assert "tidied" in followed.stdout and followed.stderr == "job long was stopped\n"
    again = run("jobs", "stop", "long", *cluster.options)
    assert (again.exit_code, again.stdout) == (0, "job long was stopped\n")


def wait_for_log(cluster: Cluster, job: str, text: str) -> None:
    deadline = time.monotonic() + 60
    while f"\n{text}\n" not in run("jobs", "logs", job, *cluster.options).stdout:
        assert time.monotonic() < deadline
        time.sleep(0.5)


@pytest.mark.slow
def test_ctrl_c_leaves_the_job_running(cluster: Cluster, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "attn_sched.cli", "submit", *cluster.options, "--id", "lasting",
               "--working-dir", str(small(tmp_path)), "--", "bash", "-c", "echo begun; sleep 60"]  # fmt: skip
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if line == "begun\n":
                    break
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130
    options = f"--address {cluster.address} --token-file {cluster.token_file}"
    assert err.splitlines()[-1] == (
        f"job lasting goes on; attn-sched jobs logs lasting --follow {options} shows it, "
        f"attn-sched jobs stop lasting {options} ends it"
    )
    assert "job lasting is running" in run("jobs", "status", "lasting", *cluster.options).stdout
    assert run("jobs", "stop", "lasting", *cluster.options).exit_code == 0


@pytest.mark.slow
def test_a_broken_connection_shows_nothing_twice(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first two followings of the log are cut after some characters."""
    from tune.jobs import Jobs, find_token

    submitted = run("submit", *cluster.options, "--id", "lines", "--working-dir", small(tmp_path), "--no-wait", "--",
                    "bash", "-c", "for k in 1 2 3 4 5 6; do echo line $k; sleep 1.5; done")  # fmt: skip
    assert submitted.exit_code == 0, submitted.output
    jobs = Jobs(cluster.address, find_token(str(cluster.token_file)))
    whole, cuts = jobs._client.tail_job_logs, [0, 1]

    async def cut(job: str):
        number = 0
        async for piece in whole(job):
            yield piece
            if cuts and number >= cuts[0]:
                cuts.pop(0)
                raise RuntimeError("WebSocket connection closed unexpectedly with close code 1006")
            number += 1

    monkeypatch.setattr(jobs._client, "tail_job_logs", cut)
    shown: list[str] = []
    state = jobs.follow("lines", shown.append, lambda line: None)
    assert state.status == "SUCCEEDED" and not cuts
    assert "".join(shown) == jobs.logs("lines")
    assert [line for line in "".join(shown).splitlines() if line.startswith("line")] == [
        f"line {k}" for k in range(1, 7)
    ]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_training_as_a_job_leaves_its_run_folder(cluster: Cluster, tmp_path: Path) -> None:
    """Its driver and its remote runners have the project from the job's copy alone."""
    folder = cluster.folder / "run"
    options = [*arguments("--out", str(folder), "--set", "ppo.runners=1")]
    result = run("submit", *cluster.options, "--", "attn-sched", *options)
    assert result.exit_code == 0, result.output
    assert "best agents" in result.stdout
    assert (folder / "best" / "tiny.safetensors").is_file()
    # The same folder again: the job refuses it in one line, and its failure is told.
    again = run("submit", *cluster.options, "--", "attn-sched", *options)
    assert again.exit_code == 1
    (line,) = [line for line in again.stdout.splitlines() if line.startswith("attn-sched: error:")]
    assert "--resume to go on" in line
    assert again.stderr.splitlines()[-1].endswith("failed: its command ended with exit status 2")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_training_that_is_stopped_writes_a_checkpoint_and_goes_on(cluster: Cluster) -> None:
    folder = RunFolder(cluster.folder / "stopped")
    given = ("--set", "ppo.total_decisions=100000", "--set", "checkpoint_every=1000", "--set", "validation.every=1000")
    submitted = run("submit", *cluster.options, "--id", "training", "--no-wait", "--", "attn-sched",
                    *arguments("--out", str(folder.path), "--set", "ppo.runners=1", *given))  # fmt: skip
    assert submitted.exit_code == 0, submitted.output
    deadline = time.monotonic() + 400
    while not (folder.log.exists() and "iteration 3 " in folder.log.read_text()):
        assert time.monotonic() < deadline, run("jobs", "logs", "training", *cluster.options).stdout
        time.sleep(0.5)
    assert run("jobs", "stop", "training", *cluster.options).stdout == "job training was stopped\n"
    number = folder.last_checkpoint()
    assert number is not None and number >= 3, "no checkpoint was written between the signal and the end"
    assert f"train --resume --out {folder.path}" in run("jobs", "logs", "training", *cluster.options).stdout
    resumed = run("submit", *cluster.options, "--id", "again", "--no-wait", "--", "attn-sched", "train", "--resume",
                  "--out", folder.path)  # fmt: skip
    assert resumed.exit_code == 0, resumed.output
    while f"going on from the checkpoint after iteration {number}" not in folder.log.read_text():
        assert time.monotonic() < deadline, run("jobs", "logs", "again", *cluster.options).stdout
        time.sleep(0.5)
    assert run("jobs", "stop", "again", *cluster.options).exit_code == 0


@pytest.mark.slow
def test_rays_own_command_does_the_same(cluster: Cluster) -> None:
    """The line of docs/jobs.md, with the address of this cluster and the help of the training."""
    text = (ROOT / "docs" / "jobs.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^ray (job submit .* -- .*)$", text, re.MULTILINE)
    words = shlex.split(line.replace("http://head:8265", cluster.address))
    words[words.index("train") + 1 :] = ["--show", "--config", "quick"]
    environment = {**os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(cluster.token_file)}
    done = subprocess.run([str(Path(sys.executable).with_name("ray")), *words], cwd=ROOT, env=environment,
                          capture_output=True, text=True, timeout=200, check=False)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\nname=quick\n" in done.stdout


@pytest.mark.slow
def test_no_space_for_the_archive_is_one_line(cluster: Cluster, tmp_path: Path) -> None:
    """A limit on the size of files stands for a full disk; nothing is submitted and nothing left behind."""
    folder = small(tmp_path)
    (folder / "large.bin").write_bytes(os.urandom(300_000))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    program = (
        "import resource, signal; resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000)); "
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); from attn_sched.cli import main; main()"
    )
    command = [sys.executable, "-c", program, "submit", *cluster.options, "--id", "nospace", "--working-dir",
               str(folder), "--", "true"]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "TMPDIR": str(scratch)}, capture_output=True,
                          text=True, timeout=120, check=False)  # fmt: skip
    assert done.returncode == 2, done.stderr
    sending, line = done.stderr.splitlines()
    assert sending.startswith("sending")
    assert line.startswith(
        f"attn-sched: error: {scratch}: the folder to send cannot be packed: File too large; expected"
    )
    assert list(scratch.iterdir()) == []
    assert "there is no job 'nospace'" in refused(run("jobs", "status", "nospace", *cluster.options))
