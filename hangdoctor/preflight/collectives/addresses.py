"""Where a node can be reached by the others, in whose name service its name may be unknown."""

from __future__ import annotations

import os
import socket
from functools import cache

import psutil

_CHOSEN = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")  # their interfaces come first
_HERE = "127."


def own() -> list[str]:
    """The IPv4 addresses of this host but loopback, those of the chosen interfaces first."""
    chosen = {os.environ.get(name, "").lstrip("=") for name in _CHOSEN}
    found: list[tuple[bool, str]] = []
    for interface, entries in psutil.net_if_addrs().items():
        known = [entry.address for entry in entries if entry.family == socket.AF_INET]
        found += [(interface not in chosen, a) for a in known if not a.startswith(_HERE)]
    return [address for _, address in sorted(found, key=lambda one: one[0])]


@cache
def first_known(names: str) -> str:
    """The first of some names and addresses, with commas between, that this host can look up; the
    first one where it can none.

    A bare number is no name of a host but would be looked up as one: "3" is 0.0.0.3.
    """
    every = [name for name in names.split(",") if name]
    for name in every:
        if name.isdecimal():
            continue
        try:
            socket.getaddrinfo(name, None)
        except OSError:
            continue
        return name
    return every[0] if every else ""
