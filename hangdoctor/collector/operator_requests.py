"""What a person wants of a running collector, by a file in the job's folder, which is private to
its user.

FOLDER/hangdoctor-collector-trace.json switches call traces on or off in all ranks. It holds a
`probe.calls.request.Request` as JSON.
"""

from __future__ import annotations

from pathlib import Path

from ..errors import BadInput
from ..probe.calls import request as requests
from ..probe.calls.request import Request
from ..transport.keys import renew_private

TRACE_FILE = "hangdoctor-collector-trace.json"  # the ranks' own is hangdoctor-trace.json
_MAX_BYTES = 64 << 10


def put_trace(folder: Path, wanted: Request) -> None:
    """Ask the collector of this folder; it looks once a second.

    Raises:
        CollectorError: the folder cannot be written, or a file of somebody else's has that name.
    """
    renew_private(folder / TRACE_FILE, requests.encode(wanted).encode(), _is_request)


def _decoded(data: bytes) -> Request | None:
    return requests.decode(data[: _MAX_BYTES + 1].decode("utf-8", "replace"))


def _is_request(data: bytes) -> bool:
    return _decoded(data) is not None


class TraceRequests:
    """Notices a new request."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / TRACE_FILE
        self._seen = 0

    def fresh(self) -> Request | None:
        """The request, where it is another one than before.

        Raises:
            BadInput: it is none.
        """
        try:
            changed = self.path.stat().st_mtime_ns
            if changed == self._seen:
                return None
            data = self.path.read_bytes()
        except OSError:
            return None  # where it was there a moment ago, the next look reads it
        self._seen = changed
        wanted = _decoded(data)
        if wanted is None:
            raise BadInput(f"{self.path} is not a valid trace request")
        return wanted
