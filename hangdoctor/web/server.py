"""The web server in the page's own process: a socket that was handed to it, a loop, and the channel
to the collector.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as Starletted

from .access import Access, Guard
from .api import ROUTES, Api, Handler, Trouble, answer
from .connection_limits import Connection, Strangers
from .hub import Hub
from .metrics import CONTENT_TYPE, Exporter
from .page_socket import Opening
from .pages import Pages
from .snapshot import Board

_LOG = logging.getLogger("hangdoctor.web")


class WebServer:
    """Serves on a socket that listens already, until `stop`."""

    def __init__(self, opening: Opening, listening: socket.socket, board: Board) -> None:
        self.socket = listening
        self.access = Access(opening.token, opening.metrics_token, opening.hosts, opening.cookie)
        self.hub = Hub(board)
        exporter = Exporter(board, self.hub, opening.metrics_ranks)
        app = application(
            Api(board), Pages(self.access), self.hub, exporter=exporter, access=self.access
        )
        self.server = server_of(app)

    def stop(self) -> None:
        """End `serve` within a moment; open streams are closed."""
        self.server.should_exit = True

    async def serve(self) -> None:
        """Until `stop`, or a signal that ends."""
        frames = asyncio.create_task(self.hub.run())
        serving = asyncio.create_task(self.server.serve(sockets=[self.socket]))
        while not self.server.should_exit and not serving.done():
            await asyncio.sleep(0.1)
        self.hub.close()
        await serving
        frames.cancel()


def server_of(app: Starlette) -> uvicorn.Server:
    """A server of this application with limits on connections; it takes a socket that listens."""
    strangers = Strangers()

    def connection(*told: Any, **more: Any) -> Connection:
        return Connection(strangers, *told, **more)

    config = uvicorn.Config(
        app,
        http=connection,  # type: ignore[arg-type]
        loop="asyncio",
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=1,
        limit_concurrency=2000,
        backlog=1024,
    )
    return uvicorn.Server(config)


def application(api: Api, pages: Pages, hub: Hub, exporter: Exporter, access: Access) -> Starlette:
    """All routes behind the guard."""

    routes = []
    for route in ROUTES:
        endpoint: Any = hub if route.handler is None else _bound(route.handler, api)
        # Numbers are read by the handlers: starlette's own reading fails on one of 5,000 digits.
        routes.append(
            Starletted(route.path.replace(":int}", "}"), endpoint, methods=[route.method])
        )

    async def measured() -> bytes:
        return exporter.text()

    return guarded(pages, routes, metrics=measured, access=access)


def guarded(
    pages: Pages,
    routes: Sequence[Starletted],
    metrics: Callable[[], Awaitable[bytes]],
    access: Access,
) -> Starlette:
    """The page's own files, the metrics and these routes, behind the guard."""

    async def measured(request: Request) -> Response:
        return Response(await metrics(), headers={"content-type": CONTENT_TYPE})

    async def failed(request: Request, error: Exception) -> Response:
        _LOG.error("%s %s failed: %r", request.method, request.url.path, error)
        return answer(
            Trouble("this could not be answered", "The log of this server says why."), 500
        )

    own = [
        Starletted("/", pages.index),
        Starletted("/login", pages.login, methods=["GET", "POST"]),
        Starletted("/logout", pages.logout, methods=["POST"]),
        Starletted("/healthz", pages.health),
        Starletted("/favicon.ico", pages.icon),
        Starletted("/static/{name}", pages.static),
        Starletted("/metrics", measured),
    ]
    return Starlette(
        routes=[*own, *routes],
        middleware=[Middleware(Guard, access=access)],
        exception_handlers={Exception: failed},
    )


def _bound(handler: Handler, api: Api) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        return await handler(api, request)

    return endpoint
