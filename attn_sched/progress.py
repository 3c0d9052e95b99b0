"""Progress bars for long work: on a terminal only, so that piped output stays clean."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[float], None]


@contextmanager
def progress_bar(label: str, total: float, *, enabled: bool = True) -> Iterator[Advance]:
    """Yield a function that moves the bar to an absolute position between 0 and ``total``.

    The bar goes to standard error and only when that is a terminal.
    """
    if not enabled or not sys.stderr.isatty():
        yield lambda position: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=max(total, 1e-9))
        yield lambda position: bar.update(task, completed=position)
