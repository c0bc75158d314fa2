"""The header of a black box: who wrote it, when, and whether that process still runs."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Literal

from msgspec import Struct

from ..errors import BadInput
from ..probe import format as fmt
from ..probe.identity import boot_id, start_ticks
from ..text.ranges import MAX_RANKS

Status = Literal["live", "dead", "stale"]
_STATES = {
    fmt.RUNNING: "running",
    fmt.FINISHED: "finished",
    fmt.SWITCHED_OFF: "switched_off",
    fmt.CRASHED: "crashed",
}


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
    ended_s: float = 0.0  # when it wrote how it ended; 0 where it could not
    end_text: str = ""  # the exception that ended it: lines of `probe.ending`
    lock_holder: int = 0  # process that holds the file lock that it waits for, 0 for none
    pulse_s: float = (
        0.0  # the last sign of life that needs no interpreter, by its wall clock; 0 none
    )
    # Since when one thread held the interpreter's lock then; 0 where it was free, -1 not known.
    lock_held_s: float = -1.0
    uncounted: bool = False  # a rank of JAX or MPI, whose calls are not recorded
    owner: int = -1  # the user whose file it is; -1 where it was read by name, whoever wrote it


def number(data: bytes, place: tuple[int, str]) -> int:
    """The number at a place of the header: (offset, how it is packed)."""
    number: int = struct.unpack_from(place[1], data, place[0])[0]
    return number


def text(data: bytes, place: tuple[int, str]) -> str:
    """The text at a place of the header, up to its first zero byte."""
    raw: bytes = struct.unpack_from(place[1], data, place[0])[0]
    return raw.split(b"\0")[0].decode("utf-8", "replace")


def parse_header(path: Path, data: bytes) -> BlackBox:
    """What the first bytes of a box say; `path` is only named.

    Raises:
        BadInput: no black box, one of another version, one cut short, or impossible numbers.
    """
    _check(path, data)
    return BlackBox(
        path=str(path),
        pid=number(data, fmt.H_PID),
        rank=number(data, fmt.H_RANK),
        world_size=number(data, fmt.H_WORLD),
        host=text(data, fmt.H_HOST),
        job=text(data, fmt.H_JOB),
        status=_status(data),
        state=state_of(data),
        created_s=number(data, fmt.H_CREATED_WALL) / 1e9,
        heartbeat_s=number(data, fmt.H_BEAT_WALL) / 1e9,
        local_rank=number(data, fmt.H_LOCAL_RANK),
        layout=text(data, fmt.H_LAYOUT),
        note=text(data, fmt.H_NOTE),
        torch=text(data, fmt.H_TORCH),
        backend=text(data, fmt.H_BACKEND),
        uncounted=text(data, fmt.H_BACKEND) in fmt.UNCOUNTED,
        micro_batch=number(data, fmt.H_MICRO_BATCH),
        phase_since_s=number(data, fmt.H_PHASE_SINCE) / 1e9,
        iteration_since_s=number(data, fmt.H_ITERATION_SINCE) / 1e9,
        ended_s=number(data, fmt.H_END_AT) / 1e9,
        end_text=text(data, fmt.H_END_TEXT),
        lock_holder=number(data, fmt.H_LOCK_HOLDER),
        pulse_s=_wall(data, number(data, fmt.H_PULSE)),
        lock_held_s=_lock_held(data),
    )


def _lock_held(data: bytes) -> float:
    since = number(data, fmt.H_LOCK_HELD)
    known = number(data, fmt.H_PULSE) and since != fmt.LOCK_UNKNOWN
    return _wall(data, since) if known else -1.0


def _wall(data: bytes, tenths: int) -> float:
    """Seconds since the epoch, as the last heartbeat has both clocks; 0 for none."""
    if not tenths:
        return 0.0
    mono = number(data, fmt.H_CREATED_MONO) + (tenths - 1) * 100_000_000
    later = mono - number(data, fmt.H_BEAT_MONO)
    return (number(data, fmt.H_BEAT_WALL) + later) / 1e9


def _check(path: Path, data: bytes) -> None:
    if len(data) < fmt.HEADER_BYTES:
        raise BadInput(
            f"{path}: truncated after {len(data)} bytes",
            "Was the disk full, or was the file still being written?",
        )
    if not data.startswith(fmt.MAGIC):
        raise BadInput(
            f"{path}: not a black box",
            f"A black box has a name that ends in {fmt.SUFFIX} "
            f"and starts with {fmt.MAGIC.decode()}.",
        )
    version = number(data, fmt.H_VERSION)
    if version not in fmt.READABLE:
        known = " and ".join(map(str, fmt.READABLE))
        raise BadInput(
            f"{path}: black box of version {version}; this hangdoctor reads {known}",
            "Use the hangdoctor that the job was started with.",
        )
    for name, place in (("a rank", fmt.H_RANK), ("a world", fmt.H_WORLD)):
        found = number(data, place)
        if not -1 <= found <= MAX_RANKS:
            raise BadInput(
                f"{path}: damaged: {name} is {found}; a job has at most {MAX_RANKS:,} ranks"
            )


def state_of(data: bytes) -> str:
    """What the rank has written last of itself: running, finished, switched_off or crashed."""
    return _STATES.get(number(data, fmt.H_STATE), "running")


def iteration_of(data: bytes) -> int:
    """As the job says it, else the steps that its optimizers have made; -1 where neither is known."""
    said, steps = number(data, fmt.H_ITERATION), number(data, fmt.H_STEPS)
    return said if said >= 0 or not steps else steps


def runs_ahead(data: bytes) -> bool:
    """Whether its backend enqueues and returns, so that the device is behind what the rank entered."""
    return bool(number(data, fmt.H_FLAGS) & fmt.RUNS_AHEAD)


def _status(data: bytes) -> Status:
    here = boot_id()
    if data[fmt.H_BOOT_ID[0] : fmt.H_BOOT_ID[0] + 16] != here:
        return "stale"
    started = number(data, fmt.H_STARTED_TICKS)
    runs = started and start_ticks(number(data, fmt.H_PID)) == started
    return "live" if runs else "dead"
