"""Why a call to CUDA failed inside NCCL: the error itself says only that one did, and NCCL's own lines beside
it say which.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from ...model.log_facts import KnownError
from .candidate import Error
from .scene import NCCL_WARNED, Scene

_GENERAL = "nccl_cuda"  # a rule
_NEAR = 8  # lines below an error in which its process says more of it


def without_the_general(chosen: Sequence[Error]) -> list[Error]:
    """The errors without those that another one of the same process, right below, says more of."""
    return [f for f in chosen if not _is_explained(f, chosen)]


def _is_explained(fact: Error, every: Sequence[Error]) -> bool:
    if fact.rule != _GENERAL or fact.values.get("what"):
        return False
    own = [f for f in every if (f.file, f.rank, f.pid) == (fact.file, fact.rank, fact.pid)]
    return any(f.rule not in ("", _GENERAL) and 0 < f.line - fact.line <= _NEAR for f in own)


def with_its_reason(scene: Scene, first: Error, alike: Sequence[Error]) -> Error:
    """The error with what NCCL says of the call, in one of those like it or in a warning of the same file."""
    if first.rule != _GENERAL or first.values.get("what"):
        return first
    warned = [f for f in scene.of(KnownError) if f.rule == NCCL_WARNED and f.file == first.file]
    told = [f.values["what"] for f in [*alike, *warned] if f.values.get("what")]
    return structs.replace(first, values={**first.values, "what": told[0]}) if told else first
