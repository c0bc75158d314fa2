"""Tracebacks of what starts ranks or serves beside them, and runs none: launchers, and the processes of an
inference server that hold no part of the model.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..model.frame import Frame
from ..text.late import late
from . import no_ranks
from .user_code import is_parents, is_users

_PARTS = (
    (late(r"/deepspeed/launcher/"), "DeepSpeed's launcher"),
    (late(r"/accelerate/commands/"), "accelerate's launcher"),
    (late(r"/horovod/runner/"), "horovodrun"),
    (late(r"/sglang/srt/managers/detokenizer_manager\.py$"), "SGLang's detokenizer"),
    (late(r"/sglang/srt/managers/tokenizer_manager\.py$"), "SGLang's tokenizer manager"),
)
_PARENT = "the parent of the ranks"
# A rank that such a launcher runs in its own process
_OF_RANK = late(r"/torch/nn/|/sglang/srt/(?:model_executor|managers/scheduler)")


def launches(frames: Sequence[Frame]) -> bool:
    """Whether it is a traceback of a launcher that other processes run under, and not of one of these."""
    return speaker(frames).endswith("launcher") or speaker(frames) == _PARENT


def speaker(frames: Sequence[Frame]) -> str:
    """What the process of a traceback is instead of a rank; "" for what may be one."""
    if any(is_users(f) or _OF_RANK.search(f.file) for f in frames if not _is_script(f)):
        return ""
    if is_parents(frames):
        return _PARENT
    found = no_ranks.part_of(frames)
    if found:
        return found
    named = (name for f in frames for pattern, name in _PARTS if pattern.search(f.file))
    return next(named, "")


def _is_script(frame: Frame) -> bool:
    """Whether it is where a program begins, or a part that is named, in whatever folder."""
    return frame.name == "<module>" or any(p.search(frame.file) for p, _ in _PARTS)
