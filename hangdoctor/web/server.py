"""The web server beside the collector: a thread with its own loop, so that no reader can delay what the collector does."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import secrets
import socket
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import uvicorn
from msgspec import Struct
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as Starletted

from ..collector.keys import make_folder, write_private
from ..errors import CollectorError, UsageError
from .api import ROUTES, Api, Handler
from .board import Board
from .guard import Access, Guard, host_name
from .hub import Hub
from .metrics import CONTENT_TYPE, Exporter
from .pages import Pages
from .place import FILE, Published, published

METRICS_FILE = "metrics.token"
_BUFFER = 256 << 10  # of a connection: what a reader that takes nothing may hold, beside its frames
_LOOPBACK = re.compile(r"^(127\.\d+\.\d+\.\d+|localhost|::1)$")
_FORM = re.compile(r"^(?:(\[[0-9a-fA-F:]+\]|[A-Za-z0-9.-]*):)?(\d{1,5})$")
_LOG = logging.getLogger("hangdoctor.web")


class WebOptions(Struct, frozen=True):
    folder: Path
    bind: str  # HOST:PORT; port 0 is a free one
    anywhere: bool = False
    names: tuple[str, ...] = ()
    metrics_ranks: int = 1024
    metrics_token: Path | None = None
    metrics_open: bool = False


def parse_bind(text: str, anywhere: bool) -> tuple[str, int]:
    """(host, port).

    Raises:
        UsageError: it is none, or not the loopback, and nobody said that this is meant.
    """
    match = _FORM.match(text)
    if match is None or int(match[2]) > 65_535:
        raise UsageError(f"'{text}' is no address for the page", "For example --web 127.0.0.1:8470")
    host = (match[1] or "127.0.0.1").strip("[]")
    if not anywhere and not _LOOPBACK.match(host):
        raise UsageError(
            f"the page would be open to the network at {text}",
            "From another machine: ssh -L 8470:127.0.0.1:8470 HOST. If the network itself is meant: --web-anywhere.",
        )
    return host, int(match[2])


class WebServer:
    """Binds at once, serves after `start`, ends with `stop`."""

    def __init__(self, options: WebOptions, board: Board) -> None:
        """Raises CollectorError: the address is taken, or the tokens cannot be kept."""
        self.options = options
        host, port = parse_bind(options.bind, options.anywhere)
        self.socket = _listen(host, port)
        name = f"[{host}]" if ":" in host else host
        self.address = f"http://{name}:{self.socket.getsockname()[1]}"
        self.access = Access(secrets.token_urlsafe(24), self._metrics_token(), (host, *map(host_name, options.names)))
        self.hub = Hub(board)
        exporter = Exporter(board, self.hub, options.metrics_ranks)
        app = application(Api(board), Pages(self.access), self.hub, exporter, self.access)
        self.server = uvicorn.Server(
            uvicorn.Config(
                app, log_config=None, log_level="warning", access_log=False, lifespan="off", server_header=False,
                timeout_graceful_shutdown=1, ws="none", http="h11", loop="asyncio", limit_concurrency=2000, backlog=1024,
            )
        )  # fmt: skip
        self._thread = threading.Thread(target=self._run, name="web", daemon=True)

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
            raise CollectorError(f"{path} cannot be read: {error}", "Name another file: --metrics-token FILE") from error

    def start(self) -> None:
        """Raises CollectorError: the folder takes no file."""
        told = Published(self.address, self.access.token, os.getpid(), os.uname().nodename)
        write_private(make_folder(self.options.folder) / FILE, msgspec.json.encode(told))
        self._thread.start()
        _LOG.info("page: %s  (its token is in %s, for you alone)", self.address, self.options.folder / FILE)
        if self.options.anywhere:
            _LOG.warning("the page is open to the network, and http can be listened to: an ssh tunnel is safer")

    def stop(self) -> None:
        self.server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(timeout=4)
        self.socket.close()
        _withdraw(self.options.folder / FILE)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception:
            _LOG.exception("the page has ended; the collector goes on without it")

    async def _serve(self) -> None:
        frames = asyncio.create_task(self.hub.run())
        serving = asyncio.create_task(self.server.serve(sockets=[self.socket]))
        while not self.server.should_exit and not serving.done():
            await asyncio.sleep(0.1)
        self.hub.close()
        await serving
        frames.cancel()


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)  # connections inherit it
        found.bind((host, port))
        found.listen(1024)  # who comes before the thread runs waits instead of being refused
    except OSError as error:
        found.close()
        raise CollectorError(
            f"the page cannot listen on {host}:{port}: {error.strerror}",
            "Name another port: --web 127.0.0.1:0 takes a free one.",
        ) from error
    return found


def _no_token(path: Path) -> str:
    raise CollectorError(f"{path} is empty", "Remove it: a token is then made. Or name another file: --metrics-token FILE")


def _withdraw(path: Path) -> None:
    """Take the file away if it is still ours: a collector that was started meanwhile has written its own."""
    found = published(path.parent)
    if found is not None and found.pid == os.getpid():
        path.unlink(missing_ok=True)


def application(api: Api, pages: Pages, hub: Hub, exporter: Exporter, access: Access) -> Starlette:
    """All routes behind the guard."""

    async def metrics(request: Request) -> Response:
        return Response(exporter.text(), headers={"content-type": CONTENT_TYPE})

    async def failed(request: Request, error: Exception) -> Response:
        _LOG.error("%s %s failed: %r", request.method, request.url.path, error)
        return Response(b'{"error":"this could not be answered","help":"The collector\'s log says why."}', 500,
                        headers={"content-type": "application/json"})  # fmt: skip

    routes = [
        Starletted("/", pages.index), Starletted("/login", pages.login, methods=["GET", "POST"]),
        Starletted("/logout", pages.logout, methods=["POST"]), Starletted("/healthz", pages.health),
        Starletted("/favicon.ico", pages.icon), Starletted("/static/{name}", pages.static), Starletted("/metrics", metrics),
    ]  # fmt: skip
    for route in ROUTES:
        endpoint: Any = hub if route.handler is None else _bound(route.handler, api)
        # Numbers are read by the handlers: starlette's own reading fails on one of 5,000 digits.
        routes.append(Starletted(route.path.replace(":int}", "}"), endpoint, methods=[route.method]))
    return Starlette(routes=routes, middleware=[Middleware(Guard, access=access)], exception_handlers={Exception: failed})


def _bound(handler: Handler, api: Api) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        return await handler(api, request)

    return endpoint
