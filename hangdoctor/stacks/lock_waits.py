"""Waits for a lock file to go away, by the stack."""

from __future__ import annotations

from collections.abc import Sequence

from ..model.capture import Frame, ThreadSample

_BATON = "torch/utils/file_baton.py"


def waits_for_file(threads: Sequence[ThreadSample]) -> Frame | None:
    """The innermost frame of the main thread, where that is torch's wait for another build."""
    main = next((t for t in threads if t.name == "MainThread"), None)
    if main is None or not main.frames:
        return None
    inner = main.frames[0]
    waits = inner.file.endswith(_BATON) and inner.own_name == "wait"
    return inner if waits else None
