"""The folder of a run: what may begin or go on there, and what a killed process leaves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from attn_sched.errors import InputError
from attn_sched.training.run_folder import KEPT_CHECKPOINTS, RunFolder, read_object, write_object
from tests.training.tiny_run import tiny_config


def put_checkpoint(folder: RunFolder, iteration: int) -> None:
    write_object(folder.checkpoint_state(iteration), {"iteration": iteration})
    folder.checkpoint(iteration).mkdir()
    (folder.checkpoint(iteration) / "weights").write_text(str(iteration))


def test_a_new_run_wants_a_new_or_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("empty", "deep/er/new"):
        folder = RunFolder(tmp_path / name)
        folder.create(tiny_config())
        assert folder.config.is_file()
        with pytest.raises(InputError, match="--resume"):
            folder.check_new()
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="is not empty"):
        RunFolder(tmp_path / "used").create(tiny_config())
    with pytest.raises(InputError, match="no folder"):
        RunFolder(tmp_path / "used" / "notes.txt").check_new()


def test_a_run_goes_on_only_as_it_began(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    with pytest.raises(InputError, match="holds no training run"):
        folder.reopen(tiny_config())
    folder.create(tiny_config())
    with pytest.raises(InputError) as told:
        folder.reopen(tiny_config(ppo__clip=0.3))
    assert told.value.field == "ppo.clip"
    assert "0.15, not 0.3" in str(told.value)
    with pytest.raises(InputError, match=r"'data.families': was started with helios,philly, not pai"):
        folder.reopen(tiny_config(data__families=("pai",)))
    folder.reopen(tiny_config(minutes=12.0))  # more time may be given
    folder.reopen(tiny_config(minutes=12.0))
    with pytest.raises(InputError, match="seed"):
        folder.reopen(tiny_config(minutes=12.0, seed=1))


def test_what_is_half_written_is_no_checkpoint_and_goes(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.create(tiny_config())
    assert folder.last_checkpoint() is None
    put_checkpoint(folder, 4)
    write_object(folder.checkpoint_state(6), {"iteration": 6})  # killed before the folder was in place
    (folder.checkpoints / ".000006.abc.part").mkdir()
    (folder.checkpoints / ".000006.abc.part" / "weights").write_text("half")
    (folder.path / ".stages.json.xyz.part").write_text("{")
    (folder.best / ".tiny.safetensors.xyz.part").write_text("half")
    assert folder.last_checkpoint() == 4
    folder.reopen(tiny_config())
    assert folder.last_checkpoint() == 4
    assert not [path for path in folder.path.rglob("*") if path.name.startswith(".")]
    assert not folder.checkpoint_state(6).exists()
    assert (folder.checkpoint(4) / "weights").read_text() == "4"


def test_a_folder_without_the_state_of_the_run_is_no_checkpoint(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.create(tiny_config())
    put_checkpoint(folder, 2)
    folder.checkpoint(3).mkdir()
    assert folder.last_checkpoint() == 2


def test_the_last_checkpoints_are_kept(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.create(tiny_config())
    for iteration in (0, 5, 10, 15):
        put_checkpoint(folder, iteration)
        folder.prune_checkpoints()
    assert KEPT_CHECKPOINTS == 2
    assert sorted(path.name for path in folder.checkpoints.iterdir()) == [
        "000010",
        "000010.json",
        "000015",
        "000015.json",
    ]


def test_stages_are_recorded_one_by_one(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.create(tiny_config())
    assert folder.finished() == {}
    folder.finish("rules", {"best": "sjf"})
    folder.finish("tuned", {"score": 0.9})
    assert RunFolder(folder.path).finished() == {"rules": {"best": "sjf"}, "tuned": {"score": 0.9}}
    folder.stages.write_text('{"rules": ')
    with pytest.raises(InputError, match="cannot be read"):
        folder.finished()
    folder.stages.write_text("[]")
    with pytest.raises(InputError, match="no JSON object"):
        read_object(folder.stages)


_HOLD = """
import sys
from attn_sched.training.run_folder import RunFolder
with RunFolder(sys.argv[1]).locked():
    print("locked", flush=True)
    sys.stdin.read()
"""


def test_only_one_process_trains_in_a_folder(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.create(tiny_config())
    command = [sys.executable, "-c", _HOLD, str(folder.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "locked\n"
        with pytest.raises(InputError, match="another process"), folder.locked():
            pass
        other.kill()
        other.wait(30)
        with folder.locked():  # a killed process holds it no longer
            pass
