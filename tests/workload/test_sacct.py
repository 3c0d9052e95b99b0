"""Slurm's sacct: what counts as a job, how its cells read, and what the message says where columns are missing."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attn_sched.errors import InputError
from attn_sched.workload import ReadOptions, Trace, read_trace
from attn_sched.workload.readers.sacct import COMMAND, Gpus, node_gpus, seconds, tres_gpus
from tests.workload import samples
from tests.workload.test_readers import rows

Load = Callable[..., Trace]
Write = Callable[..., Path]
HEADER = "JobID|User|Account|State|Submit|Start|End|ElapsedRaw|Timelimit|NNodes|ReqTRES|AllocTRES\n"
LINE = (
    "{id}|ann|vision|{state}|2024-03-01T{submit}|2024-03-01T10:00:00|2024-03-01T11:00:00|3600|1:00:00|1||gres/gpu=2\n"
)


def line(id: str, state: str = "COMPLETED", submit: str = "09:00:00") -> str:
    return LINE.format(id=id, state=state, submit=submit)


def test_the_sample(load: Load) -> None:
    trace = load(samples.SACCT)
    assert rows(trace) == [
        ("4101", 0.0, 93_784.0, 16),
        ("4110+0", 660.0, 90.0, 4),
        ("4102_4", 1200.0, 60.0, 2),  # it could not start before it was eligible
        ("4120", 4330.0, 1200.0, 8),  # the last run; eligible two minutes after the requeue
        ("4140", 5400.0, 30.0, 1),
    ]
    provenance = trace.provenance
    assert provenance.rows_read == 10  # 13 lines less three steps
    assert provenance.dropped == {
        "earlier record of a job listed again": 1,
        "still waiting": 1,
        "still running": 1,
        "never started": 1,
        "zero GPUs": 1,
    }
    assert provenance.notes == {
        "eligible later than submitted: arrives then": 2,
        "parts of heterogeneous jobs: each a job of its own": 1,
    }
    assert provenance.epoch == "2024-03-01T08:00:00"
    table = trace.table
    assert table["user"].to_pylist() == ["ann", "eve", "bob", "fay", "ann"]
    assert table["group"].to_pylist() == ["vision", "vision", "nlp", "nlp", "vision"]
    assert table["status"].to_pylist() == ["COMPLETED", "TIMEOUT", "FAILED", "COMPLETED", "CANCELLED"]
    # What they asked for, not what they got.
    assert table["gpu_type"].to_pylist() == [None, None, "v100", None, None]
    assert table["requested_time"].to_pylist() == [172_800.0, None, 1800.0, None, 3600.0]


def test_any_order_case_and_a_trailing_bar(load: Load) -> None:
    expected = load(samples.SACCT)
    lines = [text.split("|") for text in samples.SACCT.splitlines()]
    turned = "\n".join("|".join(reversed(cells)) for cells in [[c.upper() for c in lines[0]], *lines[1:]])
    assert load(turned).table.equals(expected.table)
    parsable = "".join(text + "|\n" for text in samples.SACCT.splitlines())
    assert load(parsable).table.equals(expected.table)
    assert load(parsable).provenance == expected.provenance


def test_outputs_put_one_after_the_other(load: Load) -> None:
    # Months fetched one by one overlap: a job over the border is in both, and so is the header.
    assert rows(load(HEADER + line("1") + line("2") + HEADER + line("2") + line("3"))) == [
        ("1", 0.0, 3600.0, 2),
        ("2", 0.0, 3600.0, 2),
        ("3", 0.0, 3600.0, 2),
    ]


def test_the_last_record_of_a_requeued_job_stands(load: Load) -> None:
    text = (
        HEADER
        + line("7", "NODE_FAIL", "08:00:00")
        + line("7", "REQUEUED", "08:30:00")
        + line("7", "RUNNING")
        + line("8")
    )
    trace = load(text)
    assert trace.table["job_id"].to_pylist() == ["8"]
    assert trace.provenance.dropped == {"earlier record of a job listed again": 2, "still running": 1}


def test_a_number_that_has_come_round_again_is_no_requeue(write: Write) -> None:
    path = write(HEADER + line("7") + line("7").replace("ann", "bob"))
    with pytest.raises(InputError, match="'7' is there twice") as caught:
        read_trace(path)
    assert caught.value.row == 3


def test_several_clusters(load: Load) -> None:
    text = (
        HEADER.replace("User", "User|Cluster")
        + line("7").replace("|ann", "|ann|east")
        + line("7").replace("|ann", "|ann|west")
    )
    assert load(text).table["job_id"].to_pylist() == ["east/7", "west/7"]
    assert load(text.replace("west", "east")).table["job_id"].to_pylist() == ["7"]


def test_elapsed_comes_before_start_and_end(load: Load) -> None:
    # A suspended job: Slurm counts the seconds of running only.
    header = "JobIDRaw|State|Submit|Start|End{}|AllocTRES\n"
    row = "5|COMPLETED|2024-03-01T09:00:00|2024-03-01T10:00:00|2024-03-01T11:00:00{}|gres/gpu=1\n"
    assert rows(load(header.format("") + row.format(""))) == [("5", 0.0, 3600.0, 1)]
    assert rows(load(header.format("|Elapsed") + row.format("|00:50:00"))) == [("5", 0.0, 3000.0, 1)]
    both = load(header.format("|Elapsed|ElapsedRaw") + row.format("|00:50:00|2999"))
    assert rows(both) == [("5", 0.0, 2999.0, 1)]
    assert not both.has("user") and not both.has("group")


def test_group_and_partition_stand_in_for_the_account(load: Load) -> None:
    header = "JobID|Partition|Group|State|Submit|Elapsed|ReqTRES\n"
    text = header + "5|gpu|staff|FAILED|2024-03-01T09:00:00|00:00:09|gres/gpu=1\n"
    assert load(text).table["group"].to_pylist() == ["staff"]
    assert load(text.replace("Group", "Comment")).table["group"].to_pylist() == ["gpu"]


def test_older_gres_counts_each_node(load: Load) -> None:
    text = (
        "JobID|State|Submit|Elapsed|NNodes|ReqGRES|AllocGRES\n"
        "1|COMPLETED|2018-03-01T09:00:00|00:00:09|3|gpu:v100:4|gpu:v100:4\n"
        "2|COMPLETED|2018-03-01T09:00:00|00:00:09|1|PER_JOB:gpu:6|\n"
        "3|COMPLETED|2018-03-01T09:00:00|00:00:09|2||gres:gpu:2(IDX:0,1),nic:1\n"
        "4|COMPLETED|2018-03-01T09:00:00|00:00:09|2||nic:1\n"
    )
    trace = load(text)
    assert [row[3] for row in rows(trace)] == [12, 6, 4]
    assert trace.table["gpu_type"].to_pylist() == ["v100", None, None]
    assert trace.provenance.dropped == {"zero GPUs": 1}


def test_a_type_that_was_got_counts_where_requests_are_not_listed(load: Load) -> None:
    text = (
        "JobID|State|Submit|Elapsed|AllocTRES\n1|FAILED|2024-03-01T09:00:00|00:00:09|gres/gpu:a100=2,gres/gpu:h100=1\n"
    )
    trace = load(text)
    assert rows(trace)[0][3] == 3
    assert trace.table["gpu_type"].to_pylist() == ["a100|h100"]
    assert trace.provenance.notes == {"GPUs of several types: taken as alternatives": 1}


def test_cancelled_before_the_start_as_older_versions_write_it(load: Load) -> None:
    # Start and end are the moment of the cancellation; nothing was allocated.
    cancelled = line("1", "CANCELLED by 0").replace("|3600|", "|0|").replace("gres/gpu=2", "")
    crashed = line("2", "FAILED").replace("|3600|", "|0|")
    trace = load(HEADER + cancelled + crashed)
    assert rows(trace) == [("2", 0.0, 0.0, 2)]
    assert trace.provenance.dropped == {"never started": 1}


def test_seconds_since_1970(load: Load) -> None:
    header = "JobID|State|Submit|Eligible|Start|End|AllocTRES\n"
    trace = load(header + "1|FAILED|1709287200|Unknown|1709287300|1709287399|gres/gpu=1\n")
    assert rows(trace) == [("1", 0.0, 99.0, 1)]
    assert trace.provenance.epoch == "2024-03-01T10:00:00+00:00"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("1-02:03:04", 93_784.0),
        ("00:00:09", 9.0),
        ("02:03.500", 123.0),
        ("30", 1800.0),
        ("2-12", 216_000.0),
        ("2-12:30", 217_800.0),
        ("365-00:00:00", 31_536_000.0),
    ],
)
def test_seconds(text: str, wanted: float) -> None:
    assert seconds(text) == wanted


@given(st.integers(0, 10**8))
def test_elapsed_round_trip(value: int) -> None:
    days, rest = divmod(value, 86_400)
    clock = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    assert seconds(f"{days}-{clock}" if days else clock) == value


def test_what_is_no_time() -> None:
    assert all(np.isnan(seconds(text) or 0) for text in ("UNLIMITED", "Partition_Limit", "INVALID"))
    assert [seconds(text) for text in ("soon", "1:2:3:4", "-5", "1--2", "")] == [None] * 5


def test_tres() -> None:
    assert tres_gpus("billing=8,cpu=8,gres/gpu:a100=8,gres/gpu=8,node=1") == Gpus(total=8, types="a100")
    assert tres_gpus("gres/gpu:a100=4,gres/gpu:v100=2") == Gpus(total=6, types="a100|v100")
    # Memory and utilisation of GPUs are other resources.
    assert tres_gpus("gres/gpumem=80G,gres/gpuutil=100,gres/shard=2,cpu=1") == Gpus()
    assert [tres_gpus(text) for text in ("gres/gpu=x", "gpu:2", "gres/gpu=-1", "8")] == [None] * 4


def test_gres() -> None:
    assert node_gpus("gpu") == node_gpus("gpu:1") == node_gpus("gres/gpu:1") == Gpus(a_node=1)
    assert node_gpus("gpu:tesla") == Gpus(a_node=1, types="tesla")
    assert node_gpus("mps:100,PER_NODE:gpu:v100:4(S:0-1),gpu:k80:2") == Gpus(a_node=6, types="v100|k80")
    assert node_gpus("gpumem:4,craynetwork") == Gpus()
    assert node_gpus("gpu:a:b:c") is None


NEEDS = "Submit|State|JobID|ElapsedRaw|User|NNodes|AllocTRES"


@pytest.mark.parametrize(
    ("gone", "named"),
    [
        ("Submit", "Submit"),
        ("State", "State"),
        ("JobID", "JobID"),
        ("ElapsedRaw", "ElapsedRaw"),
        ("AllocTRES", "AllocTRES"),
    ],
)
def test_a_missing_column_is_named_with_the_command_that_gives_it(gone: str, named: str, write: Write) -> None:
    path = write(NEEDS.replace(gone, "Comment") + "\n" + "x|" * 6 + "x\n")
    with pytest.raises(InputError, match=f"has no column {named}") as caught:
        read_trace(path)
    assert COMMAND in str(caught.value) and "--allusers" in COMMAND and "\n" not in str(caught.value)


def test_all_missing_columns_are_named_at_once(write: Write) -> None:
    with pytest.raises(InputError, match="has no column State, ElapsedRaw, AllocTRES;"):
        read_trace(write("JobID|User|Submit\n1|ann|2024-03-01T09:00:00\n"))
    with pytest.raises(InputError, match="has no column End;"):
        read_trace(write("JobID|State|Submit|Start|ReqTRES\n1||||\n"))
    with pytest.raises(InputError, match="has no column NNodes;"):
        read_trace(write("JobID|State|Submit|Elapsed|ReqGRES\n1||||\n"))


def test_the_command_of_the_message_gives_what_is_needed(load: Load) -> None:
    names = COMMAND.rpartition("--format=")[2].split(",")
    cells = dict.fromkeys(names, "") | {
        "JobID": "1", "State": "COMPLETED", "Submit": "2024-03-01T09:00:00", "Start": "2024-03-01T09:00:00",
        "ElapsedRaw": "9", "AllocTRES": "gres/gpu=1",
    }  # fmt: skip
    assert rows(load("|".join(names) + "\n" + "|".join(cells.values()) + "\n")) == [("1", 0.0, 9.0, 1)]


def test_other_outputs_of_sacct_are_told_apart(write: Write) -> None:
    people = (
        "JobID           JobName  Partition    Account  AllocCPUS      State ExitCode \n"
        "------------ ---------- ---------- ---------- ---------- ---------- -------- \n"
        "4101              train        gpu     vision         16  COMPLETED      0:0 \n"
    )
    with pytest.raises(InputError, match="for people"):
        read_trace(write(people))
    with pytest.raises(InputError, match="has no header") as caught:
        read_trace(write(samples.SACCT.partition("\n")[2]))
    assert "--noheader" in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "row", "field"),
    [
        ("2024-03-01T08:10:00", "yesterday", 6, "submit"),
        ("00:01:00", "a minute", 6, "elapsed"),
        ("2-00:00:00", "2 days", 2, "timelimit"),
        ("gres/gpu:v100=2", "gres/gpu:v100=two", 6, "reqtres"),
        ("|7-00:00:00|4|", "|7-00:00:00|four|", 14, "nnodes"),
        ("4140|4140|", "|4140|", 13, "jobid"),
    ],
)
def test_broken_cells_are_found(old: str, new: str, row: int, field: str, write: Write) -> None:
    assert old in samples.SACCT
    with pytest.raises(InputError) as caught:
        read_trace(write(samples.SACCT.replace(old, new, 1)))
    assert (caught.value.row, caught.value.field) == (row, field)
    assert "\n" not in str(caught.value)


def test_a_bar_in_a_jobs_name_says_what_to_do(write: Write) -> None:
    with pytest.raises(InputError, match="leave JobName out") as caught:
        read_trace(write(samples.SACCT.replace("train", "a|b", 1)))
    assert caught.value.row == 2


def test_steps_only(write: Write) -> None:
    with pytest.raises(InputError, match="holds no job"):
        read_trace(write(HEADER + line("1.batch") + line("1.0")))


def test_the_format_may_be_forced_on_what_is_none(write: Write) -> None:
    with pytest.raises(InputError, match="has no column JobID, State"):
        read_trace(write(samples.GOLDEN), ReadOptions(format="sacct"))


def big_file(path: Path, jobs: int) -> None:
    """Lines as sacct writes them, each job with two steps."""
    base = np.datetime64("2024-03-01T00:00:00")
    with path.open("w") as file:
        file.write("JobID|User|Account|State|Submit|Eligible|Start|End|Elapsed|Timelimit|NNodes|ReqTRES|AllocTRES\n")
        for job in range(jobs):
            submit = base + 7 * job
            start, took = submit + job % 4000, 60 + job * 7919 % 90_000
            clock = f"{took // 3600 % 24:02}:{took // 60 % 60:02}:{took % 60:02}"
            if took >= 86_400:
                clock = f"{took // 86_400}-{clock}"
            end, nodes = start + took, 1 + job % 4
            tres = f"cpu={job % 64},gres/gpu:a100={8 * nodes},gres/gpu={8 * nodes},mem={job % 500}G,node={nodes}"
            times = f"{submit}|{submit}|{start}|{end}|{clock}"
            file.write(f"{job}|u{job % 300}|a{job % 20}|COMPLETED|{times}|2-00:00:00|{nodes}|{tres}|{tres}\n")
            for step in ("batch", "extern"):
                file.write(f"{job}.{step}||a{job % 20}|COMPLETED|{times}||{nodes}||{tres}\n")


@pytest.mark.slow
def test_thousands_of_jobs_a_second(tmp_path: Path) -> None:
    path = tmp_path / "log"
    big_file(path, 70_000)
    begin = time.process_time()
    trace = read_trace(path)
    assert len(trace) == trace.provenance.rows_read == 70_000
    assert time.process_time() - begin < 7  # ten thousand jobs a second at the least, whatever else the machine does


def test_the_size_of_blocks_changes_nothing(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    from attn_sched.workload.readers import source

    whole = load(samples.SACCT)
    monkeypatch.setattr(source, "BLOCK_BYTES", 300)
    parts = load(samples.SACCT)
    assert parts.table.equals(whole.table) and parts.provenance == whole.provenance
    with pytest.raises(InputError) as caught:  # beyond the steps that were passed over, in a later block
        load(samples.SACCT.replace("cpu=4,gres/gpu=32,node=4|", "cpu=4,gres/gpu=-32,node=4|"))
    assert (caught.value.row, caught.value.field) == (14, "reqtres")
