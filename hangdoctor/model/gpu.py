"""The GPUs of a node at one moment, as their driver and the kernel's log report them: plain data."""

from __future__ import annotations

from msgspec import Struct


class Xid(Struct, omit_defaults=True):
    """One error that the driver wrote into the kernel's log."""

    number: int
    at: float = 0.0  # seconds since the epoch
    pid: int = 0  # the process that it was for; 0 where the driver does not say
    says: str = ""  # what follows the number


class Gpu(Struct, omit_defaults=True):
    """One GPU; -1 is a figure that the driver does not give."""

    index: int
    uuid: str = ""
    bus: str = ""  # "0000:3b:00"
    name: str = ""
    pids: list[int] = []  # processes that compute on it
    busy: int = -1  # per cent of the driver's last sampling period, at most 1 s
    memory_mb: int = -1
    memory_total_mb: int = -1
    clock_mhz: int = -1  # of its processors
    clock_max_mhz: int = -1
    slowed: list[str] = []  # why its clock is lowered: "hw_thermal_slowdown" ...
    uncorrected: int = -1  # memory errors that ECC could not correct, since the driver was loaded
    link_errors: int = -1  # of all its NVLinks, since they came up
    xids: list[Xid] = []  # since the oldest rank of this node began
