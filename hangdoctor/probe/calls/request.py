"""The request that switches tracing in a running job: one small file in the job's run-time folder.

Written by `hangdoctor trace` or by the node's agent, read by the probe of every rank that uses the
folder. It names what to record and nothing else: a rank executes nothing that is in it. A `Request`
is the one form that a wish for traces has on all of its way; whoever takes it from somebody else
has it `checked`.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import MutableMapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..folder import REQUEST
from ..identity import ranks_from

NAME = REQUEST
VARIABLE = "HANGDOCTOR_TRACE"  # the same as JSON, for tracing from the start
_MAX_BYTES = 64 << 10  # as JSON
MAX_NAME = 200
_MAX_MB = 4096.0
_MARK = "HANGDOCTOR_TRACED"
_LAUNCHERS = ("torchrun", "deepspeed", "accelerate")


class Request(NamedTuple):
    """What to trace. `ranks` is text as `0-3,8`, None for all; names are import names."""

    serial: int
    on: bool
    follow: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    from_iteration: int | None = None
    ranks: str | None = None
    size_mb: float | None = None


def encode(request: Request) -> str:
    """The request as JSON, as the file and HANGDOCTOR_TRACE hold it."""
    return json.dumps(request._asdict())


def decode(text: str) -> Request | None:
    """A request from its JSON, or None where it is none; unknown fields are of a later version and
    are left out.
    """
    try:
        return checked(_request(json.loads(text)))
    except (ValueError, RecursionError):
        return None  # damaged: whoever wrote it sees that no one answers


def checked(request: Request) -> Request:
    """The request.

    Raises:
        ValueError: a number or name of it is out of all bounds, or its list of ranks is none.
    """
    for number in (request.serial, request.from_iteration or 0):
        if not 0 <= number < 1 << 63:
            raise ValueError("serial and from_iteration are numbers from 0 on")
    if any(not 0 < len(name) <= MAX_NAME for name in (*request.follow, *request.ignore)):
        raise ValueError(f"a name has at most {MAX_NAME} characters")
    if request.size_mb is not None and not 0 < request.size_mb <= _MAX_MB:
        raise ValueError(f"a ring has at most {_MAX_MB:.0f} MB")
    if len(encode(request)) > _MAX_BYTES:
        raise ValueError(f"as JSON it has more than {_MAX_BYTES} bytes")
    concerns(request, -1)  # which reads all of its list
    return request


def _request(raw: Any) -> Request:
    if (
        not isinstance(raw, dict)
        or not isinstance(raw.get("serial"), int)
        or not isinstance(raw.get("on"), bool)
    ):
        raise ValueError("it has no serial and no switch")
    return Request(
        serial=raw["serial"],
        on=raw["on"],
        follow=_names(raw.get("follow")),
        ignore=_names(raw.get("ignore")),
        from_iteration=_number(raw.get("from_iteration")),
        ranks=_text(raw.get("ranks")),
        size_mb=_size(raw.get("size_mb")),
    )


def _names(raw: Any) -> tuple[str, ...]:
    if raw is None:
        return ()
    if not isinstance(raw, list) or not all(isinstance(name, str) for name in raw):
        raise ValueError("follow and ignore are lists of import names")
    return tuple(name for name in raw if name)


def _number(raw: Any) -> int | None:
    if raw is not None and not isinstance(raw, int):
        raise ValueError("from_iteration is a number")
    return raw


def _text(raw: Any) -> str | None:
    if raw is not None and not isinstance(raw, str):
        raise ValueError("ranks are text, as 0-7")
    return raw


def _size(raw: Any) -> float | None:
    if raw is not None and not isinstance(raw, (int, float)):
        raise ValueError("size_mb is a number")
    return raw


def concerns(request: Request, rank: int) -> bool:
    """Whether the request is for this rank.

    Raises:
        ValueError: its list of ranks is none.
    """
    if request.ranks is None:
        return True
    for part in filter(None, request.ranks.split(",")):
        first, _, last = part.partition("-")
        # Both are read, whatever the rank: `decode` finds by this what is not a list.
        begin, end = int(first), int(last or first)
        if begin <= rank <= end:
            return True
    return False


def is_rank_itself(environ: MutableMapping[str, str], argv: Sequence[str]) -> bool:
    """Whether this process is a rank: not its launcher, and not a child that merely inherits its
    environment.

    Leaves a mark in the environment for the children.
    """
    if is_launcher(argv):
        return False
    rank, world, _ = ranks_from(environ)
    mark = f"{'RANK' in environ}:{rank}:{world}"
    if rank < 0 or environ.get(_MARK) == mark:
        return False
    environ[_MARK] = mark
    return True


def is_launcher(argv: Sequence[str]) -> bool:
    """True for `python .../torchrun ...` and `python -m torch.distributed.run ...`."""
    for i, word in enumerate(argv[1:6], start=1):
        if word == "-m":
            return i + 1 < len(argv) and argv[i + 1].startswith(
                ("torch.distributed.", "deepspeed.launcher", "accelerate.")
            )
        if not word.startswith("-"):
            return word.rpartition("/")[2] in _LAUNCHERS
    return False


def read(folder: Path) -> Request | None:
    """The request in a job's folder; None where there is none, a damaged one, or one that is not
    from this user or root.
    """
    try:
        fd = os.open(folder / NAME, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        found = os.fstat(fd)
        if (
            not stat.S_ISREG(found.st_mode)
            or found.st_uid not in (os.getuid(), 0)
            or found.st_mode & 0o022
        ):
            return None
        data = os.read(fd, _MAX_BYTES)
    finally:
        os.close(fd)
    return decode(data.decode("utf-8", "replace"))


def write(folder: Path, request: Request) -> None:
    """Put a request in a job's folder, whole or not at all, readable by the folder's owner alone.

    Raises:
        OSError: no right, no room.
    """
    where = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    staging = f".{NAME}.{os.getpid()}"
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(staging, dir_fd=where)
        # Never one that is there: in another user's folder it can be a second name of a file of root's.
        fd = os.open(
            staging,
            os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW,
            0o600,
            dir_fd=where,
        )
        with os.fdopen(fd, "w") as file:
            file.write(encode(request))
            owner = os.fstat(where)
            if (
                owner.st_uid != os.getuid()
            ):  # root in another user's folder: the ranks must be able to read it
                os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
        os.rename(staging, NAME, src_dir_fd=where, dst_dir_fd=where)
    finally:
        os.close(where)
