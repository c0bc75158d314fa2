"""The probe of this process: whether it records, its life from the first operation to the end of
the process.

The first internal error switches it off for good and leaves a note in the box; a forked child
begins without a box.
"""

from __future__ import annotations

import _thread
import atexit
import os
import sys
import threading
import time

from . import (
    flight,
    folder,
    retention,
    signal_times,
    signatures,
    stand_ins,
    torchnames,
    training_thread,
)
from . import format as fmt
from .box import BoxWriter
from .identity import host, is_of_session, job_key, megabytes
from .last_place import LastPlace
from .own_threads import share_of, start_thread
from .record_core import Thread
from .recorder import Recorder, local
from .told import Told
from .whose_error import is_ours, place, said, suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from .calls.request import Request

_BEAT_S = 1.0
_NO_REQUEST = (0, 0)


class Beats:
    """How the heartbeat's thread is stopped, so that none of ours is left when the interpreter is
    taken down.
    """

    def __init__(self) -> None:
        self.begun, self.stop, self.stopped = (_thread.allocate_lock() for _ in range(3))
        self.begun.acquire()
        self.stop.acquire()
        self.stopped.acquire()

    def end(self) -> None:
        """Stop the thread, and wait a moment for it."""
        if self.stop.locked():
            self.stop.release()
            self.stopped.acquire(timeout=0.5)


class Probe(Told):
    """`recorder` is None while nothing is recorded: before the first operation, after an error,
    when paused.
    """

    def __init__(self) -> None:
        super().__init__()
        self.recorder = None
        self.broken = False
        self._kept: Recorder | None = None  # of this process, also while paused or broken
        self._making = threading.Lock()
        self._maker = 0  # the thread that holds it: a signal handler in the middle of it may speak to the probe, too
        self._beats: Beats | None = None
        self._watched = 0  # the process whose end is waited for, also without a box
        self._over = False
        self.tracer = None  # from the first request on
        self._heard: tuple[int, int] | None = (
            None  # which request was heard last, None before the first sample
        )

    # ----------------------------------------------------------------- begin

    def begin(self) -> Recorder | None:
        """The recorder of this process, made at the first call; None where it cannot be."""
        if (
            self.recorder is None
            and self._kept is None
            and not self.broken
            and self._maker != _thread.get_ident()
            and not stand_ins.are_there()
        ):
            with self._making:
                self._maker = _thread.get_ident()
                try:
                    if self._kept is None:
                        self._make()
                except Exception as error:
                    self.fail(error)
                finally:
                    self._maker = 0
        return self.recorder

    def _make(self) -> None:
        where, elsewhere = folder.take(folder.job_folder(os.environ), job_key(os.environ))
        for base in folder.places():
            retention.tidy(base, time.time_ns())
        try:
            box = BoxWriter(where, job_key(os.environ), _box_bytes(where))
        except OSError:
            folder.remove_if_empty(where)
            raise
        layout = os.environ.get("HANGDOCTOR_LAYOUT", "")
        box.put_text(fmt.H_LAYOUT, layout)
        box.put_text(fmt.H_NOTE, elsewhere)
        signatures.learn_torch()
        self._kept = self.recorder = Recorder(box)
        if torchnames.default_group() is not None:
            self.joined(self.recorder)
        _at_end()

    def joined(self, recorder: Recorder) -> None:
        """The process group exists: learn ranks, tidy up after predecessors, show signs of life."""
        signatures.learn_torch()
        recorder.learn_world()
        if stand_ins.are_there():
            self._show_life(recorder)
            return
        folder.prune(recorder.box.path.parent, torchnames.own_rank()[0], host())
        self._trace_as_told(recorder)
        self._show_life(recorder)
        why_not = flight.start_worker_server(recorder.box.path.parent, recorder.box.pid)
        if why_not:
            recorder.box.put_text(fmt.H_NOTE, why_not)

    def begin_uncounted(self, rank: int, world: int, library: str, *, job: str = "") -> bool:
        """This process is a rank by a library whose calls are not recorded: its box shows the rest.
        Whether it has one.

        `job`: a name that its ranks agree on, for those that no launcher has named and that were
        started by hand, each in a session of its own.
        """
        recorder = self.begin() if torchnames.default_group() is None else None
        if recorder is None:
            return False
        recorder.uncounted = True
        recorder.polls = library == fmt.MPI
        recorder.box.put(fmt.H_RANK, rank)
        recorder.box.put(fmt.H_WORLD, world)
        recorder.box.put_text(fmt.H_BACKEND, library)
        if job and is_of_session(job_key(os.environ)):
            recorder.box.put_text(fmt.H_JOB, job)
        folder.prune(recorder.box.path.parent, rank, host())
        self._trace_as_told(recorder)
        self._show_life(recorder)
        return True

    def count_calls(self, recorder: Recorder, library: str, *, counted: bool) -> None:
        """From now on the calls of this rank are recorded, or no longer; `library` as the header has it."""
        recorder.uncounted = not counted
        recorder.box.put_text(fmt.H_BACKEND, library)

    def _show_life(self, recorder: Recorder) -> None:
        if self._beats is None:
            self._beats = Beats()
            # Not a `threading.Thread`: the job's own list of threads stays what it was.
            start_thread(self._beat, (recorder, self._beats))
            recorder.box.keep_pulse()
            signal_times.show(recorder.box)
            # Until it runs, CPython takes it for this thread, and hands it the exceptions that are meant for this one.
            self._beats.begun.acquire(timeout=1.0)

    def _beat(self, recorder: Recorder, beats: Beats) -> None:
        try:
            beats.begun.release()
            place = LastPlace(recorder)
            while not self.broken:
                try:
                    self._listen(recorder)
                    now = time.time_ns()
                    recorder.box.put(fmt.H_BEAT_WALL, now)
                    recorder.box.put(fmt.H_BEAT_MONO, time.monotonic_ns())
                    place.beat(now)
                    signal_times.look()
                except Exception as error:
                    # Else of a stand-in of the job's, for `os.lstat`: none of its code is above this thread to catch it.
                    if is_ours(error):
                        self.fail(error)
                if beats.stop.acquire(timeout=_BEAT_S):
                    return
        finally:
            beats.stopped.release()

    # ----------------------------------------------------------------- call tracing

    def _listen(self, recorder: Recorder) -> None:
        """Look for a request to trace calls; a file's status once a second is all that tracing
        costs while it is off.
        """
        try:
            found = (recorder.box.path.parent / folder.REQUEST).lstat()
            heard = (found.st_mtime_ns, found.st_ino)
        except OSError:
            heard = _NO_REQUEST
        before, self._heard = self._heard, heard
        if heard not in (before, _NO_REQUEST):
            from .calls import request, run

            where = recorder.box.path.parent
            asked = request.read(where)
            # What lay there before this process may be of a run that ended badly, and is then not for this one.
            if asked is not None and (
                before is not None or run.began_before(where, heard[0] / 1e9)
            ):
                self._trace(recorder, asked)
        if self.tracer is not None:
            self.tracer.tick()

    def _trace_as_told(self, recorder: Recorder) -> None:
        """As `hangdoctor run --trace` said in the environment, once."""
        text = os.environ.get("HANGDOCTOR_TRACE")
        if text and self.tracer is None:
            from .calls import request

            asked = request.decode(text)
            if asked is not None:
                self._trace(recorder, asked)

    def _trace(self, recorder: Recorder, asked: Request) -> None:
        if self.tracer is None:
            from .calls.tracer import Tracer

            self.tracer = Tracer(recorder.box)
        self.tracer.obey(asked, recorder.iteration)

    def trace_from_start(self) -> None:
        """Begin before anything is imported: in ranks, not in what they start, nor in launchers.

        A process that learns only later that it is a rank starts when it joins a group.
        """
        try:
            from .calls import request

            if not request.is_rank_itself(os.environ, getattr(sys, "orig_argv", [])):
                return
            recorder = self.begin()
            if recorder is not None:
                self._trace_as_told(recorder)
                self._show_life(recorder)
        except Exception as error:
            self.fail(error)

    # ----------------------------------------------------------------- trouble

    def fail(self, error: BaseException) -> None:
        """Switch off for good. An exception that only passed through (a signal handler's) is the
        job's: raised again.

        Raises:
            BaseException: `error`, when it does not come from the probe's own code.
        """
        if not is_ours(error):
            raise error
        kept, self.recorder, self.broken = self._kept, None, True
        if kept is not None and not stand_ins.are_there():
            kept.box.note(
                f"switched off: {said(error)} at {place(error.__traceback__)}", fmt.SWITCHED_OFF
            )

    # ----------------------------------------------------------------- end

    def end(self) -> None:
        """The process ends: a good end takes the box away, a crash leaves it with the reason."""
        if not self._over:
            self._over = True
            with suppress(Exception):
                self._record_early_end()
        kept, self._kept, self.recorder = self._kept, None, None
        if kept is not None and kept.box.pid == os.getpid():
            # Whatever goes wrong now, the job has ended already: nothing is printed for that, and the box stays.
            with suppress(Exception):
                self._end(kept)

    def _end(self, kept: Recorder) -> None:
        kept.box.end_pulse()
        if self._beats is not None:
            self._beats.end()
        with suppress(OSError):  # a folder that someone has changed meanwhile
            flight.remove_socket(kept.box.path.parent, kept.box.pid)
        error = _error_at_end()
        if self.tracer is not None:
            self.tracer.end(keep=error is not None)
        if error is None and training_thread.is_left(kept.box):
            return  # what it was in is evidence
        if error is None:
            with suppress(OSError):
                kept.box.end_without_error()
        elif not self.broken:
            kept.box.note(f"ended by {said(error)}", fmt.CRASHED)
            kept.box.end_by(error)

    def watch_end(self) -> None:
        """Also a process that fails before its first operation says why, if it is a rank itself."""
        self._watched = os.getpid()
        atexit.register(self.end)

    def _record_early_end(self) -> None:
        """Make the box of a rank that failed before its first operation, to leave the reason in it."""
        if self._kept is not None or self.broken or self._watched != os.getpid():
            return
        from .calls import request

        is_rank = request.is_rank_itself(os.environ, getattr(sys, "orig_argv", []))
        if is_rank and multiprocessing_parent() is None and _error_at_end() is not None:
            self.begin()

    def finished(self) -> None:
        """The default group was destroyed cleanly."""
        if self.recorder is not None:
            self.recorder.box.put(fmt.H_STATE, fmt.FINISHED)

    def after_fork(self) -> None:
        """In a child: leave the parent's box alone, begin anew if it joins a group of its own."""
        if self._kept is not None:
            self._kept.outstanding.clear()
        self.recorder = self._kept = None
        self._making, self._maker = threading.Lock(), 0
        self._watched, self._over = 0, False
        self._beats = self.tracer = self._heard = None
        local.thread = Thread()


def _box_bytes(where: Path) -> int:
    told = megabytes(os.environ, "HANGDOCTOR_BOX_MB", 0.0)
    if told:
        return int(min(max(1.0, told), 1024.0) * (1 << 20)) & ~4095
    return share_of(where, fmt.DEFAULT_BYTES, 1 << 20) & ~4095


def _error_at_end() -> BaseException | None:
    """The exception that ends this process, None without one."""
    error = getattr(sys, "last_value", None) or sys.exc_info()[1]
    return None if _ended_well(error) else error


def _ended_well(error: BaseException | None) -> bool:
    """No error, or sys.exit with nothing or 0; what else it carries is not asked whether it is
    true.
    """
    if error is None:
        return True
    code = getattr(error, "code", error)
    return issubclass(type(error), SystemExit) and (
        code is None or (type(code) in (int, bool) and not code)
    )


def multiprocessing_parent() -> Any:
    """The process that has started this one by multiprocessing; None for any other."""
    process = sys.modules.get("multiprocessing.process")
    return process.parent_process() if process is not None else None


def _at_end() -> None:
    """Run at the end of this process: at exit, or by multiprocessing, whose forked children never
    get there.
    """
    atexit.register(probe.end)
    module = sys.modules.get("multiprocessing.util")
    if module is not None and multiprocessing_parent() is not None:
        module.Finalize(None, probe.end, exitpriority=-100)


probe = Probe()
os.register_at_fork(after_in_child=probe.after_fork)
