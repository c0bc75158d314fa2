"""Whether a process has had a Python interpreter: what that has loaded stays when it is shut down.

A process that only starts has none of them, and what another program has replaced by `exec` has lost
them.
"""

from __future__ import annotations

import re
from pathlib import Path

# Extension modules, as the interpreter names them and by their folder.
_MODULE = re.compile(rb"/lib-dynload/|\.(?:cpython-\w|pypy\w|abi3)[^/\n]*\.so\b")


def are_there(pid: int) -> bool:
    """Whether any extension module of Python is in its memory, by /proc/PID/maps."""
    try:
        maps = Path(f"/proc/{pid}/maps").read_bytes()
    except OSError:
        return False  # it ended, or is not ours to read
    return _MODULE.search(maps) is not None
