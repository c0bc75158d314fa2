"""What ended jobs have left: black boxes, folders of collectors, bundles. Finds and removes our own files only.

A run with a living rank, a folder with a living collector and whatever else is in doubt is kept, with the reason.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from ..errors import BadInput, CollectorError
from ..files import read_regular
from ..probe import folder as folders
from ..probe import retention
from ..text.plural import count
from ..transport import address, folder_lock
from . import bundle

_SETTLED_S = 120.0  # a run that is started again in the same folder, a collector between two starts
_SILENT_S = 7 * 86_400.0  # after which a collector that another node started has ended
_FILES = (
    "collector.json",
    "hangdoctor-collector-trace.json",
    "history.json",
    "metrics.token",
    "hangdoctor-launch.json",
    "hangdoctor-status.json",
    "web.json",
)
_OURS = {*_FILES, "collector.lock", "incidents", "keys", "log", "logs", "relays", "spool", "state"}
_OF_FLEET = {"web.json", "metrics.token"}
_STAGED = re.compile(rf"^\.({'|'.join(map(re.escape, _FILES))})\.\d+$")


class Leftover(Struct):
    """One thing that may go. `kept` is the reason why it stays, "" where it goes."""

    kind: str  # boxes, job, bundle, fleet or index
    path: Path
    size: int  # bytes on the disk
    age_s: float
    kept: str = ""
    note: str = ""


def boxes(now_s: float) -> Iterator[Leftover]:
    """Folders of runs in shared memory, of this user."""
    for root in folders.places():
        for folder, ended in retention.runs(root, round(now_s * 1e9)):
            found = Leftover("boxes", folder, _size(folder), 0.0, kept="a rank may be alive")
            if ended is not None:
                found.age_s = max(0.0, now_s - ended.beat_ns / 1e9)
                found.kept = "it has just ended" if found.age_s < _SETTLED_S else ""
            yield found


def jobs(now_s: float, older_than_s: float | None) -> Iterator[Leftover]:
    """Folders of collectors below ~/.hangdoctor/jobs; those with incidents go only if they are
    older than `older_than_s`.
    """
    root = address.job_folder("-").parent
    for folder in _own_folders(root, "*"):
        age_s = max(0.0, now_s - _last_change(folder))
        found = Leftover("job", folder, _size(folder), age_s)
        incidents = _incidents(folder)
        found.note = count(incidents, "incident") if incidents else ""
        found.kept = _why_kept(folder, age_s)
        if not found.kept and incidents:
            found.kept = _too_young(age_s, older_than_s)
        yield found


def of_fleet(now_s: float) -> Iterator[Leftover]:
    """What the fleet view and the search keep below ~/.hangdoctor: both are made anew."""
    home = address.job_folder("-").parent.parent
    for folder in _own_folders(home, "fleet"):
        found = Leftover("fleet", folder, _size(folder), max(0.0, now_s - _last_change(folder)))
        others = sorted(p.name for p in folder.iterdir() if p.name not in _OF_FLEET)
        if others:
            found.kept = f"it has files that are not hangdoctor's: {others[0]}"
        elif _is_served(folder / "web.json"):
            found.kept = "its page is served"
        yield found
    for path in sorted(home.glob("search-*.sqlite")):
        with contextlib.suppress(OSError):
            status = path.lstat()
            if stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid():
                age_s = max(0.0, now_s - status.st_mtime)
                kept = "" if age_s > _SILENT_S else "used in the last week"
                yield Leftover("index", path, status.st_blocks * 512, age_s, kept)


class _Page(Struct):
    pid: int = 0
    host: str = ""


def _is_served(path: Path) -> bool:
    """Whether the server that wrote this file may run."""
    try:
        page = msgspec.json.decode(read_regular(path, 4096, links=False), type=_Page)
    except FileNotFoundError:
        return False
    except (OSError, BadInput, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return True
    return page.host != socket.gethostname() or _is_ours(page.pid)


def bundles(places: Iterable[Path], now_s: float, older_than_s: float | None) -> Iterator[Leftover]:
    """Bundles in these folders, as `dump` names them; they go only if older than `older_than_s`."""
    for place in dict.fromkeys(path.resolve() for path in places):
        for folder in _own_folders(place, "hangdoctor-*"):
            manifest = _manifest(folder)
            if manifest is None:
                continue
            age_s = max(0.0, now_s - manifest.created)
            found = Leftover("bundle", folder, _size(folder), age_s)
            found.kept = _too_young(age_s, older_than_s)
            yield found


def remove(one: Leftover) -> bool:
    """Remove it, if it is still what it was; whether all of it is gone.

    Raises:
        OSError: it cannot be removed.
    """
    if one.kept:
        return False
    if one.kind == "boxes":
        ended = retention.ended_run(one.path, time.time_ns())
        if ended is not None:
            retention.remove(ended)
    elif one.kind == "index":
        one.path.unlink()
    elif one.kind == "fleet":
        shutil.rmtree(one.path)
    elif one.kind == "job":
        _remove_job(one.path)
    else:
        manifest = _manifest(one.path)
        if manifest is not None:
            _remove_bundle(one.path, manifest)
    return not one.path.exists()


def remove_unused(folder: Path) -> None:
    """Remove the folder of a collector that never saw a rank, if it holds our own files alone.

    Raises:
        OSError: it cannot be removed.
    """
    if not _others_files(folder):
        _remove_job(folder)


def _remove_job(folder: Path) -> None:
    """Under the folder's lock: a collector that begins now keeps it."""
    with contextlib.suppress(CollectorError), folder_lock.only_collector(folder):
        shutil.rmtree(folder)


def _too_young(age_s: float, older_than_s: float | None) -> str:
    if older_than_s is None:
        return "evidence; goes with --bundles DAYS"
    return "" if age_s > older_than_s else "younger than --bundles"


def _others_files(folder: Path) -> list[str]:
    names = (path.name for path in folder.iterdir())
    return sorted(name for name in names if name not in _OURS and not _STAGED.match(name))


def _why_kept(folder: Path, age_s: float) -> str:
    """Why this job's folder must stay."""
    others = _others_files(folder)
    if others:
        return f"it has files that are not hangdoctor's: {others[0]}"
    if not (folder / "keys").is_dir() and not (folder / "incidents").is_dir():
        return "it is not a collector's folder"
    relays = folder / "relays"
    below = list(relays.iterdir()) if relays.is_dir() else []
    if any(folder_lock.has_collector(one) for one in (folder, *below)):
        return "its collector is running"
    told = address.read(folder)
    if told is not None and told.host != socket.gethostname() and age_s < _SILENT_S:
        return f"its collector was started on {told.host}"
    if told is not None and told.host == socket.gethostname() and _is_ours(told.pid):
        return "its collector is running"  # where the file system has no locks
    return "" if age_s > _SETTLED_S else "it has just ended"


def _is_ours(pid: int) -> bool:
    """Whether this process is a hangdoctor."""
    try:
        return b"hangdoctor" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _own_folders(place: Path, pattern: str) -> list[Path]:
    """Folders of this user, no links."""
    with contextlib.suppress(OSError):
        found = sorted(place.glob(pattern))
        return [p for p in found if p.is_dir() and not p.is_symlink() and _is_own(p)]
    return []


def _is_own(path: Path) -> bool:
    return path.lstat().st_uid == os.getuid()


def _incidents(folder: Path) -> int:
    place = folder / "incidents"
    with contextlib.suppress(OSError):
        return sum(bundle.is_bundle(p) for p in place.iterdir() if p.is_dir())
    return 0


def _files(folder: Path) -> Iterator[os.stat_result]:
    for where, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                yield Path(where, name).lstat()


def _size(folder: Path) -> int:
    return sum(status.st_blocks * 512 for status in _files(folder))


def _last_change(folder: Path) -> float:
    """When anything in the folder was written last; a collector writes its index as long as it runs."""
    return max((status.st_mtime for status in _files(folder)), default=folder.stat().st_mtime)


def _manifest(folder: Path) -> bundle.Manifest | None:
    """The manifest of a bundle of ours, None for any other folder."""
    try:
        data = read_regular(folder / "manifest.json", bundle.MAX_MANIFEST, links=False)
        manifest = msgspec.json.decode(data, type=bundle.Manifest)
    except (OSError, BadInput, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return manifest if manifest.schema == bundle.BUNDLE_SCHEMA else None


def _remove_bundle(folder: Path, manifest: bundle.Manifest) -> None:
    """What the manifest lists, and the folders that are empty then: files that someone added stay."""
    for name in [*manifest.files, "manifest.json"]:
        path = folder / name
        inside = ".." not in path.parts and not Path(name).is_absolute()
        if inside and path.parent.resolve().is_relative_to(folder.resolve()):
            path.unlink(missing_ok=True)
    below = [p for p in folder.rglob("*") if p.is_dir() and not p.is_symlink()]
    for path in sorted(below, key=lambda p: -len(p.parts)):
        with contextlib.suppress(OSError):
            path.rmdir()
    with contextlib.suppress(OSError):  # unless someone added something
        folder.rmdir()
