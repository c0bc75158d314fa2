"""What a rank in set-up shows of its way to the store, and who is expected."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class StoreView(Struct, omit_defaults=True):
    """A rank's store (MASTER_ADDR, MASTER_PORT), as its own node sees it.

    `link`: "listens" on the port, "connected" to it, "asks" (its SYN has no answer), or "none".
    """

    name: str = ""
    port: int = 0
    addresses: list[str] = []  # that the name leads to on this node; none where it does not resolve
    link: Literal["", "listens", "connected", "asks", "none"] = ""
    refused: str = ""  # why a connection attempt from this node failed; "" where none was made


class Import(Struct, omit_defaults=True):
    """The module that a rank's main thread imports."""

    module: str  # "torch", "torch.distributed"
    file: str = ""
    seconds: float = 0.0  # since the process began
    mount: str = ""  # where the file's file system is mounted
    filesystem: str = ""  # its type, as in /proc/PID/mountinfo
