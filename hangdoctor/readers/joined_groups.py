"""Who has joined a process group of torch, by the names of its threads.

torch names those that it starts for a group (`pt_gloo_runloop`, `pt_nccl_watchdg`), and those that serve
the store (`pt_tcpstore_uv`): c10d's ProcessGroupGloo.cpp, ProcessGroupNCCL.cpp and TCPStoreLibUvBackend.cpp.
The kernel keeps 15 characters.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from . import proc

_OF_GROUP = ("pt_gloo", "pt_nccl", "pt_mpi", "pt_ucc")
_OF_STORE = "pt_tcpstore"
_MOST = 4096  # threads of a process that are looked at


def has_joined(pid: int) -> bool:
    """Whether a process has threads of a group."""
    return any(name.startswith(_OF_GROUP) for name in _names(pid))


def serves_store(pid: int) -> bool:
    """Whether a process serves the store at which the ranks meet: rank 0 does, unless something else was
    asked to.
    """
    return any(name.startswith(_OF_STORE) for name in _names(pid))


def _names(pid: int) -> list[str]:
    found = []
    for tid in proc.thread_ids(pid)[:_MOST]:
        with suppress(OSError):  # that thread has ended
            found.append(Path(f"/proc/{pid}/task/{tid}/comm").read_text(errors="replace").strip())
    return found
