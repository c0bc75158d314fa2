"""Where a training stands: counts only, so that a checkpoint can hold it and a resumed run can
check it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass
class TrainState:
    """Counters of a run, as a checkpoint holds them."""

    iteration: int = 0  # iterations done
    consumed_samples: int = 0
    scheduled_samples: int = (
        0  # samples that advanced the learning rate: those of skipped steps do not
    )
    consumed_tokens: int = 0  # of the sequences as they were trained on, after a curriculum's cut
    scheduled_tokens: int = 0
    skipped_iterations: int = 0
    nan_iterations: int = 0

    @classmethod
    def restored(cls, saved: Mapping[str, int], seq_length: int) -> TrainState:
        """The counters of a checkpoint; one of before tokens were counted had full sequences."""
        made = cls(**saved)
        if "consumed_tokens" not in saved:
            made.consumed_tokens = made.consumed_samples * seq_length
            made.scheduled_tokens = made.scheduled_samples * seq_length
        return made

    def as_dict(self) -> dict[str, int]:
        """The counters as plain data."""
        return dataclasses.asdict(self)


@dataclass
class Step:
    """What one iteration did."""

    loss: float = 0.0
    grad_norm: float = 0.0
    batch_size: int = 0
    sequence_length: int = 0
    learning_rate: float = 0.0
    loss_scale: float = 1.0
    skipped: bool = False
    seconds: float = 0.0
    extra: dict[str, float] = field(default_factory=dict)  # what --log.* asks for beside the usual
    timers: dict[str, float] = field(default_factory=dict)
