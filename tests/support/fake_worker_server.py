"""A stand-in for torch's worker server of a rank with NCCL, where there is no GPU: the same paths, and
a dump in the form of `dump_nccl_trace_json`.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingUnixStreamServer
from typing import Any

HANDLERS = ["dump_nccl_trace_json", "dump_nccl_trace_pickle", "ping"]


def as_json(dump: dict[str, Any]) -> bytes:
    """As C++ writes it: numbers of `pg_status` are text, no stacks, no empty entries."""
    status = {g: {k: str(v) for k, v in s.items()} for g, s in dump["pg_status"].items()}
    entries = [{k: v for k, v in e.items() if k != "frames"} for e in dump["entries"]]
    told = dump | {"pg_status": status, "nccl_comm_state": {}}
    del told["entries"]
    return json.dumps(told | ({"entries": entries} if entries else {})).encode()


class FakeWorkerServer:
    """Serves one rank's dump on a Unix socket until it is closed."""

    def __init__(self, path: Path, dump: dict[str, Any]) -> None:
        body = as_json(dump)

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.answer(json.dumps(HANDLERS).encode())

            def do_POST(self) -> None:
                self.answer(body if self.path.endswith("dump_nccl_trace_json") else b"")

            def answer(self, text: bytes) -> None:
                self.send_response(200)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, format: str, *args: object) -> None:
                pass

            def address_string(self) -> str:
                return ""

        self.server = ThreadingUnixStreamServer(str(path), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
