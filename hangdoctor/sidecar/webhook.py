"""A verdict posted as JSON to an address of the operator's."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request

from ..time_limit import OutOfTime, within


def post(url: str, body: bytes, timeout_s: float) -> str:
    """POST it; what came of it, in words, after `timeout_s` at most."""
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})

    def answered() -> str:
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:
            return f"answered {answer.status}"

    # The library's limit is for each read: a byte now and then would make the watch wait for ever.
    try:
        return within(timeout_s, answered)
    except OutOfTime:
        return f"no answer after {timeout_s:.0f} s"
    except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError) as error:
        return f"failed: {error or type(error).__name__}"
