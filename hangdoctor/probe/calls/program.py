"""What the program itself is called: its module with ``python -m``, else the name of its file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# The second one in what multiprocessing has started by `spawn` or `forkserver`: the same file, loaded again.
MAIN = ("__main__", "__mp_main__")


def program_name(main: Mapping[str, Any], filename: str) -> str:
    """The program's import name, from the variables of ``__main__``."""
    named = str(getattr(main.get("__spec__"), "name", ""))
    return named or _stem(main.get("__file__") or filename) or "__main__"


def _stem(path: object) -> str:
    name = str(path).rpartition("/")[2]
    return name[:-3] if name.endswith(".py") else name
