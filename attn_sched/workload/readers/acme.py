"""Shanghai AI Lab Acme (Hu et al., NSDI '24): the Seren and Kalos clusters.

In Seren ``duration`` is end minus start. In Kalos it is end minus SUBMIT, queue included, against what the official
README says; so the run time of a Kalos job is end minus start, or duration minus queue where those are empty.
"""

from __future__ import annotations

import numpy as np

from attn_sched.workload.readers.base import Reader, ReadOptions
from attn_sched.workload.readers.csvtable import read_csv
from attn_sched.workload.readers.simple import csv_builder
from attn_sched.workload.readers.source import Source
from attn_sched.workload.trace import Trace

COLUMNS = ("job_id", "user", "gpu_num", "type", "state", "submit_time", "start_time", "end_time", "duration", "queue")
KALOS_ONLY = frozenset({"mem_per_pod_gb", "shared_mem_per_pod", "fail_time", "stop_time"})


def _read(source: Source, kalos: bool) -> Trace:
    builder = csv_builder(source, "acme-kalos" if kalos else "acme-seren")
    zoned = False
    for block in read_csv(source, only=COLUMNS):
        submit, zoned = block.time("submit_time", required=False)
        start = block.time("start_time", required=False)[0]
        end = block.time("end_time", required=False)[0]
        stated = block.number("duration", required=False)
        queue = block.number("queue", required=False)
        run = end - start
        if kalos:
            duration = np.where(np.isnan(run), stated - queue, run)
            never = np.isnan(start) & np.isnan(queue)
        else:
            duration = np.where(np.isnan(stated), run, stated)
            never = np.isnan(start) & np.isnan(duration)
        gpus = block.number("gpu_num", required=False)
        builder.add(
            block.first,
            job_id=block.text("job_id"),
            submit_s=submit,
            duration_s=duration,
            num_gpus=gpus,
            drops=[(np.isnan(gpus) | (gpus == 0), "zero GPUs"), (never, "never scheduled")],
            negative_submit=True,
            user=block.text("user"),
            status=block.text("state"),
            fields=("job_id", "submit_time", "duration", "gpu_num"),
        )
    return builder.finish(calendar=True, zoned=zoned)


def _is_acme(header: tuple[str, ...]) -> bool:
    return {*COLUMNS, "node_num", "gpu_time"} <= set(header)


def _seren(source: Source, options: ReadOptions) -> Trace:
    return _read(source, kalos=False)


def _kalos(source: Source, options: ReadOptions) -> Trace:
    return _read(source, kalos=True)


SEREN_READER = Reader(
    "acme-seren",
    "Acme Seren: duration = end - start",
    lambda h: _is_acme(h.header) and not KALOS_ONLY & set(h.header),
    _seren,
)
KALOS_READER = Reader(
    "acme-kalos",
    "Acme Kalos: duration includes the queue, which is taken off",
    lambda h: _is_acme(h.header) and bool(KALOS_ONLY & set(h.header)),
    _kalos,
)
