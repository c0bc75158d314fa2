"""Where a training stands: counts only, so that a checkpoint can hold it and a resumed run can
check it.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field


@dataclass
class TrainState:
    """Counters of a run, as a checkpoint holds them."""

    iteration: int = 0  # iterations done
    consumed_samples: int = 0
    scheduled_samples: int = (
        0  # samples that advanced the learning rate: those of skipped steps do not
    )
    skipped_iterations: int = 0
    nan_iterations: int = 0

    def as_dict(self) -> dict[str, int]:
        """The counters as plain data."""
        return dataclasses.asdict(self)


@dataclass
class Step:
    """What one iteration did."""

    loss: float = 0.0
    grad_norm: float = 0.0
    batch_size: int = 0
    learning_rate: float = 0.0
    loss_scale: float = 1.0
    skipped: bool = False
    seconds: float = 0.0
    extra: dict[str, float] = field(default_factory=dict)  # what --log.* asks for beside the usual
    timers: dict[str, float] = field(default_factory=dict)
