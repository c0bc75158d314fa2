"""Connections of whoever has not shown a token: a time-out for their requests, and a limit to how
many there are.

A connection is a stranger's until a request with the token, or with a session, has come over it.
Where there are too many strangers, those that have said nothing for a moment are cut off, not the
newest refused: a browser sends its request at once, who holds a connection open does not.
(slowloris: https://en.wikipedia.org/wiki/Slowloris_(cyber_attack))
"""

from __future__ import annotations

import asyncio
import resource
from typing import Any

import h11
from starlette.types import Scope
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_S = 10.0  # for headers and body of one request
STRANGER_S = 60.0  # for all that a stranger wants
MOMENT_S = 1.0  # after that a stranger is cut off where there are too many
AN_ADDRESS = 64  # strangers of one address
IN_ALL = 256
MOST = 2000  # also in that moment
_KEY = "hangdoctor.connection"


class Connection(H11Protocol):
    """One connection of the page."""

    def __init__(self, strangers: Strangers, *told: Any, **more: Any) -> None:
        super().__init__(*told, **more)
        self.strangers = strangers
        self.admitted = False
        self.app_state = {**self.app_state, _KEY: self}
        self._request: asyncio.TimerHandle | None = None
        self._stay: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A stranger has come: its time begins."""
        super().connection_made(transport)
        self._stay = self.loop.call_later(MOMENT_S, self._after_a_moment)
        self._await_request()
        self.strangers.came(self)

    def data_received(self, data: bytes) -> None:
        """Of a connection: a request that has come whole is waited for no more, a new one is."""
        super().data_received(data)
        if self._is_whole():
            self._request_is_here()
        elif self._request is None:
            self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is counted no more."""
        self._request_is_here()
        self.admit()
        super().connection_lost(exc)

    def admit(self) -> None:
        """It is not a stranger's any more."""
        self.admitted = True
        self.strangers.went(self)
        if self._stay is not None:
            self._stay.cancel()
            self._stay = None

    def cut(self) -> None:
        """Close it at once; what is on its way to it is lost."""
        self.strangers.went(self)
        self.transport.abort()

    def _after_a_moment(self) -> None:
        if self.strangers.are_too_many(self):
            self.cut()
            return
        self._stay = self.loop.call_later(STRANGER_S - MOMENT_S, self.cut)

    def _is_whole(self) -> bool:
        """Whether the request under way has been received to its end."""
        return self.conn.their_state not in (h11.IDLE, h11.SEND_BODY)

    def _await_request(self) -> None:
        self._request = self.loop.call_later(REQUEST_S, self.cut)

    def _request_is_here(self) -> None:
        if self._request is not None:
            self._request.cancel()
            self._request = None


class Strangers:
    """All strangers' connections, the oldest first."""

    def __init__(self) -> None:
        self._by_address: dict[str, dict[Connection, None]] = {}
        self._all: dict[Connection, None] = {}
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.most = MOST if limit == resource.RLIM_INFINITY else min(MOST, limit // 2)

    def came(self, one: Connection) -> None:
        """Count a stranger; the oldest is cut off where there is no room for another one."""
        own = self._by_address.setdefault(_address(one), {})
        own[one] = self._all[one] = None
        if len(self._all) > self.most:
            next(iter(self._all)).cut()

    def are_too_many(self, one: Connection) -> bool:
        """Whether there are too many like this one, or in all."""
        return len(self._by_address.get(_address(one), {})) > AN_ADDRESS or len(self._all) > IN_ALL

    def went(self, one: Connection) -> None:
        """Count it no more: it has shown a token, or is closed."""
        self._all.pop(one, None)
        address = _address(one)
        own = self._by_address.get(address, {})
        own.pop(one, None)
        if not own:
            self._by_address.pop(address, None)


def _address(one: Connection) -> str:
    return one.client[0] if one.client else ""


def admit(scope: Scope) -> None:
    """Whoever sent this request has shown a token or a session."""
    connection = scope.get("state", {}).get(_KEY)
    if isinstance(connection, Connection):
        connection.admit()
