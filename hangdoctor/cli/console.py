"""Where a command prints its result in colours."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def console(no_color: bool, width: int) -> Console:
    """Standard output; `width` columns where it is no terminal. A line number between colons, as in
    ``train.py:100:``, is no emoji.
    """
    from rich.console import Console

    plain = no_color or bool(os.environ.get("NO_COLOR"))
    return Console(
        color_system=None if plain else "auto",
        width=None if sys.stdout.isatty() else width,
        emoji=False,
    )
