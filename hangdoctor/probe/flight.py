"""Flight Recorder and worker server of torch: switched on where the user has not decided otherwise.

`torch._C._distributed_c10d._WorkerServer` logs a line when it starts and three when it is destroyed. The first is kept
from the job's stderr by looking at what was written while the server was made and passing everything else on; the
others never come, because the server is left to end with the process.
"""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import Any

from . import torchnames
from .folder import discard_socket, socket_name
from .identity import process_name
from .own_threads import signals_blocked, streams_taken
from .whose_error import is_ours

RECORDS = "2000"
SOCKET_VARIABLE = "TORCH_WORKER_SERVER_SOCKET"
_SOCKET_MAX = 107  # bytes of a Unix socket's path (unix(7))
_kept: list[Any] = []


def set_recorder_size() -> None:
    """TORCH_FR_BUFFER_SIZE, where neither it nor its old name is set; torch reads it when a group is made."""
    if not any(name in os.environ for name in torchnames.RECORDER_SIZES):
        for name in torchnames.recorder_size_names():
            os.environ[name] = RECORDS


def socket_path(folder: Path, pid: int) -> Path:
    return folder / socket_name(process_name(pid))


def start_worker_server(folder: Path, pid: int) -> str:
    """Serve torch's handlers (fr_trace_json, dump_traceback ...) on a Unix socket in the job's private folder.

    Nothing is done where the user has set TORCH_WORKER_SERVER_SOCKET or HANGDOCTOR_WORKER_SERVER=0, where torch has
    no such server, or where the path is too long for a socket. The record of operations does not depend on it: where it
    cannot be started (a file system without sockets, a closed stderr), the text that is returned says why.
    """
    server = torchnames.worker_server()
    path = socket_path(folder, pid)
    theirs = os.environ.get(SOCKET_VARIABLE)
    if server is None or _kept or theirs or os.environ.get("HANGDOCTOR_WORKER_SERVER") == "0":
        return ""
    if len(os.fsencode(path)) > _SOCKET_MAX or not hasattr(os, "memfd_create"):
        return ""
    try:
        discard_socket(path)  # of a dead process that had the same number
        _kept.append(_quietly(server, str(path)))
        path.chmod(
            0o600
        )  # also in a folder that others may enter, under an umask that lets a group write
    except (OSError, RuntimeError, ValueError) as error:
        if not is_ours(error):
            raise
        return f"no worker server: {error}"
    _never_destroy(_kept[-1])
    return ""


def remove_socket(folder: Path, pid: int) -> None:
    if _kept:
        discard_socket(socket_path(folder, pid))


def _quietly(server: Any, path: str) -> Any:
    """Make the server; whatever else reaches stderr meanwhile is passed on."""
    if (
        type(sys.stderr) is io.TextIOWrapper
    ):  # an object of the job's own would run the job's code here
        sys.stderr.flush()
    saved, held = os.dup(2), os.memfd_create("hangdoctor-stderr", os.MFD_CLOEXEC)
    try:
        os.dup2(held, 2)
        try:
            with signals_blocked(), streams_taken(held):
                return server(path)
        finally:
            os.dup2(saved, 2)
            os.lseek(held, 0, os.SEEK_SET)
            with os.fdopen(os.dup(held), "rb") as lines:
                for line in lines:
                    if b"WorkerServer.cpp" not in line:
                        os.write(2, line)
    finally:
        os.close(saved)
        os.close(held)


def _never_destroy(server: Any) -> None:
    """One reference too many: destroying the server at the interpreter's end would log, and join its thread."""
    import ctypes

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(server))
