"""The node agent: looks at this node's ranks each second, reports changes to the collector,
captures when asked.

It runs until SIGTERM or until its job has gone, keeps what it cannot send, and never runs anything
that a message names.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import platform
import select
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from msgspec import Struct, structs

from hangdoctor._version import __version__
from hangdoctor.errors import CollectorError
from hangdoctor.logs import to_stderr
from hangdoctor.probe.calls import request as requests
from hangdoctor.probe.calls.request import Request
from hangdoctor.readers import discover, job_process, job_words
from hangdoctor.readers.node import CaptureOptions
from hangdoctor.time_limit import OutOfTime
from hangdoctor.transport import address, keys
from hangdoctor.transport import messages as msg
from hangdoctor.transport.link import Line, take_place
from hangdoctor.transport.spool import Spool

from .capture_queue import CaptureQueue
from .node_ranks import Ranks
from .rendezvous_search import RendezvousSearch

_LOG = logging.getLogger("hangdoctor.agent")
_HEARTBEAT_S = 2.0  # a report without news
_EVER = float("inf")
_LAST_S = 6.0  # after a signal that came with a crash; Slurm kills after KillWait, 30 s by default
_STANDS_S = 12.0  # for this long a report is sent with every sample: that nothing changes matters


class AgentOptions(Struct, frozen=True):
    """Whose ranks an agent follows, how often, and where its collector is."""

    folder: Path | None = None
    collector: str = ""
    via: str = ""  # a collector of the tree, by its name
    insecure: bool = False
    slurm_job: str = ""
    slurm_step: str = ""
    job: str = ""
    node: str = ""
    interval_s: float = 1.0
    linger_s: float = 60.0  # without a rank, after there was one
    patience_s: float = 1800.0  # without a rank from the start; 0 waits for ever
    spool: Path | None = None
    while_heard: bool = False  # it ends when no process reads its standard error


class NodeAgent:
    """One agent on this node."""

    def __init__(self, options: AgentOptions) -> None:
        self.options = options
        self.node = options.node or os.environ.get("SLURMD_NODENAME") or platform.node()
        place = options.spool or _spool_place(options, self.node)
        self.agent, self._lock, place = take_place(place)
        self._meant = job_process.Meant(options.job)
        self.ranks = Ranks(self._wanted)
        self.interval_s = options.interval_s
        self.spool = Spool(place)
        self.line = Line(
            name=self.agent,
            spool=self.spool,
            find=self._find,
            pairs=self._pairs,
            hello=self._hello,
        )
        self.captures = CaptureQueue(
            _ranks_to_capture(options),
            self.node,
            self.line.send,
            remains=lambda: self.ranks.remains(self.node),
        )
        self.stopping = False
        self.why = "its job has ended"
        self._heard = True  # somebody reads what it says
        self._until = _EVER  # monotonic: it leaves then
        self._reported_at = 0.0
        self._changed_at = time.monotonic()
        self._usual_s = 0.0  # without news, of late
        self._introduced = ("", 0, 0.0)  # job, its size and begin, as the collector knows them
        self._told: dict[int, tuple[object, ...]] = {}
        self._boxes = 0  # that were there when their past was reported
        self._began = 0  # the conversation with the collector in which that was reported
        self._trace: Request | None = None
        self._traced: set[Path] = set()  # folders that hold it
        self._begin = time.monotonic()
        self._alone_since: float | None = None
        self._told_empty = False
        self._rendezvous = RendezvousSearch(options.job, options.slurm_job)

    def _wanted(self, jobs: Sequence[discover.Job]) -> list[discover.Job]:
        if self.options.slurm_job:
            return [job for job in jobs if self._is_of_slurm(job)]
        return self._meant.among(jobs)

    def _is_of_slurm(self, job: discover.Job) -> bool:
        ours = any(f.environ.get("SLURM_JOB_ID") == self.options.slurm_job for f in job.ranks)
        step = self.options.slurm_step
        return ours and (not step or any(f.environ.get("SLURM_STEP_ID") == step for f in job.ranks))

    # ----------------------------------------------------------------- life

    async def run(self) -> None:
        """Until SIGTERM, SIGINT, SIGHUP or the end of the job."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if signal.getsignal(number) != signal.SIG_IGN:  # nohup
                loop.add_signal_handler(
                    number, self._stop, f"stopped by {signal.Signals(number).name}"
                )
        try:
            while not self.stopping and not self._job_over() and not self._told_all():
                self._hear_end()
                self.line.connect()
                self._watch()
                self.line.talk()
                await self._listen(self._rest_s())
        finally:
            await self._leave()

    def _hear_end(self) -> None:
        """Leave when the remote shell that started this agent has gone."""
        if self.options.while_heard and self._heard and not _is_read(sys.stderr.fileno()):
            self._heard = False
            self._stop("the command that started it has ended")

    def _rest_s(self) -> float:
        """Until the next look: half as long while ranks stand for longer than before."""
        still = time.monotonic() - self._changed_at
        stands = 1.5 * max(self.interval_s, self._usual_s) < still < _STANDS_S
        return self.interval_s / 2 if stands else self.interval_s

    async def _listen(self, seconds: float) -> None:
        """Do what the collector says, for one interval or until the end."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and not self.stopping:
            for message in await self.line.read(left):
                self._obey(message)

    def _stop(self, why: str) -> None:
        """Leave; but when ranks have just crashed, stay for the collector's capture of their ends.

        A scheduler that ends the job for the crash sends this signal within a second of it. Being
        told twice, it leaves at once.
        """
        again, self.why = self._until < _EVER, why
        if self.ranks.crashed and not self.captures.told_ends and not again:
            self._until = time.monotonic() + _LAST_S
        else:
            self.stopping = True
        self.line.rouse()

    def _told_all(self) -> bool:
        """After a signal that came with a crash: the ends are told, or the time for it is over."""
        told = self.captures.told_ends or time.monotonic() >= self._until
        return self._until < _EVER and told

    def _job_over(self) -> bool:
        now = time.monotonic()
        if self.ranks.alive:
            self._alone_since = None
            return False
        if not self.ranks.seen_any:
            return bool(self.options.patience_s) and now - self._begin > self.options.patience_s
        self._alone_since = self._alone_since if self._alone_since is not None else now
        return now - self._alone_since > self.options.linger_s

    async def _leave(self) -> None:
        await self.line.leave(self.why)
        self.ranks.close()
        if len(self.spool) and not self._job_over():
            _LOG.info(
                "%d reports were not sent and are kept in %s for the next agent of this node",
                len(self.spool),
                self.spool.folder,
            )
            return
        self.spool.clear()
        with contextlib.suppress(OSError):
            (self.spool.folder / "agent").unlink(missing_ok=True)
            self.spool.folder.rmdir()

    # ----------------------------------------------------------------- the collector

    def _hello(self) -> msg.Hello:
        return msg.Hello(
            agent=self.agent,
            node=self.node,
            job=self.ranks.job[:200],
            world_size=self.ranks.world_size,
            version=__version__,
            began=self.ranks.began,
        )

    def _find(self) -> str:
        return address.find(self.options.folder, self.options.collector, self.options.via)

    def _pairs(self) -> keys.Keys | None:
        return None if self.options.insecure else keys.load(self.options.folder or Path())

    def _obey(self, message: msg.FromCollector) -> None:
        if isinstance(message, msg.Capture):
            self.captures.ask(message)
        elif isinstance(message, msg.Level):
            self.interval_s = message.interval_s
        elif isinstance(message, msg.Trace):
            self._trace, self._traced = message.wanted, set()
            self._pass_trace_on()
        elif isinstance(message, msg.Dismissed):
            self._stop("its collector has ended")

    def _pass_trace_on(self) -> None:
        """Also to ranks that come later, or whose boxes do."""
        if self._trace is None:
            return
        fresh = [f for f in self.ranks.folders() if f not in self._traced]
        self._traced.update(fresh)
        for folder in fresh:
            one = partial(pass_trace_on, self._trace, [folder])
            try:
                trouble = self.ranks.host.in_folder(folder, one)
            except OutOfTime:
                trouble = [
                    f"{folder} does not answer: its ranks do not get the request for call traces"
                ]
            for line in trouble:
                _LOG.warning("%s", line)

    # ----------------------------------------------------------------- watching and capturing

    def _watch(self) -> None:
        self.ranks.search()
        if not self.ranks.seen_any and not self._told_empty:
            self._told_empty = True
            wanted = self.options.job or self.options.slurm_job
            _LOG.info(
                "waiting for ranks%s; %s",
                f" of job {wanted}" if wanted else "",
                job_words.here_now(self.ranks.others),
            )
        self._pass_trace_on()
        job = (self.ranks.job, self.ranks.world_size, self.ranks.began)
        if job != self._introduced:
            self._introduced = job
            self.line.introduce()
        if self.line.began != self._began:
            # The collector may have been restarted: of ranks that stand still it would hear nothing, and see no stall.
            self._began = self.line.began
            self._told = {}
            self._boxes = 0 if self._began > 1 else self._boxes
        told = self.ranks.look()
        boxes = sum(r.box for r in told)
        changed = [r for r in told if self._told.get(r.rank) != _news(r)]
        now = time.monotonic()
        if changed:
            self._usual_s = max(0.98 * self._usual_s, min(now - self._changed_at, _STANDS_S))
            self._changed_at = now
        stands = now - self._changed_at < _STANDS_S
        events = self.ranks.new_events()
        if not events and not changed and not stands and now - self._reported_at < _HEARTBEAT_S:
            return
        self._reported_at = now
        self._told = {r.rank: _news(r) for r in told}
        report = msg.Report(
            seq=0,
            oldest=0,
            at=time.time(),
            ranks=changed,
            late_s=now,
            timeout_s=self.ranks.timeout_s,
            events=events,
            waits_s=0.0 if self.ranks.alive else round(self._rendezvous.waits_s(now), 1),
        )
        if boxes > self._boxes:
            report.past = self.ranks.past()
        self._boxes = boxes
        self.line.put(report)


def _ranks_to_capture(options: AgentOptions) -> CaptureOptions:
    return CaptureOptions(
        job=options.job,
        slurm_job=options.slurm_job,
        slurm_step=options.slurm_step,
        keep_raw=False,
    )


def pass_trace_on(wanted: Request, folders: Iterable[Path]) -> list[str]:
    """Write the request into every folder that holds a box of these ranks: the probe reads it
    there.

    What could not be written comes back, as lines for the log. A message names no path: where it is
    written is decided here.
    """
    trouble = []
    for folder in folders:
        try:
            requests.write(folder, wanted)
        except OSError as error:
            where = folder / requests.NAME
            trouble.append(
                f"the request for call traces cannot be written to {where}: {error.strerror}"
            )
    return trouble


def _is_read(descriptor: int) -> bool:
    """Whether the other end of a pipe, socket or terminal is still there; a file always is."""
    poll = select.poll()
    poll.register(descriptor, 0)  # poll() reports errors and hang-ups unasked
    return not poll.poll(0)


def _spool_place(options: AgentOptions, node: str) -> Path:
    """One place for each job's folder and node: the next agent finds what a killed one has left."""
    key = hashlib.blake2b(
        f"{options.folder}|{options.collector}|{options.via}|{node}".encode(), digest_size=8
    ).hexdigest()
    return Path(tempfile.gettempdir()) / f"hangdoctor-agents-{os.getuid()}" / key


def _news(rank: msg.RankNow) -> tuple[object, ...]:
    """What makes a report worth sending: everything but the ages, unless the age says that there
    was progress.
    """
    fields = structs.astuple(structs.replace(rank, idle_s=0.0, over_s=0.0))
    since = time.monotonic() - rank.idle_s
    return (*fields, round(since, 1) if not rank.over else 0)


def main(options: AgentOptions) -> None:
    """Run an agent in this process; ends within a second of SIGTERM, whatever a capture does.

    Raises:
        CollectorError: the address of the collector is not known, or the keys cannot be read.
    """
    to_stderr("hangdoctor agent: %(message)s")
    if (
        options.folder is None
        and not options.via
        and not (options.collector or os.environ.get("HANGDOCTOR_COLLECTOR"))
    ):
        raise CollectorError(
            "the address of the collector is not known", "Pass its folder with --folder DIR."
        )

    async def whole_life() -> None:
        await NodeAgent(options).run()
        sys.stderr.flush()
        if any(t.name.startswith("asyncio") for t in threading.enumerate()):
            os._exit(0)  # a capture in a thread would hold the end up until its deadline

    asyncio.run(whole_life())
