"""What a process has loaded: any extension module of Python, which stays when the interpreter is shut
down; and JAX, whose calls of compiled functions leave no frame.

A process that only starts has none of them, and what another program has replaced by `exec` has lost
them.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ..model.capture import RankCapture
from ..text.late import late

# Extension modules, as the interpreter names them and by their folder.
_MODULE = late(rb"/lib-dynload/|\.(?:cpython-\w|pypy\w|abi3)[^/\n]*\.so\b")
_JAX = late(rb"/jaxlib/[^/\n]+\.so\b")
_MOST = 64  # ranks of a node: more are no JAX job, and each costs a millisecond


def are_there(pid: int) -> bool:
    """Whether any extension module of Python is in its memory, by /proc/PID/maps."""
    return _MODULE.search(_maps(pid)) is not None


def attach(ranks: Iterable[RankCapture]) -> None:
    """Set `has_jax` of the ranks that have it."""
    for rank in list(ranks)[:_MOST]:
        rank.has_jax = _JAX.search(_maps(rank.pid)) is not None


def _maps(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/maps").read_bytes()
    except OSError:
        return b""  # it ended, or is not ours to read
