"""Compiled kernels: one decorator and one on-disk cache for all of them.

numba's cache looks only at the file a kernel stands in, so a kernel would go on calling the stale machine code of
another file's helper. The cache folder is therefore named after the text of every kernel file together.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

import numba
from numba.core import config as _numba_config

_ROOT = Path(__file__).resolve().parent
_KERNEL_ROOMS = ("cluster", "simulator", "agents", "policies")


def _fingerprint() -> str:
    digest = hashlib.blake2b(numba.__version__.encode(), digest_size=8)
    for room in _KERNEL_ROOMS:
        for file in sorted((_ROOT / room).glob("*.py")):
            text = file.read_bytes()
            if b"njit" in text or b"numba" in text or file.name == "layout.py":
                digest.update(file.name.encode() + text)
    return digest.hexdigest()


def _cache_folder() -> str:
    base = os.environ.get("NUMBA_CACHE_DIR")
    if not base:
        home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        base = os.path.join(home, "attn-sched")
    folder = os.path.join(base, f"kernels-{_fingerprint()}")
    try:
        os.makedirs(folder, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(folder)
    except OSError:
        folder = os.path.join(tempfile.gettempdir(), f"attn-sched-{os.getuid()}", f"kernels-{_fingerprint()}")
    return folder


_numba_config.CACHE_DIR = _cache_folder()

njit = numba.njit(cache=True, nogil=True, error_model="numpy")
"""Compile a kernel: cached on disk, releases the GIL, division by zero gives inf or nan as in numpy."""

njit_inline = numba.njit(cache=True, nogil=True, error_model="numpy", inline="always")
"""As ``njit``, for a helper with one hot caller: passing dozens of arrays by value would cost more than its work."""
