"""Agents that stay: one command a node, kept running as long as the collector, started again when
it fails; where the job's nodes come and go, agents do so with them.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from ..model.capture import JobCapture
from ..model.members import Members
from ..text.ranges import format_hosts
from . import gather, whole_trees
from .remote import Command, _prepare
from .slurm_words import ENDED

_AGAIN_S = 3.0  # after a failure, doubled with each
_AGAIN_MAX_S = 60.0
_LOOK_S = 0.5
_GIVE_UP = 4  # failures of every node in a row
_FOLLOW_S = 5.0  # between two questions which nodes the job has
_LOG = logging.getLogger("hangdoctor.sidecar")


class Changes(Struct):
    """What has changed of a job's nodes."""

    begun: list[Command] = []  # the agents of new ones
    ended: dict[str, str] = {}  # node without which the job goes on -> why
    trouble: str = ""  # why nothing, or not all, is known


class Follows(Protocol):
    """Knows how the nodes of a job change while agents run on them."""

    def changes(self) -> Changes:
        """What has changed since the last call, which may take some seconds."""
        ...

    def members(self) -> Members:
        """The nodes as they were at the last call of `changes`."""
        ...

    def waits(self) -> bool:
        """Whether nodes may still come."""
        ...

    def enter(self, capture: JobCapture) -> None:
        """Put into a capture why nodes did not answer."""
        ...


class _Agent(Struct):
    command: Command
    process: subprocess.Popen[bytes] | None = None
    failures: int = 0
    due: float = 0.0
    begun: float = 0.0
    log: Path = Path()
    said_before: int = 0  # bytes of the log from earlier starts
    done: bool = False


class KeptAgents:
    """Starts the agents, in a thread of its own.

    `ended` is called when all have done their work, because their job is over, or when none can be
    started: then `trouble` says why.
    """

    def __init__(
        self,
        commands: Sequence[Command],
        env: Mapping[str, str],
        logs: Path,
        ended: Callable[[], None],
        follow: Follows | None = None,
    ) -> None:
        self.logs = logs
        self.agents = [self._agent(command) for command in commands]
        self.env = dict(env)
        self.ended = ended
        self.follow = follow
        self.trouble = ""
        self.stopping = threading.Event()
        self._changes: queue.SimpleQueue[Changes] = queue.SimpleQueue()
        self._deaf = ""  # why the nodes are not known now
        # Commands die with the thread that started them (PR_SET_PDEATHSIG): it lives as long as the
        # collector.
        self.thread = threading.Thread(target=self._run, name="agents", daemon=True)

    def start(self) -> None:
        """Start the agents, and keep them running until `stop`."""
        self.thread.start()
        if self.follow is not None:
            asks = threading.Thread(target=self._ask, args=(self.follow,), daemon=True)
            asks.start()

    def stop(self) -> None:
        """SIGTERM to all, SIGKILL a few seconds later."""
        self.stopping.set()
        self.thread.join(timeout=8)

    def _agent(self, command: Command) -> _Agent:
        name = command.node.replace("/", "_")
        return _Agent(command, log=self.logs / f"agent-{name}.log")

    def _run(self) -> None:
        while not self.stopping.wait(_LOOK_S):
            now = time.monotonic()
            while not self._changes.empty():
                self._change(self._changes.get())
            for agent in self.agents:
                self._look(agent, now)
            if self._is_over():
                self.ended()
                break
        _end(self.agents)

    def _is_over(self) -> bool:
        """Whether there is nothing more to do; `trouble` says why, where that is a failure."""
        may_come = self.follow is not None and self.follow.waits()
        if all(a.done for a in self.agents):
            return not may_come
        if self._deaf or not all(a.failures >= _GIVE_UP for a in self.agents):
            return False
        where = format_hosts(a.command.node for a in self.agents)
        said = _last_words(self.agents[0])
        self.trouble = f"no agent could be started on {where}: {said}"
        return True

    def _ask(self, follow: Follows) -> None:
        while not self.stopping.wait(_FOLLOW_S):
            self._changes.put(follow.changes())

    def _change(self, changes: Changes) -> None:
        """Let agents go whose node has, and start those of new ones."""
        if changes.trouble and changes.trouble != self._deaf:
            _LOG.warning("%s", changes.trouble)
        self._deaf = changes.trouble
        fresh = {command.node for command in changes.begun}
        for node, why in changes.ended.items():
            again = "an agent is started in it" if node in fresh else "it is watched no more"
            _LOG.info("%s: %s; %s", node, why, again)
        leave = fresh | changes.ended.keys()
        _end([a for a in self.agents if a.command.node in leave])
        self.agents = [a for a in self.agents if a.command.node not in leave]
        self.agents += [self._agent(command) for command in changes.begun]
        more = sorted(fresh - changes.ended.keys())
        if more:
            _LOG.info("%s has started: an agent is started in it", format_hosts(more))

    def _look(self, agent: _Agent, now: float) -> None:
        if agent.process is None:
            if not agent.done and now >= agent.due:
                self._start(agent, now)
            return
        code = agent.process.poll()
        if code is None:
            if now - agent.begun > 30:
                agent.failures = 0
            return
        agent.process = None
        if code == 0:
            agent.done = True  # its job has gone from that node
            return
        if re.search(rf"{ENDED}|CANCELLED AT", _tail(agent)):
            agent.done = True
            return
        agent.failures += 1
        agent.due = now + min(_AGAIN_MAX_S, _AGAIN_S * 2 ** (agent.failures - 1))
        if "Invalid generic resource" in _tail(agent):
            # A cluster without GPUs in its configuration does not know the word.
            argv = [w.replace("--gres=gpu:0", "--gres=none") for w in agent.command.argv]
            agent.command, agent.due = Command(agent.command.node, argv), now

    def _start(self, agent: _Agent, now: float) -> None:
        mask: set[int] = set()
        try:
            with agent.log.open("ab") as log:
                agent.said_before = log.tell()
                agent.process = subprocess.Popen(
                    agent.command.argv,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=self.env,
                    start_new_session=True,
                    preexec_fn=lambda: _prepare(mask),
                )
        except OSError as error:
            self.trouble = f"{agent.command.argv[0]} cannot be started: {error.strerror}"
            agent.failures = _GIVE_UP
            return
        agent.begun = now


def _end(agents: Sequence[_Agent]) -> None:
    """SIGTERM, and SIGKILL to those that are still there a little later."""
    running = [a.process for a in agents if a.process is not None]
    for process in running:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGTERM)
    _wait(running, 4.0)
    for process in running:
        whole_trees.kill(process)
    _wait(running, 1.0)


def _wait(running: Sequence[subprocess.Popen[bytes]], patience: float) -> None:
    end = time.monotonic() + patience
    while any(p.poll() is None for p in running) and time.monotonic() < end:
        time.sleep(0.05)


def _tail(agent: _Agent) -> str:
    """What it said since it was started last."""
    try:
        with agent.log.open("rb") as log:
            log.seek(agent.said_before)
            return log.read(20_000).decode(errors="replace")
    except OSError:
        return ""


def _last_words(agent: _Agent) -> str:
    return gather.last_words(_tail(agent))


def local(flags: Sequence[str]) -> list[Command]:
    """One agent on this host."""
    return [Command(os.uname().nodename, gather.staying_agent(flags))]
