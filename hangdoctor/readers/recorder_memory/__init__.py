"""torch's recorder of collectives (Flight Recorder), read from the memory of a rank as it runs.

Nothing prepares the job: torch records by default, gloo's collectives too, and nothing asks the
rank, so that one that is stopped, or whose interpreter lock is held, shows its records as well. The
layout of the recorder's classes comes from the headers that the job's own torch has with it; what
does not look like a recorder is not taken for one.

Source: torch/csrc/distributed/c10d/FlightRecorder.hpp, of torch 2.13.
"""

from __future__ import annotations

import struct

from ...errors import BadInput
from ..flight_recorder_format import Dump
from .entries import Torn, records
from .process_memory import ProcessMemory, Unreadable
from .search import Found, again, find

_TRIES = 3  # it may be written meanwhile


def read_recorder(pid: int, newest: int) -> Dump | None:
    """What a process's recorder holds, the newest so many records; None where it has none that can be
    read. Of two, of NCCL and of gloo, that of NCCL.
    """
    try:
        with ProcessMemory(pid) as memory:
            found = [d for r in find(memory) if (d := _read(memory, r, newest)) is not None]
    except (Unreadable, BadInput, struct.error):
        return None  # what looked like one is none
    return max(found, key=lambda dump: dump.backend != "gloo", default=None)


def _read(memory: ProcessMemory, recorder: Found, newest: int) -> Dump | None:
    for _ in range(_TRIES):
        try:
            return records(memory, recorder, newest)
        except (Torn, Unreadable):
            now = again(memory, recorder)
            if now is None:
                return None
            recorder = now
    return None
