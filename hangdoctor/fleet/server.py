"""The server of the fleet view: one process, which only reads."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from ..web.access import Access
from ..web.page_socket import Front
from ..web.pages import Pages
from ..web.server import guarded, server_of
from . import metrics
from .api import FleetApi
from .board import Board

PAGE = "fleet.html"


def serve(front: Front, roots: Sequence[Path]) -> None:
    """Until a signal ends it; the address is given back.

    Raises:
        CollectorError: `web.json` cannot be written.
    """
    try:
        front.publish()
        asyncio.run(_serve(front, roots))
    finally:
        front.close()


async def _serve(front: Front, roots: Sequence[Path]) -> None:
    opening = front.opening
    access = Access(opening.token, opening.metrics_token, opening.hosts, opening.cookie)
    board = Board(roots)

    async def measured() -> bytes:
        return metrics.text(await board.sample())

    pages = Pages(access, PAGE)
    app = guarded(pages, FleetApi(board).routes(), metrics=measured, access=access)
    await server_of(app).serve(sockets=[front.socket])
