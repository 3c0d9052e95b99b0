"""The plan of the house: who may import whom, what must stay light, how large a module may grow."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MAX_LINES = 600

# Floors from the ground up; a room imports from itself and from rooms of lower floors.
FLOORS: tuple[tuple[str, ...], ...] = (
    ("base",),  # the modules that lie in attn_sched itself: errors, files, progress, ...
    ("workload", "cluster"),
    ("simulator",),
    ("agents",),
    ("policies",),
    ("evaluation",),
    ("envs", "training"),
    ("tune", "serving"),
    ("cli",),
)
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
LIGHT_ROOMS = ("base", "workload", "cluster", "simulator", "agents", "policies", "evaluation", "cli")
HEAVY = ("ray", "torch", "pandas")
# The networks themselves: nothing light may import them before a learned policy is asked for.
TORCH_MODULES = ("attn_sched.agents.networks", "attn_sched.agents.pair", "attn_sched.agents.greedy")


def _sources() -> list[Path]:
    return sorted(path for top in ("attn_sched", "envs", "tune") for path in (ROOT / top).rglob("*.py"))


def _module(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _room(module: str) -> str | None:
    """The room a module belongs to; None for other people's modules."""
    parts = module.split(".")
    if parts[0] in ("envs", "tune"):
        return parts[0]
    if parts[0] != "attn_sched":
        return None
    return parts[1] if len(parts) > 1 and parts[1] in FLOOR_OF else "base"


def _is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def _imports(path: Path, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and name of every module imported, those inside functions and by ``import_module("...")`` too."""
    package = _module(path).split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                up = package[: len(package) - node.level + 1]
                base = ".".join([*up, base] if base else up)
            for alias in node.names:
                name = f"{base}.{alias.name}"
                yield node.lineno, name if _is_module(name) else base
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("import_module", "__import__") and isinstance(node.args[0].value, str):
                yield node.lineno, node.args[0].value


def test_rooms_import_only_from_floors_below() -> None:
    wrong = []
    for path in _sources():
        own = _room(_module(path))
        assert own is not None
        for line, name in _imports(path, ast.parse(path.read_text(encoding="utf-8"))):
            other = _room(name)
            if other is not None and other != own and FLOOR_OF[other] >= FLOOR_OF[own]:
                wrong.append(f"{path.relative_to(ROOT)}:{line}: {own} imports {name} of {other}")
    assert not wrong, "\n".join(wrong)


def test_every_folder_is_a_room() -> None:
    folders = {path.parent.name for path in (ROOT / "attn_sched").glob("*/__init__.py")}
    assert folders <= set(FLOOR_OF), f"no floor for {sorted(folders - set(FLOOR_OF))}"


def test_the_import_reader_sees_every_kind_of_import() -> None:
    text = (
        "import attn_sched.cli.main\n"
        "def f():\n    from ..simulator import state\n    from attn_sched import policies\n"
        "    importlib.import_module('attn_sched.evaluation.report')\n"
    )
    found = {name for _, name in _imports(ROOT / "attn_sched" / "cluster" / "x.py", ast.parse(text))}
    assert {_room(name) for name in found} >= {"cli", "simulator", "evaluation"}


def test_modules_are_not_too_long() -> None:
    long = {
        str(p.relative_to(ROOT)): n for p in _sources() if (n := len(p.read_text("utf-8").splitlines())) > MAX_LINES
    }
    assert not long


_REPLAY = """
import importlib, json, sys
class NoPandas:  # where it is installed, pyarrow imports it with the first array it makes; nobody else may
    def find_spec(self, name, path=None, target=None):
        if name == "pandas":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, NoPandas())
for name in {modules!r}:
    importlib.import_module(name)
from attn_sched.cli import main
main(["simulate", {trace!r}, "--cluster", "count:8", "--policy", "fifo", "--json"], standalone_mode=False)
loaded = sorted(set(m.split(".")[0] for m in sys.modules) & set({heavy!r}))
print("LOADED", json.dumps(loaded))
"""


def test_replaying_fifo_imports_nothing_heavy(tmp_path: Path) -> None:
    trace = tmp_path / "tiny.csv"
    trace.write_text("job_id,arrival_s,service_sec,gpu_count\na,0,10,4\nb,1,5,8\nc,2,3,1\n")
    modules = [
        name
        for path in _sources()
        if _room(name := _module(path)) in LIGHT_ROOMS and path.name != "__main__.py" and name not in TORCH_MODULES
    ]
    code = _REPLAY.format(modules=modules, trace=str(trace), heavy=HEAVY)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "LOADED []" in done.stdout, done.stdout


def test_importing_the_package_is_light() -> None:
    code = (
        "import sys; import attn_sched.cli, attn_sched.cluster; "
        "heavy = 'matplotlib networkx scipy pandas ray torch'.split(); "
        "print(sorted(set(m.split('.')[0] for m in sys.modules) & set(heavy)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def _tracked() -> list[Path]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip("not a git checkout")
    return [path for name in done.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def test_no_machine_paths_and_no_package_hosts() -> None:
    # Put together from pieces, so that this file does not find itself.
    pieces = [re.escape(f"{ROOT}/"), "/" + "root/", "/(?:home|Users)" + r"/\w+/", r"(?<![\w.])/" + "work/"]
    pieces += ["pypi" + r"\.org", "python" + r"hosted\.org", "extra-" + "index-url"]
    pattern = re.compile("|".join(pieces))
    found = []
    for path in _tracked():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [f"{path.relative_to(ROOT)}: {match.group()}" for match in pattern.finditer(text)]
    assert not found, "\n".join(found[:20])


def _project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_every_package_is_installed() -> None:
    on_disk = {_module(path) for path in _sources() if path.name == "__init__.py"}
    assert on_disk | {"checkpoints"} == set(_project()["tool"]["setuptools"]["packages"])


@pytest.mark.parametrize(
    ("extras", "pins"), [(("agents", "train"), "requirements.txt"), (("dev",), "requirements-dev.txt")]
)
def test_pins_match_the_declared_dependencies(extras: tuple[str, ...], pins: str) -> None:
    project = _project()["project"]
    declared = [] if extras == ("dev",) else list(project["dependencies"])
    for extra in extras:
        declared += project["optional-dependencies"][extra]
    declared = [requirement for requirement in declared if not requirement.startswith(project["name"])]
    lines = [
        line for line in (ROOT / pins).read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")
    ]
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+(\[[a-z,]+\])?==[0-9.]+", line) for line in lines), (
        "a pin names one version"
    )

    def names(requirements: list[str]) -> set[str]:
        return {re.split(r"[<>=! \[]", requirement)[0].lower() for requirement in requirements}

    assert names(declared) == names(lines)
