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
from typing import Any

import numba
from numba.core import caching
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


class ByContentLocator(caching.UserProvidedCacheLocator):
    """Where a kernel of this package is cached: by its file's place in the package, not by where the package lies.

    The folder's name stands for the text of all kernels, so a copy of the package elsewhere, as each job on a cluster
    has one, uses what is compiled already.
    """

    def __init__(self, py_func: Any, py_file: str):
        super().__init__(py_func, py_file)
        room = Path(py_file).resolve().parent.relative_to(_ROOT)
        self._cache_path = os.path.join(_numba_config.CACHE_DIR, *room.parts)

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> Any:
        """A locator; None for other people's files, which numba's own locators take."""
        return super().from_function(py_func, py_file) if Path(py_file).resolve().is_relative_to(_ROOT) else None


_numba_config.CACHE_DIR = _cache_folder()
if not _numba_config.CACHE_LOCATOR_CLASSES:
    _own = f"{__name__}.{ByContentLocator.__qualname__}"
    _numba_config.CACHE_LOCATOR_CLASSES = ",".join(
        [_own, *(locator.__name__ for locator in caching.CacheImpl._locator_classes)]
    )

njit = numba.njit(cache=True, nogil=True, error_model="numpy")
"""Compile a kernel: cached on disk, releases the GIL, division by zero gives inf or nan as in numpy."""
