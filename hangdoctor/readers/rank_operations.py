"""Puts the operations that ranks recorded on their captures: black boxes first, else the recorder
of a living rank.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import psutil

from ..errors import BadInput, HangdoctorError
from ..files import is_of, users_of
from ..model.capture import RankCapture
from ..model.operations import RankOps
from . import blackbox, calls, flight_recorder, nccl_beside, recorder_beside, worker_server
from .box_folders import is_folder
from .flight_recorder_format import Dump

KEEP = 2000  # operations of a rank that a capture holds; the ring has more
KEEP_CALLS = 200  # events of each thread, where calls are traced
KEEP_BEFORE = 16  # of the first sample: only whether it moved is asked
_CLOCK_S = 2.0  # a process's start is only known to so much where the wall clock is corrected
_RECORDER_S = 3.0
_SOCKET = "TORCH_WORKER_SERVER_SOCKET"
_PIPE = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"


def attach(
    ranks: Sequence[RankCapture],
    first: bool = False,
    nccl_dump: bool = False,
    known: set[Path] | None = None,
) -> list[str]:
    """Read the operations of `ranks` (dead ones too) into their captures; what could not be read,
    as notes.

    With `nccl_dump` ranks that have nothing else are asked to write a dump, through NCCL's debug
    pipe. `known`: folders of their boxes; gets those that living ranks name, who may have ended at
    the next call.
    """
    environs = {r.pid: _environ(r.pid) for r in ranks if r.pid and not r.gone}
    named = {pid: e["HANGDOCTOR_DIR"] for pid, e in environs.items() if e.get("HANGDOCTOR_DIR")}
    folders = {blackbox.named_folder(folder, pid) for pid, folder in named.items()}
    if known is not None:
        known |= folders
        folders = set(known)
    notes: list[str] = []
    found = _boxes(folders, {r.pid for r in ranks}, notes)
    users = {r.pid: users_of(r.pid) for r in ranks if r.pid}
    everybody = frozenset().union(*users.values())
    boxed: list[tuple[RankCapture, blackbox.BlackBox]] = []
    unboxed: list[RankCapture] = []
    for rank in ranks:
        # The owner of a rank that has ended is unknown; the other ranks of its job show it.
        box = _box_of(rank, found, users.get(rank.pid) or everybody)
        if box is None:
            unboxed.append(rank)
            continue
        notes += _put(rank, box, first)
        boxed.append((rank, box))
    notes += recorder_beside.ask(_recorders_beside(boxed, environs), first)
    if not first:
        living = [(r, environs[r.pid]) for r in unboxed if r.pid in environs]
        notes += _ask([(r, environ) for r, environ in living if _answers(environ)], nccl_dump)
    return notes + nccl_beside.attach(ranks, boxed, named, users, first)


def _recorders_beside(
    boxed: Sequence[tuple[RankCapture, blackbox.BlackBox]], environs: Mapping[int, dict[str, str]]
) -> list[tuple[RankCapture, Path]]:
    """The sockets at which torch's recorders of living ranks with a box answer."""
    found: list[tuple[RankCapture, Path]] = []
    for rank, box in boxed:
        socket = recorder_beside.socket_of(Path(box.path), environs.get(rank.pid, {}))
        if socket is not None and not rank.gone:
            found.append((rank, socket))
    return found


def _environ(pid: int) -> dict[str, str]:
    try:
        return dict(psutil.Process(pid).environ())
    except psutil.Error:
        return {}


def _boxes(folders: set[Path], pids: set[int], notes: list[str]) -> list[blackbox.BlackBox]:
    """All boxes in the job's folders; in the default places those of these processes that have none
    there.
    """
    boxes = [
        b for f in sorted(folders) if is_folder(f) for b in blackbox.find_boxes(f, notes=notes)
    ]
    without = pids - {b.pid for b in boxes if b.status == "live"}
    seen = {b.path for b in boxes}
    return boxes + [
        b
        for b in (blackbox.find_boxes(pids=without, notes=notes) if without else [])
        if b.path not in seen
    ]


def _answers(environ: Mapping[str, str]) -> bool:
    """Whether the rank has something that can be asked: a worker server, or NCCL's debug pipe."""
    return bool(environ.get(_SOCKET) or environ.get(_PIPE))


def _is_of_process(box: blackbox.BlackBox, rank: RankCapture) -> bool:
    """Whether it is the box of this very process.

    A number can be a later process's: what was made before this one began is someone else's.
    """
    if not rank.pid or box.pid != rank.pid or box.status == "stale":
        return False
    return box.status == "live" or box.created_s > rank.started - _CLOCK_S


def _box_of(
    rank: RankCapture, boxes: Sequence[blackbox.BlackBox], users: Collection[int] = ()
) -> blackbox.BlackBox | None:
    """The rank's own box by process; of a dead rank whose process is unknown, the newest of that
    rank on this host.
    """
    boxes = [b for b in boxes if is_of(b.owner, users)] if users else boxes
    own = [b for b in boxes if _is_of_process(b, rank)]
    if not own and rank.gone:
        hosts = (os.uname().nodename, rank.node)
        dead = [b for b in boxes if b.status == "dead" and b.host in hosts]
        own = [b for b in dead if b.rank == rank.rank]
    return max(own, key=lambda b: b.created_s, default=None)


def _put(rank: RankCapture, box: blackbox.BlackBox, first: bool) -> list[str]:
    try:
        contents = blackbox.read_box(
            box.path, last=KEEP_BEFORE if first else KEEP, owners={box.owner}
        )
        ops = contents.ops
        if (contents.box.pid, contents.box.rank) != (box.pid, box.rank):
            raise BadInput(f"{box.path} now belongs to another process")
    except BadInput as error:
        return [f"rank {rank.rank}: {error}"]
    if box.uncounted:
        pass  # it has none, and never will
    elif first:
        rank.ops_before = ops
    else:
        rank.ops = ops
    rank.pid = rank.pid or box.pid
    notes = [] if first else _put_calls(rank, box)
    if box.state == "switched_off":
        notes.append(f"rank {rank.rank}: its probe switched itself off: {box.note}")
    return notes


def _put_calls(rank: RankCapture, box: blackbox.BlackBox) -> list[str]:
    """The last Python calls, where the rank was traced: no other evidence depends on them."""
    try:
        trace = calls.last_calls(calls.calls_path(box.path), KEEP_CALLS, owners={box.owner})
    except BadInput as error:
        return [f"rank {rank.rank}: its calls cannot be read: {error}"]
    if trace is None:
        return []
    rank.calls = calls.without_path(trace)
    return [f"rank {rank.rank}: call tracing {trace.note}"] if trace.state == "switched_off" else []


def trim(ops: RankOps, keep: int) -> RankOps:
    """The newest `keep` operations of the training, as many of other threads, and all unfinished."""
    if len(ops.operations) <= keep:
        return ops
    kept = ops.newest(keep)
    done = next((o.entered_s for o in kept if o.state == "done"), kept[0].entered_s)
    marks = [m for m in ops.marks[-keep:] if m.at_s >= done]
    return msgspec.structs.replace(ops, operations=kept, overwritten=True, marks=marks)


def _ask(live: Sequence[tuple[RankCapture, dict[str, str]]], nccl_dump: bool) -> list[str]:
    """The recorders of ranks without a black box that serve torch's worker socket or NCCL's debug
    pipe, all at once.
    """
    if not live:
        return []
    with ThreadPoolExecutor(max_workers=min(64, len(live))) as pool:
        answers = list(pool.map(lambda pair: _recorder_of(pair[0], pair[1], nccl_dump), live))
    dumps = {
        rank.rank: dump
        for (rank, _), (dump, _) in zip(live, answers, strict=True)
        if dump is not None
    }
    if dumps:
        result = flight_recorder.convert(dumps, world_size=max(r.world_size for r, _ in live))
        for rank, _ in live:
            if rank.rank in result.ops:
                rank.ops = trim(result.ops[rank.rank], KEEP)
    return [
        f"rank {rank.rank}: {why}"
        for (rank, _), (_, whys) in zip(live, answers, strict=True)
        for why in whys
    ]


def _recorder_of(
    rank: RankCapture, environ: dict[str, str], nccl_dump: bool
) -> tuple[Dump | None, list[str]]:
    """(its Flight Recorder, what went wrong): by the worker socket where there is one, else by the
    pipe.
    """
    users = users_of(rank.pid)
    try:
        if environ.get(_SOCKET):
            socket = _own(Path(environ[_SOCKET]), users)
            answer = worker_server.read_rank(socket, _RECORDER_S)
            return answer.dump, answer.errors
        files = worker_server.dump_files(environ, rank.rank)
        if not nccl_dump:
            return None, [
                f"its Flight Recorder was not asked for a dump; with --nccl-dump it writes one to {files[0]}"
            ]
        pipe = _own(
            worker_server.seen_by(rank.pid, Path(f"{environ[_PIPE]}{rank.rank}.pipe")), users
        )
        seen = [worker_server.seen_by(rank.pid, file) for file in files]
        file, dump = worker_server.ask_pipe(pipe, seen, _RECORDER_S)
        _own(file, users)
        return dump, []
    except HangdoctorError as error:
        return None, [str(error)]


def _own(path: Path, users: Collection[int]) -> Path:
    """The path, where it is the rank's own user's: sockets and dumps lie where others can put
    theirs, as in /tmp.

    Raises:
        BadInput: another user's.
    """
    try:
        owner = path.lstat().st_uid
    except OSError:
        return path  # the one who opens it says what is wrong
    if users and not is_of(owner, users):
        raise BadInput(f"{path} is left out: it belongs to user {owner}, not to the rank's user")
    return path
