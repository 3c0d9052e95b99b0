"""SenseTime Helios (Hu et al., SC '21): the official cluster_log.csv and the tenant/num_chips slice of it."""

from __future__ import annotations

import numpy as np

from attn_sched.workload.readers.base import Reader, ReadOptions
from attn_sched.workload.readers.csvtable import read_csv
from attn_sched.workload.readers.simple import csv_builder
from attn_sched.workload.readers.source import Source
from attn_sched.workload.trace import Trace

OFFICIAL = ("job_id", "user", "vc", "gpu_num", "state", "submit_time", "start_time", "end_time", "duration")
SLICE = ("job_id", "user", "tenant", "submit_time", "num_chips", "chip_type", "duration_s", "final_status")
MICROSECOND = 1e-6


def _read_official(source: Source, options: ReadOptions) -> Trace:
    builder = csv_builder(source, "helios")
    zoned = False
    for block in read_csv(source, only=OFFICIAL):
        submit, zoned = block.time("submit_time", required=False)
        start = block.time("start_time", required=False)[0]
        end = block.time("end_time", required=False)[0]
        duration = block.number("duration", required=False)
        # The column equals end - start in the official files; some copies leave either side empty.
        duration = np.where(np.isnan(duration), end - start, duration)
        builder.add(
            block.first,
            job_id=block.text("job_id"),
            submit_s=submit,
            duration_s=duration,
            num_gpus=block.number("gpu_num", required=False),
            negative_submit=True,
            user=block.text("user"),
            group=block.text("vc"),
            status=block.text("state"),
            fields=("job_id", "submit_time", "duration", "gpu_num"),
        )
    return builder.finish(calendar=True, zoned=zoned)


def _read_slice(source: Source, options: ReadOptions) -> Trace:
    # walltime_limit_s is a copy of the true duration, not a request: taking it would leak the answer.
    builder = csv_builder(source, "helios-slice")
    for block in read_csv(source, only=SLICE):
        builder.add(
            block.first,
            job_id=block.text("job_id"),
            submit_s=block.number("submit_time", unit=MICROSECOND),
            duration_s=block.number("duration_s", required=False),
            num_gpus=block.number("num_chips"),
            user=block.optional("user"),
            group=block.optional("tenant"),
            gpu_type=block.optional("chip_type"),
            status=block.optional("final_status"),
            fields=("job_id", "submit_time", "duration_s", "num_chips"),
        )
    return builder.finish()


HELIOS_READER = Reader(
    "helios",
    "Helios cluster_log.csv (start, end and queue may be empty)",
    lambda h: set(OFFICIAL) <= set(h.header),
    _read_official,
)
SLICE_READER = Reader(
    "helios-slice",
    "Helios slice with tenant and num_chips; submit time in microseconds, # comments",
    lambda h: {"job_id", "tenant", "submit_time", "num_chips", "duration_s"} <= set(h.header),
    _read_slice,
)
