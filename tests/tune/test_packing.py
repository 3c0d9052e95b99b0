"""What is sent with a job, and what is not."""

from __future__ import annotations

import os
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

from attn_sched.errors import InputError
from tune import packing
from tune.packing import measure, parse_variables, project_folder, runtime_env, working_folder

ROOT = Path(__file__).resolve().parents[2]


def sent(folder: Path, environment: dict, tmp_path: Path) -> set[str]:
    """The names that Ray itself packs."""
    from ray._private.runtime_env.packaging import create_package

    archive = tmp_path / "sent.zip"
    create_package(str(folder), archive, include_gitignore=True, excludes=environment["excludes"])
    with zipfile.ZipFile(archive) as packed:
        return set(packed.namelist())


def fill(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * 10)


def test_of_this_project_the_packages_are_sent_and_no_more(tmp_path: Path) -> None:
    environment = runtime_env(ROOT, {})
    names = sent(ROOT, environment, tmp_path)
    tops = {name.split("/")[0] for name in names}
    packages = yaml.safe_load("[attn_sched, benchmarks, checkpoints, envs, tune]")
    assert {top for top in tops if (ROOT / top).is_dir()} == set(packages)
    assert {"attn_sched/cli/__main__.py", "tune/runtime_env.yaml", "attn_sched/cluster/presets/dgx64.yaml"} <= names
    assert not any("__pycache__" in name for name in names)
    contents = measure(ROOT, environment["excludes"])
    assert contents.files == len(names)
    assert contents.size == sum((ROOT / name).stat().st_size for name in names)
    assert contents.size < 20 * 2**20


def test_excludes_ignore_files_and_the_token_hold(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    fill(folder, "a.py", "b/c.py", "out/x", "b/out/kept", ".git/config", "docs/x.png", "tests/t.py", "b/tests/kept",
         "data/big.csv", "secret/my [token]*", "b/__pycache__/c.pyc", "log.txt")  # fmt: skip
    (folder / ".rayignore").write_text("data\n")
    (folder / ".gitignore").write_text("*.txt\n")
    environment = runtime_env(folder, {"A": "1"}, [folder / "secret" / "my [token]*"])
    names = {name.rstrip("/") for name in sent(folder, environment, tmp_path)}
    assert names == {"a.py", "b/c.py", "b/out/kept", "b/tests/kept", ".rayignore", ".gitignore"}
    assert measure(folder, environment["excludes"]).files == len(names)


def test_variables_go_over_those_of_the_file(tmp_path: Path) -> None:
    variables = runtime_env(tmp_path, {"OMP_NUM_THREADS": "4", "MINE": "a=b"})["env_vars"]
    assert variables["OMP_NUM_THREADS"] == "4" and variables["MINE"] == "a=b"
    assert variables["RAY_USAGE_STATS_ENABLED"] == "0"
    assert all(isinstance(value, str) for value in runtime_env(tmp_path, {})["env_vars"].values())


def test_variables_are_read() -> None:
    assert parse_variables(["A=1", "B=", "C=a=b", "A=2"]) == {"A": "2", "B": "", "C": "a=b"}


@pytest.mark.parametrize("text", ["", "A", "=1", "1A=2", "A B=2", "A-B=1", "A=\0"])
def test_malformed_variables_are_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"field 'env': .* sets no variable; expected KEY=VALUE"):
        parse_variables([text])


def test_the_folder_is_the_checkout_or_the_current_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT / "attn_sched" / "cli")
    assert working_folder(None) == ROOT
    assert project_folder(tmp_path) is None
    monkeypatch.chdir(tmp_path)
    assert working_folder(None) == tmp_path
    assert working_folder(str(ROOT)) == ROOT
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(InputError, match=r"is not sent to a cluster unasked; expected .* --working-dir DIR"):
        working_folder(None)
    assert working_folder(".") == tmp_path


def test_folders_that_are_none_are_refused(tmp_path: Path) -> None:
    fill(tmp_path, "file")
    with pytest.raises(InputError, match="no such folder"):
        working_folder(str(tmp_path / "absent"))
    with pytest.raises(InputError, match="is no folder"):
        working_folder(str(tmp_path / "file"))


def test_too_large_a_folder_names_its_largest_parts(tmp_path: Path) -> None:
    fill(tmp_path, "code.py", "data/x", "models/y", "more/z")
    for name, size in (("data/x", 80), ("models/y", 60), ("more/z", 1)):
        os.truncate(tmp_path / name, size * 2**20)
    with pytest.raises(InputError) as caught:
        measure(tmp_path, [])
    line = str(caught.value)
    assert "holds 141.0 MiB in 4 files, the largest of it data 80.0 MiB, models 60.0 MiB, more 1.0 MiB" in line
    assert "at most 100.0 MiB" in line and ".rayignore" in line
    assert measure(tmp_path, ["/data"]).size < 62 * 2**20


def test_counting_ends_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path, *(f"d/{k}" for k in range(30)))
    monkeypatch.setattr(packing, "MOST_FILES", 10)
    with pytest.raises(InputError, match=r"has more than can be counted, at least 0\.0 MiB in 11 files"):
        measure(tmp_path, [])


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="root may read everything")
def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    fill(tmp_path, "closed")
    (tmp_path / "closed").chmod(0)
    with pytest.raises(InputError, match="closed, field 'working-dir': cannot be sent: Permission denied"):
        measure(tmp_path, [])


def test_a_loop_of_links_has_an_end(tmp_path: Path) -> None:
    fill(tmp_path, "a.py")
    (tmp_path / "loop").symlink_to(tmp_path)
    assert 1 <= measure(tmp_path, []).files < 100
