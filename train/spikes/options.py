"""What `--log.spikes`, `--log.on_spike` and `--log.adam_variance` need."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from ..config import Config


def spike_complaints(config: Config, _: object) -> Iterator[str]:
    """Why they cannot be used; for `train.validate`."""
    log = config.log
    if log.on_spike and not log.spikes:
        yield "--log.on_spike needs --log.spikes true"
    try:
        shlex.split(log.on_spike)
    except ValueError as error:
        yield f"--log.on_spike '{log.on_spike}': {error}"
    if log.adam_variance and config.optimizer.kind != "adam":
        yield f"--log.adam_variance with --optimizer.kind {config.optimizer.kind}: its moments have 8 bits"
