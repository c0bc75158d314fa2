"""A rank whose interpreter is shut down while its process waits in C: real processes and a real dump."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hangdoctor.readers import proc, pyspy
from tests.support.plain_ranks import PORT, dump, scripted
from tests.support.stage import wait_until

# Py_AtExit calls run when the interpreter is gone: there mpi4py calls MPI_Finalize. A wait in a compiled
# module has no frame of its own, as in mpi4py.
JOB = """
import ctypes, os, sys, time
from types import SimpleNamespace

comm = SimpleNamespace(Allreduce=time.sleep)
if os.environ["RANK"] == "2":
    wait = ctypes.cast(ctypes.CDLL(None).pause, ctypes.c_void_p)
    ctypes.pythonapi.Py_AtExit(wait)
open(sys.argv[1], "w").close()
if os.environ["RANK"] == "2":
    raise ValueError("a bad tile")
comm.Allreduce(3600)
"""


def test_a_rank_of_which_only_the_process_remains_is_named(tmp_path: Path) -> None:
    with scripted(tmp_path, JOB, PORT + 37, 3) as pids:
        wait_until(lambda: "pause" in syscalls(pids[2]), "rank 2 waits in its exit")
        found = dump(tmp_path, f"127.0.0.1:{PORT + 37}", "--settle", "0.2")
    [cause] = found["causes"]
    assert (cause["kind"], cause["ranks"]) == ("end_stall", [2]), found["summary"]
    assert f"pid {pids[2]}" in cause["summary"] and "Python has shut down" in cause["summary"]
    assert "py-spy" not in cause["advice"]
    [missing] = found["missing"]
    assert (missing["ranks"], "shut down its interpreter" in missing["why"]) == ([2], True)


def syscalls(pid: int) -> list[str]:
    return [thread.syscall for thread in proc.sample_process(pid, 0.0).threads]


@pytest.mark.parametrize("program", [sys.executable, "/bin/sleep"])
def test_a_process_that_only_starts_has_not_shut_down(program: str) -> None:
    """It is held before its first instruction, where no interpreter can be."""
    libc = ctypes.CDLL(None)
    held = subprocess.Popen([program, "3600"], preexec_fn=lambda: libc.ptrace(0, 0, 0, 0))
    try:
        os.waitpid(held.pid, os.WUNTRACED)
        result = pyspy.dump(held.pid, 30.0)
    finally:
        held.kill()
        held.wait(timeout=20)
    assert result.error and not result.shut_down
    assert "backtrace" not in result.error
