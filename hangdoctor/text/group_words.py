"""What a process group is called: the same words in a sentence, a table and a drawing."""

from __future__ import annotations

from .late import late

WHOLE_JOB = "the whole job"
_AXES = {"tp": "TP", "dp": "DP", "pp": "PP"}
_NO_NAME = late(r"[0-9]*|[0-9a-f]{16}")


def group_words(name: str, members: str = "") -> str:
    """``TP group 2-3``, ``group 'mine' (0-3)``, ``group 0-3``; the whole job of `world`.

    `name` is an axis of the layout, what the job calls it, or a number or a hash that no one says;
    `members` are its ranks, shortened.
    """
    if name == "world" or name == WHOLE_JOB:
        return WHOLE_JOB
    if name in _AXES:
        return f"{_AXES[name]} group {members}".strip()
    if not _NO_NAME.fullmatch(name):
        return f"group '{name}' ({members})" if members else f"group '{name}'"
    return f"group {members}" if members else ""
