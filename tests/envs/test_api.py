"""The protocols' own checkers, the examples of the docstrings, and how the environment is told apart."""

from __future__ import annotations

import doctest
import warnings
from types import ModuleType
from typing import Any

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env
from pettingzoo.test import api_test, seed_test

import envs.multi_agent
import envs.scheduling
import envs.single_agent
from attn_sched.agents.schema import FEATURES_VERSION
from attn_sched.errors import InputError
from envs.scheduling import env, raw_env
from envs.single_agent import SchedulingEnv
from tests.envs.play import FACES, make

SMALL: dict[str, Any] = {"cluster": "nodes:2x4", "episodes": {"jobs": 20, "loads": (1.0, 1.5)}, "window": 6}
# What api_test has against every environment of the kind: its observations are dictionaries, its agents bear names.
EXPECTED = (
    "Observation is not a NumPy array",
    "Observation space for each agent probably should be",
    "We recommend agents to be named in the format",
    "Agents have different observation space sizes",
    "Action mask numpy array is all zeros",  # of an agent that has ended or is not asked
    "Action mask is a single number",  # a pool of GPUs is one unit
)


@pytest.mark.parametrize("make_env", [env, raw_env])
@pytest.mark.parametrize("more", [{}, {"max_decisions": 15}, {"cluster": "count:8"}, {"cluster": "eth64"}])
def test_pettingzoo_api(make_env: Any, more: dict[str, Any]) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        api_test(make_env(**(SMALL | more)), num_cycles=200)
    told = [str(warning.message) for warning in caught]
    assert [text for text in told if not text.startswith(EXPECTED)] == []


@pytest.mark.parametrize("more", [{}, {"weights": "random", "episodes": "synthetic"}])
def test_pettingzoo_seeds(more: dict[str, Any]) -> None:
    seed_test(lambda: env(**(SMALL | more)), num_cycles=100)


@pytest.mark.parametrize("more", [{}, {"placement": "random"}, {"cluster": "dgx64"}, {"render_mode": "ansi"}])
def test_gymnasium_checker(more: dict[str, Any]) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_env(SchedulingEnv(on_illegal="hold", **(SMALL | more)))
    told = [str(warning.message) for warning in caught]
    assert [text for text in told if "due to the environment not having a spec" not in text] == []


@pytest.mark.parametrize("module", [envs.scheduling, envs.multi_agent, envs.single_agent])
def test_examples_of_the_docstrings(module: ModuleType) -> None:
    results = doctest.testmod(module)
    assert results.attempted > 0
    assert results.failed == 0


@pytest.mark.parametrize("face", FACES)
def test_renders_each_decision_as_a_line(face: str) -> None:
    environment = make(face, render_mode="ansi", **SMALL)
    environment.reset(seed=0)
    session = environment.unwrapped.session
    job = session.workload.job_id[0]
    gpus = int(session.workload.num_gpus[0])
    assert environment.render() == "0 s: nothing is decided yet; 1 waiting, 8 of 8 GPUs free"
    environment.step({"job": 0} if face == "multi" else 0)
    if face == "single":
        assert f" s: job agent starts job {job} ({gpus} GPUs); " in environment.render()
        return
    assert environment.render() == f"0 s: job agent starts job {job} ({gpus} GPUs); 1 waiting, 8 of 8 GPUs free"
    environment.step({"gpu": 1} if face == "multi" else 1)
    assert f" s: gpu agent takes node1 for job {job}; " in environment.render()
    assert "\n" not in environment.render()
    silent = make(face, **SMALL)
    silent.reset(seed=0)
    assert silent.render() is None


def test_wrapper_enforces_the_order_of_calls() -> None:
    wrapped = env(**SMALL)
    with pytest.raises(AttributeError, match="reset"):
        _ = wrapped.agents
    with pytest.raises(InputError, match="not begun"):
        SchedulingEnv(**SMALL).step(0)


def test_is_a_gymnasium_environment() -> None:
    assert isinstance(SchedulingEnv(**SMALL), gymnasium.Env)
    assert env(**SMALL).metadata == {
        "name": f"scheduling_v{FEATURES_VERSION}",
        "render_modes": ["ansi"],
        "is_parallelizable": False,
    }
