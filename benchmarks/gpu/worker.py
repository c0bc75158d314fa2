"""The child process of a section: measures unit after unit, and reports each line to a pipe.

    python -m benchmarks.gpu.worker MODULE OPTIONS DESCRIPTOR UNIT...

The module has `units(options)` and `measure(unit, options)`, which yields rows. A unit that raises
loses nothing but itself; after an error that leaves the GPU's context unusable, or out of memory,
the process ends and the command starts another for the rest.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from types import ModuleType
from typing import Any

from .options import Options
from .processes import die_with_parent

# What CUDA says once a kernel has gone wrong: from then on every call fails the same way.
_POISONED = (
    "illegal memory access",
    "device-side assert",
    "unspecified launch failure",
    "misaligned address",
    "an illegal instruction",
    "CUDA error",
    "CUDNN_STATUS",
    "CUBLAS_STATUS",
    "ECC error",
)
START_AGAIN = 75  # exit code: the rest in a fresh process


class NotHere(Exception):
    """A unit that cannot be measured on this machine; the message says why."""


class JobFailed(NotHere):
    """A program that a unit started ended with an error; this process is as good as before."""


def reason(error: BaseException) -> str:
    """Why a unit failed, in one line; memory that did not suffice is called that."""
    text = " ".join(str(error).split())
    if text.startswith("out of memory:"):
        return text[:400]
    if is_out_of_memory(error):
        return f"out of memory: {text}"[:400]
    if isinstance(error, NotHere):
        return text[:400]
    return f"{type(error).__name__}: {text}"[:400]


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the device or the host had too little memory."""
    return isinstance(error, MemoryError) or "out of memory" in str(error).lower()


def is_usable(error: BaseException) -> bool:
    """Whether this process can go on to the next unit after an error."""
    if isinstance(error, JobFailed):
        return True
    return not (is_poisoned(error) or is_out_of_memory(error))


def is_poisoned(error: BaseException) -> bool:
    """Whether this process can measure nothing more on its GPU."""
    return not isinstance(error, NotHere) and any(part in str(error) for part in _POISONED)


class Pipe:
    """Lines of JSON to the command."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def say(self, **line: Any) -> None:
        """One line, at once."""
        data = (json.dumps(line) + "\n").encode()
        while data:
            data = data[os.write(self._descriptor, data) :]


def measure(module: ModuleType, unit: str, options: Options, pipe: Pipe) -> bool:
    """Measure one unit; whether this process can go on to the next."""
    pipe.say(begin=unit)
    began = time.monotonic()
    try:
        for row in module.measure(unit, options):
            pipe.say(unit=unit, row=row)
    except Exception as error:
        pipe.say(unit=unit, failed=reason(error))
        return is_usable(error)
    pipe.say(unit=unit, end=time.monotonic() - began)
    return True


def main(words: list[str]) -> int:
    """Measure the units; the exit code says whether the command has to start another process."""
    die_with_parent()
    options, pipe = Options.decode(words[1]), Pipe(int(words[2]))
    module = importlib.import_module(words[0])
    for unit in words[3:]:
        if not measure(module, unit, options, pipe):
            return START_AGAIN
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads and contexts of CUDA, NCCL and compilers may never end by themselves.
    os._exit(code)
