"""One staying command a unit, spoken to through its pipes: starts them, runs batches, ends them."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence

from msgspec import Struct

from ...errors import LauncherError
from ...launchers.gather import last_words, set_up_trouble
from ...launchers.remote import Command, _prepare, _signals_held
from .running_trial import RunningTrial
from .trial import Result, Trial
from .words import ALIVE_S, Order, Word, line, word_in

_TICK_S = 0.1
_AT_ONCE, _PAUSE_S = 64, 1.0
_MAX_ERRORS = 16 << 10
_LEAVE_S = 3.0  # for a node to end its ranks and itself, once its input has ended


class Unit(Struct):
    """One node (or device of this host), as far as it has spoken."""

    name: str
    process: subprocess.Popen[bytes]
    rest: dict[int, bytes] = {}
    errors: bytes = b""
    stage: str = ""  # the node's own: "", "here", "busy", "refused", "ready"
    text: str = ""  # of that stage
    fabric: str = ""
    addresses: str = ""  # its own, with commas
    ranks: int = 1
    gpus: int = 0
    gone: bool = False

    def why_gone(self) -> str:
        """Why its command ended, in its own words."""
        said = self.errors.decode(errors="replace")
        code = self.process.poll()
        known = set_up_trouble(said) or last_words(said)
        if not known and code == 0:
            return "it left at once: does its launcher pass standard input on (docker exec -i)?"
        return known or f"its command ended with exit code {code}"


class Plan(Struct):
    """What all trials have in common."""

    sizes: list[int]
    seconds: float  # for each trial
    start_seconds: float  # for a node to answer and import torch
    addresses: dict[str, str]  # unit -> where others can reach it


class Fleet:
    """A context manager; leaving it ends all units."""

    def __init__(self, commands: Sequence[Command], env: Mapping[str, str], plan: Plan) -> None:
        self.commands = commands
        self.env = dict(env)
        self.plan = plan
        self.units: dict[str, Unit] = {}
        self.fabric_lines: dict[str, str] = {}
        self._selector = selectors.DefaultSelector()
        self._trials: dict[int, RunningTrial] = {}
        self._devices: dict[str, list[Word]] = {}
        self._number = 0
        self._alive = 0.0

    def __enter__(self) -> Fleet:
        try:
            for number, command in enumerate(self.commands):
                if number and number % _AT_ONCE == 0:
                    time.sleep(_PAUSE_S)  # a scheduler's controller is asked by each of them
                self._start(command)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self, command: Command) -> None:
        with _signals_held() as mask:  # no signal between the start and the entry in our books
            try:
                process = subprocess.Popen(
                    command.argv,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env=self.env,
                    start_new_session=True,
                    preexec_fn=lambda: _prepare(mask),
                )
            except OSError as error:
                said = f"{command.argv[0]} cannot be started: {error.strerror}"
                raise LauncherError(said) from error
            unit = Unit(command.node, process)
            self.units[command.node] = unit
        for pipe in (process.stdout, process.stderr):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
            self._selector.register(pipe, selectors.EVENT_READ, unit)

    def wait_ready(self) -> None:
        """Until every unit is ready, or said why it takes no part, or its time is up."""
        end = time.monotonic() + self.plan.start_seconds
        waiting = ("", "here")
        while time.monotonic() < end and any(
            u.stage in waiting and not u.gone for u in self.units.values()
        ):
            self._listen()

    def run(self, batch: Sequence[Trial]) -> list[Result]:
        """All these trials at the same time; their results in that order."""
        now = time.monotonic()
        running = []
        for trial in batch:
            self._number += 1
            one = RunningTrial(
                self._number,
                trial,
                {u: self.units[u].ranks for u in trial.units},
                self.plan.sizes,
                seconds=self.plan.seconds,
                address=self._address(trial.units[0]),
            )
            self._trials[self._number] = one
            running.append(one)
            self._send(one.start(now))
        results: dict[int, Result] = {}
        while len(results) < len(running):
            self._listen()
            now = time.monotonic()
            for one in running:
                if one.number not in results and one.over(now):
                    results[one.number] = one.result(now)
                    self.fabric_lines.update(one.fabric_lines)
                    self._send(one.stop())
        for one in running:
            del self._trials[one.number]
        return [results[one.number] for one in running]

    def _address(self, unit: str) -> str:
        """Where others reach it: what the launcher says, else what the node itself does."""
        return ",".join(filter(None, [self.plan.addresses[unit], self.units[unit].addresses]))

    def test_devices(self, units: Sequence[str]) -> dict[str, list[Word]]:
        """Each device of these units alone: {unit: the words of its ranks}."""
        self._number += 1
        self._devices = {unit: [] for unit in units}
        seconds = self.plan.start_seconds
        order = Order("device", self._number, seconds=seconds)
        self._send({unit: order for unit in units})
        end = time.monotonic() + seconds + 2 * _TICK_S
        while time.monotonic() < end and not all(map(self._has_tested, units)):
            self._listen()
        self._send({unit: Order("stop", self._number) for unit in units})
        return self._devices

    def _has_tested(self, unit: str) -> bool:
        ended = [w for w in self._devices[unit] if w.stage in ("done", "failed", "late")]
        return self.units[unit].gone or len(ended) >= self.units[unit].ranks

    def _send(self, orders: Mapping[str, Order]) -> None:
        for name, order in orders.items():
            pipe = self.units[name].process.stdin
            with contextlib.suppress(OSError, ValueError):
                assert pipe is not None
                os.write(pipe.fileno(), line(order))

    def _listen(self) -> None:
        now = time.monotonic()
        if now - self._alive > ALIVE_S:
            self._alive = now
            self._send({name: Order("alive") for name in self.units})
        for key, _ in self._selector.select(_TICK_S):
            unit: Unit = key.data
            try:
                data = os.read(key.fd, 1 << 16)
            except BlockingIOError:
                continue
            if not data:
                self._selector.unregister(key.fileobj)
            self._take(unit, key.fd, data)

    def _take(self, unit: Unit, fd: int, data: bytes) -> None:
        out = unit.process.stdout
        if out is None or fd != out.fileno():
            unit.errors = (unit.errors + data)[-_MAX_ERRORS:]
            return
        if not data:
            self._lose(unit)
        *lines, rest = (unit.rest.get(fd, b"") + data).split(b"\n")
        unit.rest[fd] = rest[-_MAX_ERRORS:]
        for word in map(word_in, lines):
            if word is not None:
                self._hear(unit, word)

    def _lose(self, unit: Unit) -> None:
        unit.gone = True
        now = time.monotonic()
        for trial in self._trials.values():
            if unit.name in trial.first:
                trial.lose(unit.name, unit.why_gone(), now)

    def _hear(self, unit: Unit, word: Word) -> None:
        if word.trial in self._trials:
            self._send(self._trials[word.trial].hear(unit.name, word, time.monotonic()))
        elif word.trial:
            if word.trial == self._number and unit.name in self._devices:
                self._devices[unit.name].append(word)
        else:
            unit.stage, unit.text = word.stage, word.text
            if word.stage == "here":
                unit.fabric = word.text
            if word.stage == "ready":
                unit.addresses = word.text
                unit.ranks = max(1, int(word.values.get("ranks", 1)))
                unit.gpus = int(word.values.get("gpus", 0))

    def __exit__(self, *_: object) -> None:
        """End them: their input ends, then SIGTERM, then SIGKILL; a second Ctrl-C changes nothing."""
        with _signals_held():
            for unit in self.units.values():
                if unit.process.stdin is not None:
                    with contextlib.suppress(OSError):
                        unit.process.stdin.close()
            self._wait(_LEAVE_S)
            for number in (signal.SIGTERM, signal.SIGKILL):
                for unit in self.units.values():
                    if unit.process.poll() is None:
                        with contextlib.suppress(ProcessLookupError, PermissionError):
                            os.killpg(unit.process.pid, number)
                self._wait(_LEAVE_S)
            self._selector.close()
            for unit in self.units.values():
                for pipe in (unit.process.stdout, unit.process.stderr):
                    if pipe is not None:
                        pipe.close()

    def _wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if all(unit.process.poll() is not None for unit in self.units.values()):
                return
            for unit in self.units.values():
                _drain(unit)
            time.sleep(_TICK_S / 2)


def _drain(unit: Unit) -> None:
    """Take what a unit still writes, so that a full pipe does not keep it."""
    for pipe in (unit.process.stdout, unit.process.stderr):
        with contextlib.suppress(OSError, ValueError):
            if pipe is not None and os.read(pipe.fileno(), 1 << 16):
                continue
