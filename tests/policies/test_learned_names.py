"""Names of learned policies: every form, and what is said of files that will not do."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from attn_sched.agents import cards
from attn_sched.errors import InputError
from attn_sched.policies import list_policies, parse_policy, register_ordering, register_placement, split_policy_list
from attn_sched.policies.linear import save_linear, sjf_rule
from attn_sched.policies.registry import Learned
from attn_sched.simulator import layout as at
from tests.agents.tiny import save_tiny


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of released files: agents ``pair``, ``jobs``, ``gpus``; rules ``tuned``, ``rule``."""
    folder = tmp_path / "shelf"
    folder.mkdir()
    monkeypatch.setattr(cards, "checkpoints_folder", lambda: folder)
    save_tiny(folder, "pair")
    save_tiny(folder, "jobs", ("job",))
    save_tiny(folder, "gpus", ("gpu",))
    save_linear(sjf_rule(1.5), folder / "tuned.json")
    save_linear(sjf_rule(), folder / "rule.json")
    return folder


def refused(name: str) -> str:
    with pytest.raises(InputError) as error:
        parse_policy(name)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.usefixtures("shelf")
@pytest.mark.parametrize(
    ("name", "full", "order", "placement", "parts"),
    [
        ("agents:pair", "agents:pair", at.AGENT, at.PLACE_AGENT, ["agents:pair"]),
        ("agents:pair+agents:pair", "agents:pair", at.AGENT, at.PLACE_AGENT, ["agents:pair"]),
        (
            "agents:jobs+agents:gpus", "agents:jobs+agents:gpus", at.AGENT, at.PLACE_AGENT,
            ["agents:jobs", "agents:gpus"],
        ),
        ("agents:jobs+best-fit", "agents:jobs+best-fit", at.AGENT, at.BEST_FIT, ["agents:jobs"]),
        (" agents:pair + lwf ", "agents:pair+lwf", at.AGENT, at.LEAST_WORKLOAD, ["agents:pair"]),
        ("fifo+agents:gpus", "fifo:strict+agents:gpus", at.STATIC, at.PLACE_AGENT, ["agents:gpus"]),
        ("easy+agents:pair", "fifo:easy+agents:pair", at.STATIC, at.PLACE_AGENT, ["agents:pair"]),
        ("hrrn:commit+agents:pair", "hrrn:commit+agents:pair", at.HRRN, at.PLACE_AGENT, ["agents:pair"]),
        (
            "sjf+agents:pair+hold(1.5,0.5)", "sjf:skip+agents:pair+hold(1.5,0.5)", at.STATIC, at.PLACE_AGENT,
            ["agents:pair"],
        ),
        ("tuned", "tuned+topo-best-fit", at.AGENT, at.TOPO_BEST_FIT, ["tuned"]),
        ("tuned:tuned", "tuned+topo-best-fit", at.AGENT, at.TOPO_BEST_FIT, ["tuned"]),
        ("tuned:rule+best-fit", "tuned:rule+best-fit", at.AGENT, at.BEST_FIT, ["tuned:rule"]),
        ("tuned+agents:gpus", "tuned+agents:gpus", at.AGENT, at.PLACE_AGENT, ["tuned", "agents:gpus"]),
    ],
)  # fmt: skip
def test_forms(name: str, full: str, order: int, placement: int, parts: list[str]) -> None:
    policy = parse_policy(name)
    assert policy.full_name == full and parse_policy(full).full_name == full
    rule = policy.engine_rule()
    assert (rule.order, rule.placement) == (order, placement)
    assert [part.text for part in policy.learned] == parts


def test_rules_have_learned_nothing() -> None:
    assert parse_policy("sjf+best-fit").learned == ()


@pytest.mark.usefixtures("shelf")
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("agents", "'agents' names no file; expected agents:NAME"),
        ("agents:", "names no file"),
        ("tuned:", "names no file"),
        ("fifo+agents", "names no file"),
        ("agents:nobody", "no agents 'nobody'; expected one of gpus, jobs, pair, or the path of a .json file"),
        ("agents:pear+lwf", "no agents 'pear'"),
        ("fifo+agents:pear", "no agents 'pear'"),
        ("tuned:pear", "no tuned rule 'pear'; expected one of rule, tuned, or the path"),
        ("agents:jobs", "'agents:jobs' has no gpu agent; expected agents:jobs+PLACEMENT"),
        ("fifo+agents:jobs", "'agents:jobs' has no gpu agent"),
        ("agents:gpus", "'agents:gpus' has no job agent"),
        ("agents:gpus+lwf", "'agents:gpus' has no job agent"),
        ("agents:tuned", "of format 'attn-sched linear rule'; expected 'attn-sched agents'"),
        ("tuned:pair", "is no linear rule"),
        ("sjf+tuned", "'tuned' picks jobs, not GPUs"),
        ("agents:pair+hold(1.5,0.5)", "'agents:pair' decides itself when to hold; expected no hold"),
        ("agents:pair+best-fit+hold(1.5,0.5)", "decides itself when to hold"),
        ("tuned+hold(2,1)", "'tuned' decides itself when to hold"),
        ("agents:pair+lwf+lwf", "'lwf' stands where nothing can follow"),
        ("agents:pair+worst-fit", "no placement 'worst-fit'"),
        ("agents:pair:skip", "no agents 'pair:skip'"),
        ("srtf+agents:pair", "a preemptive policy places several jobs at once"),
        ("agents:./none.json", "does not exist"),
        ("agents:none.json", "does not exist"),
        ("tuned:none.json", "does not exist"),
    ],
)
def test_refused(name: str, says: str) -> None:
    assert says in refused(name)


def test_paths(tmp_path: Path) -> None:
    """With a slash or a suffix, NAME is a file of one's own: the card, the weights, both without suffix, a folder."""
    path = save_tiny(tmp_path, "mine")
    stem = path.removesuffix(".json")
    for name in (path, stem, f"{stem}.safetensors", f"{tmp_path}/"):
        assert parse_policy(f"agents:{name}").learned == (Learned("agents", name),)
        assert parse_policy(f"fifo+agents:{name}+hold(2,1)").full_name == f"fifo:strict+agents:{name}+hold(2,1)"
    save_linear(sjf_rule(), tmp_path / "own.json")
    assert parse_policy(f"tuned:{tmp_path}/own.json").learned[0].kind == "tuned"
    assert split_policy_list(f"fifo,agents:{path}+lwf") == ["fifo", f"agents:{path}+lwf"]
    Path(path).write_text("{")
    assert "is no JSON" in refused(f"agents:{path}")


@pytest.mark.usefixtures("shelf")
def test_list_shows_what_is_released() -> None:
    rows = {name: (kind, line, source) for name, kind, line, source in list_policies() if kind == "learned"}
    assert set(rows) == {"agents:pair", "agents:jobs", "agents:gpus", "tuned", "tuned:rule"}
    assert rows["agents:pair"][1] == "trained attention networks (job and gpu agent)"
    assert all(line and source for _, line, source in rows.values())


def test_list_says_what_cannot_be_used_and_on_which_data_the_rest_was_trained(shelf: Path) -> None:
    card = json.loads((shelf / "jobs.json").read_text())
    (shelf / "jobs.json").write_text(json.dumps({**card, "features_version": 99}))
    card = json.loads((shelf / "pair.json").read_text())
    data = [{"name": "helios", "source": "https://example.org", "licence": "CC-BY-4.0"}, {"name": "philly"}]
    (shelf / "pair.json").write_text(json.dumps({**card, "data": data}))
    rows = {name: (line, source) for name, _, line, source in list_policies()}
    assert rows["agents:jobs"][0].startswith("cannot be used: 99 is not the version")
    assert rows["agents:pair"][1] == "this project, trained on helios, philly"


def test_nothing_is_listed_where_nothing_is_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cards, "checkpoints_folder", lambda: tmp_path / "none")
    assert not [row for row in list_policies() if row[1] == "learned"]
    assert "none are released" in refused("agents:best") and "none are released" in refused("tuned")


@pytest.mark.parametrize("name", ["agents", "tuned"])
def test_their_names_are_taken(name: str) -> None:
    with pytest.raises(InputError, match="names learned policies"):
        register_ordering(name)(lambda view: view.estimate_s)
    with pytest.raises(InputError, match="names learned policies"):
        register_placement(name)(lambda view: view.free)


def test_listing_and_parsing_load_no_torch(tmp_path: Path) -> None:
    path = save_tiny(tmp_path)
    code = (
        "import sys; from attn_sched.policies import list_policies, parse_policy, simulate_many; "
        f"list_policies(); parse_policy('fifo+agents:{path}'); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "False"
