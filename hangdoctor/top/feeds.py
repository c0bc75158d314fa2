"""Where `top` gets its picture: from a collector's API, or from the black boxes and /proc of this
host.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from ..clock import Clock
from ..errors import BadInput, CollectorError
from ..model.operations import spoken
from ..readers import blackbox, job_choice, job_words, proc, pyspy
from ..readers.discover import Job
from ..text.durations import duration
from ..text.group_words import group_words
from ..text.job_names import short_job
from ..text.plural import count
from ..text.ranges import format_ranks, number_in
from ..transport.messages import RankNow
from ..watch.arrival_lag import Pace, mark_behind, mark_lag, per_iteration, smoothed
from ..watch.live_ranks import STILL_S, Picture, RankRow, age_s, look, row_of
from .own_capture import OwnCapture

_TIMEOUT_S = 5.0
_CAPTURE_S = 90.0
_BETWEEN_S = 1.0
_OPERATIONS = 6  # of the black box, in the details of a rank
_FRAMES = 10


class LiveRanks(Struct):
    """One look, and the line above it."""

    picture: Picture
    rows: list[RankRow]
    title: str
    pace_s: float = 0.0


class Source(Protocol):
    """All of it may be called from threads; it raises HangdoctorError where it cannot."""

    def look(self) -> LiveRanks:
        """All ranks as they are now."""

    def capture(self) -> str:
        """Have all ranks captured; returns the verdict's sentence and where it is kept, when it is
        there.
        """

    def detail(self, row: RankRow) -> list[str]:
        """More lines about one rank."""


def settled(source: Source, clock: Clock) -> LiveRanks:
    """One look that can be trusted: so late that a rank which has come to a stand is not taken for
    one that moves.

    From a single sample no one can tell whether a rank uses its processor, or, without a black box,
    whether it moves at all.
    """
    seen = source.look()
    begin = clock.monotonic()  # not before: on a busy machine the first look can take seconds
    while seen.rows and clock.monotonic() - begin <= STILL_S:
        clock.sleep(_BETWEEN_S)
        seen = source.look()
        if not seen.picture.counts.get("moving"):
            break
    return seen


# --------------------------------------------------------------------------- this host


class Watched(Protocol):
    """What the agents' package follows ranks with."""

    job: str
    world_size: int
    meant: Job | None

    @property
    def others(self) -> list[Job]:
        """Jobs that are here and are not meant."""

    def search(self) -> None:
        """Look for ranks that have come."""

    def look(self) -> list[RankNow]:
        """Every rank as it is now."""


class LocalSource:
    """The ranks of this host, with and without black boxes."""

    def __init__(self, watched: Watched, job: str = "") -> None:
        self.watched, self.job = watched, job
        self.node = os.uname().nodename
        self._waits: dict[int, float] = {}
        self._pace = Pace()
        self._captured = OwnCapture()

    def look(self) -> LiveRanks:
        """The ranks that are here now; the first looks cannot tell yet who uses its processor."""
        self.watched.search()
        told = self.watched.look()
        rows = [row_of(one, self.node, age_s(one)) for one in told]
        for row in rows:
            if row.state == "still":
                row.op = _kernel_call(row.pid)
        self._captured.mark(rows)
        self._waits = {
            one.rank: smoothed(self._waits.get(one.rank, -1.0), one.waits) for one in told
        }
        picture = look(rows, self.watched.job, max(self.watched.world_size, len(rows)))
        if self.job and not rows:
            here = job_words.here_now(self.watched.others)
            picture.sentence = f"No rank of job {self.job} on this host; {here}"
        pace_s = self._pace.step(time.monotonic(), picture.iteration[0])
        mark_lag(rows, self._waits)
        mark_behind(rows)
        per_iteration(rows, pace_s)
        title = f"{short_job(self.watched.job) or 'no job'} on {self.node}"
        if rows and not self.job and self.watched.others:
            title += f", also here: {count(len(self.watched.others), 'other job')} (--job KEY)"
        return LiveRanks(picture, rows, title, pace_s)

    def choice(self) -> str:
        """Which job was taken and why, where none was named and there are several; else ""."""
        taken, others = self.watched.meant, self.watched.others
        if self.job or taken is None or not others:
            return ""
        return f"job {job_choice.choice(taken, [taken, *others], '')}"

    def capture(self) -> str:
        """The verdict of a `hangdoctor dump` of this host, and its bundle.

        Raises:
            CollectorError: it failed, or did not end.
        """
        return self._captured.run(self.watched.job or self.job)

    def detail(self, row: RankRow) -> list[str]:
        """Its process, its last operations and the stack of its main thread, read now."""
        if not row.pid or row.state in ("gone", "finished"):
            return ["its process has ended"]
        return [*_process_lines(row.pid), *_operation_lines(row.pid), *_stack_lines(row.pid)]


def _kernel_call(pid: int) -> str:
    """What /proc shows of a rank without a box: the system call that its main thread is in."""
    main = proc.sample_thread(pid, pid)
    call = main.syscall.partition("(")[0] or main.wchan if main is not None else ""
    return f"in {call}" if call else ""


def _process_lines(pid: int) -> list[str]:
    status, fields = proc.status_fields(pid), proc.stat_fields(pid)
    if not fields:
        return ["its process has ended"]
    memory = status.get("VmRSS", "").split()
    kib = number_in(memory[0]) if memory else -1
    size = f"{kib / 1024:.0f} MB" if kib >= 0 else "?"
    with contextlib.suppress(OSError):
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
        words = command.decode(errors="replace").strip()
        return [
            f"process {pid}: state {fields[0]}, {status.get('Threads', '?')} threads, {size}",
            f"  {words[:300]}",
        ]
    return [f"process {pid}: state {fields[0]}"]


def _operation_lines(pid: int) -> list[str]:
    boxes = blackbox.find_boxes(pids=[pid]) or _named_boxes(pid)
    if not boxes:
        return ["no black box: start the job with `hangdoctor run` to see its operations"]
    try:
        ops = blackbox.read_box(boxes[-1].path, last=_OPERATIONS, owners={boxes[-1].owner}).ops
    except BadInput as error:
        return [str(error)]
    names = {g.uid: group_words(spoken(g.name), format_ranks(g.ranks)) for g in ops.groups}
    lines = ["last operations:"]
    for op in ops.operations[-_OPERATIONS:]:
        if op.left_s:
            end = f"left after {(op.left_s - op.entered_s) * 1e3:.1f} ms"
        else:
            end = f"inside for {duration(time.time() - op.entered_s)}"
        site = f", at {op.site}" if op.site else ""
        lines.append(
            f"  {op.op} #{op.seq} of {names.get(op.group) or 'an unknown group'}, {end}{site}"
        )
    return lines


def _named_boxes(pid: int) -> list[blackbox.BlackBox]:
    with contextlib.suppress(OSError):
        for word in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            if word.startswith(b"HANGDOCTOR_DIR="):
                folder = blackbox.named_folder(os.fsdecode(word.partition(b"=")[2]), pid)
                return blackbox.find_boxes(folder, pids=[pid]) if folder.is_dir() else []
    return []


def _stack_lines(pid: int) -> list[str]:
    result = pyspy.dump(pid, 2.0)
    main = next((t for t in result.threads if t.name == "MainThread"), None)
    if main is None:
        return [f"no stack: {result.error or 'it has no main thread'}"]
    return ["main thread, innermost first:", *(f"  {frame}" for frame in main.frames[:_FRAMES])]


# --------------------------------------------------------------------------- a collector


class RemoteSource:
    """A collector that serves its page: `address` as http://HOST:PORT, its token in the header
    only.
    """

    def __init__(self, address: str, token: str) -> None:
        self.address, self.token = address.rstrip("/"), token

    def look(self) -> LiveRanks:
        """What the collector knows of all ranks.

        Raises:
            CollectorError: it does not answer, or as another version.
        """
        told, ranks = self._get("/api/v1/status"), self._get("/api/v1/ranks")
        try:
            status, rows = told["status"], msgspec.convert(ranks["ranks"], list[RankRow])
            picture = look(rows, status["job"], status["world_size"])
        except (KeyError, TypeError, msgspec.ValidationError) as error:
            raise self._other_version(error) from error
        nodes = f"{status['agents']} of {status['nodes']} agents"
        if status["capturing"]:
            picture.sentence = f"Capturing: {status['capture_answered']} of {status['capture_asked']} nodes have answered"
        return LiveRanks(
            picture, rows, f"{short_job(status['job']) or 'no job yet'}, {nodes}", status["pace_s"]
        )

    def capture(self) -> str:
        """The verdict of a capture that the collector makes now, and its incident.

        Raises:
            CollectorError: it does not answer, or no verdict came within 90 s.
        """
        before = self._get("/api/v1/capture", b"{}")["concluded"]
        end = time.monotonic() + _CAPTURE_S
        while time.monotonic() < end:
            if self._get("/api/v1/status")["concluded"] > before:
                incidents = self._get("/api/v1/incidents")["incidents"]
                if not incidents:
                    return "captured; nothing was kept"
                return f"{incidents[0]['summary']} ({incidents[0]['id']})"
            time.sleep(0.5)
        raise CollectorError("no verdict", "See the collector's log.")

    def detail(self, row: RankRow) -> list[str]:
        """What the collector knows of one rank; its stack needs a capture.

        Raises:
            CollectorError: it does not answer, or as another version.
        """
        try:
            now = msgspec.convert(self._get(f"/api/v1/ranks/{row.rank}"), RankRow)
        except msgspec.ValidationError as error:
            raise self._other_version(error) from error
        lines = [f"process {now.pid} on {now.node}"]
        if now.lag_s:
            lines.append(f"comes {now.lag_s * 1e3:.0f} ms later than the first")
        if now.behind_s:
            lines.append(f"others have waited for {duration(now.behind_s)} while it is not there")
        return [*lines, "its stack: c captures all ranks"]

    def _other_version(self, error: Exception) -> CollectorError:
        return CollectorError(
            f"{self.address} answers something else: {error}",
            "Is it a collector of this version?",
        )

    def _get(self, path: str, body: bytes | None = None) -> dict[str, Any]:
        request = urllib.request.Request(
            self.address + path, body, {"Authorization": f"Bearer {self.token}"}
        )
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({})
        )  # the token goes to no proxy
        try:
            with opener.open(request, timeout=_TIMEOUT_S) as answer:
                found: dict[str, Any] = msgspec.json.decode(answer.read())
                return found
        except urllib.error.HTTPError as error:
            with error:
                said = error.read(4000)
            raise CollectorError(
                _words(said) or f"{self.address} answered with status {error.code}",
                _help(error.code),
            ) from error
        except (
            urllib.error.URLError,
            http.client.HTTPException,
            OSError,
            msgspec.DecodeError,
        ) as error:
            why = getattr(error, "reason", error)
            raise CollectorError(
                f"no collector answers at {self.address}: {why}", "Is it running, with --web?"
            ) from error


def _words(said: bytes) -> str:
    try:
        return str(msgspec.json.decode(said)["error"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return ""


def _help(code: int) -> str:
    return (
        "Its token is in FOLDER/web.json: pass --folder FOLDER or --token-file FILE."
        if code == 401
        else ""
    )
