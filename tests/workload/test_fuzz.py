"""Whatever the bytes: a Trace or an InputError of one line, nothing else."""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from attn_sched.errors import InputError
from attn_sched.workload import ReadOptions, Trace, read_trace, synth, write_trace
from attn_sched.workload.readers import READERS
from tests.workload import samples
from tests.workload.test_readers import zipped

FAST = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
TEXTS = {**samples.SAMPLES, "later": samples.GAVEL_LATER, "shockwave": samples.SHOCKWAVE}
# fmt: off
TOKENS = (
    "", "nan", "-1", "inf", "1e309", "0",
    '"', ",", "\n", "\r", "\t", "\0", "#", ";", "é", "null", "None", "[", "]", "{", "}",
    "9" * 30, "2020-01-01 00:00:00", "2020-01-01T00:00:00+25:00", "\x0b", "\u2028", "\ufeff", "²",
    "|", ".", "+", "Unknown", "gres/gpu:a=7,", "9-99:99:99", "JobID",
)
# fmt: on


def attempt(data: bytes, options: ReadOptions | None = None) -> Trace | None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        path.write_bytes(data)
        try:
            trace = read_trace(path, options)
        except InputError as error:
            assert "\n" not in str(error)
            assert error.file is not None or error.field in ("map", "format")
            return None
        check(trace)
        return trace


def check(trace: Trace) -> None:
    """What every reader owes."""
    trace.table.validate(full=True)
    provenance = trace.provenance
    assert len(trace) >= 1
    assert len(trace) + sum(provenance.dropped.values()) == provenance.rows_read
    submit, duration = trace.numbers("submit_time"), trace.numbers("duration")
    assert submit[0] == 0
    assert (np.diff(submit) >= 0).all()
    assert not (duration < 0).any()
    assert (trace.numbers("num_gpus") >= 1).all()
    ids = trace.table["job_id"].to_pylist()
    assert len(set(ids)) == len(ids)


@given(st.binary(max_size=400))
@FAST
def test_arbitrary_bytes(data: bytes) -> None:
    attempt(data)


@given(st.binary(max_size=300), st.sampled_from(sorted(READERS)))
@FAST
def test_arbitrary_bytes_with_a_forced_format(data: bytes, name: str) -> None:
    attempt(data, ReadOptions(format=name))


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A valid log with a few cuts, insertions, doublings and flipped bytes."""
    data = bytearray(TEXTS[draw(st.sampled_from(sorted(TEXTS)))].encode())
    for _ in range(draw(st.integers(1, 4))):
        if not data:
            break
        at = draw(st.integers(0, len(data) - 1))
        kind = draw(st.sampled_from(("flip", "cut", "token", "token", "double", "end")))
        if kind == "flip":
            data[at] = draw(st.integers(0, 255))
        elif kind == "cut":
            del data[at : at + draw(st.integers(1, 30))]
        elif kind == "token":
            end = at + draw(st.integers(0, 6))
            data[at:end] = draw(st.sampled_from(TOKENS)).encode()
        elif kind == "double":
            data[at:at] = data[at : at + draw(st.integers(1, 80))]
        else:
            del data[at:]
    return bytes(data)


@given(mutated())
@settings(FAST, max_examples=800)
def test_mutated_logs(data: bytes) -> None:
    attempt(data)


@given(mutated(), st.sampled_from(sorted(READERS)))
@settings(FAST, max_examples=300)
def test_mutated_logs_with_a_forced_format(data: bytes, name: str) -> None:
    attempt(data, ReadOptions(format=name))


@given(mutated(), st.sampled_from(("submit_time=job_id", "duration=duration:h,num_gpus=num_gpus", "user=x")))
@FAST
def test_mutated_logs_with_a_map(data: bytes, text: str) -> None:
    from attn_sched.workload.readers.plain import parse_map

    attempt(data, ReadOptions(column_map=parse_map(text)))


def _packed() -> tuple[bytes, ...]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x"
        write_trace(synth("helios", 30, 0), path)
        parquet = path.read_bytes()
    return gzip.compress(samples.HELIOS.encode()), zipped({"a": samples.GOLDEN, "b": "text"}), parquet


PACKED = _packed()


@given(st.sampled_from(PACKED), st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), max_size=4), st.floats(0, 1))
@settings(FAST, max_examples=400)
def test_damaged_packings(data: bytes, flips: list[tuple[float, int]], keep: float) -> None:
    broken = bytearray(data)
    for where, value in flips:
        broken[int(where * (len(broken) - 1))] = value
    if keep < 0.5:
        del broken[int(2 * keep * len(broken)) :]
    attempt(bytes(broken))
