"""Where clusters come from: shared evenly, light to pickle, read once."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from attn_sched.agents.schema import AGENTS
from attn_sched.errors import InputError
from attn_sched.simulator import layout as at
from attn_sched.training.data import TrainingData
from attn_sched.training.source import DataSource, rule_for
from attn_sched.workload.episodes import EpisodeSpec


@pytest.fixture(scope="module")
def source() -> DataSource:
    data = TrainingData(clusters=("nodes:2x4", "nodes:4x2"), families=("helios",), synthetic_jobs=300)
    return DataSource(data, rule_for(AGENTS), EpisodeSpec(jobs=12), window=5)


def test_clusters_are_shared_among_the_shapes(source: DataSource) -> None:
    batch = source(5, 0)
    assert [(group.shape.cluster.num_gpus, group.shape.count) for group in batch.groups_of] == [(8, 3), (8, 2)]
    assert batch.job_mask.shape == (5, 6) and batch.unit_mask.shape == (5, 4)
    batch.ask()
    assert (batch.phases == at.JOB_PHASE).all()
    with pytest.raises(InputError, match="1 clusters cannot be of 2 shapes"):
        source(1, 0)


def test_the_seed_fixes_the_episodes(source: DataSource) -> None:
    def jobs(seed: int) -> np.ndarray:
        batch = source(4, seed)
        batch.ask()
        return batch.jobs.copy()

    np.testing.assert_array_equal(jobs(1), jobs(1))
    assert not np.array_equal(jobs(1), jobs(2))


def test_copies_share_and_pickles_are_light(source: DataSource) -> None:
    assert source.data.logs and copy.deepcopy(source) is source
    text = pickle.dumps(source)
    assert len(text) < 3000
    again = pickle.loads(text)
    assert again.data == source.data and "logs" not in vars(again.data) and "logs" in vars(source.data)
    assert replace(again, data=source.data, rule=source.rule) == source


@pytest.mark.parametrize(
    ("agents", "order", "placement"),
    [
        (("job", "gpu"), at.AGENT, at.PLACE_AGENT),
        (("job",), at.AGENT, at.TOPO_BEST_FIT),
        (("gpu",), at.STATIC, at.PLACE_AGENT),
    ],
)
def test_a_rule_does_the_part_of_who_does_not_learn(agents: tuple[str, ...], order: int, placement: int) -> None:
    rule = rule_for(agents)
    assert (rule.order, rule.placement, rule.keys is None) == (order, placement, order == at.AGENT)
    assert pickle.loads(pickle.dumps(rule)) == rule


def test_a_trace_that_is_not_there() -> None:
    data = TrainingData(traces=(str(Path("nowhere.csv")),), clusters=("nodes:2x4",))
    with pytest.raises(InputError, match=r"nowhere\.csv"):
        DataSource(data, rule_for(AGENTS))(2, 0)
