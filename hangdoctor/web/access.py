"""Who may speak to the page: a token made at each start, a session cookie after login, and only by
the page's own name.

Tokens come in the `Authorization: Bearer` header or in the body of the login form, never in an
address. Against DNS rebinding the Host header must name this server; against other sites' forms a
request that changes something needs an Origin of the same host, unless it carries the token itself
(https://owasp.org/www-community/attacks/csrf).
"""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

import msgspec
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..text.ranges import number_in
from .connection_limits import admit

_SESSIONS = 512
_PUBLIC = ("/login", "/healthz", "/favicon.ico")
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'"
)
_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # With no-referrer the login form would come with "Origin: null"
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class Access:
    """The token, the metrics' own token, and the sessions that were opened with the first."""

    def __init__(self, token: str, metrics_token: str, hosts: Iterable[str], cookie: str) -> None:
        self.token = token
        self.metrics_token = metrics_token  # "" lets everyone read the metrics
        self.hosts = {*_LOOPBACK, *(h.lower() for h in hosts)}
        self.refused = 0
        self.cookie = cookie
        self._sessions: OrderedDict[str, None] = OrderedDict()

    def is_token(self, told: str) -> bool:
        """Whether this is the page's token, in a time that says nothing of it."""
        return secrets.compare_digest(_digest(told), _digest(self.token))

    def open_session(self) -> str:
        """A new session's secret, for its cookie; of too many sessions the oldest ends."""
        name = secrets.token_urlsafe(32)
        self._sessions[_digest(name)] = None
        while len(self._sessions) > _SESSIONS:
            self._sessions.popitem(last=False)
        return name

    def close_session(self, headers: Headers) -> None:
        """End the session whose cookie is in these headers."""
        self._sessions.pop(_digest(self._session(headers)), None)

    def has_session(self, headers: Headers) -> bool:
        """Whether the cookie in these headers is of an open session."""
        name = self._session(headers)
        return bool(name) and _digest(name) in self._sessions

    def _session(self, headers: Headers) -> str:
        try:
            found = SimpleCookie(headers.get("cookie", "")).get(self.cookie)
        except CookieError:
            return ""
        return found.value if found is not None else ""

    def bearer(self, headers: Headers) -> str:
        """The token of `Authorization: Bearer` (https://www.rfc-editor.org/rfc/rfc6750), "" without
        one.
        """
        kind, _, told = headers.get("authorization", "").partition(" ")
        return told.strip() if kind.lower() == "bearer" else ""

    def knows_host(self, headers: Headers) -> bool:
        """Whether the Host header is one of this server's names."""
        return host_name(headers.get("host", "")) in self.hosts

    def same_origin(self, headers: Headers) -> bool:
        """Whether the request comes from a page of this server."""
        if headers.get("sec-fetch-site", "same-origin") != "same-origin":
            return False
        origin = urlsplit(headers.get("origin", ""))
        return (
            origin.scheme in ("http", "https")
            and origin.netloc.lower() == headers.get("host", "").lower()
        )


def host_name(host: str) -> str:
    """``[::1]:80`` -> ``::1``; "" where it is not a host."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def _digest(text: str) -> str:
    """Of equal length whatever came, so that a comparison says nothing of the secret."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


class Guard:
    """ASGI middleware: lets through who may come in, and puts the safe headers on every answer."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self.app = app
        self.access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand the request on, or answer why not: 401, 403, 405, 413, or 303 to the login form."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return  # there are no websockets here
        headers = Headers(scope=scope)

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                out = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    out.setdefault(name, value)
            await send(message)

        refusal = self._refuse(scope["path"], scope["method"], headers)
        if refusal is None:
            if self._is_known(headers):
                admit(scope)
            await self.app(scope, receive, with_headers)
            return
        self.access.refused += refusal[0] in (401, 403)
        await _answer(with_headers, *refusal)

    def _is_known(self, headers: Headers) -> bool:
        return self.access.is_token(self.access.bearer(headers)) or self.access.has_session(headers)

    def _refuse(self, path: str, method: str, headers: Headers) -> tuple[int, str, str] | None:
        """(status, what is wrong, what to do), or None for a request that may pass."""
        access = self.access
        if not access.knows_host(headers):
            return (
                403,
                "this server does not answer to that host name",
                "Use the address that it printed, or start it with --web-host NAME.",
            )
        if method not in ("GET", "HEAD", "POST"):
            return 405, "only GET, HEAD and POST are supported", ""
        if not 0 <= number_in(headers.get("content-length", "0")) <= 16_384:
            return 413, "the request is too large", ""
        if path == "/metrics":
            return self._refuse_metrics(headers)
        told = access.bearer(headers)
        by_token = bool(told) and access.is_token(told)
        if method == "POST" and not by_token and not access.same_origin(headers):
            return (
                403,
                "the request comes from another site",
                "Use the page itself, or send the token as Authorization: Bearer.",
            )
        public = path in _PUBLIC or path.startswith("/static/")
        if public or by_token or access.has_session(headers):
            return None
        if path.startswith("/api/") or method == "POST":
            return (
                401,
                "the token is missing or wrong",
                "It is in web.json, in the folder of the collector or the fleet view.",
            )
        return 303, "/login", ""

    def _refuse_metrics(self, headers: Headers) -> tuple[int, str, str] | None:
        """As `_refuse`: the metrics have a token of their own, and the page's is as good."""
        access, told = self.access, self.access.bearer(headers)
        own = _digest(access.metrics_token)
        if not access.metrics_token or secrets.compare_digest(_digest(told), own):
            return None
        if self._is_known(headers):
            return None
        return (
            401,
            "the metrics need their token",
            "Authorization: Bearer, from FOLDER/metrics.token",
        )


async def _answer(send: Send, status: int, words: str, help: str) -> None:
    headers = [(b"content-type", b"application/json")]
    if status == 303:
        headers, body = [(b"location", words.encode())], b""
    else:
        body = msgspec.json.encode({"error": words, "help": help})
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    headers.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
