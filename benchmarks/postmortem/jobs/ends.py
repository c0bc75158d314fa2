"""The ways in which a rank of these jobs ends, or keeps its peers from going on.

What a process does to itself comes from the trainer's library of acts; the exceptions are this job's own.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from hangdoctor.train.faults import acts


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


def _from_a_thread() -> None:
    threading.Thread(target=os._exit, args=(9,)).start()
    time.sleep(30)


def _hang(act: Callable[[], object]) -> None:
    """Block in this act of the library; the driver ends the job once the others have waited."""
    _tell_later()
    act()


def _stop() -> None:
    _tell_later()
    time.sleep(float(os.environ["HUNG_S"]) + 0.5)
    acts.stop()


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
    "kill": acts.kill,
    "term": lambda: acts.end_by(signal.SIGTERM),
    "bus": lambda: acts.end_by(signal.SIGBUS),
    "fpe": lambda: acts.end_by(signal.SIGFPE),
    "null": acts.segfault,
    "abort": os.abort,
    "exit": lambda: acts.exit_at_once(7),
    "exit_zero": acts.exit_at_once,
    "thread": _from_a_thread,
    "spin": lambda: _hang(acts.spin),
    "sleep": lambda: _hang(acts.sleep),
    "stop": _stop,
    "fifo": lambda: _hang(lambda: acts.open_fifo(Path(os.environ["FIFO"]))),
}
