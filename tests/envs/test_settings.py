"""Arguments that cannot be used are refused when an environment is made, in a line that says what could."""

from __future__ import annotations

from typing import Any

import pytest

from attn_sched.errors import InputError
from attn_sched.simulator import NodeChange, SimOptions
from envs.multi_agent import _create
from tests.envs.play import FACES, make

BAD: list[tuple[dict[str, Any], str]] = [
    ({"cluster": "dgx65"}, "no cluster 'dgx65'"),
    ({"cluster": "nodes:0x4"}, "no count"),
    ({"episodes": "phily"}, "family 'phily'.*philly, helios, pai, acme, synthetic"),
    ({"episodes": 3}, "int draws no episodes"),
    ({"episodes": {"job": 3}}, "unknown 'job'.*families, jobs, loads, estimate"),
    ({"episodes": {"jobs": 1}}, "1 jobs.*2 to"),
    ({"episodes": {"jobs": 2.5}}, "2.5 jobs"),
    ({"episodes": {"families": []}}, "names none"),
    ({"episodes": {"families": ["x"]}}, "family 'x'"),
    ({"episodes": {"loads": [1.0, 0.5]}}, "no range"),
    ({"episodes": {"loads": ["a", "b"]}}, "no range"),
    ({"episodes": {"loads": 0.9}}, "no range"),
    ({"episodes": {"estimate": "guess"}}, "guess"),
    ({"window": 0}, "window.*1 to 4096"),
    ({"window": 5000}, "window.*1 to 4096"),
    ({"window": 2.0}, "window"),
    ({"window": True}, "window"),
    ({"weights": (1.0, 0.5)}, "cannot be read.*3 numbers"),
    ({"weights": (1.0, -0.5, 0.1)}, "no weights"),
    ({"weights": (0, 0, 0)}, "no weights.*not all 0"),
    ({"weights": (float("nan"), 1, 1)}, "no weights"),
    ({"weights": (11, 1, 1)}, "no weights.*0 to 10"),
    ({"weights": "some"}, "'some'.*random"),
    ({"weights": 1.0}, "cannot be read"),
    ({"options": {"contention": "much"}}, "contention"),
    ({"options": {"contentions": "none"}}, "unknown 'contentions'"),
    ({"options": 3}, "int holds no options"),
    ({"options": SimOptions(changes=(NodeChange(1.0, "attic", up=False),))}, "no 'attic'"),
    ({"fairness": "equal"}, "fairness.*wait, jain, worst-user"),
    ({"seed": -1}, "seed"),
    ({"seed": 0.5}, "seed"),
    ({"max_decisions": 0}, "max_decisions"),
    ({"render_mode": "human"}, "mode 'human'.*ansi"),
]


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize(("arguments", "problem"), BAD)
def test_bad_arguments(face: str, arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem) as error:
        make(face, **({"cluster": "count:4"} | arguments))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"placement": "best"}, "no placement 'best'"),
        ({"on_illegal": "ignore"}, "'ignore'.*raise, hold"),
    ],
)
def test_bad_arguments_of_the_single_agent(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        make("single", cluster="count:4", **arguments)


@pytest.mark.parametrize("face", FACES)
def test_bad_seed_of_reset(face: str) -> None:
    environment = make(face, cluster="count:4")
    with pytest.raises(InputError, match="seed"):
        environment.reset(seed=-3)


def test_a_placement_in_python_is_refused() -> None:
    from attn_sched.policies import register_placement
    from attn_sched.policies.registry import PLACEMENTS

    register_placement("mine")(lambda view: view.free)
    try:
        with pytest.raises(InputError, match="'mine' is a rule in Python"):
            make("single", cluster="count:4", placement="mine")
    finally:
        PLACEMENTS.remove("mine")


def test_env_config() -> None:
    """What RLlib hands to the registered environment is checked too."""
    with pytest.raises(InputError, match=r"unknown argument 'windows'.*cluster"):
        _create({"windows": 3})
    with pytest.raises(InputError, match=r"debugging\(seed"):
        _create({"seed": 3})
    assert _create({"cluster": "count:4", "seed": None, "render_mode": "ansi"}).render_mode == "ansi"


@pytest.mark.parametrize("face", FACES)
def test_unknown_arguments(face: str) -> None:
    with pytest.raises(TypeError, match="windows"):
        make(face, windows=3)
