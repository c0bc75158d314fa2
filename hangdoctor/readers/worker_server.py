"""The Flight Recorder of a living rank: from torch's worker server, or through NCCL's debug pipe.

Worker server (torch 2.4 and later, `torch._C._distributed_c10d._WorkerServer`, started by
`torch.distributed.elastic.control_plane.worker_main` or the probe): HTTP over a Unix socket, `GET
/handler/` lists handlers, `POST /handler/NAME` calls one in a C++ thread of the rank. Its answer
does not need the rank's main thread, and without stacks not the interpreter lock either, so a rank
that blocks answers, and one that works is not delayed. What a version offers differs: 2.13 has
`fr_trace_json` for gloo; builds with NCCL add `dump_nccl_trace_json` and `dump_nccl_trace_pickle`.

Debug pipe (TORCH_NCCL_DEBUG_INFO_PIPE_FILE): a rank with NCCL makes the FIFO `PREFIX<rank>.pipe`; a
byte written there makes its monitor thread write the usual dump file, over an earlier one of the
same name. So a rank is asked that way only where it was requested and no such file is there.

Every wait here ends at its deadline.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from hangdoctor.errors import BadInput, HangdoctorError

from .flight_recorder_format import Dump, parse
from .safe_pickle import MAX_BYTES

# JSON first: it has no stacks, so that it cannot wait for the interpreter lock.
DUMP_HANDLERS = ("dump_nccl_trace_json", "fr_trace_json", "dump_nccl_trace_pickle")
_WITHOUT_STACKS = {"dump_nccl_trace_pickle": "?includestacktraces=false"}
_POLL_S = 0.05


class NoAnswer(HangdoctorError):
    """A rank's socket or pipe did not answer in time, or with nothing usable."""

    default_help = "The rank may be stopped or dead; see the rest of the capture. It has a worker server only if it was started with the probe (hangdoctor run) or with TORCH_WORKER_SERVER_SOCKET and torch's worker_main."


class LiveDump(Struct):
    """What one rank answered with."""

    dump: Dump | None
    handlers: list[str]  # those that the rank has
    raw: dict[str, bytes] = {}  # handler -> what it answered, for the bundle
    errors: list[str] = []


def fetch(path: Path, handler: str, timeout_s: float = 2.0, method: str = "POST") -> bytes:
    """Call one handler of a rank's worker server, "" lists them.

    Raises:
        NoAnswer: no socket, no answer within `timeout_s` seconds, or a status other than 200.
    """
    from . import unix_http  # http.client, with ssl and email, is a twentieth of a command's start

    try:
        answer = unix_http.ask(path, method, f"/handler/{handler}", timeout_s, MAX_BYTES)
    except TimeoutError as e:
        raise NoAnswer(f"{path}: no answer within {timeout_s:g} s") from e
    except OSError as e:
        raise NoAnswer(f"{path}: {e or type(e).__name__}") from e
    if answer.cut:
        asked = handler or "the list of handlers"
        raise NoAnswer(f"{path}: the answer to {asked} is too large or truncated")
    if answer.status != 200:
        said = answer.body[:120].decode(errors="replace")
        raise NoAnswer(f"{path}: {handler} answered {answer.status} {said}")
    return answer.body


def handlers(path: Path, timeout_s: float = 2.0) -> list[str]:
    """Names of the handlers that a rank's worker server has.

    Raises:
        NoAnswer: see `fetch`.
    """
    body = fetch(path, "", timeout_s, method="GET")
    try:
        return sorted(msgspec.json.decode(body, type=list[str]))
    except msgspec.DecodeError as e:
        raise NoAnswer(f"{path}: not a torch worker server: {e}") from e


def read_rank(path: Path, timeout_s: float = 3.0) -> LiveDump:
    """Ask one rank for its Flight Recorder. gloo's and NCCL's recorders are apart and are joined
    here.

    Raises:
        NoAnswer: the socket does not answer at all; a handler that fails is in `errors`.
    """
    deadline = time.monotonic() + timeout_s
    live = LiveDump(None, handlers(path, timeout_s))
    for handler in DUMP_HANDLERS:
        if handler not in live.handlers or (
            handler == "dump_nccl_trace_pickle" and live.dump is not None
        ):
            continue
        try:
            left = max(0.01, deadline - time.monotonic())
            body = fetch(path, handler + _WITHOUT_STACKS.get(handler, ""), left)
            dump = parse(body)
        except HangdoctorError as e:
            live.errors.append(f"{handler}: {e}")
            continue
        live.raw[handler] = body
        live.dump = dump if live.dump is None else _join(live.dump, dump)
    return live


def _join(one: Dump, other: Dump) -> Dump:
    """Both recorders of one process in one list, by time."""
    if not one.entries or not other.entries:
        return one if one.entries else other
    return Dump(
        version=max(one.version, other.version),
        entries=sorted([*one.entries, *other.entries], key=lambda e: e.entered_ns),
        members={**other.members, **one.members},
        names={**other.names, **one.names},
        backend=one.backend if one.backend != "gloo" else other.backend,
        overwritten=one.overwritten or other.overwritten,
        groups_seen=max(one.groups_seen, other.groups_seen),
    )


def traceback(path: Path, timeout_s: float = 2.0) -> str:
    """The rank's Python stacks as its own faulthandler prints them; needs no ptrace right.

    Raises:
        NoAnswer: see `fetch`.
    """
    return fetch(path, "dump_traceback", timeout_s).decode(errors="replace")


def dump_files(environ: Mapping[str, str], rank: int) -> list[Path]:
    """Where a rank with this environment writes its dump, the likeliest first (torch 2.4 to 2.13)."""
    told = environ.get("TORCH_FR_DUMP_TEMP_FILE") or environ.get("TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
    if told:
        return [Path(f"{told}{rank}")]
    cache = environ.get("XDG_CACHE_HOME") or f"{environ.get('HOME', '')}/.cache"
    return [Path(f"{cache}/torch/comm_lib_trace_rank_{rank}"), Path(f"/tmp/nccl_trace_rank_{rank}")]


def ask_pipe(
    pipe: Path,
    files: list[Path],
    timeout_s: float = 5.0,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[Path, Dump]:
    """Make a rank write its dump file by its debug pipe, and read it.

    Args:
        pipe: the FIFO, TORCH_NCCL_DEBUG_INFO_PIPE_FILE + rank + ".pipe".
        files: where the dump may appear, see `dump_files`.

    Raises:
        NoAnswer: a dump is there already, no one listens at the pipe, or no readable new dump
            appeared in time.
    """
    deadline = time.monotonic() + timeout_s
    for file in files:
        _refuse_to_write_over(file)
    try:
        # Without O_NONBLOCK this would wait for a reader for ever; with it, no reader is an error.
        # Its name is what the rank's environment says: a file or a link there is not ours to write
        # into.
        fd = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if not stat.S_ISFIFO(os.fstat(fd).st_mode):
                raise NoAnswer(f"{pipe} is not a pipe")
            os.write(fd, b"1\n")
        finally:
            os.close(fd)
    except OSError as e:
        raise NoAnswer(f"{pipe}: no process reads it: {e.strerror}") from e
    why = "no dump file appeared"
    while time.monotonic() < deadline:
        for file in (f for f in files if f.exists()):
            try:
                return file, parse(_whole(file))
            except (BadInput, OSError) as e:
                why = f"{file}: {e}"  # still being written
        sleep(_POLL_S)
    raise NoAnswer(f"{pipe}: {why} within {timeout_s:g} s")


def _whole(path: Path) -> bytes:
    """All of a dump; never waits at a FIFO or a device.

    Raises:
        BadInput: it is not a file, or larger than any dump.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_BYTES:
            raise BadInput("not a regular file, or too large")
        return file.read()


def _refuse_to_write_over(file: Path) -> None:
    """The rank would write a new dump over what has this name; where that cannot be seen, it may be
    there.
    """
    try:
        file.lstat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise NoAnswer(
            f"{file}: cannot check whether a dump exists already: {error.strerror}"
        ) from error
    raise NoAnswer(
        f"{file} exists already and the rank would overwrite it: no dump was requested",
        f"Read it with: hangdoctor diagnose {file}",
    )


def seen_by(pid: int, name: Path) -> Path:
    """What a process calls `name`, by a path that is good here: it may have another root and
    another current folder.
    """
    if name.is_absolute():
        return Path(f"/proc/{pid}/root") / name.relative_to("/")
    return Path(f"/proc/{pid}/cwd") / name
