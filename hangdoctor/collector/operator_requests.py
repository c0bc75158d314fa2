"""What a person wants of a running collector, by a file in the job's folder, which is private to its user.

FOLDER/hangdoctor-collector-trace.json    switch call traces on or off in all ranks: the fields of `messages.Trace`
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from ..errors import BadInput
from ..transport.keys import renew_private
from ..transport.messages import Trace

TRACE_FILE = "hangdoctor-collector-trace.json"  # the ranks' own is hangdoctor-trace.json
_MAX_BYTES = 64 << 10


def put_trace(folder: Path, wanted: Trace) -> None:
    """Ask the collector of this folder; it looks once a second.

    Raises:
        CollectorError: the folder cannot be written, or a file of somebody else's has that name.
    """
    request = {name: getattr(wanted, name) for name in Trace.__struct_fields__}
    renew_private(folder / TRACE_FILE, msgspec.json.encode(request), Trace)


class TraceRequests:
    """Notices a new request."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / TRACE_FILE
        self._seen = 0

    def fresh(self) -> Trace | None:
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
        try:
            return msgspec.json.decode(data[: _MAX_BYTES + 1], type=Trace)
        except (UnicodeDecodeError, msgspec.DecodeError) as error:
            raise BadInput(f"{self.path} is no request for traces: {error}") from error
