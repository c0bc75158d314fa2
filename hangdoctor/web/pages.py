"""The page's own files, login and logout."""

from __future__ import annotations

import html
from importlib import resources
from urllib.parse import parse_qs

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from ..errors import BadInput
from .access import Access
from .api import Trouble, answer, body_of
from .page_address import Published

_MEDIA = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


def load_files() -> dict[str, tuple[bytes, str]]:
    """Name -> (content, media type), read once: nothing that a browser asks for becomes a path."""
    found = {}
    for item in resources.files(__package__).joinpath("static").iterdir():
        ending = item.name[item.name.rfind(".") :]
        if ending in _MEDIA:
            found[item.name] = (item.read_bytes(), _MEDIA[ending])
    return found


class Pages:
    """The files of the page, and the two forms that open and close a session."""

    def __init__(self, access: Access, front: str = "index.html") -> None:
        self.access, self.front = access, front
        self.files = load_files()

    def _file(self, name: str, status: int = 200) -> Response:
        content, media = self.files[name]
        return Response(content, status, headers={"content-type": media})

    async def index(self, request: Request) -> Response:
        """The page itself."""
        return self._file(self.front)

    async def static(self, request: Request) -> Response:
        """A style sheet, script or picture by its name; pages are not handed out under this
        address.
        """
        name = request.path_params["name"]
        if name not in self.files or name.endswith(".html"):
            return answer(Trouble("there is no such file"), 404)
        return self._file(name)

    async def icon(self, request: Request) -> Response:
        """The icon that browsers ask for by themselves."""
        return self._file("icon.svg")

    async def health(self, request: Request) -> Response:
        """Says that this process answers; no token is needed, and nothing of the job is in it."""
        return Response("ok\n", media_type="text/plain")

    async def login(self, request: Request) -> Response:
        """The form (GET); with the token in its body (POST) a session cookie, else 401."""
        if request.method in ("GET", "HEAD"):
            return self._file("login.html")
        try:
            body = (await body_of(request)).decode("utf-8", "replace")
        except BadInput as error:
            return answer(Trouble(str(error)), 413)
        told = _token_in(parse_qs(body).get("token", [""])[0].strip())
        if not self.access.is_token(told):
            self.access.refused += 1
            page = self.files["login.html"][0].decode()
            words = html.escape("This is not the current token: a new one is made at each start.")
            page = page.replace("<!--trouble-->", f'<p class="trouble" role="alert">{words}</p>')
            return Response(page, 401, headers={"content-type": _MEDIA[".html"]})
        response = RedirectResponse("/", 303)
        response.set_cookie(
            self.access.cookie,
            self.access.open_session(),
            path="/",
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return response

    async def logout(self, request: Request) -> Response:
        """Forget the session and its cookie."""
        self.access.close_session(request.headers)
        response = RedirectResponse("/login", 303)
        response.delete_cookie(self.access.cookie, path="/", httponly=True, samesite="strict")
        return response


def _token_in(pasted: str) -> str:
    """The token, also where the whole of web.json was pasted."""
    try:
        return msgspec.json.decode(pasted, type=Published).token
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return pasted
