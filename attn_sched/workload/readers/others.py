"""Tables that lie beside job logs and are often given by mistake: named, not read."""

from __future__ import annotations

from attn_sched.workload.readers.alibaba import is_number
from attn_sched.workload.readers.source import Head

# Columns that identify a table, and what to call it.
_TABLES: tuple[tuple[frozenset[str], str], ...] = (
    (
        frozenset({"gpu_type", "job_type", "scale_factor", "steps_per_second"}),
        "a table of measured throughputs (Gavel)",
    ),
    (frozenset({"machineid", "number of gpus"}), "a list of machines (Philly)"),
    (frozenset({"vc", "node num"}), "a list of nodes per virtual cluster (Philly)"),
    (frozenset({"sn", "cpu_milli", "memory_mib", "gpu", "model"}), "a list of nodes (Alibaba openb)"),
    (frozenset({"machine", "gpu_type", "cap_cpu", "cap_mem", "cap_gpu"}), "a list of machines (Alibaba PAI)"),
    (frozenset({"ip", "dsw", "psw", "asw"}), "a network topology (Alibaba Lingjun)"),
    (frozenset({"id", "job_num", "gpu_job_num"}), "a summary of job statistics per cluster"),
    (frozenset({"time", "running_job_num", "pending_job_num"}), "a time series of cluster occupancy (Helios)"),
    (frozenset({"date", "total"}), "a table of GPUs per virtual cluster and day (Helios)"),
    (
        frozenset({"job_name", "inst_id", "user", "status", "start_time", "end_time"}),
        "the PAI job table, which names no GPUs",
    ),
    (frozenset({"job_name", "task_name", "inst_name", "machine"}), "the PAI instance table, which names no GPUs"),
    (frozenset({"inst_id", "user", "gpu_type_spec", "group", "workload"}), "the PAI group table, which names no times"),
    (frozenset({"worker_name", "machine", "gpu_wrk_util"}), "the PAI sensor table"),
    (frozenset({"worker_name", "machine", "machine_gpu"}), "the PAI machine metric table"),
    (frozenset({"job_id", "start", "end"}), "a schedule: starts and ends, without submit times and GPUs"),
)


def describe(head: Head) -> str | None:
    """What a file is that is no job log; None when it is not recognised either."""
    names = set(head.header)
    for columns, what in _TABLES:
        if columns <= names:
            return what
    rows = [line.split(",") for line in head.lines[:5]]
    if rows and all(len(row) == 5 and not is_number(row[1]) and all(map(is_number, row[2:])) for row in rows):
        return "a list of machines (Alibaba PAI, without header)"
    if rows and all(len(row) == 6 and is_number(row[4]) and row[3].isalpha() for row in rows):
        return "the PAI job table, which names no GPUs"
    if rows and all(len(row) == 9 and row[5].isalpha() and is_number(row[6]) for row in rows):
        return "the PAI instance table, which names no GPUs"
    return None
