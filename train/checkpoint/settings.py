"""The optimizer's settings over a load: a checkpoint brings those that it was trained with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# Of each parameter group; the learning rate is set before every step.
_OF_GROUPS = ("betas", "eps", "weight_decay", "fused")


@contextmanager
def kept_settings(optimizer: Any) -> Iterator[None]:
    """What the optimizer was built with is in force again after the load.

    Where the checkpoint's settings are others, the load was refused before, or
    `--checkpoint.override` asks for the configuration's.
    """
    inner = getattr(optimizer, "optimizer", optimizer)
    groups = [{n: g[n] for n in _OF_GROUPS if n in g} for g in inner.param_groups]
    limit = getattr(optimizer, "clip_grad", None)
    yield
    for group, settings in zip(inner.param_groups, groups, strict=True):
        group.update(settings)
    if limit is not None:
        optimizer.clip_grad = limit
