"""Which act a kind of fault is, and the line that announces it.

An act returns True where it stands in for the operation that the trainer was about to make.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import acts
from .spec import Fault

_announced_slow = False


def announce(fault: Fault) -> None:
    """One line on stdout, flushed: the process may not run much longer."""
    os.write(
        1,
        f"fault: {fault.kind} at rank {fault.rank} iteration {fault.iteration} {fault.where}, pid {os.getpid()}\n".encode(),
    )


def strike(fault: Fault, context: dict[str, Any]) -> bool:
    """Do what the fault does; True where the caller must leave its own call out."""
    global _announced_slow
    if fault.kind != "slow" or not _announced_slow:
        announce(fault)
    _announced_slow = _announced_slow or fault.kind == "slow"
    if fault.kind in ACTS:
        return ACTS[fault.kind]() is True
    from .collectives import COLLECTIVE_ACTS  # imports torch

    return COLLECTIVE_ACTS[fault.kind](context)


def _slow() -> None:
    acts.delay(0.5)


def _checkpoint_fifo() -> None:
    with tempfile.TemporaryDirectory(prefix="train-fault-") as folder:
        fifo = Path(folder, "fifo")
        os.mkfifo(fifo)
        acts.write_fifo(fifo)


def _device_wait() -> None:
    import torch

    torch.cuda._sleep(1 << 60)


def _leave_out() -> bool:
    return True


ACTS: dict[str, Callable[[], object]] = {
    "sleep": acts.sleep,
    "read": acts.read_pipe,
    "lock": acts.lock_of_a_thread,
    "busy": acts.spin,
    "stop": acts.stop,
    "kill": acts.kill,
    "exit": acts.exit_at_once,
    "io_wait": acts.enter_state_d,
    "gil": acts.hold_gil,
    "fork_lock": acts.fork_with_lock,
    "slow": _slow,
    "data_stuck": acts.read_pipe,
    # A worker killed on a dead node neither answers nor ends: to its rank it looks like a stopped one.
    "data_dead": acts.stop,
    "checkpoint_fifo": _checkpoint_fifo,
    "no_rendezvous": acts.sleep,
    "no_group": acts.sleep,
    "device_wait": _device_wait,
    "missing_send": _leave_out,
    "missing_recv": _leave_out,
}
