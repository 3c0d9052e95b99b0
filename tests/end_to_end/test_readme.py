"""What the README shows must run as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from attn_sched.cluster import load_cluster
from attn_sched.policies.registry import ORDERINGS

ROOT = Path(__file__).resolve().parents[2]
COMMAND = Path(sys.executable).parent / "attn-sched"
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """The code blocks of the README in one language."""
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_python_blocks_run() -> None:
    shown = blocks("python")
    assert len(shown) == 2
    try:
        for text in shown:
            exec(compile(text, "README.md", "exec"), {})
        assert "short-and-old" in ORDERINGS.parts
    finally:
        ORDERINGS.remove("short-and-old")


def test_yaml_block_is_a_cluster(tmp_path: Path) -> None:
    (text,) = blocks("yaml")
    (tmp_path / "my-cluster.yaml").write_text(text, encoding="utf-8")
    assert load_cluster(tmp_path / "my-cluster.yaml").num_gpus == 256


def test_linked_files_exist() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / target).exists(), target


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"^make ([\w-]+)", README, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


@pytest.mark.parametrize("words", [["--help"], ["simulate", "--help"], ["compare", "--help"], ["policies", "list"]])
def test_commands_answer(words: list[str]) -> None:
    done = subprocess.run([str(COMMAND), *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout
