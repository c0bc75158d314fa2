"""Watches how the ranks below `hangdoctor run` end: exit code or signal, core dump, lack of memory.

`readers.process_exits` says how a code is known. Nothing is asked of the processes themselves.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import threading
import time
from pathlib import Path

import msgspec

from ..model.process_end import ProcessEnd
from ..probe import folder as folders
from ..probe import format as fmt
from ..probe.ending import is_watched
from ..probe.identity import host, process_name, ranks_from
from ..readers.process_exits import follow

_LOOK_S = 0.25  # between two searches for new processes


class _Watched:
    """One process."""

    def __init__(self, pid: int, environ: dict[str, str]) -> None:
        self.process = follow(pid)
        self.pid, self.fd = pid, self.process.fd
        self.learn(environ)

    def learn(self, environ: dict[str, str]) -> None:
        """Who it is; between fork and exec it still has its parent's environment."""
        self.rank, self.world, _ = ranks_from(environ)
        self.by_scheduler = "RANK" not in environ


class EndsWatch:
    """A thread that fills `ends`, and the file beside the boxes once there is a rank."""

    def __init__(self, folder: Path, command: int) -> None:
        self.folder, self.command = folder, command
        self.path = folder / f"{host()}-{process_name(os.getpid())}{fmt.ENDS_SUFFIX}"
        self.ends: list[ProcessEnd] = []
        self._file = -1
        self._known: dict[int, _Watched] = {}
        self._seen: set[int] = set()
        self._poll = select.poll()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ends", daemon=True)

    def start(self) -> None:
        """Begin; the command runs already, and goes on where no thread can be had."""
        with contextlib.suppress(RuntimeError):
            self._thread.start()

    def finish(self, code: int) -> bool:
        """The command has ended: note what its last processes came to, for a moment at most.

        Returns:
            Whether a rank failed.
        """
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(timeout=2.0)
        own = self._known.get(self.command)
        if own is not None:
            self._note(own, code, core=False)
        failed = any(e.code and (e.rank >= 0 or e.boxed) for e in self.ends)
        if self._file >= 0 and not failed:
            with contextlib.suppress(OSError):
                folders.remove_own(self.path, os.fstat(self._file))
        if self._file >= 0:
            os.close(self._file)
        # Else who left early, and where it was, is evidence: also of ranks that go on after a signal
        # has ended the command.
        if not failed and code >= 0:
            self._sweep()
        with contextlib.suppress(OSError):
            folders.remove_if_empty(self.folder)
        return failed

    def _sweep(self) -> None:
        """Boxes that their processes have left to us, and that no failure makes worth keeping."""
        failed = {e.pid for e in self.ends if e.code}
        for path in self.folder.glob(f"{host()}-*{fmt.SUFFIX}"):
            with contextlib.suppress(OSError):
                with path.open("rb") as file:
                    head = file.read(fmt.HEADER_BYTES)
                if len(head) < fmt.HEADER_BYTES or not head.startswith(fmt.MAGIC):
                    continue
                pid = folders.field(head, fmt.H_PID)
                ours = pid in self._seen or not is_watched(self.folder)
                left = folders.field(head, fmt.H_END_KIND) == fmt.WITHOUT_EXCEPTION
                if ours and left and pid not in failed:
                    path.unlink()
                    for suffix, magic in fmt.BESIDE:
                        folders.discard(path.with_suffix(suffix), magic)

    # ------------------------------------------------------------------ the thread

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._look()
                self._wait(_LOOK_S)
            self._wait(0.05)
        except Exception:
            return

    def _look(self) -> None:
        boxed = self._boxed()
        self._descend(self.command, of_rank=False, boxed=boxed)
        for pid in boxed - self._seen:
            self._watch(pid)
        # Ranks that multiprocessing starts have no number in their environment: their boxes do.
        if self._file < 0 and any(w.rank >= 0 or w.pid in boxed for w in self._known.values()):
            self._open()

    def _descend(self, pid: int, of_rank: bool, boxed: set[int]) -> None:
        """Take in a process and what it has started; what a rank has started is no rank."""
        if not of_rank:
            self._watch(pid)
        known = self._known.get(pid)
        is_rank = known is not None and known.rank >= 0 and not known.by_scheduler
        if of_rank or is_rank:
            return
        for child in _children(pid):
            self._descend(child, is_rank, boxed)

    def _boxed(self) -> set[int]:
        """Processes that have a box in the folder."""
        start = f"{host()}-"
        names = [p.name.removeprefix(start) for p in self.folder.glob(f"{start}*{fmt.SUFFIX}")]
        space = process_name(0).partition("-")[2]
        found = set()
        for name in names:
            pid, _, where = name.removesuffix(fmt.SUFFIX).partition("-")
            if pid.isdigit() and where == space:
                found.add(int(pid))
        return found

    def _watch(self, pid: int) -> None:
        known = self._known.get(pid)
        if known is not None and known.by_scheduler:
            environ = _environment(pid)
            if environ:
                known.learn(environ)
        if pid in self._seen:
            return
        with contextlib.suppress(OSError):
            watched = _Watched(pid, _environment(pid))
            self._seen.add(pid)
            self._known[pid] = watched
            if pid != self.command:  # its own code comes with `finish`
                self._poll.register(watched.fd, select.POLLIN)

    def _wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while True:
            left = max(0.0, end - time.monotonic())
            ready = {fd for fd, _ in self._poll.poll(left * 1000)}
            now = time.time()
            for watched in [w for w in self._known.values() if w.fd in ready]:
                self._ended(watched, now)
            if left <= 0 or self._stop.is_set():
                return

    def _ended(self, watched: _Watched, now: float) -> None:
        ended = watched.process.exit(now)
        self._poll.unregister(watched.fd)
        os.close(watched.fd)
        del self._known[watched.pid]
        if ended is not None:
            self._note(watched, ended.code, ended.core, now)

    def _note(self, watched: _Watched, code: int, core: bool, now: float = 0.0) -> None:
        memory = code == -9 and watched.process.lacked_memory()
        end = ProcessEnd(
            pid=watched.pid,
            node=host(),
            code=code,
            at=now or time.time(),
            rank=-1 if self._launches(watched) else watched.rank,
            world_size=max(0, watched.world),
            began=watched.process.began,
            boxed=watched.pid in self._boxed(),
            core=core,
            out_of_memory=memory,
        )
        self.ends.append(end)
        if self._file < 0 and (end.rank >= 0 or end.boxed):
            self._open()
        if self._file >= 0:
            os.write(self._file, msgspec.json.encode(end) + b"\n")

    def _launches(self, watched: _Watched) -> bool:
        """Whether it is a launcher that the scheduler numbered: its ranks have their own RANK."""
        if not watched.by_scheduler:
            return False
        others = [w for w in self._known.values() if not w.by_scheduler]
        return bool(others) or any(e.rank >= 0 and e.pid != watched.pid for e in self.ends)

    def _open(self) -> None:
        """Make the file, locked: ranks then leave their boxes to us when they end."""
        try:
            where = folders.prepare(self.folder)
            self.folder, self.path = where, where / self.path.name
            if self.path.exists() or self.path.is_symlink():  # of an earlier process of this number
                self.path = self.path.with_name(
                    f"{self.path.stem}-{time.time_ns()}{fmt.ENDS_SUFFIX}"
                )
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
            self._file = os.open(self.path, flags, 0o600)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return
        for end in self.ends:
            os.write(self._file, msgspec.json.encode(end) + b"\n")


# ---------------------------------------------------------------------- /proc


def _children(pid: int) -> list[int]:
    """The children of a process, of all its threads."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                found += [int(n) for n in (thread / "children").read_text().split()]
    return found


def _environment(pid: int) -> dict[str, str]:
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return {}
    pairs = (os.fsdecode(entry).partition("=") for entry in raw)
    return {name: value for name, _, value in pairs}
