"""Whether the system's functions are its own: a test of the job's may put others in their place for a while.

What they raise would look like the job's own exception and reach it. Worse, a made-up file system gives out numbers
of descriptors that may be real files of the job's: a box mapped through one would be written into that file.
"""

from __future__ import annotations

import io
import os

_CALLED = (
    *("access", "dup", "fstat", "getpid", "listdir", "lstat", "mkdir", "open"),
    *("posix_fallocate", "pwrite", "scandir", "stat", "unlink"),
)
_REAL = type(os.getpid)


def are_there() -> bool:
    """True where a function that the probe calls for its files is none of the interpreter's."""
    called: list[object] = [getattr(os, name) for name in _CALLED]
    return any(type(function) is not _REAL for function in [io.open, *called])
