"""The JSON API of the fleet view under /api/v1, as docs/openapi-fleet.json describes it. `ROUTES` is
the whole of it.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from functools import partial
from pathlib import Path

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..errors import HangdoctorError
from ..storage.incident_search import Query
from ..storage.incident_words import Entry
from ..text.ranges import number_in
from ..text.times import time_of
from ..web import api as web
from ..web.api import REPORT_POLICY, Trouble, answer
from ..web.reports import Reports
from .board import Board
from .culprits import CulpritNode
from .jobs import JobRow

_MAX_FOUND = 200
_SHOWN = 200  # jobs, unless more are asked for
_MAX_QUERY = 500  # characters


class JobsAnswer(Struct):
    """The jobs at `at`, stalled ones first; `counts` of all by state."""

    at: float
    total: int
    counts: dict[str, int]
    jobs: list[JobRow]
    trouble: str


class NodesAnswer(Struct):
    """Nodes that are culprits again and again, those in the most jobs first."""

    nodes: list[CulpritNode]


class FoundAnswer(Struct):
    """`total` incidents fit; the newest of them, newest first."""

    total: int
    incidents: list[Entry]
    trouble: str


class FleetApi:
    """Answers from the board."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self._reports, self._report = asyncio.Semaphore(2), Reports()

    def routes(self) -> list[Route]:
        """The whole API."""
        return [Route(one.path, partial(_called, one, self)) for one in ROUTES]

    async def jobs(self, request: Request) -> Response:
        """The first jobs, as many as `limit` says."""
        now = await self.board.sample()
        counts = dict(Counter(str(row.state) for row in now.jobs))
        limit = number_in(request.query_params.get("limit", ""), _SHOWN)
        shown = now.jobs[:limit]
        return answer(JobsAnswer(now.at, len(now.jobs), counts, jobs=shown, trouble=now.trouble))

    async def nodes(self, request: Request) -> Response:
        """Culprits again and again."""
        return answer(NodesAnswer((await self.board.sample()).nodes))

    async def incidents(self, request: Request) -> Response:
        """The incidents that fit `words`, `job`, `user`, `node` and `since`."""
        asked = {name: value[:_MAX_QUERY] for name, value in request.query_params.items()}
        try:
            query = Query(
                words=asked.get("words", "").split(),
                job=asked.get("job", ""),
                user=asked.get("user", ""),
                node=asked.get("node", ""),
                since=time_of(asked.get("since", ""), time.time()),
            )
            found, trouble = await self.board.search(query)
        except HangdoctorError as error:
            return answer(Trouble(str(error), error.help), 400)
        return answer(FoundAnswer(len(found), found[:_MAX_FOUND], trouble))

    async def report(self, request: Request) -> Response:
        """An incident's report, by its key: an address never becomes a path."""
        key = request.path_params["key"]
        entries = (await self.board.sample()).entries
        found = next((entry for entry in entries if entry.key == key), None)
        if found is None:
            return answer(Trouble("there is no such incident", "See /api/v1/incidents."), 404)
        try:
            async with self._reports:
                made = await asyncio.to_thread(self._report, Path(found.bundle))
        except HangdoctorError as error:
            return answer(Trouble(str(error), error.help), 500)
        headers = {"content-type": made[1], "content-security-policy": REPORT_POLICY}
        return Response(made[0], headers=headers)


ROUTES = (
    web.Route(
        "GET",
        "/api/v1/jobs",
        FleetApi.jobs,
        {200: JobsAnswer},
        query=("limit",),
        about="The jobs, stalled ones first, and how many are in each state.",
    ),
    web.Route(
        "GET",
        "/api/v1/nodes",
        FleetApi.nodes,
        {200: NodesAnswer},
        about="Nodes that are culprits again and again, those in the most jobs first.",
    ),
    web.Route(
        "GET",
        "/api/v1/incidents",
        FleetApi.incidents,
        {200: FoundAnswer, 400: Trouble},
        query=("words", "job", "user", "node", "since"),
        about="Incidents of all jobs that have all `words` and fit the rest, newest first.",
    ),
    web.Route(
        "GET",
        "/api/v1/incidents/{key}/report",
        FleetApi.report,
        {200: str, 404: Trouble, 500: Trouble},
        media="text/html",
        about="An incident's report; `key` is that of its entry.",
    ),
)


async def _called(one: web.Route, api: FleetApi, request: Request) -> Response:
    assert one.handler is not None
    return await one.handler(api, request)
