"""Whether a signal that `hangdoctor run` got was sent to it alone, or to the command as well.

The kernel does not say to how many processes a signal was sent. A process beside the command, in
its process group, that does nothing but note signals does: what it got from the same sender at
that time went to all of them.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import struct
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from .run_child import LIBC, PASSED_ON, NoRoom, die_with, fork

_ECHO_S = 0.1  # how long what is sent to one process after another may take to reach the second
_BUSY_S = 2.0  # how long we wait for a witness that has not come to write its note yet
_APART_S = 0.25  # between two of one sender that belong together, if we were awake all the time
_AGAIN_S = 1.0  # between two starts of one that ends at once
_NOTE = struct.Struct("=dii")
_SET_NAME = 15  # of prctl(2)
_ARGUMENTS = slice(45, 47)  # of /proc/PID/stat, behind the name: where they begin and end


class Note(NamedTuple):
    """A signal that reached the witness."""

    at: float  # time.monotonic, which all processes share
    number: int
    sender: int


class Witness:
    """The process that notes signals; signals of `PASSED_ON` are blocked already.

    It has the name and the words of the command: whoever chooses processes by these (pkill) chooses
    both or neither.

    Raises:
        NoRoom: it cannot be started.
    """

    def __init__(self, program: str, words: Sequence[str]) -> None:
        self.pid = 0
        self._name = os.fsencode(program).rpartition(b"/")[2]
        self._words = [b"hd-signals", *map(os.fsencode, words)]
        self._started = -_AGAIN_S
        self._read = -1
        self._notes: list[Note] = []
        self._since = 0.0  # older notes were of signals that never came to us
        self._start()

    def __enter__(self) -> Witness:
        return self

    def __exit__(self, *_: object) -> None:
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        self._forget()

    def heard(self, got: signal.struct_siginfo) -> bool:
        """Whether this signal, which a process has sent to us, reached the witness as well."""
        began = time.monotonic()
        while True:
            waited = time.monotonic() - began
            self.keep()
            idle = waited >= _ECHO_S and self._is_idle()
            self._take(0 if idle else _ECHO_S / 5)
            for note in self._notes:
                if (note.number, note.sender) == (got.si_signo, got.si_pid):
                    self._notes.remove(note)
                    return True
            if idle or waited >= _BUSY_S or not self.pid:
                return False

    def settle(self) -> None:
        """No signal is waiting for us: whatever the witness has got before, it got alone."""
        self._since = time.monotonic() - _APART_S
        self._take(0)

    def keep(self) -> None:
        """Let one go on that was stopped, and replace one that was killed: this was not our doing."""
        if self.pid:
            found, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED)
            if not found:
                return
            if os.WIFSTOPPED(status):
                os.kill(self.pid, signal.SIGCONT)
                return
            self._forget()
        if time.monotonic() >= self._started + _AGAIN_S:
            with contextlib.suppress(NoRoom):
                self._start()

    def join(self, group: int) -> None:
        """Be in this process group of our session."""
        with contextlib.suppress(OSError):
            if self.pid and os.getpgid(self.pid) != group:
                os.setpgid(self.pid, group)

    def _start(self) -> None:
        me = os.getpid()
        pid, read, write = fork()
        if pid == 0:
            try:
                die_with(me)
                _close_all_but(write)
                _be_called(self._name, self._words)
                while True:
                    got = signal.sigwaitinfo(PASSED_ON)
                    os.write(write, _NOTE.pack(time.monotonic(), got.si_signo, got.si_pid))
            finally:
                os._exit(0)
        os.close(write)
        os.set_blocking(read, False)
        self.pid, self._read = pid, read
        self._started = time.monotonic()

    def _forget(self) -> None:
        if self._read >= 0:
            os.close(self._read)
        self.pid, self._read = 0, -1

    def _take(self, seconds: float) -> None:
        """Read what it has noted, and wait for that if there is nothing yet."""
        if self._read >= 0:
            # Not select, which knows no descriptor above 1023.
            poll = select.poll()
            poll.register(self._read, select.POLLIN)
            poll.poll(seconds * 1000)
            with contextlib.suppress(BlockingIOError):
                while data := os.read(self._read, _NOTE.size * 1000):
                    self._notes += [Note(*fields) for fields in _NOTE.iter_unpack(data)]
        self._notes = [note for note in self._notes if note.at >= self._since]

    def _is_idle(self) -> bool:
        """Whether it has nothing to note: it sleeps, and no signal is waiting for it."""
        try:
            with open(f"/proc/{self.pid}/status", encoding="ascii", errors="replace") as file:  # noqa: PTH123
                fields = dict(line.split(":", 1) for line in file)
            waiting = int(fields["SigPnd"], 16) | int(fields["ShdPnd"], 16)
        except (OSError, ValueError, KeyError):
            return True
        mask = sum(1 << (number - 1) for number in PASSED_ON)
        return fields["State"].split()[0] != "R" and not waiting & mask


def _close_all_but(kept: int) -> None:
    """Files and pipes of the job whose readers wait for their end must not stay open in here."""
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc/self/fd"):
            if int(name) != kept:
                with contextlib.suppress(OSError):
                    os.close(int(name))


def _be_called(name: bytes, words: Sequence[bytes]) -> None:
    """Show these in lists of processes; the words are cut where ours had less room."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        LIBC.prctl(_SET_NAME, ctypes.c_char_p(name), 0, 0, 0)
        stat = Path("/proc/self/stat").read_bytes()
        begin, end = map(int, stat.rpartition(b")")[2].split()[_ARGUMENTS])
        room = end - begin
        if begin > 0 and room > 0:
            text = b"\0".join(words)[: room - 1]
            ctypes.memmove(begin, text.ljust(room, b"\0"), room)
