"""A section in child processes: what one of them loses is one unit."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.progress import say

from .options import Options
from .plan import Section
from .processes import end_group, environment, how_it_ended, last_lines, start, until
from .results import Results
from .worker import START_AGAIN

_START_S = 120.0  # to import what it needs
_AFTER_ITS_LAST_S = 30.0  # for a process that has measured all of its units


class Lines:
    """Lines of JSON out of a pipe, each with a limit to wait for it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._selector = selectors.DefaultSelector()
        self._selector.register(descriptor, selectors.EVENT_READ)
        self._rest = b""

    def next(self, seconds: float) -> dict[str, Any] | None:
        """The next line; None after its end.

        Raises:
            TimeoutError: none came.
        """
        limit = time.monotonic() + seconds
        while b"\n" not in self._rest:
            if not self._selector.select(until(limit)):
                raise TimeoutError
            data = os.read(self._descriptor, 1 << 16)
            if not data:
                return None
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        """Close the pipe."""
        self._selector.close()
        os.close(self._descriptor)


class Child:
    """One process that measures units, and the unit that it is in."""

    def __init__(self, section: Section, units: list[str], options: Options) -> None:
        self.unit = ""
        reading, writing = os.pipe()
        self._error = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `end`
        words = ["-m", "benchmarks.gpu.worker", section.module, options.encode(), str(writing)]
        try:
            self.process = start(
                [*words, *units],
                env=environment(**options.environment()),
                out=self._error,
                error=subprocess.STDOUT,
                pass_fds=(writing,),
                own_group=True,
            )
        finally:
            os.close(writing)
        self._lines = Lines(reading)

    def lines(self, section: Section, deadline: float) -> Iterator[dict[str, Any]]:
        """What it reports, until its end.

        Raises:
            TimeoutError: the unit that it is in has reached its limit, or the section its deadline.
        """
        patience = _START_S
        while True:
            limit = min(patience, until(deadline))
            line = self._lines.next(limit)
            if line is None:
                return
            self.unit = line.get("begin", "" if "row" not in line else self.unit)
            patience = section.unit_s
            yield line

    def end(self) -> tuple[int | None, str]:
        """End it and all that it has started; (its exit code, the end of what it wrote)."""
        if not self.unit:
            # It leaves by itself: an exit code says more than a signal of ours.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(_AFTER_ITS_LAST_S)
        end_group(self.process)
        self._lines.close()
        self._error.seek(0)
        text = self._error.read()[-4000:].decode(errors="replace")
        self._error.close()
        return self.process.poll(), last_lines(text)


def run_section(
    section: Section, units: list[str], options: Options, seconds: float, results: Results
) -> None:
    """Measure the units of a section within so many seconds; whatever goes wrong is in `results`."""
    results.begin(section.name, seconds, units)
    deadline = time.monotonic() + seconds
    left = list(units)
    why = ""
    while left and not why:
        if until(deadline) <= 0:
            why = f"its {seconds:.0f} s are over"
            break
        before = len(left)
        why = _one_child(section, left, options, deadline, results=results)
        if len(left) == before and not why:
            why = "the process ended without a word"
    results.end(section.name, why)


def _one_child(
    section: Section, left: list[str], options: Options, deadline: float, *, results: Results
) -> str:
    """Measure from `left` what one process can, and take it out; why the section cannot go on."""
    child = Child(section, left, options)
    timed_out = False
    try:
        for line in child.lines(section, deadline):
            _note(section, line, left, results)
    except TimeoutError:
        timed_out = True
    except BaseException:
        end_group(child.process)
        raise
    unit = child.unit
    if timed_out and not unit:
        end_group(child.process)
    code, said = child.end()
    if timed_out:
        return _too_long(section, unit, left, deadline, results=results)
    if code in (0, START_AGAIN):
        return ""
    if unit in left:
        left.remove(unit)
        results.failed(section.name, unit, f"its process ended ({how_it_ended(code)}): {said}")
        return ""
    return f"its process ended before a unit began ({how_it_ended(code)}): {said}"


def _note(section: Section, line: dict[str, Any], left: list[str], results: Results) -> None:
    unit = line.get("unit", "")
    if "begin" in line:
        say(f"  {section.name}: {line['begin']}")
    elif "row" in line:
        results.row(section.name, unit, line["row"])
    elif "failed" in line:
        left.remove(unit)
        say(f"  {section.name}: {unit}: {line['failed']}")
        results.failed(section.name, unit, line["failed"])
    elif "end" in line:
        left.remove(unit)
        results.ended(section.name, unit, line["end"])


def _too_long(
    section: Section, unit: str, left: list[str], deadline: float, *, results: Results
) -> str:
    """A unit was ended by us; why the section cannot go on, where that was its deadline."""
    over = until(deadline) <= 0
    if not over and not unit:
        return f"its process was not ready within {_START_S:.0f} s"
    if unit in left:
        left.remove(unit)
        limit = "the section's time is over" if over else f"no result within {section.unit_s:.0f} s"
        results.failed(section.name, unit, f"ended: {limit}")
    return "its time is over" if over else ""
