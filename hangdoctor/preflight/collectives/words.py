"""What goes over the standard input and output of a node that takes part: one JSON object a line,
behind a mark, so that what a login shell or scheduler prints in between does no harm.
"""

from __future__ import annotations

import base64

import msgspec
from msgspec import Struct

MARK = "HANGDOCTOR-COLLECTIVE "
ALIVE_S = 2.0  # how often a sign of life is sent to a node
SILENCE_S = 15.0  # after that long without one a node ends everything and leaves


class NodeSetup(Struct, frozen=True):
    """What a node is started with."""

    devices: list[int] = []  # GPUs to use; empty for all, or one process where there is none
    beside: bool = False  # one of several units on this host: it does not look for running ranks


class Order(Struct, frozen=True, omit_defaults=True):
    """To a node. `what`: "alive", "device", "host" (rank 0 makes the store), "join", "stop"."""

    what: str
    trial: int = 0
    first_rank: int = 0
    world: int = 0
    address: str = ""  # or several, with commas: the first one counts that can be looked up
    port: int = 0
    sizes: list[int] = []
    seconds: float = 0.0


class Word(Struct, frozen=True, omit_defaults=True):
    """From a node. `stage` of the node: "here", "busy", "ready", "refused"; of a rank: "started",
    "listens", "store", "joined", "size", "device", "fabric", "done", "failed", "late".
    """

    stage: str
    trial: int = 0
    rank: int = -1
    size: int = 0
    seconds: float = 0.0
    port: int = 0
    text: str = ""
    values: dict[str, float] = {}


_orders: msgspec.json.Decoder[Order] = msgspec.json.Decoder(Order)
_words: msgspec.json.Decoder[Word] = msgspec.json.Decoder(Word)


def line(what: Order | Word) -> bytes:
    """One line, with its end."""
    return MARK.encode() + msgspec.json.encode(what) + b"\n"


def order_in(text: bytes) -> Order | None:
    """The order in a line; None where it is none."""
    body = _body(text)
    try:
        return _orders.decode(body) if body else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def word_in(text: bytes) -> Word | None:
    """The word in a line; None where it is none."""
    body = _body(text)
    try:
        return _words.decode(body) if body else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _body(text: bytes) -> bytes:
    _, mark, body = text.partition(MARK.encode())
    return body if mark else b""


def packed(setup: NodeSetup) -> str:
    """The set-up as one word of a command line."""
    return base64.urlsafe_b64encode(msgspec.json.encode(setup)).decode()


def unpacked(text: str) -> NodeSetup:
    """
    Raises:
        msgspec.DecodeError, ValueError: it is none.
    """
    return msgspec.json.decode(base64.urlsafe_b64decode(text), type=NodeSetup)
