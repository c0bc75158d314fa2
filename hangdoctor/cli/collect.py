"""`hangdoctor collect`: the collector, and what it does with a capture: diagnose, keep, act."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable
from pathlib import Path

import click
import msgspec

from .. import actions
from ..collector import address
from ..collector.parts import Conclude, Position
from ..collector.server import Options, Server, session_name
from ..collector.state import Core
from ..collector.state import Settings as CoreSettings
from ..diagnosis import diagnose
from ..errors import BundleError, UsageError
from ..incidents import Incidents
from ..model import Diagnosis
from ..watchdog import Learned, Settings, Watchdog
from .web import Page, web_flags

_LOG = logging.getLogger("hangdoctor.collector")


@click.command("collect")
@click.option("--folder", metavar="DIR", type=click.Path(), help="The job's folder, on a file system that all nodes see.")
@click.option("--job", default="", metavar="NAME", help="Use the default folder of this job: ~/.hangdoctor/jobs/NAME.")
@click.option("--bind", default="", metavar="ADDRESS", help="Where to listen (default: a free port on all interfaces).")
@click.option("--insecure", is_flag=True, help="Plaintext, without keys: tcp on the loopback or ipc only.")
@click.option("--stall-after", default=0.0, type=click.FloatRange(0), metavar="S",
              help="A stall is so many seconds without progress (default: learned from the job).")  # fmt: skip
@click.option(
    "--settle", default=1.0, show_default=True, type=click.FloatRange(0, 60), metavar="S", help="Between the two captures."
)
@click.option("--capture-timeout", default=6.0, show_default=True, type=click.FloatRange(1, 120), metavar="S",
              help="What the agents get for a capture.")  # fmt: skip
@click.option(
    "--config", metavar="FILE", type=click.Path(), help="Actions after a verdict (default: none; see docs/sidecar.md)."
)
@click.option("--dry-run", is_flag=True, help="Say what the actions would do.")
@click.option("--once", is_flag=True, help="End after the first incident.")
@click.option("--lonely", default=0.0, metavar="S", type=click.FloatRange(0), help="End so long after the last agent has left.")
@web_flags
def command(folder: str | None, job: str, **flags: object) -> None:
    """The collector: hears the agents, watches for a stall, captures, diagnoses and keeps the incident.

    It needs no timeout: it learns how long the job goes without progress. SIGUSR1 captures now. Incidents are kept in the
    folder: hangdoctor incidents list --folder DIR.
    """
    place = choose_folder(folder, job)
    collect(place, flags)


def choose_folder(folder: str | None, job: str) -> Path:
    """The job's folder as named.

    Raises:
        UsageError: neither a folder nor a job is named.
    """
    if folder:
        return Path(folder).absolute()
    if job:
        return address.job_folder(job)
    raise UsageError("no folder named", "Name the job's folder: --folder DIR (or --job NAME for ~/.hangdoctor/jobs/NAME).")


def collect(folder: Path, flags: dict[str, object]) -> None:
    """Run a collector in this process until it is ended."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s hangdoctor: %(message)s", datefmt="%H:%M:%S", stream=sys.stderr)
    bind, insecure = str(flags["bind"]), bool(flags["insecure"])
    if bind:
        address.check(bind, insecure)
    config = actions.load(Path(str(flags["config"]))) if flags["config"] else actions.Config()
    incidents = Incidents(folder)
    memory = Memory(incidents)
    positions, learned = memory.load()
    stall_after, settle, capture_s = (float(str(flags[n])) for n in ("stall_after", "settle", "capture_timeout"))
    watchdog = Watchdog(Settings(stall_after_s=stall_after), learned)
    core = Core(CoreSettings(settle_s=settle, capture_s=capture_s), watchdog, positions, session_name())
    handler = Handler(incidents, actions.Actor(config, bool(flags["dry_run"])))
    page = Page(folder, flags, core, incidents)
    handler.captured = page.captured
    options = Options(folder, bind, insecure, lonely_s=float(str(flags["lonely"])))

    async def serve() -> None:
        server = Server(options, core, memory, handler)
        if flags["once"]:
            handler.after = server.stopping.set
            handler.loop = asyncio.get_running_loop()
        with page.beside():
            await server.run()
        refused = server.gate.refused if server.gate else 0
        _LOG.info("ended: %s, %d unknown keys refused", msgspec.json.encode(core.counters).decode(), refused)

    asyncio.run(serve())


class Memory:
    """Positions and rhythm in the incidents' index."""

    def __init__(self, incidents: Incidents) -> None:
        self.incidents = incidents

    def load(self) -> tuple[dict[str, Position], Learned]:
        positions, learned = self.incidents.get("positions"), self.incidents.get("learned")
        return (
            msgspec.json.decode(positions, type=dict[str, Position]) if positions else {},
            msgspec.json.decode(learned, type=Learned) if learned else Learned(),
        )

    def remember(self, positions: dict[str, Position], learned: Learned) -> None:
        self.incidents.put({"positions": msgspec.json.encode(positions), "learned": msgspec.json.encode(learned)})


class Handler:
    """Diagnoses a capture, keeps the incident, acts. Runs in a thread of the collector."""

    def __init__(self, incidents: Incidents, actor: actions.Actor) -> None:
        self.incidents = incidents
        self.actor = actor
        self.after: object = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.captured: Callable[[float, float], None] = lambda capture_s, diagnose_s: None

    def __call__(self, one: Conclude) -> str:
        begin = time.monotonic()
        try:
            return self._handle(one, begin)
        finally:
            self.captured(one.capture.took_s, time.monotonic() - begin)

    def _handle(self, one: Conclude, begin: float) -> str:
        from ..report.terminal import plain

        diagnosis = diagnose(one.capture)
        if diagnosis.status == "healthy" and one.reason.startswith("stall"):
            return "healthy"
        _LOG.info("%s: %s", diagnosis.status.upper(), diagnosis.summary)
        id, bundle = self._keep(one, diagnosis, plain(diagnosis))
        _LOG.info("capture %.1f s, diagnosis and saving %.1f s", one.capture.took_s, time.monotonic() - begin)
        done = self.actor.act(actions.Verdict.of(id, diagnosis, bundle), time.monotonic())
        for line in done:
            _LOG.info("%s", line)
        if done and id:
            self.incidents.note_actions(id, "\n".join(done))
        if self.loop is not None and callable(self.after):
            self.loop.call_soon_threadsafe(self.after)
        return diagnosis.status

    def _keep(self, one: Conclude, diagnosis: Diagnosis, report: str) -> tuple[str, Path]:
        """(id, bundle); empty where the disk does not take it: the verdict is in the log and goes to the actions all the same."""
        try:
            row = self.incidents.save(one.capture, diagnosis, report, one.reason)
        except BundleError as error:
            _LOG.error("%s %s", error, error.help)
            return "", Path()
        _LOG.info("kept in %s", self.incidents.folder / row.id)
        return row.id, self.incidents.folder / row.id
