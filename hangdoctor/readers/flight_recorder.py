"""Flight Recorder dumps -> `RankOps`: a folder of files, or the bytes that live ranks answered
with.

File names end in the rank: `nccl_trace_rank_0` (TORCH_NCCL_DEBUG_INFO_TEMP_FILE),
`comm_lib_trace_rank_0` (TORCH_FR_DUMP_TEMP_FILE), `_dump_0` and others, with or without `.json`,
`.pickle` or `.pkl`. Whatever in a folder is not a readable dump of this job is skipped with its
reason, and ranks without a dump are `missing`: the rest is read all the same.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct

from hangdoctor.errors import BadInput
from hangdoctor.files import read_regular
from hangdoctor.model.layout import Layout
from hangdoctor.model.operations import WHOLE_JOB, Group, Operation, RankOps, spoken
from hangdoctor.text.ranges import MAX_RANKS

from ..text.late import late
from .flight_recorder_ages import older
from .flight_recorder_entry import Entry
from .flight_recorder_format import Dump, parse
from .flight_recorder_groups import WORLD, Membership
from .safe_pickle import MAX_BYTES

_RANK = late(r"^(?P<prefix>.*?)(?P<rank>\d{1,7})(?:\.(?:json|pickle|pkl|bin))?$")
_KEYS = (b"pg_config", b"pg_status", b"comm_lib_version", b"nccl_comm_state", b"collective_seq_id")
# Longer than any time-out between the first and the last dump of one incident.
OTHER_JOB_S = 6 * 3600
_MOST_ALONE = 16  # pending sends and receives of a rank that each are an operation of its own
_Batch = tuple[str, bool, int]  # group, whether they are sends and receives, their number


class FolderResult(Struct):
    """What a folder of dumps holds."""

    ops: dict[int, RankOps]
    skipped: list[tuple[str, str]]  # file, why
    missing: list[int]  # ranks of the world without a dump
    world_size: int
    unsure: frozenset[str] = frozenset()  # uids of groups that may have more members than these


def is_dump(path: Path) -> bool:
    """Whether a file looks like a rank's dump, by its name and its first bytes; does not read all
    of it.
    """
    if _RANK.match(path.name) is None or not path.is_file():
        return False
    try:
        with path.open("rb") as f:
            head = f.read(1 << 16)
    except OSError:
        return False
    return head[:1] in (b"{", b"\x80") and any(key in head for key in _KEYS)


def read_folder(folder: Path, layout: Layout | None = None, world_size: int = 0) -> FolderResult:
    """Read every dump in a folder (not below it).

    Args:
        layout: of the job where it is known; helps to find the members of gloo's groups.
        world_size: of the job where it is known, else what the dumps tell.

    Raises:
        BadInput: the folder cannot be listed. Unreadable files do not raise, they are in `skipped`.
    """
    try:
        files = sorted(p for p in folder.iterdir() if not p.is_dir())
    except OSError as e:
        raise BadInput(
            f"{folder}: {e.strerror}", "Pass the folder with the ranks' dump files."
        ) from e
    return read_files(files, layout, world_size)


def read_files(
    files: Iterable[Path], layout: Layout | None = None, world_size: int = 0
) -> FolderResult:
    """As `read_folder`, from a list of files."""
    found: dict[int, dict[str, Dump]] = defaultdict(dict)
    skipped: list[tuple[str, str]] = []
    for path in files:
        try:
            rank, dump = _read(path)
        except BadInput as e:
            skipped.append((str(path), str(e)))
        else:
            found[rank][str(path)] = dump
    dumps: dict[int, tuple[str, Dump]] = {}
    for rank, candidates in sorted(found.items()):
        keep = max(
            candidates, key=lambda p: (candidates[p].newest_ns, len(candidates[p].entries), p)
        )
        dumps[rank] = (keep, candidates[keep])
        skipped += [
            (p, f"another dump of rank {rank}; only the newer one, {keep}, is read")
            for p in candidates
            if p != keep
        ]
    world_size = world_size or (layout.world_size if layout else 0)
    skipped += _set_strangers_apart(dumps, world_size)
    skipped += _set_older_apart(dumps)
    result = convert({r: d for r, (_, d) in dumps.items()}, layout, world_size)
    result.skipped = sorted(skipped)
    return result


def convert(
    dumps: Mapping[int, Dump], layout: Layout | None = None, world_size: int = 0
) -> FolderResult:
    """Dumps of one job's ranks -> operations, with groups by member set and comparable numbers."""
    world_size = world_size or _world_shown(dumps)
    if layout is not None and layout.world_size != world_size:
        layout = None
    membership = Membership(dumps, world_size, layout)
    ops = {r: _rank_ops(r, d, membership) for r, d in sorted(dumps.items())}
    _align_p2p(ops)
    missing = [r for r in range(world_size) if r not in ops]
    return FolderResult(ops, [], missing, world_size, frozenset(membership.unsure))


def _read(path: Path) -> tuple[int, Dump]:
    match = _RANK.match(path.name)
    if match is None:
        raise BadInput("not a dump: its name does not end in a rank")
    try:
        rank = int(match["rank"])
        if rank >= MAX_RANKS:
            raise BadInput(f"its name says rank {rank}; a job has at most {MAX_RANKS:,} ranks")
        return rank, parse(read_regular(path, MAX_BYTES))
    except OSError as e:
        raise BadInput(f"cannot be read: {e.strerror}") from e


def _set_strangers_apart(
    dumps: dict[int, tuple[str, Dump]], world_size: int
) -> list[tuple[str, str]]:
    """Take dumps of other jobs out: of another world, or of another time than most."""
    worlds = {r: _world_of(d) for r, (_, d) in dumps.items()}
    votes = Counter(w for w in worlds.values() if w)
    usual = world_size or (votes.most_common(1)[0][0] if votes else 0)
    times = sorted(d.newest_ns for _, d in dumps.values() if d.newest_ns)
    middle = times[len(times) // 2] if times else 0
    out: list[tuple[str, str]] = []
    for rank, (path, dump) in list(dumps.items()):
        why = _other_world(rank, worlds[rank], usual) if usual else ""
        why = why or _other_time(dump, middle)
        if why:
            del dumps[rank]
            out.append((path, f"a dump of another job: {why}"))
    return out


def _other_world(rank: int, world: int, usual: int) -> str:
    """Why a dump is not of this job, by its world; "" where it fits."""
    if world and world != usual:
        return f"it has {world} ranks, this job has {usual}"
    return f"this job has {usual} ranks, so no rank {rank}" if rank >= usual else ""


def _other_time(dump: Dump, middle_ns: int) -> str:
    """Why a dump is not of this job, by the time of its last operation; "" where it fits."""
    hours = abs(dump.newest_ns - middle_ns) / 3.6e12 if dump.newest_ns else 0.0
    if hours * 3600 <= OTHER_JOB_S:
        return ""
    return f"its last operation is {hours:.0f} hours away from the others"


def _set_older_apart(dumps: dict[int, tuple[str, Dump]]) -> list[tuple[str, str]]:
    """Take dumps out that were written before those of the others: they say nothing of the end."""
    out: list[tuple[str, str]] = []
    for rank, peer in older({r: dump for r, (_, dump) in dumps.items()}).items():
        path, _ = dumps.pop(rank)
        after = f"rank {peer} went on with rank {rank} after it was written"
        out.append((path, f"older than the other dumps: {after}"))
    return out


def _world_of(dump: Dump) -> int:
    return next(
        (len(dump.members[g]) for g, n in dump.names.items() if n == WORLD and g in dump.members), 0
    )


def _group(name: str) -> str:
    """``group dp``, ``the whole job``."""
    return WHOLE_JOB if spoken(name) == WHOLE_JOB else f"group {name}"


def _rank_ops(rank: int, dump: Dump, membership: Membership) -> RankOps:
    groups = membership.groups[rank]
    notes = [f"members of group {name} {why}" for name, why in sorted(membership.how[rank].items())]
    notes += [
        f"{n} sends or recvs on {_group(groups[name].name)} after its last recorded operation, which gloo does not record"
        for name, n in sorted(dump.hidden_p2p.items())
    ]
    entries = _merge_batches(dump.entries, dump.only_active)
    only_active = dump.only_active
    counted = only_active or any(e.p2p for e in entries)  # collectives have their own numbers
    return RankOps(
        rank=rank,
        world_size=membership.world_size,
        source="flight_recorder",
        groups=list(groups.values()),
        operations=[_operation(e, groups[e.group]) for e in entries],
        overwritten=dump.overwritten,
        heartbeat_s=dump.newest_ns / 1e9,
        runs_ahead=dump.backend not in ("gloo", ""),
        notes=notes,
        only_active=only_active,
        completed=_completed(dump, groups) if only_active else {},
        places=[(e.record, _number(e)) for e in entries] if counted else [],
    )


def _completed(dump: Dump, groups: dict[str, Group]) -> dict[str, int]:
    """The last completed collective of each group, by its uid."""
    return {groups[name].uid: last for name, last in dump.completed.items() if name in groups}


def _number(e: Entry) -> int:
    """Its number in its group: collectives and transfers are counted apart."""
    return e.p2p_seq if e.p2p else e.seq


def _operation(e: Entry, group: Group) -> Operation:
    members = group.ranks
    peer = members[e.peer] if 0 <= e.peer < len(members) else -1
    return Operation(
        group=group.uid,
        seq=_number(e),
        op=e.op,
        state=e.state,
        peer=peer,
        shapes=e.shapes,
        dtype=e.dtype,
        site=e.site,
        thread=e.thread,
        entered_s=e.entered_ns / 1e9,
        left_s=e.left_ns / 1e9,
    )


def _world_shown(dumps: Mapping[int, Dump]) -> int:
    """The size of the world by all that the dumps mention: its group, and the highest rank."""
    size = max(dumps, default=-1) + 1
    for dump in dumps.values():
        for group, name in dump.names.items():
            if name == WORLD:
                size = max(size, len(dump.members.get(group, ())))
        for ranks in (*dump.members.values(), dump.unnamed):
            size = max(size, ranks[-1] + 1 if ranks else 0)
    return size


def _merge_batches(entries: list[Entry], only_active: bool = False) -> list[Entry]:
    """One record for each collective, one for each send and recv.

    A batch (coalesced operations) has one number and one record for each part, which never learn
    that they have started or ended, and one at its end, which does. NCCL marks that of sends and
    receives as a collective's; it has the number of the parts before it. In a dump of what is
    pending alone (`only_active`) the parts of finished batches are there, without their end.
    """
    batches: dict[_Batch, list[Entry]] = {}
    last: dict[str, Entry] = {}  # of each group
    for e in entries:
        part = last.get(e.group)
        of_p2p = e.p2p or (
            e.coalesced and part is not None and part.p2p and part.p2p_seq == e.p2p_seq
        )
        batches.setdefault((e.group, of_p2p, e.p2p_seq if of_p2p else e.seq), []).append(e)
        last[e.group] = e
    if only_active:
        batches = _without_finished(batches)
    out: list[Entry] = []
    for batch in batches.values():
        parts = [e for e in batch if not e.coalesced] or batch[:1]
        if len(batch) > 1 and batch[-1].coalesced:
            for part in parts:
                part.state, part.left_ns = batch[-1].state, batch[-1].left_ns
        if not parts[0].p2p and len(parts) > 1:
            parts[0].shapes = ",".join(p.shapes for p in parts)
            parts[0].dtype = ",".join(dict.fromkeys(p.dtype for p in parts))
            parts = parts[:1]
        out += parts
    return out


def _without_finished(batches: dict[_Batch, list[Entry]]) -> dict[_Batch, list[Entry]]:
    """Without sends and receives that have no end, where others have one, or where there are too
    many for each to be an operation of its own.
    """
    without = [key for key, batch in batches.items() if key[1] and not batch[-1].coalesced]
    in_batches = any(key[1] and batch[-1].coalesced for key, batch in batches.items())
    if not in_batches and len(without) <= _MOST_ALONE:
        return batches
    return {key: batch for key, batch in batches.items() if key not in without}


def _align_p2p(ops: dict[int, RankOps]) -> None:
    """Number sends and recvs per (group, peer, direction), alike on both sides.

    The recorder counts all of a group's sends and recvs of one process together. A send and its
    recv complete together, so the last completed one of each side is the same one; from there
    numbers go on, in both directions. A side without completed ones starts where the other's first
    pending is.
    """
    lanes: dict[tuple[str, int, int], dict[str, list[Operation]]] = defaultdict(dict)
    for rank, r in ops.items():
        for op in r.operations:
            if op.op in ("send", "recv"):
                source, sink = (rank, op.peer) if op.op == "send" else (op.peer, rank)
                lanes[op.group, source, sink].setdefault(op.op, []).append(op)
    for sides in lanes.values():
        done = max(map(_done_of, sides.values()))
        for side in sides.values():
            for seq, op in enumerate(side, start=done - _done_of(side) + 1):
                op.seq = seq


def _done_of(side: list[Operation]) -> int:
    return sum(op.state == "done" for op in side)
