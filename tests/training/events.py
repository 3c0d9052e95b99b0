"""TensorBoard's curves, read back."""

from __future__ import annotations

from pathlib import Path


def read_curve(folder: Path, tag: str) -> list[tuple[int, float]]:
    """Step and value of every point, as TensorBoard shows them."""
    from tensorboard.backend.event_processing.event_accumulator import (  # type: ignore[import-untyped]
        EventAccumulator,
    )

    accumulator = EventAccumulator(str(folder))
    accumulator.Reload()
    return [(event.step, event.value) for event in accumulator.Scalars(tag)]
