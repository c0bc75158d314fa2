"""Agents that stay: one command a node, kept running as long as the collector, started again when
it fails.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from ..text.ranges import format_hosts
from . import gather
from .remote import Command, _prepare
from .slurm_words import ENDED

_AGAIN_S = 3.0  # after a failure, doubled with each
_AGAIN_MAX_S = 60.0
_LOOK_S = 0.5
_GIVE_UP = 4  # failures of every node in a row


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
    ) -> None:
        self.agents = [
            _Agent(c, log=logs / f"agent-{c.node.replace('/', '_')}.log") for c in commands
        ]
        self.env = dict(env)
        self.ended = ended
        self.trouble = ""
        self.stopping = threading.Event()
        # Commands die with the thread that started them (PR_SET_PDEATHSIG): it lives as long as the
        # collector.
        self.thread = threading.Thread(target=self._run, name="agents", daemon=True)

    def start(self) -> None:
        """Start the agents, and keep them running until `stop`."""
        self.thread.start()

    def stop(self) -> None:
        """SIGTERM to all, SIGKILL a few seconds later."""
        self.stopping.set()
        self.thread.join(timeout=8)

    def _run(self) -> None:
        while not self.stopping.wait(_LOOK_S):
            now = time.monotonic()
            for agent in self.agents:
                self._look(agent, now)
            if all(a.done for a in self.agents):
                self.ended()
                break
            if all(a.failures >= _GIVE_UP for a in self.agents):
                said = _last_words(self.agents[0])
                self.trouble = f"no agent could be started on {format_hosts(a.command.node for a in self.agents)}: {said}"
                self.ended()
                break
        self._end()

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

    def _end(self) -> None:
        running = [a.process for a in self.agents if a.process is not None]
        for number, patience in ((signal.SIGTERM, 4.0), (signal.SIGKILL, 1.0)):
            for process in running:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, number)
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
