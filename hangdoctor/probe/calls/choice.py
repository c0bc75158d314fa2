"""Which code is followed: decided once for each code object, by the import name of the module it
belongs to.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from types import FrameType

from .own_code import OwnCode
from .program import MAIN, program_name

_EVERYTHING = "*"
_OWN = "hangdoctor"
_TRAINER = "hangdoctor.train"  # installed below our name, and a job like any other


class Choice:
    """Include and exclude lists of import names; the longer match wins, and exclusion among equals.

    Without names to follow, the script's own code is followed. `*` names everything.
    """

    def __init__(
        self, follow: tuple[str, ...], ignore: tuple[str, ...], own: OwnCode | None = None
    ) -> None:
        self._follow, self._ignore = follow, ignore
        self._own = own or OwnCode()

    def follows(self, module: str) -> bool:
        """Whether calls of code of this module are written."""
        if _match(_OWN, module) > 0 > _match(_TRAINER, module):
            return False
        wanted = max((_match(name, module) for name in self._follow), default=-1)
        if not self._follow:
            wanted = 0 if self._own.has(module) else -1
        return wanted >= 0 and wanted > max(
            (_match(name, module) for name in self._ignore), default=-1
        )


def _match(name: str, module: str) -> int:
    """How much of the module's name a chosen name covers; -1 for nothing."""
    if name == _EVERYTHING:
        return 0
    return len(name) if module == name or module.startswith(name + ".") else -1


def module_of(frame: FrameType | None, filename: str) -> str:
    """The import name that a frame's code goes by; the program itself goes by its own name
    (train.py: `train`).
    """
    name = frame.f_globals.get("__name__") if frame is not None else None
    if name in MAIN:
        return program_name(frame.f_globals if frame is not None else {}, filename)
    if isinstance(name, str) and name:
        return name
    return filename[8:-1] if filename.startswith("<frozen ") else ""


def not_imported(names: Iterable[str]) -> list[str]:
    """Those of the chosen names that nothing in this process goes by, so far: a typing error, or a
    package that comes later.
    """
    main = sys.modules.get("__main__")
    own = program_name(vars(main), "") if main is not None else ""
    return [n for n in names if n != _EVERYTHING and n not in sys.modules and _match(n, own) < 0]
