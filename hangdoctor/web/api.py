"""The JSON API under /api/v1, as docs/openapi.json describes it. `ROUTES` is the whole of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec import Struct, structs
from starlette.requests import Request
from starlette.responses import Response

from ..errors import BadInput, HangdoctorError, UsageError
from ..storage.event_rows import EventRow
from ..storage.incidents import Incident
from ..text.plain import safe_name
from ..text.ranges import number_in, parse_runs
from ..watch.job_history import SPANS
from ..watch.live_ranks import RankRow, Standing
from .frames import Frame, Status, status_of
from .snapshot import Board
from .time_axis import HistoryAnswer, time_axis

MAX_BODY = 4096
MAX_ROWS = 20_000  # in one answer


class Trouble(Struct):
    """Why there is no other answer, and what to do."""

    error: str
    help: str = ""


class StatusAnswer(Struct):
    """Where the job stands; `concluded` grows with every capture that was dealt with."""

    status: Status
    standings: list[Standing]
    concluded: int


class RanksAnswer(Struct):
    """`total` ranks fit the question; of more than `MAX_ROWS` the first are here."""

    total: int
    ranks: list[RankRow]


class IncidentsAnswer(Struct):
    """The newest incidents, newest first, and why they cannot be read now ("" where they can)."""

    incidents: list[Incident]
    trouble: str


class EventsAnswer(Struct):
    """The newest events of the training, newest first, and why they cannot be read now."""

    events: list[EventRow]
    trouble: str


class Asked(Struct):
    """A capture was asked for; it is dealt with when `concluded` of the status is larger than here."""

    asked: bool
    concluded: int


class TraceWanted(Struct):
    """Trace Python calls, or stop it."""

    on: bool


class TraceAnswer(Struct):
    """What was asked for, and in words what happens now."""

    on: bool
    says: str


def answer(value: object, status: int = 200) -> Response:
    """A struct as JSON."""
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def _rounded(row: RankRow) -> RankRow:
    return structs.replace(
        row,
        idle_s=round(row.idle_s, 2),
        behind_s=round(row.behind_s, 2),
        lag_s=round(row.lag_s, 3),
    )


async def body_of(request: Request, limit: int = MAX_BODY) -> bytes:
    """The request's body.

    Raises:
        BadInput: it is larger than that.
    """
    data = b""
    async for chunk in request.stream():
        data += chunk
        if len(data) > limit:
            raise BadInput("the request is too large")
    return data


class Api:
    """Answers of the API, from the board of the web server's thread."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self._reports = asyncio.Semaphore(2)  # each is a process of its own for some seconds

    async def status(self, request: Request) -> Response:
        """The job in one sentence, and the ranks grouped by where they are."""
        board, look = self.board, self.board.look()
        status = status_of(board, look)
        return answer(StatusAnswer(status, look.picture.standings[:200], board.view.concluded))

    async def ranks(self, request: Request) -> Response:
        """All ranks, or those that `ranks` (as ranges), `state` and `node` name."""
        query = request.query_params
        rows = self.board.look().rows
        try:
            wanted = _marked(query["ranks"], len(rows)) if query.get("ranks") else None
        except UsageError as error:
            return answer(Trouble(str(error), error.help), 400)
        found = rows if wanted is None else [r for r in rows if wanted[r.rank]]
        if "state" in query:
            found = [r for r in found if r.state == query["state"]]
        if "node" in query:
            found = [r for r in found if r.node == query["node"]]
        return answer(RanksAnswer(len(found), [_rounded(r) for r in found[:MAX_ROWS]]))

    async def rank(self, request: Request) -> Response:
        """One rank; 404 for a number that the job does not have."""
        number, rows = number_in(request.path_params["rank"]), self.board.look().rows
        if number < 0:
            return answer(Trouble("that is not a rank number", "For example /api/v1/ranks/3."), 400)
        if number >= len(rows):
            return answer(Trouble(f"there is no rank {number}", f"The job has {len(rows)}."), 404)
        return answer(_rounded(rows[number]))

    async def incidents(self, request: Request) -> Response:
        """The newest incidents."""
        return answer(IncidentsAnswer(self.board.rows(), self.board.trouble))

    async def events(self, request: Request) -> Response:
        """What the training said of itself."""
        return answer(EventsAnswer(self.board.events(), self.board.trouble))

    async def incident(self, request: Request) -> Response:
        """One incident, by its id; 404 for one that is not among the newest."""
        found = self._incident(request)
        if found is None:
            return answer(Trouble("there is no such incident", "See /api/v1/incidents."), 404)
        return answer(found)

    def _incident(self, request: Request) -> Incident | None:
        return next((r for r in self.board.rows() if r.id == request.path_params["id"]), None)

    async def history(self, request: Request) -> Response:
        """The progress of the job over a span."""
        span, board = request.query_params.get("span", "1h"), self.board
        if span not in SPANS:
            known = ", ".join(SPANS)
            return answer(Trouble("there is no such span", f"There are {known}."), 400)
        view = board.view
        return answer(time_axis(view.history, span, view.now.wall, board.rows()))

    async def report(self, request: Request) -> Response:
        """The incident's report. What is in it comes from the job: it gets no cookie and no access
        to this page.
        """
        found = self._incident(request)
        if found is None or found.state != "saved" or safe_name(found.id) != found.id:
            return answer(Trouble("there is no such incident, or its bundle was removed"), 404)
        path = self.board.incidents.folder / found.id
        try:
            async with self._reports:
                document, media = await asyncio.to_thread(self.board.doors.report, path)
        except HangdoctorError as error:
            return answer(Trouble(str(error), error.help), 500)
        return Response(
            document, headers={"content-type": media, "content-security-policy": REPORT_POLICY}
        )

    async def capture(self, request: Request) -> Response:
        """Ask all agents for a capture now."""
        concluded = self.board.view.concluded
        self.board.doors.ask("requested on the page")
        return answer(Asked(True, concluded), 202)

    async def trace(self, request: Request) -> Response:
        """Switch the tracing of Python calls on or off in all ranks."""
        if self.board.doors.trace is None:
            return answer(Trouble("this collector cannot switch traces"), 409)
        try:
            wanted = msgspec.json.decode(await body_of(request), type=TraceWanted)
            says = self.board.doors.trace(wanted.on)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, HangdoctorError) as error:
            return answer(Trouble(str(error), 'Send {"on": true} or {"on": false}.'), 400)
        return answer(TraceAnswer(wanted.on, says), 202)


def _marked(ranks: str, count: int) -> bytearray:
    """1 for each that `ranks` names: what is named may be far more than there are."""
    marks = bytearray(count)
    for first, last in parse_runs(ranks):
        there = min(last + 1, count) - first
        if there > 0:
            marks[first : first + there] = b"\1" * there
    return marks


# A report is one file with its own script; in a sandbox it cannot read the cookie nor speak to this
# server.
REPORT_POLICY = (
    "sandbox allow-scripts allow-downloads allow-popups; default-src 'none'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; img-src data:; font-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)

Handler = Callable[[Any, Request], Awaitable[Response]]


class Route(Struct, frozen=True):
    """One route: what it answers in order, for the documentation and its test."""

    method: str
    path: str
    handler: Handler | None  # None: the stream, which is not a plain request
    answers: dict[int, Any]
    query: tuple[str, ...] = ()
    body: Any = None
    media: str = "application/json"
    about: str = ""


ROUTES = (
    Route(
        "GET",
        "/api/v1/status",
        Api.status,
        {200: StatusAnswer},
        about="The job in one sentence, and which ranks block which.",
    ),
    Route(
        "GET",
        "/api/v1/ranks",
        Api.ranks,
        {200: RanksAnswer, 400: Trouble},
        query=("ranks", "state", "node"),
        about="Where the ranks are; `ranks` as ranges (0-3,8).",
    ),
    Route(
        "GET",
        "/api/v1/ranks/{rank:int}",
        Api.rank,
        {200: RankRow, 400: Trouble, 404: Trouble},
        about="One rank.",
    ),
    Route(
        "GET",
        "/api/v1/incidents",
        Api.incidents,
        {200: IncidentsAnswer},
        about="What was kept, newest first.",
    ),
    Route(
        "GET",
        "/api/v1/incidents/{id}",
        Api.incident,
        {200: Incident, 404: Trouble},
        about="One incident.",
    ),
    Route(
        "GET",
        "/api/v1/incidents/{id}/report",
        Api.report,
        {200: str, 404: Trouble, 500: Trouble},
        media="text/html",
        about="Its report: HTML, or plain text where that cannot be made.",
    ),
    Route(
        "GET",
        "/api/v1/events",
        Api.events,
        {200: EventsAnswer},
        about="What the training said of itself, such as spikes of its loss; newest first.",
    ),
    Route(
        "GET",
        "/api/v1/history",
        Api.history,
        {200: HistoryAnswer, 400: Trouble},
        query=("span",),
        about="Progress of the job, its stalls and captures: the last 1h (default), 6h, 24h or 7d.",
    ),
    Route(
        "POST",
        "/api/v1/capture",
        Api.capture,
        {202: Asked},
        about="Capture all ranks now.",
    ),
    Route(
        "POST",
        "/api/v1/trace",
        Api.trace,
        {202: TraceAnswer, 400: Trouble, 409: Trouble},
        body=TraceWanted,
        about="Switch the tracing of Python calls on or off.",
    ),
    Route(
        "GET",
        "/api/v1/stream",
        None,
        {200: Frame, 503: Trouble},
        media="text/event-stream",
        about="Events `full` (first) and `delta` (each second), a Frame as JSON in each.",
    ),
)
