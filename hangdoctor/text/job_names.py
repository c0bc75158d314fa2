"""What a job is called in headlines and folders: short, and still a part of its key, so that
`--job` takes it.
"""

from __future__ import annotations

from .late import late

# Every run of torchrun --standalone is called by a new one of these.
_UUID = late(r"\b([0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
_LAUNCHER = late(r"^torchrun:")


def short_job(key: str) -> str:
    """``torchrun:demo-3135`` as ``demo-3135``; of a UUID the first eight digits."""
    return _UUID.sub(r"\1", _LAUNCHER.sub("", key)) or key
