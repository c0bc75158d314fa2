"""How processes end, as far as readers of logs and the diagnosis must agree on it."""

from __future__ import annotations

import signal

# Ends that people, schedulers and launchers bring about; beyond 128: as a shell says it
SENT = frozenset({-1, -2, -9, -15, 129, 130, 137, 143})
# By signals that nothing but the process itself brings about
BY_ITSELF = frozenset(
    -number
    for number in (signal.SIGILL, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGSEGV)
)
# The same without SIGABRT, by which watchdogs end processes, too
CRASH_CODES = BY_ITSELF - {-signal.SIGABRT}
# Rules of crashes, with the codes that they are
CRASHES: dict[str, int] = {
    "segfault": -signal.SIGSEGV,
    "bus_error": -signal.SIGBUS,
    "float_error": -signal.SIGFPE,
}


def short_host(name: str) -> str:
    """A host's name without its domain: launchers and programs print either."""
    return name.partition(".")[0]
