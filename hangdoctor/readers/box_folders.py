"""Finds black boxes: where they lie, which of them are believed, and whose jobs they are of."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import structs

from ..errors import BadInput
from ..files import is_of, open_regular, users_of
from ..probe import format as fmt
from .box_header import BlackBox, parse_header
from .jobnames import is_exactly, keys_of, names_job


def default_folders() -> list[Path]:
    """Where boxes of this user lie when HANGDOCTOR_DIR was not set or refused; for root, those of
    all users.
    """
    bases = {Path("/dev/shm"), Path(os.environ.get("TMPDIR") or tempfile.gettempdir())}
    # With a number behind it: the first was another's (`probe.folder.places`).
    user = f"hangdoctor-{os.getuid()}"
    patterns = ["hangdoctor-*"] if os.getuid() == 0 else [user, f"{user}-[0-9]"]
    found = {f for base in bases for pattern in patterns for f in base.glob(pattern)}
    return sorted(f for f in found if is_folder(f) and not f.is_symlink())


def is_folder(path: Path) -> bool:
    """Whether it is a folder; one whose file system refuses to say so is none."""
    try:
        return path.is_dir()
    except OSError:
        return False


def named_folder(told: str, pid: int) -> Path:
    """The folder that a process's HANGDOCTOR_DIR names; a relative name is meant from the process's
    own current folder.
    """
    if told.startswith("/"):
        return Path(told)
    try:
        return Path(f"/proc/{pid}/cwd").readlink() / told
    except OSError:
        return Path(told)


def _box_files(folder: Path) -> Iterator[Path]:
    """Boxes in a folder and two levels below it; not deeper, since a job may name its whole scratch
    folder.

    Unlike a glob, os.walk passes over folders that go meanwhile: jobs end at any time.
    """
    top = len(folder.parts)
    for where, below, names in os.walk(folder):
        if len(Path(where).parts) - top >= 2:
            below.clear()
        yield from (Path(where, name) for name in names if name.endswith(fmt.SUFFIX))


def find_boxes(
    folder: str | Path | None = None,
    *,
    pids: Iterable[int] | None = None,
    job: str = "",
    live_only: bool = False,
    notes: list[str] | None = None,
) -> list[BlackBox]:
    """Boxes in a folder and two levels below it, by rank; what is not a box of this version is left
    out.

    Args:
        folder: HANGDOCTOR_DIR of a job, or None for the default places.
        pids: only these processes.
        job: only boxes of this job.
        live_only: only those whose process runs.
        notes: gets a line for each box that names another user's process, and is left out.

    A box is `live` when its process runs (same pid, start time and boot), `dead` when that process
    is gone, and `stale` when it is from an earlier boot or a newer box of the same rank lies in the
    same folder.
    """
    folders = default_folders() if folder is None else [Path(folder)]
    wanted = None if pids is None else set(pids)
    boxes: list[BlackBox] = []
    for path in _regular_files(folders):
        try:
            box = read_header(path)
        except (OSError, BadInput):
            continue
        why = _not_its_own(box)
        if not why:
            boxes.append(box)
        elif notes is not None and (wanted is None or box.pid in wanted):
            notes.append(why)

    def is_wanted(box: BlackBox) -> bool:
        if wanted is not None and box.pid not in wanted:
            return False
        if job and box.job != job:
            return False
        return box.status == "live" or not live_only

    dated = [_stale_if_superseded(box, boxes) for box in boxes]
    return sorted(filter(is_wanted, dated), key=lambda b: (b.job, b.rank, b.created_s))


def _regular_files(folders: Iterable[Path]) -> list[Path]:
    paths = [path for folder in folders for path in _box_files(folder)]
    return sorted(path for path in paths if path.is_file() and not path.is_symlink())


def box_of_process(folder: Path, pid: int) -> BlackBox | None:
    """The box of a running process in the folder that its HANGDOCTOR_DIR names, by the number in the
    file's name: `find_boxes` would read all of them.
    """
    names = (f"*-{pid}{fmt.SUFFIX}", f"*-{pid}-*{fmt.SUFFIX}")  # the second one in a container
    if not is_folder(folder):
        return None
    places = [folder, *folder.glob("hangdoctor-[0-9]*")]
    for path in (path for place in places for name in names for path in place.glob(name)):
        try:
            box = read_header(path)
        except (OSError, BadInput):
            continue
        if box.pid == pid and box.status == "live" and not _not_its_own(box):
            return box
    return None


def ended_beside(live: Iterable[BlackBox]) -> list[BlackBox]:
    """Boxes of ranks that ran beside these, in the same folder and job, and have ended.

    What an earlier start of the job left behind is none of them: its last sign of life is older
    than these boxes.
    """
    beside: dict[str, list[BlackBox]] = {}
    for box in live:
        beside.setdefault(str(Path(box.path).parent), []).append(box)
    return [
        box
        for folder, siblings in beside.items()
        for box in find_boxes(folder)
        if box.status == "dead" and all(_ran_beside(box, sibling) for sibling in siblings)
    ]


def _ran_beside(box: BlackBox, sibling: BlackBox) -> bool:
    same = (box.host, box.job, box.owner) == (sibling.host, sibling.job, sibling.owner)
    alive_s = max(box.heartbeat_s, box.iteration_since_s, box.phase_since_s)
    return same and alive_s > sibling.created_s


def names_of(boxes: Iterable[BlackBox]) -> list[str]:
    """What the job of these boxes is called: by themselves, and by the environment of a rank that
    lives.
    """
    boxes = list(boxes)
    names = {box.job for box in boxes}
    for box in boxes:
        keys = keys_of(box.pid) if box.status == "live" else []
        if keys:
            return sorted(names | set(keys))
    return sorted(names)


def jobs_named(wanted: str, boxes: Iterable[BlackBox]) -> dict[str, list[BlackBox]]:
    """The boxes of each job that `wanted` names, by the name that they carry; "" names every job."""
    jobs: dict[str, list[BlackBox]] = {}
    for box in boxes:
        jobs.setdefault(box.job, []).append(box)
    names = {job: names_of(of) for job, of in jobs.items()}
    exact = [job for job in jobs if is_exactly(wanted, *names[job])]
    partly = [job for job in jobs if names_job(wanted, *names[job])]
    return {job: jobs[job] for job in exact or partly}


def left_behind(job: str) -> list[Path]:
    """Folders with boxes of ranks of a job that have ended, the newest first: in HANGDOCTOR_DIR and
    the default places.
    """
    found: dict[Path, float] = {}
    boxes = find_boxes()
    named = os.environ.get("HANGDOCTOR_DIR", "")
    if named:
        boxes += find_boxes(named)
    for box in boxes:
        if box.status == "dead" and names_job(job, box.job):
            folder = Path(box.path).parent
            found[folder] = max(found.get(folder, 0.0), box.heartbeat_s)
    return sorted(found, key=lambda f: -found[f])


def read_header(path: Path) -> BlackBox:
    """The header of one box, with the user whose file it is.

    Raises:
        OSError: it cannot be read, or is no regular file.
        BadInput: it is no black box of this version.
    """
    fd = open_regular(path, links=False)
    try:
        box = parse_header(path, os.pread(fd, fmt.HEADER_BYTES, 0))
        box.owner = os.fstat(fd).st_uid
    finally:
        os.close(fd)
    return box


def _not_its_own(box: BlackBox) -> str:
    """Why a box is not believed, "" for a sound one: anyone can write any number of a process into
    a file of theirs.

    The owner of a process that runs is known. A box of one that has ended must be of the user whose
    folder it is in: the probe uses no other.
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


def _stale_if_superseded(box: BlackBox, boxes: list[BlackBox]) -> BlackBox:
    """A dead box is stale where a newer one of the same rank and host lies beside it."""
    if box.status != "dead":
        return box
    here = Path(box.path).parent
    alike = [o for o in boxes if o.rank == box.rank and o.host == box.host]
    newer = [o for o in alike if o.created_s > box.created_s]
    if any(Path(o.path).parent == here for o in newer):
        return structs.replace(box, status="stale")
    return box
