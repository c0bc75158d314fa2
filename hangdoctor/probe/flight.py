"""Flight Recorder and worker server of torch: switched on where the user has not decided otherwise.

`torch._C._distributed_c10d._WorkerServer` logs a line when it starts and three when it is
destroyed. The first is not printed, because torch's log prints errors alone for the millisecond in
which the server is made (nor is a warning that torch's C++ has for another thread just then). The
others never come, because the server is left to end with the process.
"""

from __future__ import annotations

import _thread
import os
from pathlib import Path
from typing import Any

from . import torchnames
from .folder import discard_socket, socket_name
from .identity import process_name
from .own_threads import can_have, signals_blocked, streams_taken
from .whose_error import is_ours, suppress

RECORDS = "2000"
SOCKET_VARIABLE = "TORCH_WORKER_SERVER_SOCKET"
_SOCKET_MAX = 107  # bytes of a Unix socket's path (unix(7))
_POOL_AT_LEAST = 8
_LOOKS, _LOOK_S = 200, 0.0005  # until the server has its threads: some milliseconds
_kept: list[Any] = []


def set_recorder_size() -> None:
    """TORCH_FR_BUFFER_SIZE, where neither it nor its old name is set; torch reads it when a group
    is made.
    """
    if not any(name in os.environ for name in torchnames.RECORDER_SIZES):
        for name in torchnames.recorder_size_names():
            os.environ[name] = RECORDS


def socket_path(folder: Path, pid: int) -> Path:
    """Where this process's worker server listens."""
    return folder / socket_name(process_name(pid))


def start_worker_server(folder: Path, pid: int) -> str:
    """Serve torch's handlers (fr_trace_json, dump_traceback ...) on a Unix socket in the job's
    private folder.

    Nothing is done where the user has set TORCH_WORKER_SERVER_SOCKET or HANGDOCTOR_WORKER_SERVER=0,
    where torch has no such server, or where the path is too long for a socket. The record of
    operations does not depend on it: where it cannot be started (a file system without sockets, a
    closed stderr), the text that is returned says why.
    """
    server = torchnames.worker_server()
    path = socket_path(folder, pid)
    theirs = os.environ.get(SOCKET_VARIABLE)
    if server is None or _kept or theirs or os.environ.get("HANGDOCTOR_WORKER_SERVER") == "0":
        return ""
    if len(os.fsencode(path)) > _SOCKET_MAX:
        return ""
    try:
        discard_socket(path)  # of a dead process that had the same number
        if not can_have(_pool() + 2):
            return "no worker server: the threads that it needs cannot be had"
        before = _threads()
        _kept.append(_quietly(server, str(path)))
        _never_destroy(_kept[-1])
        _wait_until_up(before)
        path.chmod(
            0o600
        )  # also in a folder that others may enter, under an umask that lets a group write
    except (OSError, RuntimeError, ValueError) as error:
        if not is_ours(error):
            raise
        with suppress(OSError):  # one that is there may be for more users than its own
            discard_socket(path)
        return f"no worker server: {error}"
    return ""


def remove_socket(folder: Path, pid: int) -> None:
    """Take the worker server's socket away, where this process has made it."""
    if _kept:
        discard_socket(socket_path(folder, pid))


def _quietly(server: Any, path: str) -> Any:
    """Make the server without its line of log.

    Standard error is left alone: it is the whole process's, and what another thread writes or
    starts meanwhile has it, too.

    Raises:
        RuntimeError: this torch's log cannot be silenced, so that the job would print a line more.
    """
    level = torchnames.log_level()
    if level is None:
        raise RuntimeError("this torch's log cannot be kept from printing that it listens")
    spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    before = level.value
    quiet = max(before, torchnames.LOG_ERRORS)
    try:
        with signals_blocked(), streams_taken(spare):
            level.value = quiet
            return server(path)
    finally:
        if level.value == quiet:  # else the job has set it meanwhile
            level.value = before
        os.close(spare)


def _wait_until_up(before: int) -> None:
    """Come back when the server has all of its threads; `before`: what the process had without it.

    It starts them after its constructor has returned, and std::terminate ends the process where one
    cannot be had: the job may set itself a limit in the next moment.
    """
    pause = _thread.allocate_lock()
    pause.acquire()
    for _ in range(_LOOKS):
        if _threads() >= before + 1 + _pool():
            break
        pause.acquire(timeout=_LOOK_S)


def _pool() -> int:
    """How many threads answer: CPPHTTPLIB_THREAD_POOL_COUNT of cpp-httplib."""
    return max(_POOL_AT_LEAST, len(os.sched_getaffinity(0)) - 1)


def _threads() -> int:
    """Of this process: each has a folder there (proc(5))."""
    return Path("/proc/self/task").stat().st_nlink - 2


def _never_destroy(server: Any) -> None:
    """One reference too many: destroying the server at the interpreter's end would log, and join
    its thread.
    """
    import ctypes

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(server))
