"""The way of ranks in set-up to their store: what MASTER_ADDR leads to on this node, whether they are
connected, and, where they are not, what an attempt says. And what a rank imports, from where.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from ..errors import UsageError
from ..model.capture import Frame, RankCapture
from ..model.start_up import Import, StoreView
from ..stacks.rank_thread import rank_thread
from ..text.durations import duration
from ..text.late import late
from ..text.plain import readable
from ..text.ranges import number_in, parse_hosts
from ..time_limit import OutOfTime, within
from . import connections

ATTEMPT_S = 2.0
_RESOLVE_S = 2.0
_MOST = 256  # ranks of a node whose sockets are read
_IMPORT = late(r"^<frozen importlib\._bootstrap")
_ORDERS = ("block", "cyclic")
_PACKAGES = late(r"(?:site|dist)-packages/(.+?)(?:/__init__)?\.py$")


def attach(ranks: Sequence[RankCapture], attempt_s: float = ATTEMPT_S) -> None:
    """Set `store` and `importing` of those in set-up, as their last sample shows them; an attempt to
    connect has `attempt_s` seconds.
    """
    starting = []
    for rank in ranks[:_MOST]:
        threads = rank.samples[-1].threads if rank.samples else []
        thread, place = rank_thread(threads)
        frames = thread.frames if thread is not None else []
        rank.importing = import_in(frames, rank)
        if place.kind == "start":
            starting.append(rank)
    known: dict[tuple[str, int], StoreView] = {}
    for rank in starting:
        environ = _environ(rank.pid)
        name, port = environ.get("MASTER_ADDR", ""), number_in(environ.get("MASTER_PORT", ""))
        if name and 0 < port < 1 << 16:
            rank.store = store_of(rank.pid, readable(name), port, known, attempt_s=attempt_s)


def import_in(frames: Sequence[Frame], rank: RankCapture) -> Import | None:
    """The outermost import that a stack (innermost frame first) is in, and where its innermost file
    lies; None outside of any.
    """
    files = [frame.file for frame in frames if frame.name == "<module>"]
    within_import = [n for n, frame in enumerate(frames) if _IMPORT.match(frame.file)]
    if not within_import:
        return None
    outermost = max(within_import)
    own = [frame.file for frame in frames[:outermost] if frame.name == "<module>"]
    file = next(iter(own or files), "")
    mount, kind = filesystem_of(file, _text(f"/proc/{rank.pid}/mountinfo"))
    seconds = max(0.0, time.time() - rank.started) if rank.started else 0.0
    module = _module(own[-1]) if own else ""
    return Import(module, file, round(seconds, 1), mount, filesystem=kind)


def _module(file: str) -> str:
    """``torch.distributed`` of a path in site-packages, else the name of the file."""
    found = _PACKAGES.search(file)
    if found is not None:
        return found[1].replace("/", ".")
    path = Path(file)
    return path.parent.name if path.name == "__init__.py" else path.stem


def filesystem_of(file: str, mountinfo: str) -> tuple[str, str]:
    """(mount point, type) of the file system that a file lies on, by /proc/PID/mountinfo (man 5
    proc); ("", "") where it does not say.
    """
    best, kind = "", ""
    for line in mountinfo.splitlines():
        before, dash, after = line.partition(" - ")
        words = before.split()
        if not dash or len(words) < 5:
            continue
        point = words[4].replace("\\040", " ")
        inside = file == point or file.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, after.split()[0]
    return best, kind


def store_of(
    pid: int,
    name: str,
    port: int,
    known: dict[tuple[str, int], StoreView],
    *,
    attempt_s: float = ATTEMPT_S,
) -> StoreView:
    """A process's way to its store: one attempt and one look-up for each address; the sockets are its
    own.
    """
    link = _link(pid, port)
    if (name, port) not in known:
        known[name, port] = StoreView(name, port, _addresses(name))
    view = known[name, port]
    if link in ("asks", "none") and view.addresses and not view.refused:
        view.refused = attempt(view.addresses, port, attempt_s)
    refused = view.refused if link in ("asks", "none") else ""
    return StoreView(name, port, view.addresses, link, refused=refused)


def _link(pid: int, port: int) -> Literal["listens", "connected", "asks", "none"]:
    held = connections.sockets(pid, {}, asking=True)
    if any(s.listens and s.port == port for s in held):
        return "listens"
    toward = [s for s in held if s.peer_port == port and not s.listens]
    if any(not s.asks for s in toward):
        return "connected"
    return "asks" if toward else "none"


def _addresses(name: str) -> list[str]:
    try:
        found = within(_RESOLVE_S, lambda: socket.getaddrinfo(name, None, type=socket.SOCK_STREAM))
    except (OSError, OutOfTime, UnicodeError):
        return []
    return sorted({str(info[4][0]) for info in found})


def attempt(addresses: Iterable[str], port: int, seconds: float = ATTEMPT_S) -> str:
    """Connect to the first address, send nothing, close; why that failed, "" where it did not."""
    address = next(iter(addresses))
    try:
        socket.create_connection((address, port), timeout=seconds).close()
    except TimeoutError:
        return f"no answer in {duration(seconds)}"
    except OSError as error:
        return os.strerror(error.errno).lower() if error.errno else str(error)
    return ""


def expected_ranks(environ: Mapping[str, str]) -> list[tuple[str, list[int]]]:
    """(node, its ranks) of a job, from what Slurm and torchrun gave to one rank; [] where that does
    not say.

    Slurm numbers tasks by block or cyclic (https://slurm.schedmd.com/srun.html, --distribution); torchrun numbers by GROUP_RANK.
    """
    nodes = _nodes(environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_JOB_NODELIST", ""))
    local = number_in(environ.get("LOCAL_WORLD_SIZE", ""))
    groups = number_in(environ.get("GROUP_WORLD_SIZE", ""))
    if nodes and groups == len(nodes) and local > 0:
        if environ.get("GROUP_RANK") != environ.get("SLURM_NODEID"):
            return []
        return [(n, list(range(i * local, (i + 1) * local))) for i, n in enumerate(nodes)]
    counts = _counts(environ.get("SLURM_STEP_TASKS_PER_NODE", ""))
    of_slurm = environ.get("RANK", environ.get("SLURM_PROCID")) == environ.get("SLURM_PROCID")
    if not of_slurm or not nodes or len(counts) != len(nodes):
        return []
    order = environ.get("SLURM_DISTRIBUTION", "block").partition(":")[0].partition(",")[0]
    return list(zip(nodes, _numbered(counts, order), strict=True)) if order in _ORDERS else []


def _numbered(counts: Sequence[int], order: str) -> list[list[int]]:
    """The ranks of each node: one node after the other, or a task for each node in turn."""
    if order == "block":
        ends = [sum(counts[: n + 1]) for n in range(len(counts))]
        return [list(range(end - own, end)) for end, own in zip(ends, counts, strict=True)]
    ranks: list[list[int]] = [[] for _ in counts]
    rank = 0
    for turn in range(max(counts)):
        for node, count in enumerate(counts):
            if turn < count:
                ranks[node].append(rank)
                rank += 1
    return ranks


def _nodes(text: str) -> list[str]:
    try:
        return parse_hosts(text) if text else []
    except UsageError:
        return []


def _counts(text: str) -> list[int]:
    """``2(x3),1`` as [2, 2, 2, 1]."""
    counts: list[int] = []
    for part in filter(None, text.split(",")):
        number, _, times = part.partition("(x")
        many = number_in(times.rstrip(")"), 1)
        if not 0 < number_in(number) < 4096 or not 0 < many <= 1 << 16:
            return []
        counts += [number_in(number)] * many
    return counts


def _environ(pid: int) -> dict[str, str]:
    raw = _text(f"/proc/{pid}/environ")
    return dict(pair.split("=", 1) for pair in raw.split("\0") if "=" in pair)


def _text(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""
