"""What is scheduled: job logs read into Traces, Traces made into Workloads, and synthetic ones."""

from attn_sched.choices import FAMILIES, LATER, LOAD_BY
from attn_sched.workload.build import build_workload
from attn_sched.workload.estimates import check_estimate, with_estimates
from attn_sched.workload.load import offered_load, scale_load, thin_window
from attn_sched.workload.readers.base import ReadOptions
from attn_sched.workload.synthetic import synth
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
    "check_estimate",
    "offered_load",
    "read_trace",
    "scale_load",
    "split",
    "synth",
    "thin_window",
    "window",
    "with_estimates",
    "with_users",
    "write_trace",
]
