"""The tracers that are compared: each runs a function with itself switched on, and says how many
bytes an event took.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import trace
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from hangdoctor.probe.box import BoxWriter
from hangdoctor.probe.calls import format as fmt
from hangdoctor.probe.calls import hooks
from hangdoctor.probe.calls.request import Request
from hangdoctor.probe.calls.tracer import PURE_VARIABLE
from hangdoctor.probe.calls.tracer import Tracer as OurTracer

Figure = Callable[[], float]


class Tracer(Protocol):
    slower: int  # by about how much: fewer calls in a block, so that all blocks take about as long

    def run(self, figure: Figure) -> float:
        """The figure with this tracer switched on."""

    def bytes_per_event(self) -> float:
        """What one call or return takes in its record."""


class Nothing:
    slower = 1

    def run(self, figure: Figure) -> float:
        """See `Tracer`."""
        return figure()

    def bytes_per_event(self) -> float:
        """See `Tracer`."""
        return 0.0


class Ours:
    """hangdoctor's recorder; `floor` leaves its hook in place and lets it return at once."""

    def __init__(self, folder: Path, pure: bool, floor: bool = False) -> None:
        self.slower = 10 if pure else 1
        self._pure, self._floor, self._serial = pure, floor, 0
        place = folder / f"{pure}-{floor}"
        place.mkdir()
        self._tracer = OurTracer(BoxWriter(place, "benchmark"))

    def run(self, figure: Figure) -> float:
        """See `Tracer`."""
        os.environ[PURE_VARIABLE] = "1" if self._pure else "0"
        self._serial += 1
        self._tracer.obey(Request(self._serial, True, ("followed_part",)))
        hook = self._tracer.hook
        assert hook is not None, "tracing did not begin"
        try:
            if self._floor:
                figure()  # names are learned before
                hook.pause(True)
            return figure()
        finally:
            self._serial += 1
            self._tracer.obey(Request(self._serial, False))

    def bytes_per_event(self) -> float:
        """See `Tracer`."""
        return 0.0 if self._floor else float(fmt.EVENT_BYTES)


class VizTracer:
    """Keeps calls in memory and writes JSON at the end; it ignores by folders, and is given none
    here.
    """

    slower = 1

    def __init__(self, folder: Path) -> None:
        import viztracer

        self._make = viztracer.VizTracer
        self._folder = folder
        self._bytes = 0.0

    def run(self, figure: Figure) -> float:
        """See `Tracer`."""
        tracer = self._make(
            verbose=0, tracer_entries=1_000_000
        )  # anew: its making alone sets a profile function
        tracer.start()
        try:
            return figure()
        finally:
            tracer.stop()
            if not self._bytes:
                self._bytes = self._size(tracer)
            tracer.clear()

    def _size(self, tracer: Any) -> float:
        """Of its JSON, for each call and return: it writes one record for the two."""
        path = self._folder / "viztracer.json"
        tracer.save(output_file=str(path))
        text = path.read_text()
        return len(text) / max(1, 2 * text.count('"dur"'))

    def bytes_per_event(self) -> float:
        """See `Tracer`."""
        return self._bytes


class TraceAndTee:
    """`trace.Trace` with its lines to a file by way of a Tee in place of standard output, flushed
    line by line.
    """

    slower = 100

    def __init__(self, folder: Path) -> None:
        self._path = folder / "tee.txt"
        self._tracer = trace.Trace(ignoredirs=[sys.prefix, sys.exec_prefix], trace=1, count=1)
        self._lines = self._size = 0

    def run(self, figure: Figure) -> float:
        """See `Tracer`."""
        with self._path.open("w") as file:
            tee = _Tee(file)
            with contextlib.redirect_stdout(tee):
                result: float = self._tracer.runfunc(figure)
        self._lines += tee.lines
        self._size += self._path.stat().st_size
        return result

    def bytes_per_event(self) -> float:
        """See `Tracer`."""
        return self._size / max(1, self._lines)


class _Tee(io.TextIOBase):
    def __init__(self, file: io.TextIOBase) -> None:
        self._file, self._screen = file, open(os.devnull, "w")  # noqa: PTH123, SIM115 - a screen that costs nothing
        self.lines = 0

    def write(self, text: str) -> int:
        self._screen.write(text)
        self._file.write(text)
        self._file.flush()
        self.lines += text.count("\n")
        return len(text)


def available(folder: Path) -> dict[str, Tracer]:
    """What can run here, by name."""
    entries: dict[str, Tracer] = {"nothing": Nothing()}
    if hooks.extension() is not None:
        entries["an empty hook in C (the interpreter's own cost)"] = Ours(
            folder, pure=False, floor=True
        )
        entries["hangdoctor, C extension"] = Ours(folder, pure=False)
    entries["hangdoctor, pure Python"] = Ours(folder, pure=True)
    with contextlib.suppress(ImportError):
        entries["VizTracer"] = VizTracer(folder)
    entries["trace.Trace and a Tee"] = TraceAndTee(folder)
    return entries
