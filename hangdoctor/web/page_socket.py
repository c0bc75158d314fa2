"""The collector's side of the page: socket, tokens, and the process that serves them.

The socket and the tokens are the collector's, so that address and token stay when the page's
process has to be started anew.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from ..errors import CollectorError, UsageError
from ..transport.keys import make_folder, write_private
from .access import host_name
from .page_address import FILE, Published, published

METRICS_FILE = "metrics.token"
_BUFFER = 256 << 10  # of a connection: what a reader that takes nothing may hold, beside its frames
_LOOPBACK = re.compile(r"^(127\.\d+\.\d+\.\d+|localhost|::1)$")
_FORM = re.compile(r"^(?:(\[[0-9a-fA-F:]+\]|[A-Za-z0-9.-]*):)?(\d{1,5})$")
_LOG = logging.getLogger("hangdoctor.web")


class WebOptions(Struct, frozen=True):
    """The flags of the page (`--web` and what belongs to it)."""

    folder: Path
    bind: str  # HOST:PORT; port 0 is a free one
    anywhere: bool = False
    names: tuple[str, ...] = ()
    metrics_ranks: int = 1024
    metrics_token: Path | None = None
    metrics_open: bool = False


def web_options(folder: Path, flags: Mapping[str, Any]) -> WebOptions:
    """What the flags of the command line ask for.

    Raises:
        UsageError: metrics without a token would be reachable from the network.
    """
    if flags["metrics_open"] and flags["web_anywhere"]:
        raise UsageError(
            "--metrics-open works only on the loopback",
            "With --web-anywhere the metrics need a token.",
        )
    return WebOptions(
        folder=folder,
        bind=flags["web"],
        anywhere=flags["web_anywhere"],
        names=tuple(flags["web_host"]),
        metrics_ranks=flags.get("metrics_ranks", 0),
        metrics_token=flags["metrics_token"],
        metrics_open=flags["metrics_open"],
    )


def parse_bind(text: str, anywhere: bool) -> tuple[str, int]:
    """(host, port).

    Raises:
        UsageError: it is none, or not the loopback, and no one said that this is meant.
    """
    match = _FORM.match(text)
    if match is None or int(match[2]) > 65_535:
        raise UsageError(
            f"'{text}' is not an address for the page", "For example --web 127.0.0.1:8470"
        )
    host = (match[1] or "127.0.0.1").strip("[]")
    if not anywhere and not _LOOPBACK.match(host):
        raise UsageError(
            f"{text} would make the page reachable from the network",
            "To open it from another machine: ssh -L 8470:127.0.0.1:8470 HOST. To allow the network: --web-anywhere.",
        )
    return host, int(match[2])


class Opening(Struct):
    """What the page's process must know to begin; it comes over the channel and stands on no
    command line.
    """

    folder: str
    token: str
    metrics_token: str
    hosts: list[str]
    cookie: str
    metrics_ranks: int


class Front:
    """The address of the page: taken at once, told in `web.json` after `publish`, given back by
    `close`.
    """

    def __init__(self, options: WebOptions) -> None:
        """Raises UsageError, CollectorError: the address cannot be used, or the tokens cannot be
        kept.
        """
        self.options = options
        host, port = parse_bind(options.bind, options.anywhere)
        self.socket = _listen(host, port)
        name = f"[{host}]" if ":" in host else host
        self.address = f"http://{name}:{self.socket.getsockname()[1]}"
        hosts = [host, *map(host_name, options.names)]
        # Cookies do not distinguish ports: two collectors on one host must not take each other's.
        cookie = f"hangdoctor_{secrets.token_hex(4)}"
        self.opening = Opening(
            folder=str(options.folder),
            token=secrets.token_urlsafe(24),
            metrics_token=self._metrics_token(),
            hosts=hosts,
            cookie=cookie,
            metrics_ranks=options.metrics_ranks,
        )

    def _metrics_token(self) -> str:
        """Its own, and the same after a restart: a scraper reads it from a file.

        Raises:
            CollectorError: it cannot be read or kept.
        """
        if self.options.metrics_open:
            return ""
        path = self.options.metrics_token or make_folder(self.options.folder) / METRICS_FILE
        try:
            return path.read_text().strip() or _no_token(path)
        except FileNotFoundError:
            token = secrets.token_urlsafe(24)
            write_private(path, token.encode() + b"\n")
            return token
        except (OSError, UnicodeDecodeError) as error:
            raise CollectorError(
                f"{path} cannot be read: {error}", "Choose another file: --metrics-token FILE"
            ) from error

    def publish(self) -> None:
        """Raises CollectorError: the folder takes no file."""
        token, folder = self.opening.token, self.options.folder
        told = Published(self.address, token, os.getpid(), os.uname().nodename)
        write_private(make_folder(folder) / FILE, msgspec.json.encode(told))
        _LOG.info(
            "page: %s  (its token is in %s, readable only by you)", self.address, folder / FILE
        )
        if self.options.anywhere:
            _LOG.warning(
                "the page is reachable from the network over plain http, which is not encrypted: an ssh tunnel is safer"
            )

    def close(self) -> None:
        """Give the address back, and take `web.json` away where it is still ours."""
        self.socket.close()
        _withdraw(self.options.folder / FILE)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)  # connections inherit it
        found.bind((host, port))
        found.listen(1024)  # who comes before the process runs waits instead of being refused
    except OSError as error:
        found.close()
        raise CollectorError(
            f"the page cannot listen on {host}:{port}: {error.strerror}",
            "Choose another port; --web 127.0.0.1:0 takes a free one.",
        ) from error
    return found


def _no_token(path: Path) -> str:
    raise CollectorError(
        f"{path} is empty",
        "Remove it to have a new token made, or choose another file: --metrics-token FILE",
    )


def _withdraw(path: Path) -> None:
    """Take the file away if it is still ours: a collector that was started meanwhile has written
    its own.
    """
    found = published(path.parent)
    if found is not None and found.pid == os.getpid():
        path.unlink(missing_ok=True)
