"""Trained agents on disk: what is saved comes back, and every kind of bad file is told in one line."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attn_sched.agents import cards
from attn_sched.agents.cards import FORMAT, PROVENANCE, read_card, released
from attn_sched.agents.pair import AgentPair
from attn_sched.agents.weights import load_agents, save_agents
from attn_sched.errors import InputError
from tests.agents.tiny import save_tiny, tiny_pair

MADE = {
    "command": "attn-sched train --config quick",
    "data": [{"name": "helios", "source": "https://example.org", "licence": "CC-BY-4.0", "part": "first 60 %"}],
    "seeds": [3, 4],
    "budget": {"decisions": 1000, "seconds": np.float32(1.5)},
    "scores": {"validation": 0.7, "test": {"ratio": 0.65}},
    "objective_weights": (1, 0.25, 0),
    "remark": "kept as it is",
}


def refused(path: Any) -> str:
    """The one line that refuses a file."""
    with pytest.raises(InputError) as error:
        load_agents(path)
    assert "\n" not in str(error.value)
    return str(error.value)


def same(one: AgentPair, other: AgentPair) -> bool:
    """Equal networks to the last bit."""
    for agent in ("job", "gpu"):
        mine, theirs = getattr(one, agent), getattr(other, agent)
        if (mine is None) != (theirs is None):
            return False
        if mine is not None:
            left, right = mine.state_dict(), theirs.state_dict()
            if left.keys() != right.keys() or not all(torch.equal(left[key], right[key]) for key in left):
                return False
    return one.spec == other.spec


def rewrite(card_path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change a card in place."""
    card = json.loads(card_path.read_text())
    change(card)
    card_path.write_text(json.dumps(card))


def reweigh(card_path: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    """Change the tensors and let the card name the new hash."""
    weights_path = card_path.with_suffix(".safetensors")
    tensors = safetensors.torch.load_file(weights_path)
    change(tensors)
    reweigh_bytes(card_path, safetensors.torch.save(tensors))


def reweigh_bytes(card_path: Path, data: bytes) -> None:
    card_path.with_suffix(".safetensors").write_bytes(data)
    said = {"bytes": max(1, len(data)), "sha256": hashlib.sha256(data).hexdigest()}
    rewrite(card_path, lambda card: card["weights"].update(said))


@pytest.mark.parametrize("agents", [("job", "gpu"), ("job",), ("gpu",)])
@pytest.mark.parametrize("changes", [{}, {"attention": False}, {"topology_bias": False, "layers": 2}])
def test_round_trip(tmp_path: Path, agents: tuple[str, ...], changes: dict[str, Any]) -> None:
    pair = tiny_pair(agents, **changes)
    path = save_agents(pair, tmp_path / "one")
    assert same(load_agents(path), pair)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["one.json", "one.safetensors"]
    assert json.loads(path.read_text())["agents"] == list(agents)


def test_the_card_says_where_they_come_from(tmp_path: Path) -> None:
    pair = tiny_pair()
    pair.card = dict(MADE)
    card = load_agents(save_agents(pair, tmp_path / "made.json")).card
    assert {key: card[key] for key in ("command", "data", "seeds", "scores", "remark")} == {
        key: MADE[key] for key in ("command", "data", "seeds", "scores", "remark")
    }
    assert card["budget"] == {"decisions": 1000, "seconds": 1.5} and card["objective_weights"] == [1, 0.25, 0]
    assert card["name"] == "made" and card["spec"] == pair.spec.as_dict() and card["format"] == FORMAT
    data = (tmp_path / card["weights"]["file"]).read_bytes()
    assert card["weights"]["bytes"] == len(data) and card["weights"]["sha256"] == hashlib.sha256(data).hexdigest()
    assert pair.card == MADE, "the pair itself is left alone"


def test_what_the_maker_left_out_is_not_said(tmp_path: Path) -> None:
    card = load_agents(save_tiny(tmp_path)).card
    assert {field: card[field] for field in PROVENANCE} == {
        "command": "", "data": [], "seeds": [], "budget": {}, "scores": {"validation": None, "test": None},
    }  # fmt: skip


def test_every_way_to_name_a_file(tmp_path: Path) -> None:
    pair = tiny_pair()
    save_agents(pair, tmp_path)
    stem = tmp_path / tmp_path.name
    for name in (stem, f"{stem}", f"{stem}.json", f"{stem}.safetensors", tmp_path, f"{tmp_path}/"):
        assert same(load_agents(name), pair)
    assert [path.name for path in tmp_path.iterdir()].count(f"{tmp_path.name}.json") == 1
    save_agents(pair, tmp_path / "other.safetensors")
    both = sorted([f"{tmp_path.name}.json", "other.json"])
    assert f"it has {', '.join(both)}" in refused(tmp_path)


def test_released_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cards, "checkpoints_folder", lambda: tmp_path)
    assert "none are released" in refused("best")
    pair = tiny_pair()
    save_agents(pair, tmp_path / "best")
    save_agents(pair, tmp_path / "quick-1.5")
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "other.json").write_text('{"format": "something else"}')
    assert list(released(FORMAT)) == ["best", "quick-1.5"]
    assert same(load_agents("best"), pair) and same(load_agents("quick-1.5"), pair)
    assert "no agents 'worst'; expected one of best, quick-1.5, or the path" in refused("worst")
    assert "something else" in refused("other") and "is no JSON" in refused("broken")


def test_released_weights_are_complete() -> None:
    """Whatever lies in ``checkpoints`` loads, is small, and says how it was made."""
    files = sorted(cards.checkpoints_folder().glob("*.safetensors"))
    assert {path.stem for path in files} == set(released(FORMAT))
    for path in files:
        card = load_agents(path.stem).card
        assert path.stat().st_size < 4 << 20
        assert card["name"] == path.stem and card["command"] and card["seeds"] and card["budget"]
        assert card["scores"]["validation"] is not None and card["scores"]["test"] is not None
        assert card["data"] and all(
            source["name"] and source["source"] and source["licence"] for source in card["data"]
        )


def test_nothing_is_unpickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save_tiny(tmp_path)

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("unpickled")

    for where, name in ((pickle, "load"), (pickle, "loads"), (pickle, "Unpickler"), (torch, "load")):
        monkeypatch.setattr(where, name, never)
    load_agents(path)
    reweigh_bytes(Path(path), pickle.dumps({"job.hold": 1}))
    assert "is no safetensors file" in refused(path)


# -- a save that does not come to its end ------------------------------------------------------------------------------


@pytest.mark.parametrize("at", ["card", "weights"])
@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_an_interrupted_save_leaves_the_old_agents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str, error: type[BaseException]
) -> None:
    old, new = tiny_pair(seed=1), tiny_pair(seed=2)
    path = save_agents(old, tmp_path / "a")
    suffix = ".json" if at == "card" else "a.safetensors"
    replace = os.replace

    def stop(source: Any, target: Any) -> None:
        if str(target).endswith(suffix):
            raise error
        replace(source, target)

    for _ in range(2):  # twice: what a first interrupted save left must survive the second
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", stop)
            with pytest.raises(error):
                save_agents(new, tmp_path / "a")
        assert same(load_agents(path), old)
        assert not list(tmp_path.glob("*.part"))
    save_agents(new, tmp_path / "a")
    assert same(load_agents(path), new)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.json", "a.safetensors"]


def test_an_interrupted_first_save_leaves_no_agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace = os.replace

    def stop(source: Any, target: Any) -> None:
        if str(target).endswith(".json"):
            raise OSError
        replace(source, target)

    monkeypatch.setattr(os, "replace", stop)
    with pytest.raises(OSError):
        save_agents(tiny_pair(), tmp_path / "a")
    assert "a.json" not in [file.name for file in tmp_path.iterdir()]
    assert "does not exist" in refused(tmp_path / "a")


def test_old_weights_are_kept_where_files_cannot_be_linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save_agents(tiny_pair(seed=1), tmp_path / "a")
    new = tiny_pair(seed=2)

    def no_links(*_: Any) -> None:
        raise OSError("no links here")

    monkeypatch.setattr(os, "link", no_links)
    save_agents(new, tmp_path / "a")
    assert same(load_agents(path), new)


def test_what_will_not_be_saved(tmp_path: Path) -> None:
    for card, says in (
        ({"command": 3}, "command"),
        ({"data": ["helios"]}, "data"),
        ({"seeds": [0.5]}, "seeds"),
        ({"scores": {"validation": 1}}, "scores"),
        ({"scores": {"validation": float("nan"), "test": None}}, "JSON"),
        ({"budget": {"seconds": object()}}, "JSON"),
        ({"objective_weights": [1, -1, 0]}, "objective_weights"),
        ({"objective_weights": [1, 0]}, "objective_weights"),
    ):
        pair = tiny_pair()
        pair.card = card
        with pytest.raises(InputError, match=says):
            save_agents(pair, tmp_path / "a")
    diverged = tiny_pair()
    assert diverged.job is not None
    with torch.no_grad():
        diverged.job.hold[0] = torch.nan
    with pytest.raises(InputError, match=r"job\.hold is not finite"):
        save_agents(diverged, tmp_path / "a")
    for name in ("a+b", "a,b", "a b", "a:b", "a(b"):
        with pytest.raises(InputError, match="cannot name agents"):
            save_agents(tiny_pair(), tmp_path / name)
    with pytest.raises(InputError, match="folder does not exist"):
        save_agents(tiny_pair(), tmp_path / "none" / "a")
    assert not list(tmp_path.iterdir())


# -- bad files ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda card: card.update(format="other"), "of format 'other'; expected 'attn-sched agents'"),
        (lambda card: card.pop("format"), "of format None"),
        (lambda card: card.update(format_version=2), "field 'format_version': 2 is not the version"),
        (lambda card: card.update(format_version=True), "field 'format_version'"),
        (lambda card: card.update(features_version=99), "field 'features_version': 99 is not the version"),
        (lambda card: card["spec"].update(features_version=99), "features of version 99"),
        (lambda card: card.update(spec=None), "describes no networks"),
        (lambda card: card["spec"].update(colour=1), "'colour' is unknown"),
        (lambda card: card["spec"].pop("heads"), "'heads' is missing"),
        (lambda card: card["spec"].update(width=10**9), "field 'width'"),
        (lambda card: card["spec"].update(width="64"), "field 'width'"),
        (lambda card: card.update(agents=[]), "field 'agents'"),
        (lambda card: card.update(agents=["gpu", "job"]), "field 'agents'"),
        (lambda card: card.update(agents=["cook"]), "field 'agents'"),
        (lambda card: card.update(objective_weights=[1, 2, "3"]), "field 'objective_weights'"),
        (lambda card: card.pop("command"), "field 'command'"),
        (lambda card: card.update(scores=[]), "field 'scores'"),
        (lambda card: card.pop("weights"), "field 'weights.file'"),
        (lambda card: card["weights"].update(file="../secret"), "'../secret' is no file beside it"),
        (lambda card: card["weights"].update(file=""), "field 'weights.file'"),
        (lambda card: card["weights"].update(file="gone.safetensors"), "gone.safetensors: does not exist"),
        (lambda card: card["weights"].update(bytes=-1), "field 'weights.bytes'"),
        (lambda card: card["weights"].update(sha256="12"), "field 'weights.sha256'"),
        (lambda card: card["weights"].update(sha256="0" * 64), "belongs to another model card"),
        (lambda card: card.update(agents=["job"]), "has unknown tensors: gpu."),
        (lambda card: card["spec"].update(layers=2), "lacks tensors: gpu.blocks.1"),
        (lambda card: card["spec"].update(feedforward=32), "float32[16, 16]; expected float32[32, 16]"),
    ],
)
def test_a_card_that_will_not_do(tmp_path: Path, change: Callable[[dict[str, Any]], Any], says: str) -> None:
    path = save_tiny(tmp_path)
    rewrite(Path(path), change)
    line = refused(path)
    assert says in line and str(tmp_path) in line


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "is no JSON"),
        (b"{", "is no JSON"),
        (b"[]", "holds a list"),
        (b'{"format": NaN}', "is no JSON"),
        (b"\xff\xfe", "is no JSON"),
        (b"[" * 100_000, "is no JSON"),
        (b" " * (cards.LARGEST_CARD + 1), "has more than"),
    ],
)
def test_what_is_no_card(tmp_path: Path, text: bytes, says: str) -> None:
    path = Path(save_tiny(tmp_path))
    path.write_bytes(text)
    assert says in refused(path)


def test_missing_files(tmp_path: Path) -> None:
    path = Path(save_tiny(tmp_path))
    assert "does not exist" in refused(tmp_path / "none.json")
    path.unlink()
    assert "has no model card beside it" in refused(path.with_suffix(".safetensors"))
    assert "no folder with one model card; expected one; it has none" in " ".join(refused(tmp_path).split(": ", 1)[1:])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda tensors: tensors.pop("job.hold"), "lacks tensors: job.hold"),
        (lambda tensors: tensors.update(more=torch.zeros(1)), "has unknown tensors: more"),
        (
            lambda tensors: tensors.update({"job.hold": torch.zeros(17)}),
            "job.hold is float32[17]; expected float32[16]",
        ),
        (lambda tensors: tensors.update({"job.hold": torch.zeros(16).half()}), "job.hold is float16[16]"),
        (lambda tensors: tensors["gpu.distance"].fill_(torch.nan), "gpu.distance is not finite"),
        (lambda tensors: tensors["gpu.distance"].fill_(-torch.inf), "gpu.distance is not finite"),
        (lambda tensors: tensors.clear(), "lacks tensors: "),
    ],
)
def test_weights_that_will_not_do(tmp_path: Path, change: Callable[[Any], Any], says: str) -> None:
    path = Path(save_tiny(tmp_path))
    reweigh(path, change)
    assert says in refused(path)


SMALL: dict[str, Any] = {"window": 2, "width": 4, "heads": 1, "feedforward": 4}


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_weights_cut_anywhere(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Truncated files are told, whether or not the card knows of it."""
    path = Path(save_tiny(tmp_path_factory.mktemp("cut"), **SMALL))
    whole = path.with_suffix(".safetensors").read_bytes()
    header = 8 + int.from_bytes(whole[:8], "little")
    end = data.draw(st.one_of(st.sampled_from([0, 1, 8, header - 1, header, header + 1, len(whole) - 1]),
                              st.integers(0, len(whole) - 1)))  # fmt: skip
    path.with_suffix(".safetensors").write_bytes(whole[:end])
    assert f"is truncated: {end:,} bytes; expected {len(whole):,} bytes" in refused(path)
    reweigh_bytes(path, whole[:end])
    assert "is no safetensors file" in refused(path)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_weights_with_a_wrong_byte(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = Path(save_tiny(tmp_path_factory.mktemp("flip"), **SMALL))
    whole = bytearray(path.with_suffix(".safetensors").read_bytes())
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    path.with_suffix(".safetensors").write_bytes(whole)
    assert "is damaged, or belongs to another model card" in refused(path)
    reweigh_bytes(path, bytes(whole))
    try:
        load_agents(path)  # a hash that fits, and other numbers: whatever is wrong with it has one line
    except InputError as error:
        assert "\n" not in str(error)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_cards_cut_anywhere(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = Path(save_tiny(tmp_path_factory.mktemp("card"), **SMALL))
    whole = path.read_bytes().rstrip()
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    assert "is no JSON" in refused(path)


def test_reading_a_card_needs_no_weights(tmp_path: Path) -> None:
    path = Path(save_tiny(tmp_path))
    path.with_suffix(".safetensors").unlink()
    assert read_card(path)["agents"] == ["job", "gpu"]
