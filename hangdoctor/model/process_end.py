"""How a process of a job ended, as its parent `hangdoctor run` saw it: one line of JSON each."""

from __future__ import annotations

from msgspec import Struct


class ProcessEnd(Struct, omit_defaults=True, kw_only=True):
    """One process that has ended; a negative code is the signal that ended it."""

    pid: int
    node: str
    code: int
    at: float  # seconds since the epoch
    rank: int = -1  # by its environment
    world_size: int = 0
    began: float = 0.0  # when it was first seen
    boxed: bool = False  # it had a black box
    core: bool = False  # it left a core dump
    out_of_memory: bool = False  # its control group counts a kill for lack of memory at that time
