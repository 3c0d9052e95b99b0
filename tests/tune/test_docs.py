"""What docs/jobs.md says: its commands have the options that they show, and its figures are those of the code."""

from __future__ import annotations

import os
import re
import shlex
import stat
import subprocess
import sys
from pathlib import Path

import click
import pytest
import yaml

from attn_sched.cli import main
from attn_sched.cli.submit import job_command
from tune import packing
from tune.jobs import DEFAULT_ADDRESS

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "jobs.md").read_text(encoding="utf-8")
SCRIPT = (ROOT / "tests" / "acceptance" / "two_namespaces.sh").read_text(encoding="utf-8")
LINES = [line for block in re.findall(r"```\n(.*?)```", TEXT, re.DOTALL) for line in block.splitlines()]


def starting(*words: str) -> list[list[str]]:
    """The commands that begin so, split into words."""
    found = [shlex.split(line) for line in LINES]
    return [line for line in found if line[: len(words)] == list(words)]


def parse(command: click.Command, words: list[str]) -> click.Context:
    """Let click read the words, down through groups; raises for an option that there is not."""
    context = command.make_context("x", list(words))
    if isinstance(command, click.Group):
        name, child, rest = command.resolve_command(context, [*context.protected_args, *context.args])
        assert child is not None, name
        return parse(child, rest)
    return context


@pytest.mark.parametrize("words", starting("attn-sched"), ids=" ".join)
def test_our_commands_take_what_is_shown(words: list[str]) -> None:
    given = parse(main, words[1:]).params
    if words[1] != "submit":
        return
    inner = job_command(given["command"])
    assert inner[:2] == ["python", "-m"]
    if inner[2] == "attn_sched.cli":
        parse(main, inner[3:])


def test_there_are_commands_of_every_kind() -> None:
    assert {words[1] for words in starting("attn-sched")} == {"submit", "jobs"}
    assert {words[2] for words in starting("attn-sched", "jobs")} == {"list", "status", "logs", "stop"}
    assert len(starting("ray", "start")) == 2


@pytest.mark.parametrize("words", [*starting("ray", "start"), *starting("ray", "job")], ids=" ".join)
def test_rays_commands_take_what_is_shown(words: list[str]) -> None:
    from ray.scripts.scripts import cli

    given = parse(cli, words[1:]).params
    if words[1] == "job":
        environment = yaml.safe_load((ROOT / given["runtime_env"]).read_text())
        assert set(environment) == {"excludes", "env_vars"}
        assert list(given["entrypoint"])[:3] == job_command(["attn-sched", "train"])[:3]


def test_the_options_for_fixed_ports_are_rays() -> None:
    from ray.scripts.scripts import start

    (said,) = re.findall(r"If it needs fixed numbers,\s+`ray start` has (.*?)\.\n", TEXT, re.DOTALL)
    options = {option for parameter in start.params for option in parameter.opts}
    assert set(re.findall(r"`(--[\w-]+)`", said)) <= options


def test_the_token_line_makes_a_private_file(tmp_path: Path) -> None:
    (line,) = [line for line in LINES if line.startswith("(umask")]
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    subprocess.run(["bash", "-c", line], cwd=tmp_path, env=environment, check=True)
    token = tmp_path / "token"
    assert re.fullmatch(r"[0-9a-f]{64}\n", token.read_text())
    assert stat.S_IMODE(token.stat().st_mode) == 0o600


def test_figures_are_those_of_the_code() -> None:
    assert f"Ray takes {packing.largest_upload() // 2**20} MiB at most" in TEXT
    assert f"the address is `{DEFAULT_ADDRESS}`, which is the default" in TEXT
    environment = yaml.safe_load(packing.RUNTIME_ENV.read_text())
    assert environment["env_vars"]["RAY_JOB_STOP_WAIT_TIME_S"] == "60" and "killed after a minute" in TEXT
    left_out = re.search(r"names \((.*?), caches\)", TEXT)
    assert left_out is not None
    names = {pattern.strip("/") for pattern in environment["excludes"]}
    assert set(re.findall(r"`([^`]+)`", left_out.group(1))) <= names


def test_the_acceptance_script_is_whole() -> None:
    subprocess.run(["bash", "-n", "-c", SCRIPT], check=True)
    for name in re.findall(r"(tests/acceptance/[\w./]+)", TEXT + SCRIPT):
        assert (ROOT / name).is_file(), name
    assert not re.search(r"\b(pkill|killall|ray stop)\b", SCRIPT)
