"""Prints two Secrets with new keys for one job: python make_secrets.py | kubectl apply -n NS -f -

The agents' one has the public half of the collector's key only: who reads it can report to the
collector, and cannot pretend to be it.
"""

from __future__ import annotations

import base64
import json
import secrets
import sys
import tempfile
from pathlib import Path

from hangdoctor.transport import keys


def secret(name: str, files: dict[str, bytes]) -> dict[str, object]:
    """A Secret of these files."""
    data = {key: base64.b64encode(value).decode() for key, value in files.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data}


def made() -> list[dict[str, object]]:
    """The Secrets of the collector and of its agents."""
    with tempfile.TemporaryDirectory() as folder:
        keys.make(Path(folder, "job"))
        written = Path(folder, "job", "keys")
        pairs = {
            f"{who}.key": (written / f"{who}.key").read_bytes() for who in ("collector", "agent")
        }
    public = json.loads(pairs["collector.key"]) | {"secret": ""}
    token = secrets.token_urlsafe(32).encode()
    return [
        secret("hangdoctor-collector", pairs | {"metrics.token": token}),
        secret("hangdoctor-agent", pairs | {"collector.key": json.dumps(public).encode()}),
    ]


if __name__ == "__main__":
    json.dump({"apiVersion": "v1", "kind": "List", "items": made()}, sys.stdout, indent=1)
