"""The collector that `collect` and `sidecar` start."""

from __future__ import annotations

import asyncio
import gc
import logging
import resource
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..collector.core import Core
from ..collector.instructions import Conclude, farewell
from ..collector.instructions import Settings as CoreSettings
from ..collector.progress_log import ProgressLog
from ..collector.relay import Relay
from ..collector.server import CollectorOptions, Server, session_name
from ..collector.training_events import Said
from ..collector.uplink import Parent, Uplink
from ..errors import UsageError
from ..launchers.kept_agents import Follows
from ..logs import to_stderr
from ..model.capture import JobCapture, Site
from ..readers import launch_file
from ..storage.incidents import Incidents
from ..transport import address
from ..watch.stall_watch import Settings, StallWatch
from ..watch.straggler_watch import SlowSettings
from . import actions
from .concluding import Concluder, IncidentMemory
from .page import Page

_LOG = logging.getLogger("hangdoctor.collector")
_OPEN_FILES = 65_536


def choose_folder(folder: str | None, job: str) -> Path:
    """The job's folder as named.

    Raises:
        UsageError: neither a folder nor a job is named.
    """
    if folder:
        return Path(folder).absolute()
    if job:
        return address.job_folder(job)
    raise UsageError(
        "no folder was given",
        "Pass the job's folder: --folder DIR (or --job NAME for ~/.hangdoctor/jobs/NAME).",
    )


def collect(folder: Path, flags: dict[str, Any]) -> bool:
    """Run a collector in this process until it is ended; whether it ever saw a rank."""
    to_stderr()
    allow_connections()
    if flags["bind"]:
        address.check(flags["bind"], flags["insecure"])
    config = actions.load(Path(flags["config"])) if flags["config"] else actions.Config()
    incidents = Incidents(folder)
    memory = IncidentMemory(incidents)
    positions, learned = memory.load()
    settings = CoreSettings(
        settle_s=flags["settle"],
        capture_s=flags["capture_timeout"],
        expected=frozenset(flags.get("nodes") or _noted_nodes(folder)),
        linger_s=flags.get("linger", 0.0),
    )
    core = Core(
        settings,
        StallWatch(Settings(stall_after_s=flags["stall_after"]), learned),
        positions=positions,
        session=session_name(),
        slow=SlowSettings(window_s=flags["slow_after"]),
    )
    follow: Follows | None = flags.get("follow")
    if follow is not None:
        core.members = follow.members
    handler = Concluder(incidents, actions.Actor(config, flags["dry_run"]))
    recorder = ProgressLog(core, folder)
    page = Page(folder, flags, recorder)
    handler.captured = page.captured
    handler.enter = follow.enter if follow is not None else _with(flags.get("site"))
    options = CollectorOptions(
        folder,
        flags["bind"],
        flags["insecure"],
        lonely_s=flags["lonely"],
        dismiss=flags.get("dismiss", False),
    )

    async def serve() -> None:
        server = Server(options, core, memory, handler)
        if flags["once"]:
            handler.after = server.stopping.set
            handler.loop = asyncio.get_running_loop()
        async with recorder.running(), page.beside():
            await server.run()
        _farewell(server)

    # Captures of a large job are millions of objects without cycles: going over them again and
    # again takes longer than they do.
    gc.freeze()
    gc.set_threshold(200_000, 50, 1000)
    asyncio.run(serve())
    return any(node.job for node in core.nodes.values())


def _noted_nodes(folder: Path) -> tuple[str, ...]:
    """The nodes that the sidecar of this folder started agents on: a collector that follows it
    waits for the same.
    """
    launch = launch_file.read(folder)
    return launch.names if launch is not None else ()


def _with(site: Site | None) -> Callable[[JobCapture], None]:
    """Puts the commands of the job's platform into a capture."""

    def enter(capture: JobCapture) -> None:
        capture.site = site

    return enter


def relay(folder: Path, name: str, parent: str, flags: dict[str, Any]) -> None:
    """Run a collector that reports to a parent, until it is stopped.

    Raises:
        CollectorError: the job's keys do not exist yet: its first collector makes them.
    """
    to_stderr()
    allow_connections()
    if parent != "auto":
        address.check(parent, flags["insecure"])
    own = address.relay_folder(folder, name)
    memory = IncidentMemory(Incidents(own))
    positions, _ = memory.load()
    options = CollectorOptions(
        own, flags["bind"], flags["insecure"], lonely_s=flags["lonely"], keys_from=folder
    )

    async def serve() -> None:
        uplink = Uplink(Parent(folder, parent, name, flags["insecure"]), own / "spool")
        core = Relay(CoreSettings(), positions, uplink.keep, uplink.send)
        server = Server(options, core, memory, conclude=_NothingToConclude(), uplink=uplink)
        await server.run()
        _farewell(server)

    asyncio.run(serve())


class _NothingToConclude:
    """A collector in the middle of a tree makes no verdicts."""

    def __call__(self, one: Conclude) -> str:
        return "unknown"

    def said(self, events: Sequence[Said]) -> None: ...

    def again(self, last: bool = False) -> None: ...


def allow_connections() -> None:
    """Each agent is an open file. The usual limit of 1,024 is a soft one and can be raised."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _farewell(server: Server) -> None:
    _LOG.info("%s", farewell(server.core.counters, server.gate.refused if server.gate else 0))
