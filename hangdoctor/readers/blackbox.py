"""Reads black boxes (docs/blackbox.md) without torch and without the rank's help, also after its death."""

from __future__ import annotations

import os
import struct
import tempfile
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Literal

from msgspec import Struct, structs

from ..errors import BadInput
from ..files import is_of, open_regular, read_regular, users_of
from ..model.layout import Layout
from ..model.operations import (
    STORE,
    Group,
    Mark,
    Operation,
    OpState,
    RankOps,
    is_unknown,
    unknown_group,
)
from ..probe import format as fmt
from ..probe.identity import boot_id, start_ticks
from ..text.ranges import MAX_MEMBERS, MAX_RANKS, member_runs, number_in
from .box_position import iteration_of
from .jobnames import is_exactly, keys_of, names_job
from .training_threads import Flow

Status = Literal["live", "dead", "stale"]


class BlackBox(Struct, omit_defaults=True):
    """What the header of one black box says."""

    path: str
    pid: int
    rank: int
    world_size: int
    host: str
    job: str
    status: Status
    state: str  # running, finished, switched_off, crashed
    created_s: float
    heartbeat_s: float
    local_rank: int = -1
    layout: str = ""
    note: str = ""
    torch: str = ""
    backend: str = ""
    micro_batch: int = -1
    phase_since_s: float = 0.0
    iteration_since_s: float = 0.0
    owner: int = -1  # the user whose file it is; -1 where it was read by name, whoever wrote it


class ThreadNow(Struct, omit_defaults=True):
    """One thread of a rank and the operation that it is in, or whose handle it waits for."""

    tid: int
    name: str = ""
    operation: Operation | None = None
    waits_for_handle: bool = False
    waiting_since_s: float = 0.0


class Contents(Struct):
    """Everything in one black box at one moment."""

    box: BlackBox
    ops: RankOps
    threads: list[ThreadNow]
    torn: int = 0  # records skipped because they were being written, or never were written whole
    last_serial: int = 0


_MAX_BYTES = 1 << 30  # the largest that a probe makes
_STATES = {
    fmt.RUNNING: "running",
    fmt.FINISHED: "finished",
    fmt.SWITCHED_OFF: "switched_off",
    fmt.CRASHED: "crashed",
}


def read_box(
    path: str | Path, last: int | None = None, owners: Collection[int] | None = None
) -> Contents:
    """Read one black box; with `last`, only N of its latest operations beside all unfinished ones.

    With `owners`, only one that a user of these (or root) has written: a path can be another's file a moment later.

    Raises:
        BadInput: no black box, one of another version, or one cut short; the message has the path.
    """
    first, second = _snapshot(Path(path), owners), _snapshot(Path(path), owners)
    return _Reader(Path(path), first, second).contents(last)


_SIGNATURE, _THREAD, _FLAGS, _LEFT = 4, 6, 9, 11  # places in an unpacked record
_MARKS: dict[int, Literal["phase", "iteration", "micro_batch"]] = {
    fmt.PHASE: "phase", fmt.ITERATION: "iteration", fmt.MICRO_BATCH: "micro_batch",
}  # fmt: skip


def read_ops(path: str | Path) -> RankOps:
    """The operations of one black box.

    Raises:
        BadInput: as `read_box`.
    """
    return read_box(path).ops


def moved(before: Contents, after: Contents) -> bool:
    """Whether the rank made progress between two reads: an operation entered, left or completed, or an iteration."""
    if (before.box.pid, before.box.created_s) != (after.box.pid, after.box.created_s):
        return True
    if before.last_serial != after.last_serial or before.ops.iteration != after.ops.iteration:
        return True
    return before.ops.operations != after.ops.operations or before.ops.phase != after.ops.phase


def default_folders() -> list[Path]:
    """Where boxes of this user lie when HANGDOCTOR_DIR was not set or refused; for root, those of all users."""
    bases = {Path("/dev/shm"), Path(os.environ.get("TMPDIR") or tempfile.gettempdir())}
    # With a number behind it: the first was another's (`probe.folder.places`).
    user = f"hangdoctor-{os.getuid()}"
    patterns = ["hangdoctor-*"] if os.getuid() == 0 else [user, f"{user}-[0-9]"]
    found = {f for base in bases for pattern in patterns for f in base.glob(pattern)}
    return sorted(f for f in found if f.is_dir() and not f.is_symlink())


def named_folder(told: str, pid: int) -> Path:
    """The folder that a process's HANGDOCTOR_DIR names; a relative name is meant from the process's own current folder."""
    if told.startswith("/"):
        return Path(told)
    try:
        return Path(f"/proc/{pid}/cwd").readlink() / told
    except OSError:
        return Path(told)


def _box_files(folder: Path) -> Iterator[Path]:
    """Boxes in a folder and two levels below it; not deeper, since a job may name its whole scratch folder.

    Unlike a glob, os.walk passes over folders that go meanwhile: jobs end at any time.
    """
    top = len(folder.parts)
    for where, below, names in os.walk(folder):
        if len(Path(where).parts) - top >= 2:
            below.clear()
        yield from (Path(where, name) for name in names if name.endswith(fmt.SUFFIX))


def find_boxes(
    folder: str | Path | None = None, *, pids: Iterable[int] | None = None, job: str = "", live_only: bool = False,
    notes: list[str] | None = None,
) -> list[BlackBox]:  # fmt: skip
    """Boxes in a folder and two levels below it, by rank; what is not a box of this version is left out.

    Args:
        folder: HANGDOCTOR_DIR of a job, or None for the default places.
        pids: only these processes.
        job: only boxes of this job.
        live_only: only those whose process runs.
        notes: gets a line for each box that names another user's process, and is left out.

    A box is `live` when its process runs (same pid, start time and boot), `dead` when that process is gone, and
    `stale` when it is from an earlier boot or a newer box of the same rank lies in the same folder.
    """
    folders = default_folders() if folder is None else [Path(folder)]
    wanted = None if pids is None else set(pids)
    boxes: list[BlackBox] = []
    for path in sorted(
        p for f in folders for p in _box_files(f) if p.is_file() and not p.is_symlink()
    ):
        try:
            box = _found(path)
        except (OSError, BadInput):
            continue
        why = _not_its_own(box)
        if not why:
            boxes.append(box)
        elif notes is not None and (wanted is None or box.pid in wanted):
            notes.append(why)
    boxes = [
        b if b.status != "dead" or not _superseded(b, boxes) else structs.replace(b, status="stale")
        for b in boxes
    ]
    return sorted(
        (
            b
            for b in boxes
            if (wanted is None or b.pid in wanted)
            and job in ("", b.job)
            and (b.status == "live" or not live_only)
        ),
        key=lambda b: (b.job, b.rank, b.created_s),
    )


def names_of(boxes: Iterable[BlackBox]) -> list[str]:
    """What the job of these boxes is called: by themselves, and by the environment of a rank that lives."""
    boxes = list(boxes)
    living = next((keys for b in boxes if b.status == "live" and (keys := keys_of(b.pid))), [])
    return sorted({b.job for b in boxes} | set(living))


def jobs_named(wanted: str, boxes: Iterable[BlackBox]) -> dict[str, list[BlackBox]]:
    """The boxes of each job that `wanted` names, by the name that they carry; "" names every job."""
    jobs: dict[str, list[BlackBox]] = {}
    for box in boxes:
        jobs.setdefault(box.job, []).append(box)
    names = {job: names_of(of) for job, of in jobs.items()}
    exact = [job for job in jobs if is_exactly(wanted, *names[job])]
    return {job: jobs[job] for job in exact or [j for j in jobs if names_job(wanted, *names[j])]}


def left_behind(job: str) -> list[Path]:
    """Folders with boxes of ranks of a job that have ended, the newest first: in HANGDOCTOR_DIR and the default places."""
    found: dict[Path, float] = {}
    named = os.environ.get("HANGDOCTOR_DIR", "")
    for box in [*find_boxes(), *(find_boxes(named) if named else [])]:
        if box.status == "dead" and names_job(job, box.job):
            folder = Path(box.path).parent
            found[folder] = max(found.get(folder, 0.0), box.heartbeat_s)
    return sorted(found, key=lambda f: -found[f])


def _found(path: Path) -> BlackBox:
    fd = open_regular(path, links=False)
    try:
        box = _header(path, os.pread(fd, fmt.HEADER_BYTES, 0))
        box.owner = os.fstat(fd).st_uid
    finally:
        os.close(fd)
    return box


def _not_its_own(box: BlackBox) -> str:
    """Why a box is not believed, "" for a sound one: anyone can write any number of a process into a file of theirs.

    The owner of a process that runs is known. A box of one that has ended must be of the user whose folder it is in: the
    probe uses no other.
    """
    if box.status == "live":
        users = users_of(box.pid)
        if users and not is_of(box.owner, users):
            return f"{box.path} is left out: user {box.owner} wrote it, but its process {box.pid} belongs to another user"
        return ""
    try:
        here = Path(box.path).parent.stat().st_uid
    except OSError:
        here = box.owner
    if is_of(box.owner, {here, os.geteuid()}):
        return ""
    return f"{box.path} is left out: user {box.owner} wrote it into a folder of user {here}"


def _superseded(box: BlackBox, boxes: list[BlackBox]) -> bool:
    here = Path(box.path).parent
    return any(
        o.rank == box.rank
        and o.created_s > box.created_s
        and o.host == box.host
        and Path(o.path).parent == here
        for o in boxes
    )


def _snapshot(path: Path, owners: Collection[int] | None) -> bytes:
    try:
        return read_regular(path, _MAX_BYTES, owners, links=owners is None)
    except OSError as error:
        raise BadInput(
            f"{path}: {error.strerror}",
            "Is the job still running? Black boxes are removed when it ends cleanly.",
        ) from error


def _number(data: bytes, place: tuple[int, str]) -> int:
    number: int = struct.unpack_from(place[1], data, place[0])[0]
    return number


def _text(data: bytes, place: tuple[int, str]) -> str:
    raw: bytes = struct.unpack_from(place[1], data, place[0])[0]
    return raw.split(b"\0")[0].decode("utf-8", "replace")


def _header(path: Path, data: bytes) -> BlackBox:
    if len(data) < fmt.HEADER_BYTES:
        raise BadInput(
            f"{path}: truncated after {len(data)} bytes",
            "Was the disk full, or was the file still being written?",
        )
    if not data.startswith(fmt.MAGIC):
        raise BadInput(
            f"{path}: not a black box",
            f"A black box has a name that ends in {fmt.SUFFIX} and starts with {fmt.MAGIC.decode()}.",
        )
    version = _number(data, fmt.H_VERSION)
    if version not in fmt.READABLE:
        known = " and ".join(map(str, fmt.READABLE))
        raise BadInput(f"{path}: black box of version {version}; this hangdoctor reads {known}",
                       "Use the hangdoctor that the job was started with.")  # fmt: skip
    for name, place in (("a rank", fmt.H_RANK), ("a world", fmt.H_WORLD)):
        if not -1 <= _number(data, place) <= MAX_RANKS:
            raise BadInput(
                f"{path}: damaged: {name} is {_number(data, place)}; a job has at most {MAX_RANKS:,} ranks"
            )
    return BlackBox(
        path=str(path), pid=_number(data, fmt.H_PID), rank=_number(data, fmt.H_RANK),
        world_size=_number(data, fmt.H_WORLD),
        host=_text(data, fmt.H_HOST), job=_text(data, fmt.H_JOB), status=_status(data),
        state=_STATES.get(_number(data, fmt.H_STATE), "running"), created_s=_number(data, fmt.H_CREATED_WALL) / 1e9,
        heartbeat_s=_number(data, fmt.H_BEAT_WALL) / 1e9, local_rank=_number(data, fmt.H_LOCAL_RANK),
        layout=_text(data, fmt.H_LAYOUT), note=_text(data, fmt.H_NOTE), torch=_text(data, fmt.H_TORCH),
        backend=_text(data, fmt.H_BACKEND), micro_batch=_number(data, fmt.H_MICRO_BATCH),
        phase_since_s=_number(data, fmt.H_PHASE_SINCE) / 1e9, 
        iteration_since_s=_number(data, fmt.H_ITERATION_SINCE) / 1e9,
    )  # fmt: skip


def _layout(text: str, world_size: int) -> Layout | None:
    """``dp=2 pp=2 tp=2``; None where nothing was said, or it does not fit the world size."""
    sizes = dict(word.split("=", 1) for word in text.split() if "=" in word)
    if set(sizes) != {"dp", "pp", "tp"} or not all(number_in(n) > 0 for n in sizes.values()):
        return None
    layout = Layout(number_in(sizes["dp"]), number_in(sizes["pp"]), number_in(sizes["tp"]))
    return layout if layout.world_size == world_size else None


def _status(data: bytes) -> Status:
    here = boot_id()
    if data[fmt.H_BOOT_ID[0] : fmt.H_BOOT_ID[0] + 16] != here:
        return "stale"
    started = _number(data, fmt.H_STARTED_TICKS)
    return "live" if started and start_ticks(_number(data, fmt.H_PID)) == started else "dead"


class _Reader:
    """Two snapshots of one file, and what they agree on."""

    def __init__(self, path: Path, first: bytes, second: bytes) -> None:
        self.path = path
        self.box = _header(path, second)
        self.first, self.second = first, second
        self.names_groups = (
            _number(second, fmt.H_VERSION) >= 2
        )  # each record has the uid of its group
        self.inline_bytes = (
            fmt.INLINE_BYTES if self.names_groups else fmt.RECORD_BYTES - fmt.INLINE_OFFSET
        )
        self.regions = {
            name: struct.unpack_from(how, second, offset)
            for name, (offset, how) in (
                ("threads", fmt.H_THREADS), ("groups", fmt.H_GROUPS), ("strings", fmt.H_STRINGS), ("ring", fmt.H_RING),
            )
        }  # fmt: skip
        sizes = {
            "threads": fmt.THREAD.size,
            "groups": fmt.GROUP.size,
            "strings": 1,
            "ring": fmt.RECORD_BYTES,
        }
        for name, (begin, count, width) in self.regions.items():
            short = len(second) < _number(second, fmt.H_FILE_BYTES) or len(first) != len(second)
            if (
                short
                or begin + count * width > len(second)
                or width < sizes[name]
                or (name == "ring" and not count)
            ):
                raise BadInput(f"{path}: truncated to {len(second)} bytes; its table of {name} may be incomplete",
                               "Copy the whole file again.")  # fmt: skip
        self._texts: dict[int, str] = {}
        # Each byte of a sound box belongs to one text, and ends in one. A damaged one could name the same megabytes again and again.
        self._text_room = len(second)
        self._member_room = MAX_MEMBERS
        self._lists: dict[str, list[int]] = {}
        self._without_members = 0

    def contents(self, last: int | None = None) -> Contents:
        table, uids = self._groups()
        threads = self._threads()
        tids = [row[0] for row in threads]
        by_serial: dict[int, Operation] = {}
        found = list(self._records())
        whole = sorted(record for record in found if record is not None)
        torn, newest = len(found) - len(whole), whole[-1][0] if whole else 0
        flow = self._flow(threads, whole)
        marks = [record for record in whole if record[_FLAGS] & fmt.MARK]
        whole = [record for record in whole if not record[_FLAGS] & fmt.MARK] if marks else whole
        # What polls beside the training must not push its operations out.
        own = [record[0] for record in whole if flow.has(record[_THREAD])]
        since = own[-last] if last is not None and 0 < last < len(own) else 0
        begin = 0 if last is None else max(0, len(whole) - last)
        for i, record in enumerate(whole):
            if (
                i >= begin
                or not record[_LEFT]
                or (record[0] >= since and flow.has(record[_THREAD]))
            ):
                by_serial[record[0]] = self._operation(record, uids, tids)
        for _, _, waited, *_ in threads:
            if waited in by_serial:
                by_serial[waited].waited = True
        head = self.second
        operations = [by_serial[s] for s in sorted(by_serial)]
        ops = RankOps(
            rank=self.box.rank, world_size=max(self.box.world_size, 0), source="blackbox",
            groups=_with_unlisted(table, operations), operations=operations,
            overwritten=newest > self.regions["ring"][1],
            iteration=iteration_of(head), steps=_number(head, fmt.H_STEPS), phase=self._string(_number(head, fmt.H_PHASE)),
            heartbeat_s=self.box.heartbeat_s, finished=self.box.state == "finished",
            runs_ahead=bool(_number(head, fmt.H_FLAGS) & fmt.RUNS_AHEAD), notes=self._notes(torn),
            layout=_layout(self.box.layout, self.box.world_size),
            marks=[self._mark(m) for m in marks[-(last or len(marks)) :] if m[0] >= since], clock=self._clock(),
            side=sorted(tid for i, tid in enumerate(tids) if tid and not flow.has(i)),
        )  # fmt: skip
        return Contents(
            self.box, ops, [self._thread(row, by_serial) for row in threads if row[0]], torn, newest
        )

    def _flow(
        self, threads: list[tuple[int, int, int, int, bytes]], records: list[tuple[int, ...]]
    ) -> Flow:
        """Which threads are the training."""
        flow = Flow()
        flow.see(self.box.pid, [(row[0], row[4].rstrip(b"\0")) for row in threads])
        signatures = {r[_SIGNATURE] for r in records if not r[_FLAGS] & fmt.MARK}
        set_up = {n for n in signatures if self._string(n).split("\t")[0] in STORE}
        flow.learn(records, frozenset(set_up))
        return flow

    def _notes(self, torn: int) -> list[str]:
        notes = [self.box.note] if self.box.note else []
        if torn:
            notes.append(f"{torn} records of {self.path.name} were being written and are left out")
        if self._without_members:
            notes.append(
                f"{self._without_members} groups of {self.path.name} have more members than a job can have and are left out"
            )
        return notes

    def _clock(self) -> str:
        boot = self.second[fmt.H_BOOT_ID[0] : fmt.H_BOOT_ID[0] + 16]
        return f"{self.box.host}/{boot[:4].hex()}"

    def _mark(self, record: tuple[int, ...]) -> Mark:
        _, number, at, _, text, _, _, kind, *_ = record
        signed = number - (1 << 64) if number >> 63 else number
        return Mark(_MARKS.get(kind, "phase"), at / 1e9, signed, self._string(text))

    def _string(self, number: int) -> str:
        if number not in self._texts:
            begin, room, _ = self.regions["strings"]
            at = number * fmt.STRING_UNIT
            text = ""
            if number and at + fmt.STRING_HEAD.size <= room:
                (length,) = fmt.STRING_HEAD.unpack_from(self.second, begin + at)
                if at + fmt.STRING_HEAD.size + length <= room and length <= self._text_room:
                    self._text_room -= length
                    start = begin + at + fmt.STRING_HEAD.size
                    text = self.second[start : start + length].decode("utf-8", "replace")
            self._texts[number] = text
        return self._texts[number]

    def _groups(self) -> tuple[list[Group], list[str]]:
        begin, room, width = self.regions["groups"]
        groups: dict[str, Group] = {}
        uids: list[str] = []
        for i in range(min(_number(self.second, fmt.H_GROUPS_USED), room)):
            raw, _, members, name, *_, check = fmt.GROUP.unpack_from(self.second, begin + i * width)
            uid = raw.hex()
            uids.append(uid)
            if self.names_groups and check != int.from_bytes(raw[:4], "little"):
                continue  # it passes from one group to another just now
            known = groups.get(uid)
            if known is None or not known.name:
                groups[uid] = Group(uid, self._members(self._string(members)), self._string(name))
        return list(groups.values()), uids

    def _members(self, text: str) -> list[int]:
        """Equal sets are one list. Sets that no job has room for are left out: a few bytes can name millions."""
        known = self._lists.get(text)
        if known is None:
            runs = member_runs(text) or []
            count = sum(map(len, runs))
            if count > self._member_room:
                self._without_members += 1
                runs, count = [], 0
            self._member_room -= count
            known = self._lists[text] = [rank for run in runs for rank in run]
        return known

    def _threads(self) -> list[tuple[int, int, int, int, bytes]]:
        begin, room, width = self.regions["threads"]
        return [fmt.THREAD.unpack_from(self.second, begin + i * width) for i in range(room)]

    def _thread(
        self, row: tuple[int, int, int, int, bytes], by_serial: dict[int, Operation]
    ) -> ThreadNow:
        tid, last, waited, since, name = row
        operation = by_serial.get(waited or last)
        if (
            operation is not None
            and not waited
            and (operation.state != "entered" or operation.thread != tid)
        ):
            operation = None
        return ThreadNow(tid, name.split(b"\0")[0].decode("utf-8", "replace"), operation, bool(waited),
                         since / 1e9 if waited else 0.0)  # fmt: skip

    def _records(self) -> Iterator[tuple[int, ...] | None]:
        """Whole records; None for one that is torn. Equal in both snapshots and closed means not being written."""
        begin, room, width = self.regions["ring"]
        empty = bytes(8)
        for i in range(room):
            at = begin + i * width
            if self.second[at : at + 8] == empty:
                continue
            record = fmt.RECORD.unpack_from(self.second, at)
            closed = record[0] & 0xFFFFFFFF == record[13] and record[0] % room == i
            closed = closed and (
                not self.names_groups or self._uid(at)[:4] == record[10].to_bytes(4, "little")
            )
            # The part that is written once, before the outcome: that may change between the snapshots.
            same = self.first[at : at + 56] == self.second[at : at + 56]
            if not closed or not (same or self._fresh(at)):
                yield None
            else:
                yield (*record, at)

    def _uid(self, at: int) -> bytes:
        return self.second[at + fmt.UID_WORD * 8 : at + fmt.UID_WORD * 8 + 8]

    def _group_of(self, record: tuple[int, ...], uids: list[str]) -> str:
        """Uid of the operation's group, "" where it has none (a wait for the store), or a name that no other rank has."""
        group, at = record[3], record[-1]
        if self.names_groups:
            uid = self._uid(at)
            return uid.hex() if any(uid) else ""
        if group < len(uids):
            return uids[group]
        nothing = (
            record[9] & fmt.INLINE_DETAIL or self._string(record[4]).partition("\t")[0] in STORE
        )
        return "" if nothing else unknown_group(self.box.rank, self.box.pid)

    def _fresh(self, at: int) -> bool:
        """A record that came whole between the snapshots: a third look must find it as the second did."""
        try:
            with self.path.open("rb") as file:
                file.seek(at)
                return file.read(56) == self.second[at : at + 56]
        except OSError:  # its rank has ended meanwhile, and taken it away
            return False

    def _operation(self, record: tuple[int, ...], uids: list[str], tids: list[int]) -> Operation:
        (
            _,
            seq,
            entered,
            _,
            signature,
            site,
            thread,
            peer,
            iteration,
            flags,
            _,
            left,
            outcome,
            _,
            at,
        ) = record
        raw = self.second[at + fmt.INLINE_OFFSET : at + fmt.INLINE_OFFSET + self.inline_bytes]
        inline = raw.split(b"\0")[0].decode("utf-8", "replace")
        text = inline if flags & fmt.INLINE_SIGNATURE else self._string(signature)
        op, reduce_op, dtype, shapes = (*text.split("\t"), "", "", "", "")[:4]
        directed = flags & (fmt.SEND | fmt.RECV)
        state: OpState = "done" if left else "started" if outcome == fmt.STARTED else "entered"
        return Operation(
            group=self._group_of(record, uids), seq=seq, op=op, state=state, reduce_op=reduce_op,
            root=-1 if directed else peer, peer=peer if directed else -1, shapes=shapes, dtype=dtype,
            site=self._string(site), thread=tids[thread] if thread < len(tids) else 0, entered_s=entered / 1e9,
            left_s=left / 1e9, asynchronous=bool(flags & fmt.ASYNC), iteration=iteration, failed=outcome == fmt.FAILED,
            detail=inline if flags & fmt.INLINE_DETAIL else "",
        )  # fmt: skip


def _with_unlisted(groups: list[Group], operations: list[Operation]) -> list[Group]:
    """Also the groups of which only operations tell: those that have no entry in the table, or none any more."""
    listed = {group.uid for group in groups}
    used = dict.fromkeys(op.group for op in operations)
    return groups + [
        Group(uid) for uid in used if uid and uid not in listed and not is_unknown(uid)
    ]


def parse_members(text: str) -> list[int]:
    """``0-3,8-20:4`` -> [0, 1, 2, 3, 8, 12, 16, 20]; what is no such text, or names more than a job has, gives an empty list."""
    runs = member_runs(text) or []
    return [rank for run in runs for rank in run] if sum(map(len, runs)) <= MAX_RANKS else []
