"""Which code is followed: decided once for each code object, by the import name of the module it belongs to."""

from __future__ import annotations

import sys
from types import FrameType

_EVERYTHING = "*"
_OWN = "hangdoctor"


class Choice:
    """Include and exclude lists of import names; the longer match wins, and exclusion among equals.

    Without names to follow, everything is followed but the standard library. `*` names everything.
    """

    def __init__(self, follow: tuple[str, ...], ignore: tuple[str, ...]) -> None:
        self._follow, self._ignore = follow, ignore

    def follows(self, module: str) -> bool:
        if module == _OWN or module.startswith(_OWN + "."):
            return False
        wanted = max((_match(name, module) for name in self._follow), default=-1)
        if not self._follow:
            wanted = 0 if module.partition(".")[0] not in sys.stdlib_module_names else -1
        return wanted >= 0 and wanted > max((_match(name, module) for name in self._ignore), default=-1)


def _match(name: str, module: str) -> int:
    """How much of the module's name a chosen name covers; -1 for nothing."""
    if name == _EVERYTHING:
        return 0
    return len(name) if module == name or module.startswith(name + ".") else -1


def module_of(frame: FrameType | None, filename: str) -> str:
    """The import name that a frame's code goes by; the program itself goes by its own name (train.py: `train`)."""
    name = frame.f_globals.get("__name__") if frame is not None else None
    if name == "__main__":
        spec = frame.f_globals.get("__spec__") if frame is not None else None
        own = getattr(spec, "name", "") or _stem((frame.f_globals.get("__file__") if frame is not None else "") or filename)
        return str(own) or "__main__"
    if isinstance(name, str) and name:
        return name
    return filename[8:-1] if filename.startswith("<frozen ") else ""


def _stem(path: object) -> str:
    name = str(path).rpartition("/")[2]
    return name[:-3] if name.endswith(".py") else name
