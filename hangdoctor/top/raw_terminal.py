"""The terminal while `top` runs: keys without Enter, the other screen, and everything as it was at
any end.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import sys
import termios
import tty
from types import FrameType, TracebackType

from ..errors import Cancelled

# DECSET private modes, https://invisible-island.net/xterm/ctlseqs/ctlseqs.html
_ENTER = "\x1b[?1049h\x1b[?25l"
_LEAVE = "\x1b[0m\x1b[?25h\x1b[?1049l"
_SENT = {
    "up": ("\x1b[A", "\x1bOA"),
    "down": ("\x1b[B", "\x1bOB"),
    "page up": ("\x1b[5~",),
    "page down": ("\x1b[6~",),
    "home": ("\x1b[H", "\x1b[1~"),
    "end": ("\x1b[F", "\x1b[4~"),
    "enter": ("\r", "\n"),
    "backspace": ("\x7f", "\x08"),
    "escape": ("\x1b",),
    "redraw": ("\x0c",),
}
_KEYS = {sent: key for key, all_sent in _SENT.items() for sent in all_sent}
_LONGEST_FIRST = sorted(_KEYS, key=len, reverse=True)


class Terminal:
    """A context manager. `keys` waits for keys; `draw` puts whole screens."""

    def __init__(self) -> None:
        self.input, self.output = sys.stdin.fileno(), sys.stdout.fileno()
        self._old: list[object] = []
        self._handlers: dict[int, object] = {}

    def __enter__(self) -> Terminal:
        self._old = termios.tcgetattr(self.input)
        for number, handler in ((signal.SIGHUP, _hung_up), (signal.SIGTSTP, self._on_stop)):
            self._handlers[number] = signal.signal(number, handler)
        self._take()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # A second Ctrl-C must not cut this short.
        with contextlib.suppress(ValueError):
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        self._give_back()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})

    def _take(self) -> None:
        tty.setcbreak(self.input)
        self._write(_ENTER)

    def _give_back(self) -> None:
        with contextlib.suppress(OSError, termios.error):  # the terminal itself may be gone
            self._write(_LEAVE)
        with contextlib.suppress(OSError, termios.error):
            termios.tcsetattr(self.input, termios.TCSAFLUSH, self._old)  # type: ignore[arg-type]

    def _on_stop(self, number: int, frame: FrameType | None) -> None:
        """Ctrl-Z: the shell gets its screen, and we ours again when we go on."""
        self._give_back()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, self._on_stop)
        self._take()

    def _write(self, text: str) -> None:
        data = text.encode("utf-8", "replace")
        while data:
            data = data[os.write(self.output, data) :]

    def size(self) -> tuple[int, int]:
        """(columns, rows)."""
        if os.isatty(self.output):
            size = os.get_terminal_size(self.output)
        else:
            size = shutil.get_terminal_size((80, 24))
        return max(20, size.columns), max(6, size.lines)

    def draw(self, lines: list[str]) -> None:
        """A screen at once: lines that are shorter than before leave nothing behind."""
        self._write("\x1b[H" + "\x1b[0m\x1b[K\r\n".join(lines) + "\x1b[0m\x1b[K\x1b[J")

    def keys(self, seconds: float) -> list[str]:
        """What was pressed within this long.

        Raises:
            Cancelled: the terminal is gone.
        """
        try:
            ready, _, _ = select.select([self.input], [], [], seconds)
            data = os.read(self.input, 256) if ready else None
        except OSError as error:
            raise Cancelled("the terminal was closed") from error
        if data == b"":
            raise Cancelled("the terminal was closed")
        return split_keys(data.decode("utf-8", "replace")) if data else []


def split_keys(text: str) -> list[str]:
    """``"j\\x1b[A"`` -> ``["j", "up"]``; sequences that mean nothing here are left out.

    Escape and the next key may come in one read; only ``[`` and ``O`` behind it begin a sequence
    (ECMA-48).
    """
    found = []
    while text:
        alone = text[1:2] not in ("[", "O")
        possible = [k for k in _LONGEST_FIRST if k != "\x1b" or alone]
        known = next((k for k in possible if text.startswith(k)), None)
        if known is not None:
            found.append(_KEYS[known])
            text = text[len(known) :]
        elif text[0] == "\x1b":
            end = next(
                (i for i, c in enumerate(text[2:], 2) if c.isalpha() or c == "~"), len(text) - 1
            )
            text = text[end + 1 :]
        else:
            found.append(text[0])
            text = text[1:]
    return found


def _hung_up(number: int, frame: FrameType | None) -> None:
    raise Cancelled("the terminal was closed")
