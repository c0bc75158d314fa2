"""A knock on the door of a node that has not answered: a TCP connection to what starts our commands
there.

A node without power or link does not answer. One whose kernel runs answers, and a service that runs
says a word or hangs up when we have nothing to say; a stopped one does neither. sshd greets; slurmd
closes a connection without a message and writes one line of its own log, so only nodes that are
late are knocked at.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
import time
from collections.abc import Callable
from typing import Literal

from msgspec import Struct

KNOCK_S = 2.0  # for an answer: a first packet that is lost is sent again after 1 s
# for a service to hang up on an open connection; one knock that is silent so long is enough, so it
# is not cut into several
SERVICE_S = 3.0

Answer = Literal["served", "open", "refused", "silent", "unknown"]
Presence = Literal["alive", "stuck", "closed", "gone", "unknown"]

_NO_WAY = {errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ETIMEDOUT}


class Address(Struct, frozen=True):
    """Where to knock: the port of the service that starts our commands first, then others of the
    node.
    """

    host: str
    ports: tuple[int, ...]
    service: str  # what listens on the first port
    doubted: str = ""  # what the scheduler says, where it takes the node for lost by itself


class Door(Struct):
    """What knocking at one node has shown so far."""

    presence: Presence = "unknown"
    since: float = 0.0  # of time.monotonic(): when the first knock began that showed this
    until: float = 0.0  # when the last one ended that did
    address: Address | None = None
    took_s: float = 0.0  # the last knock


Find = Callable[[str], Address | None]  # the address of a node; None where it cannot be knocked at


def knock(address: Address, timeout_s: float = KNOCK_S, service_s: float = SERVICE_S) -> Presence:
    """Whether the node is there: `timeout_s` for a connection, `service_s` for its service to hang
    up, and what its name needs to be looked up.
    """
    answers: list[Answer] = ["unknown"] * len(address.ports)

    def ask(place: int) -> None:
        answers[place] = _ask(address.host, address.ports[place], timeout_s, service_s)

    threads = [
        threading.Thread(target=ask, args=(i,), daemon=True) for i in range(len(address.ports))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return presence(answers)


def presence(answers: list[Answer]) -> Presence:
    """What the answers of a node's ports say together; the first is that of the service that we
    need.
    """
    service = answers[0] if answers else "unknown"
    if service == "served":
        return "alive"
    if service == "refused":
        return "closed"
    if service == "open" or "served" in answers or "open" in answers or "refused" in answers:
        return "stuck"
    return "gone" if all(a == "silent" for a in answers) and answers else "unknown"


def _ask(host: str, port: int, timeout_s: float, service_s: float) -> Answer:
    try:
        connection = socket.create_connection((host, port), timeout_s)
    except ConnectionRefusedError:
        return "refused"
    except TimeoutError:
        return "silent"
    except OSError as error:
        return "silent" if error.errno in _NO_WAY else "unknown"
    with connection:
        try:
            connection.shutdown(
                socket.SHUT_WR
            )  # "we have nothing to say": a service that runs hangs up
            connection.settimeout(service_s)
            connection.recv(64)
        except TimeoutError:
            return "open"
        except OSError:
            return "served"  # it hung up without ceremony
    return "served"


class Knocker:
    """Knocks at nodes again and again, each in a thread of its own that ends with hangdoctor."""

    _PAUSE_S = 0.5
    _AT_ONCE = 64

    def __init__(self, find: Find) -> None:
        self._find = find
        self._doors: dict[str, Door] = {}
        self._busy: set[str] = set()
        self._lock = threading.Lock()

    def ask(self, node: str) -> None:
        """Knock now, unless a knock at this node is under way or has just ended."""
        with self._lock:
            door = self._doors.setdefault(node, Door())
            early = door.until and time.monotonic() - door.until < self._PAUSE_S
            if node in self._busy or early or len(self._busy) >= self._AT_ONCE:
                return
            self._busy.add(node)
        with contextlib.suppress(
            RuntimeError
        ):  # no thread to be had: then nothing is known of the node
            threading.Thread(
                target=self._knock, args=(node,), name=f"knock {node}", daemon=True
            ).start()

    def door(self, node: str) -> Door:
        """What is known of the node; presence "unknown" before the first knock has ended."""
        with self._lock:
            return self._doors.get(node) or Door()

    def _knock(self, node: str) -> None:
        address = self.door(node).address or self._find(node)
        begin = time.monotonic()
        found: Presence = knock(address) if address is not None else "unknown"
        now = time.monotonic()
        with self._lock:
            before = self._doors[node]
            since = before.since if before.presence == found else begin
            self._doors[node] = Door(found, since, now, address, took_s=now - begin)
            self._busy.discard(node)
