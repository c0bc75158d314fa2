"""The loop of `top`: looks in one thread, keys and drawing in this one, so that no slow answer
blocks a key.
"""

from __future__ import annotations

import io
import threading
import time

from rich.console import Console

from ..errors import HangdoctorError
from .feeds import LiveRanks, Source
from .raw_terminal import Terminal
from .screen import Mode, chosen, screen

_KEYS_S = 0.25
_FAR = 10**9  # rows: farther than any list is long
_STEPS = {"up": -1, "k": -1, "down": 1, "j": 1, "home": -_FAR, "end": _FAR}


class App:
    """Runs until q."""

    def __init__(self, source: Source, interval_s: float, colour: bool, wanted: str = "") -> None:
        self.source, self.interval_s = source, interval_s
        self.mode = Mode(filter=wanted)
        self.seen: LiveRanks | None = None
        self.trouble = ""
        self._colour = colour
        self._again = threading.Event()
        self._over = threading.Event()
        self._detail_of = -1
        self._capturing = False

    def run(self) -> None:
        """Until q; Ctrl-C, SIGTERM and a closed terminal leave by their exceptions, the terminal in
        order.
        """
        looking = threading.Thread(target=self._look, daemon=True)
        looking.start()
        try:
            with Terminal() as terminal:
                while not self._over.is_set():
                    width, height = terminal.size()
                    terminal.draw(self._paint(width, height))
                    for key in terminal.keys(_KEYS_S):
                        self._press(key, height)
        finally:
            self._over.set()
            self._again.set()

    def _look(self) -> None:
        while not self._over.is_set():
            begin = time.monotonic()
            try:
                self.seen, self.trouble = self.source.look(), ""
            except HangdoctorError as error:
                self.trouble = f"{error} {error.help}".strip()
            self._again.wait(max(0.1, self.interval_s - (time.monotonic() - begin)))
            self._again.clear()

    def _paint(self, width: int, height: int) -> list[str]:
        lines = screen(self.seen, self.trouble, self.mode, width=width, height=height)
        out = io.StringIO()
        console = Console(
            file=out,
            width=width,
            force_terminal=True,
            color_system="256" if self._colour else None,
            highlight=False,
            emoji=False,
            legacy_windows=False,
        )
        painted = []
        for line in lines:
            out.seek(0)
            out.truncate()
            console.print(line, end="", no_wrap=True, overflow="crop", crop=True)
            painted.append(out.getvalue())
        return painted

    # ----------------------------------------------------------------- keys

    def _press(self, key: str, height: int) -> None:
        mode = self.mode
        if mode.view == "filter":
            self._type(key)
        elif key == "q":
            self._over.set()
        elif key == "c":
            self._capture()
        elif key == "escape":
            if mode.view == "list":
                mode.filter = ""
            mode.view, mode.note = "list", ""
        elif key == "?":
            mode.view = "help"
        elif key == "r":
            self._again.set()
        elif mode.view == "list":
            self._move(key, height)

    def _move(self, key: str, height: int) -> None:
        mode, page = self.mode, max(1, height - 14)
        steps = _STEPS | {"page up": -page, "page down": page}
        if key == "/":
            mode.view = "filter"
        elif key == "enter":
            self._open()
        elif key in steps:
            mode.cursor = max(0, min(_FAR, mode.cursor + steps[key]))

    def _type(self, key: str) -> None:
        mode = self.mode
        if key == "enter":
            mode.view = "list"
        elif key == "escape":
            mode.view, mode.filter = "list", ""
        elif key == "backspace":
            mode.filter = mode.filter[:-1]
        elif len(key) == 1 and key.isprintable():
            mode.filter = (mode.filter + key)[:60]
        mode.cursor = 0

    def _open(self) -> None:
        seen = self.seen
        rows = chosen(seen, self.mode.filter) if seen is not None else []
        if not rows:
            return
        row = rows[min(self.mode.cursor, len(rows) - 1)]
        self.mode.view = "detail"
        self.mode.detail = [f"RANK {row.rank} on {row.node}: {row.state}", "reading ..."]
        self._detail_of = row.rank

        def read() -> None:
            try:
                more = self.source.detail(row)
            except HangdoctorError as error:
                more = [f"{error} {error.help}"]
            if self._detail_of == row.rank:
                self.mode.detail = [f"RANK {row.rank} on {row.node}: {row.state}", *more]

        threading.Thread(target=read, daemon=True).start()

    def _capture(self) -> None:
        if self._capturing:
            return
        self._capturing = True
        self.mode.note, self.mode.bad = "capturing all ranks ...", False

        def run() -> None:
            try:
                self.mode.note, self.mode.bad = self.source.capture(), False
            except HangdoctorError as error:
                self.mode.note, self.mode.bad = f"{error} {error.help}".strip(), True
            finally:
                self._capturing = False

        threading.Thread(target=run, daemon=True).start()
