"""Call tracing of this process: on, off, waiting for an iteration; the first internal error
switches it off for good.
"""

from __future__ import annotations

import contextlib
import os
import struct
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, FrameType

from .. import format as boxfmt
from ..box import BoxWriter
from ..identity import megabytes
from ..own_threads import share_of
from ..whose_error import is_ours, place
from . import format as fmt
from . import hooks
from .choice import Choice, module_of, not_imported
from .own_code import OwnCode, offered
from .request import Request, concerns
from .ring import Ring

SIZE_VARIABLE = "HANGDOCTOR_CALLS_MB"
PURE_VARIABLE = "HANGDOCTOR_CALLS_PURE"


def ring_bytes(folder: Path, asked_mb: float | None) -> int:
    """The size of a ring: as asked for; else the usual one, or a share of what is free."""
    told = asked_mb or megabytes(os.environ, SIZE_VARIABLE, 0.0)
    if told:
        return int(told * (1 << 20))
    return share_of(folder, fmt.DEFAULT_BYTES, fmt.MIN_BYTES)


class Tracer:
    """One a process, made when tracing is first asked for."""

    def __init__(self, box: BoxWriter) -> None:
        self._box = box
        self.ring: Ring | None = None
        self.hook: hooks.Hook | None = None
        self.waiting: Request | None = None  # for its iteration
        self.broken = False
        self._own = OwnCode()
        self._choice = Choice((), (), self._own)
        self._followed: tuple[str, ...] | None = None  # as the file has it; None while off
        self._guard = threading.Lock()
        self._forks = self._left_alone = 0
        self._unseen: list[str] = []  # names that are followed and not imported yet

    # ----------------------------------------------------------------- what is asked

    def obey(self, request: Request, iteration: int = -1) -> None:
        """Bring about what a request says; the same request again changes nothing."""
        try:
            with self._guard:
                if not self.broken:
                    self._obey(request, iteration)
        except Exception as error:
            self.fail(error)

    def _obey(self, request: Request, iteration: int) -> None:
        wanted = request.on and concerns(request, self._number(boxfmt.H_RANK))
        if self.ring is None:
            if not wanted:
                return
            try:
                self.ring = self._make(request)
            except OSError as error:
                self._box.put_text(
                    boxfmt.H_NOTE,
                    f"no call tracing: its file cannot be made: {error.strerror or error}",
                )
                self.broken = True
                return
        ring = self.ring
        self._off()
        if wanted:
            self._tell_followed(ring, request.follow)
            ring.header_text(fmt.H_IGNORE, ",".join(request.ignore))
        self._tell_unseen(ring, not_imported(request.follow) if wanted else [])
        first = request.from_iteration if wanted else None
        ring.header(fmt.H_FROM_ITERATION, -1 if first is None else first)
        if wanted and (first is None or iteration >= first):
            self._on(request)
        elif wanted:
            self.waiting = request
            ring.header(fmt.H_STATE, fmt.WAITING)
        ring.header(fmt.H_REQUEST, request.serial)  # last: whoever asked sees it done

    def reached(self, iteration: int) -> None:
        """The job says which iteration begins: the one that tracing waits for, perhaps."""
        request = self.waiting
        if (
            request is not None
            and request.from_iteration is not None
            and iteration >= request.from_iteration
        ):
            self.obey(request, iteration)

    def tick(self) -> None:
        """Once a second: the clocks side by side, threads that were made since, packages that were
        imported since.
        """
        try:
            if self.ring is not None and not self.broken:
                self.ring.anchor()
                if self._followed == ():
                    self._tell_followed(self.ring, ())
                self._look_for_packages(self.ring)
            if self.hook is not None:
                self.hook.adopt()
                self._tell_left_alone(self.hook.left_alone)
        except Exception as error:
            self.fail(error)

    def _tell_left_alone(self, threads: int) -> None:
        if self.ring is not None and threads != self._left_alone:
            self._left_alone = threads
            self.ring.header_text(
                fmt.H_NOTE,
                f"threads with another profiler, not traced: {threads}" if threads else "",
            )

    def _look_for_packages(self, ring: Ring) -> None:
        if self._unseen and self._guard.acquire(
            blocking=False
        ):  # else the choice is being changed just now
            try:
                unseen = not_imported(self._unseen)
                if unseen != self._unseen:
                    self._tell_unseen(ring, unseen)
            finally:
                self._guard.release()

    def _tell_followed(self, ring: Ring, names: tuple[str, ...]) -> None:
        """The names as given; without any, those of the script's own code, as far as it is
        imported.
        """
        self._followed = names
        ring.header_text(fmt.H_FOLLOW, _listed(names or self._own.names()))

    def _tell_unseen(self, ring: Ring, names: list[str]) -> None:
        self._unseen = names
        ring.header_text(fmt.H_UNSEEN, _listed(names))
        ring.header_text(fmt.H_OFFERED, _listed(offered(self._own, names) if names else ()))

    def _number(self, place: tuple[int, str]) -> int:
        number: int = struct.unpack_from(place[1], self._box.map, place[0])[0]
        return number

    def _make(self, request: Request) -> Ring:
        size = ring_bytes(self._box.path.parent, request.size_mb)
        return Ring(self._box.path, size, self._number(boxfmt.H_RANK), self._number(boxfmt.H_WORLD))

    # ----------------------------------------------------------------- on and off

    def _on(self, request: Request) -> None:
        ring = self.ring
        assert ring is not None
        self.waiting = None
        self._choice = Choice(request.follow, request.ignore, self._own)
        _watch_forks(self)
        hook = hooks.choose(
            ring, self.decide, self.fail, os.environ.get(PURE_VARIABLE, "") not in ("", "0")
        )
        ring.header(fmt.H_VARIANT, hook.variant)
        ring.header(fmt.H_MEANS, hook.means)
        ring.anchor()
        ring.header(fmt.H_BEGAN_WALL, time.time_ns())
        # A fresh turn of the interpreter's lock: the other threads stand still while their frames are written down.
        time.sleep(0)
        ring.resume()
        ring.put(fmt.NO_CODE, ring.thread(), fmt.BEGIN)
        self._write_open_frames(ring)
        if self.broken:  # by the first code that it was to decide on
            return
        self.hook = hook
        hook.install()
        self._tell_left_alone(hook.left_alone)
        ring.header(fmt.H_STATE, fmt.TRACING)

    def _write_open_frames(self, ring: Ring) -> None:
        """What each thread is in already, outermost first; threads of C++ only from their next call
        on.
        """
        known = list(threading._active.items())  # type: ignore[attr-defined]
        tids = {ident: (thread.native_id, thread.name) for ident, thread in known}
        # The frame of this function is among them. It must hold none when it ends: a circle would keep what the job's
        # functions had (tensors, files) until the collector comes, which many jobs switch off.
        frames = sys._current_frames()
        try:
            for ident, (tid, name) in tids.items():
                if tid is not None and ident in frames:
                    self._write_stack(ring, frames[ident], tid, name)
        finally:
            frames.clear()

    def _write_stack(self, ring: Ring, innermost: FrameType, tid: int, name: str) -> None:
        """The functions that one thread is in, outermost first."""
        stack: list[FrameType] = []
        at: FrameType | None = innermost
        while at is not None:
            stack.append(at)
            at = at.f_back
        while stack:
            at = stack.pop()
            id_ = self.decide(at.f_code, at)
            if id_ >= 0:
                ring.put(id_, ring.thread(tid, name), fmt.OPEN)

    def _off(self) -> None:
        hook, self.hook, self.waiting = self.hook, None, None
        if hook is not None:
            hook.remove()
        if self.ring is not None:
            self.ring.header(fmt.H_STATE, fmt.STOPPED)

    def decide(self, code: CodeType, frame: FrameType | None) -> int:
        """The id of a code object, or -1 where it is not followed; asked once for each."""
        try:
            ring = self.ring
            module = module_of(frame, code.co_filename)
            return (
                ring.intern(code, module)
                if ring is not None and self._choice.follows(module)
                else -1
            )
        except Exception as error:
            self.fail(error)
            return -1

    # ----------------------------------------------------------------- trouble and end

    def fail(self, error: BaseException) -> None:
        """Switch off for good, with a note in the file; an exception of the job's is raised again.

        Raises:
            BaseException: `error`, when it does not come from the probe's own code.
        """
        if not is_ours(error):
            raise error
        hook, self.hook, self.waiting, self.broken = self.hook, None, None, True
        try:
            if hook is not None:
                hook.remove()
        except (
            Exception
        ) as second:  # it may be the very thing that is broken: the first error is the one to tell
            error.__context__ = second
        if self.ring is not None:
            self.ring.note(
                f"switched off by an internal error: {type(error).__name__}: {error} at {place(error.__traceback__)}",
                fmt.SWITCHED_OFF,
            )

    def end(self, keep: bool) -> None:
        """The process ends; with `keep` the file stays, because it ends badly."""
        try:
            if not self.broken:
                self._off()
        except Exception as error:
            self.fail(error)
        if self.ring is not None and not keep:
            with contextlib.suppress(OSError):  # the job has given its rights away
                self.ring.remove()

    # ----------------------------------------------------------------- forks

    def before_fork(self) -> None:
        """Nothing is written while memory is copied."""
        self._forks += 1
        if self.hook is not None:
            self.hook.pause(True)

    def after_fork_in_parent(self) -> None:
        """Goes on with the last of the forks."""
        self._forks -= 1
        if self.hook is not None and self._forks == 0:
            self.hook.pause(False)

    def after_fork_in_child(self) -> None:
        """The ring is the parent's: nothing of this process goes into it."""
        hook, self.hook, self.waiting, self.ring, self.broken = self.hook, None, None, None, True
        if hook is not None:
            hook.remove()


def _listed(names: Sequence[str]) -> str:
    """Names as a field of the header holds them."""
    text = ",".join(names)
    return text if len(text) < 512 else text[:512].rpartition(",")[0]


_forking: list[Tracer] = []  # the tracer of this process; fork handlers cannot be taken back


def _watch_forks(tracer: Tracer) -> None:
    if not _forking:
        os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
    _forking[:] = [tracer]


def _before() -> None:
    for tracer in _forking:
        tracer.before_fork()


def _in_parent() -> None:
    for tracer in _forking:
        tracer.after_fork_in_parent()


def _in_child() -> None:
    for tracer in _forking:
        tracer.after_fork_in_child()
