"""NCCL's RAS: what each communicator's ranks have launched, and who does not answer.

RAS runs in every process with NCCL 2.24 or later and answers on one port of each node (28028,
NCCL_RAS_ADDR). The protocol is lines of text (NVIDIA's "RAS" chapter of the NCCL user guide, client
in NCCL's src/ras): CLIENT PROTOCOL n, TIMEOUT s, SET FORMAT json (2.28.7 and later), VERBOSE
STATUS. The text names outliers only, the JSON every rank. Ranks are the communicator's own, from 0;
host and process tell which rank of the job that is. Sends and receives are not counted.
"""

from __future__ import annotations

import re
import socket
import time
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from hangdoctor.errors import BadInput, HangdoctorError
from hangdoctor.files import read_regular

from ..model.ras_report import RasCommunicator, RasProcess, RasRank, RasReport, differences, op_name
from ..text.late import late
from .ras_text import parse_text, size_of

__all__ = ["NoRas", "RasReport", "parse", "query", "read_file"]

PORT = 28028
MAX_BYTES = 1 << 28
_PROTOCOL = 2


class NoRas(HangdoctorError):
    """RAS could not be asked."""

    default_help = "NCCL 2.24 and later has RAS. It listens on the job's nodes at NCCL_RAS_ADDR (default localhost:28028), unless NCCL_RAS_ENABLE=0."


_IN_PROGRESS = 7  # ncclInProgress


def query(host: str = "127.0.0.1", port: int = PORT, timeout_s: float = 8.0) -> RasReport:
    """Ask RAS for JSON if it can, else for text. `timeout_s` is for all of it.

    Raises:
        NoRas: no server listens, it does not speak RAS, or it does not finish in time.
    """
    deadline = time.monotonic() + timeout_s
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as sock:
            # NCCL waits for its peers for this long; what it has by then arrives before our own
            # deadline.
            notes, form = _handshake(sock, deadline, max(1, int(timeout_s / 2)))
            sock.sendall(b"VERBOSE STATUS\n")
            text = _rest(sock, deadline)
    except TimeoutError as e:
        raise NoRas(f"RAS at {host}:{port} did not answer within {timeout_s:g} s") from e
    except OSError as e:
        raise NoRas(f"RAS at {host}:{port}: {e.strerror or e}") from e
    report = parse(text)
    report.notes += notes
    if report.form != form:
        report.notes.append(f"RAS was asked for {form} but answered in {report.form}")
    return report


def _handshake(sock: socket.socket, deadline: float, patience_s: int) -> tuple[list[str], str]:
    """Agree on protocol, time-out and format. Returns (notes, "json" or "text")."""
    notes: list[str] = []
    sock.sendall(f"CLIENT PROTOCOL {_PROTOCOL}\n".encode())
    answer = _line(sock, deadline)
    if not answer.upper().startswith("SERVER PROTOCOL "):
        port = sock.getpeername()[1]
        raise NoRas(
            f"the server on port {port} does not speak NCCL RAS; it answered {answer[:60]!r}"
        )
    if answer.split()[-1] != str(_PROTOCOL):
        notes.append(f"RAS speaks protocol {answer.split()[-1]}, this reader needs {_PROTOCOL}")
    sock.sendall(f"TIMEOUT {patience_s}\n".encode())
    if _line(sock, deadline) != "OK":
        notes.append("RAS did not accept the timeout")
    sock.sendall(b"SET FORMAT json\n")
    return notes, "json" if _line(sock, deadline) == "OK" else "text"


def _line(sock: socket.socket, deadline: float) -> str:
    """One line, read byte by byte so that nothing of what follows is taken."""
    line = b""
    while not line.endswith(b"\n"):
        sock.settimeout(_left(deadline))
        byte = sock.recv(1)
        if not byte or len(line) > 4096:
            raise NoRas(f"RAS closed the connection, or its answer did not end: {line[:60]!r}")
        line += byte
    return line.decode(errors="replace").strip()


def _rest(sock: socket.socket, deadline: float) -> bytes:
    parts: list[bytes] = []
    size = 0
    while size < MAX_BYTES:
        sock.settimeout(_left(deadline))
        part = sock.recv(1 << 16)
        if not part:
            break
        parts.append(part)
        size += len(part)
    return b"".join(parts)


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def read_file(path: Path) -> RasReport:
    """Read what `ncclras -v` or `ncclras -f json` printed.

    Raises:
        BadInput: the file cannot be read or is neither.
    """
    try:
        report = parse(read_regular(path, MAX_BYTES))
        report.at_s = report.at_s or path.stat().st_mtime
    except OSError as e:
        raise BadInput(f"{path}: {e.strerror}") from e
    return report


# Any of its headings: people paste parts, and NCCL 2.24 writes how long it took behind the second.
_TEXT = late(
    rb"^(?:Job summary\s*$|Communicators\.\.\.|Group +Comms +Nodes +Ranks"
    rb"|#[0-9]{1,9}-[0-9]{1,9} \([0-9a-f]+\) (?:INCOMPLETE|MISMATCH|ERROR|DEAD)\s*$"
    rb"|  [0-9]{1,18} job process(?: is|es are) considered dead )",
    re.MULTILINE,
)


def is_ras(data: bytes) -> bool:
    """Whether something looks like RAS's answer, text or JSON."""
    head = data[:4096]
    if head.lstrip()[:1] == b"{":
        return b'"communicators' in head and b'"nccl_version"' in head
    return _TEXT.search(head) is not None


def parse(data: bytes) -> RasReport:
    """One answer of RAS, text or JSON.

    Raises:
        BadInput: it is neither, or cut off.
    """
    if data.lstrip()[:1] == b"{":
        try:
            raw: object = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
            raise BadInput(f"damaged or truncated RAS JSON: {e}") from e
        if not isinstance(raw, dict) or not isinstance(raw.get("communicators"), list):
            raise BadInput("not RAS JSON: it has no list of communicators")
        return _from_json(raw)
    text = data.decode(errors="replace")
    if _TEXT.search(data) is None:
        raise BadInput("not RAS output: it has neither a job summary nor communicators")
    return parse_text(text)


def _from_json(raw: dict[Any, Any]) -> RasReport:
    ras = raw.get("ras")
    report = RasReport(version=_text(raw.get("nccl_version")), form="json")
    with suppress(ValueError):
        report.at_s = datetime.fromisoformat(_text(raw.get("timestamp"))).timestamp()
    report.timeouts = _int(ras.get("timeouts_count")) if isinstance(ras, dict) else 0
    for row in _rows(raw["communicators"]):
        communicator = _communicator(row)
        report.communicators.append(communicator)
        report.largest = max(report.largest, communicator.size)
        report.dead += [r.process for r in communicator.missing if r.state == "dead"]
        report.silent += [r.process for r in communicator.missing if r.state == "unresponsive"]
    report.name_once()
    return report


def _communicator(row: dict[Any, Any]) -> RasCommunicator:
    name = _text(row.get("hash")).removeprefix("0x")
    found = RasCommunicator(name, size_of(_int(row.get("size"))))
    found.ranks = [_rank(r) for r in _rows(row.get("ranks"))]
    found.missing = [_missing(r) for r in _rows(row.get("missing_ranks"))]
    found.differences = differences(found.ranks)
    states = {rank.state for rank in found.ranks}
    if found.missing:
        found.problems.append("INCOMPLETE")
    if "error" in states:
        found.problems.append("ERROR")
    if found.differences or len(states) > 1:
        found.problems.append("MISMATCH")
    return found


def _rows(value: object) -> list[dict[Any, Any]]:
    return [r for r in value if isinstance(r, dict)] if isinstance(value, list) else []


def _int(value: object) -> int:
    return value if isinstance(value, int) and abs(value) < 2**63 else 0


def _text(value: object) -> str:
    """Texts and numbers of a field; lists could be nested without end."""
    return str(value)[:1000] if isinstance(value, str | int) else ""


def _process(row: dict[Any, Any]) -> RasProcess:
    return RasProcess(_text(row.get("host")), _int(row.get("pid")), _text(row.get("nvml_dev")))


def _rank(row: dict[Any, Any]) -> RasRank:
    status, counts = row.get("status"), row.get("collective_counts")
    rank = RasRank(_int(row.get("rank")), _process(row))
    if isinstance(counts, dict):
        rank.launched = {op_name(_text(k)): _int(v) for k, v in counts.items()}
    if isinstance(status, dict):
        _add_status(rank, status)
    return rank


def _add_status(rank: RasRank, status: dict[Any, Any]) -> None:
    errors = {k: _int(status.get(k)) for k in ("init_state", "async_error")}
    failed = [f"{k} {v}" for k, v in errors.items() if v not in (0, _IN_PROGRESS)]
    rank.error = ", ".join(failed)
    if failed:
        rank.state = "error"
    elif status.get("abort_flag"):
        rank.state = "abort"
    elif status.get("finalize_called") or status.get("destroy_flag"):
        rank.state = "finalize"
    elif errors["init_state"] == _IN_PROGRESS:
        rank.state = "init"


def _missing(row: dict[Any, Any]) -> RasRank:
    status = row.get("status")
    flags = status if isinstance(status, dict) else {}
    if flags.get("considered_dead"):
        state = "dead"
    elif flags.get("unresponsive"):
        state = "unresponsive"
    else:
        state = "nocomm"
    return RasRank(_int(row.get("rank")), _process(row), state=state)
