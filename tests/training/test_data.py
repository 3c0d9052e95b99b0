"""Training data: parts that never mix, fitted to each cluster, synthetic where there are no files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from attn_sched.errors import InputError
from attn_sched.training.data import DEFAULT_FAMILIES, ClusterPools, TrainingData
from attn_sched.workload import SPLIT, offered_load, synth, write_trace
from attn_sched.workload.episodes import EpisodeSpec, period

DATA = TrainingData(families=("helios", "philly"), clusters=("nodes:4x8", "count:8"), synthetic_jobs=400)


def test_a_job_is_in_one_part_on_every_cluster() -> None:
    parts = {part: DATA.pools(part) for part in SPLIT}
    for log in DATA.logs:
        home: dict[str, str] = {}
        for part, clusters in parts.items():
            for pools in clusters:
                for pool in pools.pools:
                    if pool.name == log.name:
                        for job in pool.job_id:
                            assert home.setdefault(str(job), part) == part
        assert len(home) > 0.8 * len(log)


def test_pools_fit_their_clusters() -> None:
    for pools in DATA.pools("train"):
        assert pools.part == "train"
        assert {pool.name for pool in pools.pools} == {log.name for log in DATA.logs}
        assert all(pool.num_gpus.max() <= pools.cluster.num_gpus for pool in pools.pools)
    large, small = DATA.pools("train")
    assert sum(map(len, small.pools)) < sum(map(len, large.pools))  # of 8 GPUs


def test_episodes_come_from_the_part_and_fit() -> None:
    (pools,) = TrainingData(families=("helios",), clusters=("count:8",), synthetic_jobs=400).pools("train")
    source = pools.source(EpisodeSpec(jobs=30, gpu_share=1.0, gpu_factors=(4.0,)))
    known = set(pools.pools[0].job_id)
    for seed in range(5):
        episode = source.draw(np.random.default_rng(seed))
        assert set(episode.job_id) <= known
        assert episode.num_gpus.max() <= 8


def test_windows_shrink_with_the_part() -> None:
    pools = DATA.pools("validation")[0]  # 60 jobs a log
    sizes = {
        (jobs, short): next(iter(pools.windows(0.9, 2, jobs, short_jobs=short).values()))[0].counted.sum()
        for jobs, short in ((10, None), (40, None), (40, 15), (500, None), (500, 30))
    }
    assert sizes == {(10, None): 10, (40, None): 20, (40, 15): 15, (500, None): len(pools.pools[0]), (500, 30): 30}
    for cuts in pools.windows(0.9, 2, 10).values():
        assert len(cuts) == 2
        assert all(offered_load(cut, pools.cluster.num_gpus) == pytest.approx(0.9) for cut in cuts)


def test_files_are_read_and_named_apart(tmp_path: Path) -> None:
    paths = []
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        paths.append(tmp_path / folder / "log.csv")
        write_trace(synth("helios", 200, seed=len(folder)), paths[-1])
    data = TrainingData(traces=tuple(map(str, paths)), clusters=("nodes:4x8",))
    assert len({log.name for log in data.logs}) == 2
    rows = data.describe()
    assert [row["source"] for row in rows] == ["log.csv", "log.csv"]
    assert rows[0]["jobs"] == 200
    assert f"the first {len(period(data.logs[0], 'train'))} jobs" in rows[0]["trained_on"]
    assert all(str(tmp_path) not in str(row) for row in rows)


def test_the_default_is_synthetic() -> None:
    data = TrainingData(synthetic_jobs=100)
    assert [log.name for log in data.logs] == [f"synthetic-{family}" for family in DEFAULT_FAMILIES]
    assert [pools.cluster.name for pools in data.pools("train")] == ["dgx64", "eth64"]
    assert len(TrainingData().logs[0]) == TrainingData().synthetic_jobs


def test_a_cluster_that_can_run_nothing_is_named() -> None:
    log = DATA.logs[0].replace(num_gpus=np.full(len(DATA.logs[0]), 99, np.int32))
    data = TrainingData(families=("helios",), clusters=("count:8",), synthetic_jobs=400)
    data.__dict__["logs"] = (log,)
    with pytest.raises(InputError, match="no job of the train part"):
        data.pools("train")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"clusters": ()}, "names none"),
        ({"clusters": ("dgx64", "dgx64")}, "something twice"),
        ({"families": ()}, "no log"),
        ({"families": ("venus",)}, "family"),
        ({"synthetic_jobs": 10}, "too few"),
        ({"estimate": "guess"}, "unknown estimate"),
        ({"users": "nobody"}, "users"),
        ({"seed": -1}, "negative"),
    ],
)
def test_bad_choices_are_refused(changes: dict[str, object], told: str) -> None:
    with pytest.raises(InputError, match=told):
        TrainingData(**changes)  # type: ignore[arg-type]


def test_unknown_parts_and_clusters_are_refused() -> None:
    with pytest.raises(InputError, match="unknown part"):
        DATA.pools("holdout")
    with pytest.raises(InputError):
        TrainingData(families=("helios",), clusters=("nowhere",), synthetic_jobs=100).pools("train")


def test_pools_by_hand() -> None:
    made = DATA.pools("test")[0]
    assert ClusterPools(made.cluster, "test", made.pools).source().draw(np.random.default_rng(0)).counted.all()
