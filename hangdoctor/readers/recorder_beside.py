"""torch's own recorder, asked of living ranks beside their black boxes.

It counts what C++ issues, which no wrapper sees: gradients of DistributedDataParallel and FSDP, functional
collectives, compiled graphs. Its answer comes from a thread of the rank that needs neither its main
thread nor the interpreter lock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from msgspec import structs

from ..errors import HangdoctorError
from ..files import is_of, users_of
from ..model.capture import RankCapture
from ..model.operations import Group, RankOps
from ..probe import format as fmt
from ..probe.folder import socket_name
from ..stacks.rank_thread import rank_thread
from ..text.late import late
from ..text.ranges import format_ranks
from . import beside_boxes, flight_recorder, worker_server
from .flight_recorder_format import Dump, parse
from .safe_pickle import MAX_BYTES

KEEP = 64  # operations of a rank that a capture holds beside those of its box
_KEEP_BEFORE = 4
_PATIENCE_S = 2.0
_WORKERS = 64
_CANNOT_ANSWER = frozenset("TtZX")
_PROCESS = late(r"-(\d+-\d+|\d+)$")


def socket_of(box: Path, environ: Mapping[str, str]) -> Path | None:
    """The socket of a rank's worker server: the user's, else the probe's; None where it has none."""
    told = environ.get("TORCH_WORKER_SERVER_SOCKET")
    if told:
        return Path(told)
    process = _PROCESS.search(box.stem)
    if process is None:
        return None
    # A host's name may end in a number itself.
    names = [process[1], process[1].rpartition("-")[2]]
    paths = [box.with_name(socket_name(name)) for name in names]
    return next((path for path in paths if path.exists()), None)


def ask(ranks: Sequence[tuple[RankCapture, Path]], first: bool) -> list[str]:
    """Put what their recorders hold on these ranks of one node; what could not be read, as notes.

    They are left alone where the boxes show the waits already.
    """
    able = [(rank, path) for rank, path in ranks if not _is_held(rank)]
    if not able or not _needed([rank for rank, _ in able], first):
        return []
    with ThreadPoolExecutor(max_workers=min(_WORKERS, len(able))) as pool:
        answers = list(pool.map(_read, able))
    dumps: dict[int, Dump] = {}
    silent: list[int] = []
    for (rank, _), answer in zip(able, answers, strict=True):
        if isinstance(answer, Dump):
            dumps[rank.rank] = answer
        elif answer is not None:
            silent.append(rank.rank)
    _put([rank for rank, _ in able], dumps, first)
    if not silent or first:
        return []
    return [f"torch's recorders of ranks {format_ranks(silent)} did not answer"]


def _needed(ranks: Sequence[RankCapture], first: bool) -> bool:
    """Whether one is in a communication of which its box knows nothing, or no box shows any wait.
    With NCCL a rank goes on while its device waits, and its box knows nothing of that.
    """
    silent = [rank for rank in ranks if not _waits_by_box(rank, first)]
    if len(silent) == len(ranks):
        return True
    return any(_runs_ahead(rank, first) or _communicates(rank) for rank in silent)


def _runs_ahead(rank: RankCapture, first: bool) -> bool:
    box = rank.ops_before if first else rank.ops
    return box is not None and box.runs_ahead


def _waits_by_box(rank: RankCapture, first: bool) -> bool:
    box = rank.ops_before if first else rank.ops
    return box is not None and bool(box.unfinished())


def _communicates(rank: RankCapture) -> bool:
    """Whether it does, if it stands where it is: gradients are reduced below a call that also
    computes. It may where its stack could not be read.
    """
    threads = rank.samples[-1].threads if rank.samples else []
    if not threads:
        return True
    return rank_thread(threads, {thread.tid for thread in threads})[1].communicates


def _is_held(rank: RankCapture) -> bool:
    return bool(rank.samples) and rank.samples[-1].state in _CANNOT_ANSWER


def _read(asked: tuple[RankCapture, Path]) -> Dump | HangdoctorError | None:
    """Its dump; None where it has no such handler, else why it did not answer."""
    rank, path = asked
    try:
        if not is_of(path.lstat().st_uid, users_of(rank.pid)):
            return None  # someone else's, where others can put theirs
        answer = worker_server.read_rank(path, _PATIENCE_S)
    except OSError:
        return None
    except HangdoctorError as error:
        return error
    return answer.dump


def attach_kept(ranks: Sequence[RankCapture], boxes: Mapping[int, Path]) -> None:
    """Of ranks that have ended: what their recorders held while they were idle, from the files beside
    their boxes. It counts only where all of them have one.
    """
    dumps = {rank: dump for rank, box in boxes.items() if (dump := _kept(box)) is not None}
    if len(dumps) == len(ranks):
        _put(ranks, dumps, first=False)


def _kept(box: Path) -> Dump | None:
    """None where there is no such file, or its process was killed while it was written."""
    try:
        data = beside_boxes.content(box, fmt.RECORDS_SUFFIX, fmt.RECORDS_MAGIC, MAX_BYTES)
        return parse(data) if data is not None else None
    except (OSError, HangdoctorError):
        return None


def _put(ranks: Sequence[RankCapture], dumps: dict[int, Dump], first: bool) -> None:
    if not any(dump.entries for dump in dumps.values()):
        return  # TORCH_FR_BUFFER_SIZE=0: what NCCL's own events show is more
    world = max(rank.world_size for rank in ranks)
    found = flight_recorder.convert(dumps, world_size=world)
    alone = len(dumps) == found.world_size
    for rank in ranks:
        ops = found.ops.get(rank.rank)
        # Members that were guessed from the dumps of one node are not those of the job.
        if ops is None or not (alone or are_told(ops)):
            continue
        if not are_told(ops):
            ops = named_as_in_box(ops, rank.ops_before if first else rank.ops)
        if first:
            rank.recorded_before = _trimmed(ops, _KEEP_BEFORE)
        else:
            rank.recorded = _trimmed(ops, KEEP)


def named_as_in_box(ops: RankOps, box: RankOps | None) -> RankOps:
    """The recorder's operations, with the groups of the same names that the rank's black box has:
    it saw their members, which gloo's recorder leaves out, so that they were guessed.
    """
    if box is None or len({group.uid for group in ops.groups}) < len(ops.groups):
        return ops
    by_name: dict[str, list[Group]] = {}
    for group in box.groups:
        by_name.setdefault(group.name, []).append(group)
    sure = {
        name: some[0]
        for name, some in by_name.items()
        if len({tuple(group.ranks) for group in some}) == 1
    }
    own = {group.uid: sure.get(group.name, group) for group in ops.groups}
    operations = [
        structs.replace(op, group=own[op.group].uid) if op.group in own else op
        for op in ops.operations
    ]
    return structs.replace(ops, groups=list(own.values()), operations=operations)


def are_told(ops: RankOps) -> bool:
    """Whether the members of all its groups are known, and not guessed from who mentions them."""
    return not any(note.startswith("members of group") for note in ops.notes)


def _trimmed(ops: RankOps, keep: int) -> RankOps:
    if len(ops.operations) <= keep:
        return ops
    return structs.replace(ops, operations=ops.newest(keep), overwritten=True)
