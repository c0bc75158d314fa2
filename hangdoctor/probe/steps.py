"""Steps of the job's optimizers: a sign of progress where no recorded operation gives one.

DistributedDataParallel, FSDP2 and compiled graphs communicate without any function that the probe
wraps. Each training calls an optimizer, and torch calls the hooks that are registered for all of
them after each step.
"""

from __future__ import annotations

from . import torchnames
from .process_probe import probe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_watched = False


def _never() -> bool:
    return False


# A global of this module: Dynamo knows torch's function by identity, folds it, and traces nothing more of the hook.
_is_compiling: Callable[[], bool] = _never
_count = probe.step


def watch() -> None:
    """Count the steps of all optimizers of this process from now on; safe to repeat, nothing where
    torch has no such hook.
    """
    global _watched, _is_compiling
    register = torchnames.register_step_hook()
    if _watched or register is None:
        return
    _watched = True
    _is_compiling = torchnames.is_compiling() or _never
    register(_stepped)


def _stepped(optimizer: Any, args: Any, kwargs: Any) -> None:
    if not _is_compiling():  # else traced now, and run later without this hook
        _count()
