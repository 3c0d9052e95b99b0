"""The most memory this process has held."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

STATUS = Path("/proc/self/status")


def peak_memory() -> int:
    """Peak of resident memory in bytes since the program started."""
    # On Linux ru_maxrss outlives exec: a process starts from the peak of the one that started it. VmHWM does not.
    if STATUS.is_file():
        for line in STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
