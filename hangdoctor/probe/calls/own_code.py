"""Which code is the script's own: its module or package, and what lies beside it. What is followed
where no name is given.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from types import ModuleType
from typing import Any

from .program import MAIN, program_name

_INSTALLED = ("site-packages", "dist-packages")
_OURS = "hangdoctor"
_MAX_OFFERED = 60


class OwnCode:
    """Asked once for each code object, and for its names once a second."""

    def __init__(self) -> None:
        self._program = ""
        self._folder = ""
        self._answers: dict[str, bool] = {}
        self._modules = -1  # how many were imported when the names were found
        self._names: list[str] = []

    def has(self, module: str) -> bool:
        """Whether a module belongs to it; nothing does before the program itself begins."""
        if not self._program and not self._find_program():
            return False
        top = module.partition(".")[0]
        if top == self._program.partition(".")[0]:
            return True
        known = self._answers.get(top)
        if known is None:
            found = sys.modules.get(top)
            if found is None:
                return False
            known = self._answers[top] = self._lies_beside(top, found)
        return known

    def names(self) -> list[str]:
        """The import names of it, the program's first."""
        if not self._program and not self._find_program():
            return []
        if self._modules != len(sys.modules):
            self._modules = len(sys.modules)
            tops = sorted({name for name in list(sys.modules) if "." not in name})
            beside = [name for name in tops if name not in (*MAIN, _OURS) and self.has(name)]
            self._names = list(dict.fromkeys([self._program, *beside]))
        return self._names

    def _find_program(self) -> bool:
        main = sys.modules.get("__main__")
        if main is None:
            return False
        name = program_name(vars(main), "")
        if name == "__main__" and not getattr(main, "__file__", None):
            return False  # not started yet, or python -c
        self._program = _package_of(main, name)
        top = sys.modules.get(self._program.partition(".")[0])
        path = _path_of(top) if getattr(main, "__spec__", None) and top is not None else ""
        # Beside a package: what lies in the folder that the package lies in.
        self._folder = os.path.dirname(path) if path else os.path.dirname(_path_of(main))  # noqa: PTH120
        return True

    def _lies_beside(self, top: str, module: ModuleType) -> bool:
        if top in sys.stdlib_module_names or not self._folder:
            return False
        path = _path_of(module)
        inside = path.startswith(self._folder.rstrip("/") + "/")
        return inside and not any(part in path.split("/") for part in _INSTALLED)


def offered(own: OwnCode, wanted: Iterable[str]) -> list[str]:
    """Names that do match, for who misspelt one: the script's own, those below the same package,
    and all top packages but the standard library.
    """
    loaded = list(sys.modules)
    parents = {name.rpartition(".")[0] for name in wanted} - {""}
    below = sorted(name for name in loaded if name.rpartition(".")[0] in parents)
    tops = sorted(
        name
        for name in loaded
        if "." not in name and not name.startswith("_") and name not in sys.stdlib_module_names
    )
    tops = [name for name in tops if name not in (*MAIN, _OURS, "sitecustomize")]
    return list(dict.fromkeys([*own.names(), *below, *tops]))[:_MAX_OFFERED]


def _package_of(main: ModuleType, name: str) -> str:
    """``hangdoctor.train`` of ``python -m hangdoctor.train``, whose module is called by its
    __main__.
    """
    if not getattr(main, "__spec__", None):
        return name
    name = name.removesuffix(".__main__")
    return name if name.startswith(f"{_OURS}.") else name.partition(".")[0]


def _path_of(module: Any) -> str:
    """A module's file, of a package its folder; "" where there is none."""
    path = getattr(module, "__file__", None)
    if path is None:
        places = list(getattr(module, "__path__", None) or [])
        return os.path.abspath(str(places[0])) if places else ""  # noqa: PTH100
    path = os.path.abspath(str(path))  # noqa: PTH100
    return os.path.dirname(path) if path.endswith("/__init__.py") else path  # noqa: PTH120
