"""Alibaba: the PAI 2020 task table (Weng et al., NSDI '22) and the openb pods of 2023 (Weng et al., ATC '23)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from attn_sched.workload.readers.base import Reader, ReadOptions
from attn_sched.workload.readers.csvtable import Block, read_csv
from attn_sched.workload.readers.simple import csv_builder, row_ids
from attn_sched.workload.readers.source import Head, Source
from attn_sched.workload.trace import Trace

PAI_TASK = (
    "job_name", "task_name", "inst_num", "status", "start_time", "end_time", "plan_cpu", "plan_mem", "plan_gpu",
    "gpu_type",
)  # fmt: skip
PAI_STATES = frozenset({"Terminated", "Failed", "Running", "Waiting", "Interrupted", "Cancelled", "Ready", ""})
OPENB = ("name", "num_gpu", "gpu_milli", "gpu_spec", "pod_phase", "creation_time", "deletion_time", "scheduled_time")


def is_number(text: str) -> bool:
    """Whether ``float`` reads it."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_pai_task(head: Head) -> bool:
    if head.header == PAI_TASK:
        return True
    rows = [line.split(",") for line in head.lines[:20]]

    def fits(row: list[str]) -> bool:
        if len(row) != len(PAI_TASK) or row[3] not in PAI_STATES or not row[0] or is_number(row[1]):
            return False
        return all(cell == "" or is_number(cell) for cell in (row[2], *row[4:9]))

    # One broken row must be named, not make the file unrecognisable.
    return sum(map(fits, rows)) * 2 > len(rows)


def _pai_blocks(source: Source) -> tuple[Iterator[Block], bool]:
    header = source.head().header == PAI_TASK
    return read_csv(source, names=None if header else PAI_TASK), header


def _read_pai(source: Source, options: ReadOptions) -> Trace:
    """GPUs = instances x GPUs per instance rounded up: instances do not share a GPU here.

    The table has no submit time; the start stands for it. Tasks have no id of their own, so the row number completes
    it.
    """
    blocks, header = _pai_blocks(source)
    builder = csv_builder(source, "pai", header=header)
    for block in blocks:
        instances = block.number("inst_num", required=False)
        each = block.number("plan_gpu", required=False) / 100.0
        start = block.number("start_time", required=False)
        end = block.number("end_time", required=False)
        whole = np.ceil(each - 1e-9)
        no_gpu = ~(each * instances > 0)
        builder.note("fraction of a GPU per instance rounded up", int((~no_gpu & (whole != each)).sum()))
        builder.note("submit time unknown: start time taken", int((~no_gpu & ~np.isnan(start) & ~np.isnan(end)).sum()))
        ids = pc.binary_join_element_wise(
            pc.fill_null(block.text("job_name"), "job"),
            pa.scalar("/"),
            pc.fill_null(block.text("task_name"), "task"),
            pa.scalar("#"),
            row_ids(block),
            "",
        )
        builder.add(
            block.first,
            job_id=ids,
            submit_s=start,
            duration_s=end - start,
            num_gpus=instances * whole,
            drops=[(no_gpu & ~(each < 0) & ~(instances < 0), "zero GPUs"), (np.isnan(start), "never scheduled")],
            status=block.text("status"),
            gpu_type=block.text("gpu_type"),
            fields=("job_name", "start_time", "end_time", "plan_gpu"),
        )
    return builder.finish()


def _read_openb(source: Source, options: ReadOptions) -> Trace:
    builder = csv_builder(source, "openb")
    for block in read_csv(source, only=OPENB):
        gpus = block.number("num_gpu")
        share = block.number("gpu_milli", required=False)
        created = block.number("creation_time")
        scheduled = block.number("scheduled_time", required=False)
        deleted = block.number("deletion_time", required=False)
        phase = block.text("pod_phase")
        ran = (gpus > 0) & ~np.isnan(scheduled)
        builder.note("fractional GPUs rounded up", int((ran & (gpus == 1) & (share > 0) & (share < 1000)).sum()))
        running = pc.fill_null(pc.equal(phase, "Running"), False).to_numpy(zero_copy_only=False)
        builder.note("still running when the log ends: duration is what was seen", int((running & ran).sum()))
        builder.add(
            block.first,
            job_id=block.text("name"),
            submit_s=created,
            duration_s=deleted - scheduled,
            num_gpus=gpus,
            drops=[(gpus == 0, "zero GPUs"), (np.isnan(scheduled), "never scheduled")],
            gpu_type=block.text("gpu_spec"),
            status=phase,
            fields=("name", "creation_time", "deletion_time", "num_gpu"),
        )
    return builder.finish()


PAI_READER = Reader("pai", "Alibaba PAI 2020 pai_task_table, with or without a header", _is_pai_task, _read_pai)
OPENB_READER = Reader("openb", "Alibaba openb 2023 pod list", lambda h: set(OPENB) <= set(h.header), _read_openb)
