"""Event files as a trainer writes them, and what TensorBoard reads in a folder."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

LOSS = "lm-loss-training/lm loss"


def write_run(folder: Path, iterations: Iterable[int], name: str, samples: int = 16) -> Path:
    """One run's file: the loss by iteration and by samples, `samples` of them an iteration."""
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(folder), filename_suffix=f".{name}") as writer:
        for i in iterations:
            writer.add_scalar(LOSS, 10 - i / 1000, i)
            writer.add_scalar(f"{LOSS} vs samples", 10 - i / 1000, i * samples)
    (path,) = folder.glob(f"events*.{name}")
    return path


def charts(folder: Path) -> dict[str, list[int]]:
    """The steps of each chart, in order, as TensorBoard shows the folder."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    shown = EventAccumulator(str(folder)).Reload()
    return {tag: sorted(e.step for e in shown.Scalars(tag)) for tag in shown.Tags()["scalars"]}
