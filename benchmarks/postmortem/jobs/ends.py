"""The ways in which a rank of these jobs ends, or keeps its peers from going on."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path


class BadShard(Exception):
    """An exception of the job's own."""


def strike(kind: str) -> None:
    """End this process, or make it useless, in the named way; returns where the caller has to."""
    ENDS[kind]()


def _raise() -> None:
    raise BadShard("shard 17 has 0 tokens")


def _chained() -> None:
    try:
        {}["vocab_size"]
    except KeyError as error:
        raise RuntimeError("the tokenizer has no vocabulary") from error


def _device() -> None:
    raise RuntimeError("CUDA error: an illegal memory access was encountered")


def _logged() -> None:
    try:
        _raise()
    except BadShard:
        logging.exception("training failed")
        sys.exit(1)


def _memory() -> None:
    raise MemoryError


def _assertion() -> None:
    loss = float("nan")
    assert loss == loss, "loss is not a number"


def _endless() -> None:
    _endless()


def _word() -> None:
    sys.exit("no checkpoint at step 400")


def _by(number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(30)


def _null() -> None:
    ctypes.memset(8, 0, 1)


def _from_a_thread() -> None:
    threading.Thread(target=os._exit, args=(9,)).start()
    time.sleep(30)


def _spin() -> None:
    _tell_later()
    while True:
        sum(range(1000))


def _sleep() -> None:
    _tell_later()
    while True:
        time.sleep(0.5)


def _stop() -> None:
    _tell_later()
    time.sleep(float(os.environ["HUNG_S"]) + 0.5)
    os.kill(os.getpid(), signal.SIGSTOP)


def _fifo() -> None:
    _tell_later()
    with open(os.environ["FIFO"]) as file:  # noqa: PTH123
        file.read()


def _tell_later() -> None:
    """Make the file that the driver waits for, when the others have waited long enough."""

    def tell() -> None:
        time.sleep(float(os.environ["HUNG_S"]))
        Path(os.environ["HUNG"]).touch()

    threading.Thread(target=tell, daemon=True).start()


def tell_now() -> None:
    """The job runs, and the driver may end it."""
    Path(os.environ["HUNG"]).touch()


ENDS = {
    "raise": _raise,
    "chained": _chained,
    "device": _device,
    "logged": _logged,
    "memory": _memory,
    "assertion": _assertion,
    "endless": _endless,
    "word": _word,
    "kill": lambda: _by(signal.SIGKILL),
    "term": lambda: _by(signal.SIGTERM),
    "bus": lambda: _by(signal.SIGBUS),
    "fpe": lambda: _by(signal.SIGFPE),
    "null": _null,
    "abort": os.abort,
    "exit": lambda: os._exit(7),
    "exit_zero": lambda: os._exit(0),
    "thread": _from_a_thread,
    "spin": _spin,
    "sleep": _sleep,
    "stop": _stop,
    "fifo": _fifo,
}
