"""Compiled kernels: one decorator and one on-disk cache for all of them.

numba's cache looks only at the file a kernel stands in, so a kernel would go on calling the stale machine code of
another file's helper. The cache folder is therefore named after the text of every kernel file together.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from pathlib import Path

import numba
from numba.core import config as _numba_config

_ROOT = Path(__file__).resolve().parent
UNUSED_S = 30 * 86_400.0
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
    """This version's own folder, below ``NUMBA_CACHE_DIR`` if set; a private one where it cannot be written."""
    base = os.environ.get("NUMBA_CACHE_DIR")
    if not base:
        home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        base = os.path.join(home, "attn-sched")
    folder = Path(base) / f"kernels-{_fingerprint()}"
    try:
        if not folder.is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            _forget_old(folder.parent)
        if not os.access(folder, os.W_OK):
            raise PermissionError(folder)
    except OSError:
        # numba unpickles what it finds: a shared folder with a name others can guess would not do.
        return tempfile.mkdtemp(prefix="attn-sched-")
    os.utime(folder)
    return str(folder)


def _forget_old(base: Path) -> None:
    """Remove kernels of other versions that have not been used for a month."""
    for other in base.glob("kernels-*"):
        if time.time() - other.stat().st_mtime > UNUSED_S:
            shutil.rmtree(other, ignore_errors=True)


_numba_config.CACHE_DIR = _cache_folder()

njit = numba.njit(cache=True, nogil=True, error_model="numpy")
"""Compile a kernel: cached on disk, releases the GIL, division by zero gives inf or nan as in numpy."""
