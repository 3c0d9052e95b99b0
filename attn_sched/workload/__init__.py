"""What is scheduled: job logs read into Traces, Traces made into Workloads, and synthetic ones."""

from attn_sched.workload.build import build_workload
from attn_sched.workload.estimates import with_estimates
from attn_sched.workload.load import LATER, LOAD_BY, offered_load, scale_load
from attn_sched.workload.readers.base import ReadOptions
from attn_sched.workload.synthetic import FAMILIES, synth
from attn_sched.workload.trace import Provenance, Trace, read_trace, write_trace
from attn_sched.workload.users import with_users
from attn_sched.workload.windows import SPLIT, split, window
from attn_sched.workload.workload import Workload

__all__ = [
    "FAMILIES",
    "LATER",
    "LOAD_BY",
    "SPLIT",
    "Provenance",
    "ReadOptions",
    "Trace",
    "Workload",
    "build_workload",
    "offered_load",
    "read_trace",
    "scale_load",
    "split",
    "synth",
    "window",
    "with_estimates",
    "with_users",
    "write_trace",
]
