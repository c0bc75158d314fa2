"""Runs the tests of the network on the nodes of a target, or the devices of this host."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Sequence

from ...errors import UsageError
from ...launchers import gather
from ...launchers.base import Progress
from ...launchers.reach import Reach
from ...launchers.remote import Command
from ...launchers.slurm import SlurmLauncher
from ...launchers.slurm_job import clean_environment
from ...launchers.verb_on_nodes import Everywhere
from ...text.plural import count
from ...text.ranges import format_hosts
from .. import gpu
from ..compare import HISTORY, Finding, Preflight, with_more
from ..history import Fault, History, Run, times_this_week
from .fleet import Fleet, Plan, Unit
from .options import CollectiveOptions
from .outcome import (
    LeaveOut,
    Seen,
    excluded,
    of_devices,
    of_fabric,
    of_left_out,
    of_search,
    of_unfinished,
)
from .report import Collectives, DeviceTest
from .search import Found, Search
from .trial import Judge
from .words import NodeSetup, Word, packed

_MOST_S = 1200.0  # of all tests together
_MOST_UNITS = 256  # three pipes each, below the usual limit of 1,024 open files
_PROCESSES = 2  # on this host without GPUs
_FULL = ("OutOfMemoryError", "MemoryError")  # another program's memory: says nothing of the device


def check(
    found: Preflight,
    target: SlurmLauncher | Reach | None,
    options: CollectiveOptions,
    progress: Progress,
) -> Preflight:
    """The preflight with what the tests of the network add; on this host where `target` is None.

    Raises:
        LauncherError: the nodes cannot be asked at all.
        BadInput, UsageError: the host file is none, or this is not a PBS job.
    """
    if target is None:
        commands = _of_this_host()
        addresses = {command.node: "127.0.0.1" for command in commands}
        leave_out = None
    else:
        there = Everywhere(target)
        commands = there.connected(["preflight", "--serve", packed(NodeSetup())])
        addresses, leave_out = there.addresses(), there.leave_out
    if len(commands) > _MOST_UNITS:
        raise UsageError(
            f"--collectives takes up to {_MOST_UNITS} nodes at a time, not {len(commands)}",
            "Test parts of them: --hostfile F with some of the nodes each.",
        )
    tester = NetworkTest(options, progress, leave_out)
    units = [command.node for command in commands]
    plan = Plan(options.sizes, options.seconds, options.start_seconds, addresses)
    busy = {} if target is not None else _busy_here(found)
    if busy:
        return with_more(found, of_left_out(busy, {}), Collectives(left_out=busy))
    progress(f"starting torch on {format_hosts(units)}")
    with Fleet(commands, clean_environment(os.environ), plan) as fleet:
        fleet.wait_ready()
        return tester.run(found, fleet)


def _busy_here(found: Preflight) -> dict[str, str]:
    """Ranks that the checks saw on this host; GPU memory in use."""
    said = [f for f in found.findings if f.check == "left over" and f.verdict != "ok"]
    gpus = gpu.Gpus()
    gpu.read(gpus)
    used = [f"GPU {g.index}: {g.used_mb} MB" for g in gpus.rows if g.used_mb > gpu.BUSY_MB]
    reading = "; ".join([*(f.reading for f in said), *used])
    return {found.nodes[0]: reading} if reading else {}


def _of_this_host() -> list[Command]:
    gpus = gpu.Gpus()
    gpu.read(gpus)
    host = platform.node()
    devices = [g.index for g in gpus.rows]
    places = [(f"{host}:gpu{d}", [d]) for d in devices]
    places = places or [(f"{host}:cpu{i}", []) for i in range(_PROCESSES)]
    return [
        Command(
            name,
            gather.own_command(["preflight", "--serve", packed(NodeSetup(chosen, beside=True))]),
        )
        for name, chosen in places
    ]


class NetworkTest:
    """All tests on units that were started, one after another."""

    def __init__(
        self, options: CollectiveOptions, progress: Progress, leave_out: LeaveOut | None
    ) -> None:
        """`leave_out`: None where the units are devices of this host."""
        self.options = options
        self.progress = progress
        self.leave_out = leave_out
        self.judge = Judge(options.slow_below)
        self.end = time.monotonic() + _MOST_S

    def run(self, found: Preflight, fleet: Fleet) -> Preflight:
        """The preflight with what the tests of these units add."""
        every = fleet.units
        units = [name for name, unit in every.items() if unit.stage == "ready"]
        busy = {name: unit.text for name, unit in every.items() if unit.stage == "busy"}
        absent = {n: self._why(u) for n, u in every.items() if n not in units and n not in busy}
        backend = "nccl" if any(every[u].gpus for u in units) else "gloo"
        data = Collectives(backend, self.options.sizes, left_out=busy | absent)
        findings = of_left_out(busy, absent)
        if units:
            data.devices = self.test_devices(fleet, units)
            findings += of_devices(data.devices, self.options.slow_below)
            broken = {t.unit for t in data.devices if t.error}
            lost = {u: self._why(every[u]) for u in units if every[u].gone}
            findings += of_left_out({}, lost)
            absent |= lost
            whole = [u for u in units if u not in broken and u not in lost]
            searched = self._search(fleet, whole, data)
            findings += of_unfinished(searched, data.unfinished)
            findings += of_search(searched, self.judge, self._past(searched), self.leave_out)
            self._fill(data, searched, list(every), [*absent, *sorted(broken)])
            seen = Seen({u: every[u].fabric for u in units}, fleet.fabric_lines)
            findings += of_fabric(seen, backend)
            findings += self._keep(data, units)
        return with_more(found, findings, data)

    def _why(self, unit: Unit) -> str:
        if unit.gone and unit.stage != "refused":
            return f"hangdoctor did not stay there: {unit.why_gone()}"
        waited = f"after {self.options.start_seconds:.0f} s"
        return {
            "": f"did not answer {waited}",
            "here": f"is still importing torch {waited}: is its file system slow?",
        }.get(unit.stage, unit.text)

    def test_devices(self, fleet: Fleet, units: Sequence[str]) -> list[DeviceTest]:
        """Each device alone."""
        self.progress(f"testing the devices of {format_hosts(units)} alone")
        return [
            _device_test(unit, fleet.units[unit], rank, words)
            for unit, words in fleet.test_devices(units).items()
            for rank in range(fleet.units[unit].ranks)
        ]

    def _search(self, fleet: Fleet, units: Sequence[str], data: Collectives) -> Found:
        search = Search(units, self.judge, self.options.rounds)
        if len(units) < 2:
            return search.found
        steps = search.run()
        batch = next(steps, None)
        while batch:
            if time.monotonic() > self.end:
                data.unfinished = f"stopped after {_MOST_S / 60:.0f} min"
                break
            self.progress(f"{batch[0].stage}: {_named(batch[0].units, len(batch))}")
            try:
                batch = steps.send(fleet.run(batch))
            except StopIteration:
                break
        return search.found

    def _fill(
        self, data: Collectives, found: Found, units: Sequence[str], absent: Sequence[str]
    ) -> None:
        data.tests, data.culprits = found.results, found.culprits
        data.links, data.of_links = found.links, found.of_links
        if self.leave_out is not None:
            names = excluded(found.culprits, units, absent)
            data.exclude = format_hosts(names)
            data.leave_out = self.leave_out(names) if names else ""

    def _past(self, found: Found) -> dict[str, str]:
        """{units: "failed twice in the last 7 days"}, this run included."""
        runs = History(self.options.history).runs()
        past = {}
        for culprit in found.culprits:
            counts = times_this_week(runs, culprit.units, time.time())
            counts[culprit.status] = counts.get(culprit.status, 0) + 1
            if sum(counts.values()) > 1:
                said = " and ".join(_times(status, n) for status, n in counts.items())
                past[format_hosts(culprit.units)] = f"{said} in the last 7 days"
        return past

    def _keep(self, data: Collectives, units: list[str]) -> list[Finding]:
        faults = [Fault(c.units, c.status) for c in data.culprits if c.kind in ("node", "link")]
        try:
            History(self.options.history).keep(Run(time.time(), units, faults))
        except OSError as error:
            said = f"this run was not added to it ({self.options.history}): {error.strerror}"
            return [Finding(HISTORY, "unknown", [], said)]
        return []


def _times(status: str, number: int) -> str:
    words = {"failed": "failed", "slow": "was slow"}[status]
    return f"{words} {({1: 'once', 2: 'twice'}).get(number, f'{number} times')}"


def _named(units: Sequence[str], groups: int) -> str:
    others = f" and {count(groups - 1, 'other group')}" if groups > 1 else ""
    return f"{format_hosts(units)}{others}"


def _device_test(unit: str, own: Unit, rank: int, words: Sequence[Word]) -> DeviceTest:
    said = [w for w in words if w.rank == rank]
    values = next((w.values for w in said if w.stage == "device"), None)
    device = rank if own.gpus else -1
    if values is None:
        failed = next((w.text for w in said if w.stage == "failed"), "")
        if failed and not failed.startswith(_FULL):
            return DeviceTest(unit, device, error=failed)
        why = failed or "its test did not finish in time"
        return DeviceTest(unit, device, untested=why)
    return DeviceTest(
        unit,
        device,
        round(values.get("TFLOP/s", 0.0), 4),
        round(values.get("GB/s", 0.0), 3),
        gb=round(values.get("GB", 0.0), 3),
    )
