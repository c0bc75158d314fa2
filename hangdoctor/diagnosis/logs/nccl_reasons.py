"""Why a call to CUDA failed inside NCCL: the error itself says only that one did, and NCCL's own lines beside
it say which.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from ...model.log_facts import KnownError, PythonError
from ..confidence import Ground, sure
from ..findings.log_stories import FailedFirst
from .candidate import Error, First
from .scene import NCCL_WARNED, Scene

_GENERAL = "nccl_cuda"  # a rule
_OF_KERNELS = ("cuda_illegal_access", "cuda_assert")  # others, of what a kernel of the program did
_SECOND_S = 1.0
_NEAR = 8  # lines below an error in which its process says more of it


def without_the_general(chosen: Sequence[Error]) -> list[Error]:
    """The errors without those that another one of the same process, right below, or of the same second says
    more of: a failed kernel is met by whatever call comes next, also of its neighbours.
    """
    return [f for f in chosen if not (_is_explained(f, chosen) or _is_met_beside(f, chosen))]


def tell_beside(scene: Scene, found: First, chosen: Sequence[Error]) -> None:
    """What another process met in the second of a failed kernel, where nothing shows which of the two was first."""
    story, first = found.finding.story, found.facts[0]  # of errors there is one
    if not isinstance(story, FailedFirst) or getattr(first, "rule", "") not in _OF_KERNELS:
        return
    met = [f for f in chosen if f.rule == _GENERAL and _is_met_beside(f, chosen)]
    other = [f for f in met if (f.rank, f.pid) not in {(g.rank, g.pid) for g in found.facts}]
    if not other or not (other[0].pid or other[0].rank >= 0):
        return
    one = other[0]
    by = f"rank {one.rank}" if one.rank >= 0 else f"process {one.pid}"
    says = one.message if isinstance(one, PythonError) else one.says
    found.finding.story = structs.replace(
        story, meanwhile=scene.quote(one, says), meanwhile_by=by, together=False
    )
    found.finding.confidence = min(found.finding.confidence, sure(Ground.LOG_ALIKE))


def _is_explained(fact: Error, every: Sequence[Error]) -> bool:
    if fact.rule != _GENERAL or fact.values.get("what"):
        return False
    own = [f for f in every if (f.file, f.rank, f.pid) == (fact.file, fact.rank, fact.pid)]
    return any(f.rule not in ("", _GENERAL) and 0 < f.line - fact.line <= _NEAR for f in own)


def _is_met_beside(fact: Error, every: Sequence[Error]) -> bool:
    """Whether a kernel of the program failed in the same second, in whatever process."""
    if fact.rule != _GENERAL or fact.values.get("what") or fact.at <= 0:
        return False
    kernels = [f for f in every if f.rule in _OF_KERNELS and f.at > 0]
    return any(abs(f.at - fact.at) < _SECOND_S for f in kernels)


def with_its_reason(scene: Scene, first: Error, alike: Sequence[Error]) -> Error:
    """The error with what NCCL says of the call, in one of those like it or in a warning of the same file."""
    if first.rule != _GENERAL or first.values.get("what"):
        return first
    warned = [f for f in scene.of(KnownError) if f.rule == NCCL_WARNED and f.file == first.file]
    told = [f.values["what"] for f in [*alike, *warned] if f.values.get("what")]
    return structs.replace(first, values={**first.values, "what": told[0]}) if told else first
