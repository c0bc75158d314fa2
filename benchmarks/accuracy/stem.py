"""Imports torch once and forks the ranks of one job after another.

    python -m benchmarks.accuracy.stem \\
        --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2

Eight imports of torch take half a minute on a small machine, a fork nothing. What makes a process a
rank to the outside is its environment in /proc/PID/environ, which the kernel reads from the
process's own memory: each rank writes its RANK there, so that it is found as one that a launcher
has started. Steered by lines of JSON on stdin: {"ranks": [...], "folder": ..., "port": ...,
"probe": ..., "faults": [...]} starts a job (`job.py`; with "mesh" that of `mesh_job.py`) and is answered with the pids; {} ends it and is
answered when nothing of it is left.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn


def placeholders(world: int) -> dict[str, str]:
    """What the stem must be started with: of the same length as what takes its place."""
    zeros = "0" * len(str(world - 1))
    return {"R_NK": zeros, "L_CAL_RANK": zeros, "MASTER_PORT": "00000"}


def write_environ(rank: int, port: int) -> None:
    """Put rank and port into this process's environment, as Python and as the kernel see it
    (proc(5), stat fields 50-51).
    """
    zeros = os.environ["R_NK"]
    told = f"{rank:0{len(zeros)}d}"
    os.environ.update(RANK=told, LOCAL_RANK=told, MASTER_PORT=str(port))
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[47]), int(fields[48])
    memory = (ctypes.c_char * (end - start)).from_address(start)
    text = bytes(memory.raw)
    for old, new in (
        (f"R_NK={zeros}", f"RANK={told}"),
        (f"L_CAL_RANK={zeros}", f"LOCAL_RANK={told}"),
        ("MASTER_PORT=00000", f"MASTER_PORT={port:05d}"),
    ):
        text = text.replace(b"\0" + old.encode() + b"\0", b"\0" + new.encode() + b"\0")
    ctypes.memmove(start, text, end - start)


def run_rank(rank: int, order: dict[str, Any]) -> None:
    """The rank's whole life; never returns to the stem's loop."""
    from . import faults, job

    os.setsid()
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: never outlive the stem
    if rank < 0:
        serve_store(order["port"])
    folder = Path(order["folder"])
    log = os.open(folder / f"log.{rank}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    write_environ(rank, order["port"])
    if order["probe"]:
        import hangdoctor.probe

        hangdoctor.probe.install()
    if "mesh" in order:
        from . import mesh_job

        mesh_job.main(rank, folder, order)
        return
    job.main(
        rank, folder, faults.Fault(rank, folder, [faults.Coordinate(**f) for f in order["faults"]])
    )


def serve_store(port: int) -> NoReturn:
    """The rendezvous store, outside of all ranks as torchrun's agent keeps it: no rank's death
    takes it away.
    """
    import torch.distributed as dist

    store = dist.TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)
    while store:
        signal.pause()
    raise SystemExit


def end(pids: list[int]) -> None:
    """Every rank with its session: workers and helpers too."""
    for pid in pids:
        for kill in (
            os.killpg,
            os.kill,
        ):  # a rank that has not come to its setsid() yet has no group of its own
            with contextlib.suppress(ProcessLookupError, PermissionError):
                kill(pid, signal.SIGKILL)
    for pid in pids:
        os.waitpid(pid, 0)


def main() -> None:
    """Fork ranks as the lines on stdin say, until it is closed."""
    from . import job  # noqa: F401

    print("ready", flush=True)
    pids: list[int] = []
    while line := sys.stdin.readline():
        order = json.loads(line)
        end(pids)
        pids = []
        for rank in [-1, *order["ranks"]] if order else []:
            pid = os.fork()
            if pid == 0:
                run_rank(rank, order)
                return
            pids.append(pid)
        try:
            print(json.dumps(pids[1:]), flush=True)
        except BrokenPipeError:
            break
    end(pids)


if __name__ == "__main__":
    main()
