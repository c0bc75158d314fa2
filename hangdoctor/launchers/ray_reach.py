"""The nodes of a Ray cluster, reached by tasks of Ray: one pinned to each node.

Ray is asked by `ray_driver`, a process of its own that is killed when it does not answer.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import msgspec

from ..errors import JobNotFound, LauncherError, NoRanksFound, UsageError
from ..model.capture import JobCapture, RankCapture, Site
from ..readers.ray_ranks import GIVEN
from . import gather, ray_state
from .remote import Command
from .slurm_job import clean_environment

AUTO = "auto"  # the cluster of this host, or that of RAY_ADDRESS
_DRIVER = Path(__file__).with_name("ray_driver")
# Asks for one command, hands on what it says, ends with its exit code.
_ASK = (
    'echo "$0" >"$1/ask"; cat "$1/$0.out" & cat "$1/$0.err" >&2; wait; exit "$(cat "$1/$0.code")"'
)
# The same for a command that is spoken to. A shell's jobs in the background have no input of their own.
_CONNECT = (
    'exec 3<&0; echo "$0" >"$1/ask"; cat <&3 >"$1/$0.in" & i=$!; cat "$1/$0.out" & o=$!; '
    'cat "$1/$0.err" >&2; wait $o; kill $i 2>/dev/null; exit "$(cat "$1/$0.code")"'
)
_OPEN: list[RayReach] = []  # a driver ends with its input: as long as its tasks may run, it stays
_PYTHON_HELP = "Choose the Python of the job, on this host and on the nodes: --python PATH."
_OTHER_PYTHON_HELP = "Name another one with --python: the Python of the job, which has Ray and hangdoctor on this host and on the nodes."
_HELP = {
    "import": _PYTHON_HELP,
    "ray": _PYTHON_HELP,
    "connection": "Run it on a node of the cluster, or give the address of its head: --ray 10.0.0.2:6379.",
}
_OVER = "Diagnose what it printed: hangdoctor diagnose FILE. Its actors: ray list actors --detail."
_SAID = {
    "import": "{python} cannot import ray",
    "ray": "Ray (by {python})",
    "connection": "no Ray cluster was found",
}


class RayReach:
    """The nodes that have workers of the newest training; see `reach.Reach`."""

    means = "Ray"

    def __init__(self, address: str, python: str = "", seconds: float = 20.0) -> None:
        """`seconds`: for Ray to answer.

        Raises:
            UsageError: the address would start a cluster, or is none.
        """
        if address == "local" or address.startswith("-"):
            raise UsageError(
                f"'{address}' is no address of a running Ray cluster", _HELP["connection"]
            )
        self.address = address
        self.python = python
        self.seconds = seconds
        self._folder = Path()
        self._driver: subprocess.Popen[bytes] | None = None
        self._found: ray_state.Training | None = None
        self._ended = ""  # how the newest training did, where it has no live worker
        self._count = 0  # of commands so far
        _OPEN.append(self)

    def nodes(self) -> list[str]:
        """The nodes that have workers; Ray is asked once.

        Raises:
            JobNotFound: there is no cluster, or it has no node.
            LauncherError: Ray does not answer, or cannot be used by this Python.
        """
        found = self._training()
        return [found.names[node.id] for node in [*found.asked, *found.lost]]

    def commands(self, words: Sequence[str], timeout_s: float) -> list[Command]:
        """One task a node, without a limit of its own: it ends with this process. Raises as `nodes`."""
        return [self._command(node, words, connected=False) for node in self._training().asked]

    def connected(
        self, words: Sequence[str], nodes: Collection[str], reads: bool = True
    ) -> list[Command]:
        """One actor a node, whose command is spoken to; see `reach.Connects`."""
        found = self._training()
        asked = [node for node in found.asked if found.names[node.id] in nodes]
        return [self._command(node, words, connected=True) for node in asked]

    def addresses(self) -> dict[str, str]:
        """{node: its address}, by which Ray's own processes reach it."""
        found = self._training()
        return {found.names[node.id]: node.address for node in found.asked}

    def _command(self, node: ray_state.RayNode, words: Sequence[str], connected: bool) -> Command:
        """``hangdoctor WORDS`` on a node, which is told the ranks there."""
        found = self._training()
        own, ranks = gather.own_command(words, self.python), found.ranks(node)
        told = [f"{GIVEN}={ray_state.given(ranks, found.world_size)}"] if ranks else []
        number = self._request(node.id, [own[0], *told, *own[1:]], connected)
        script = _CONNECT if connected else _ASK
        argv = ["/bin/sh", "-c", script, number, str(self._folder)]
        return Command(found.names[node.id], argv)

    def unasked(self) -> Mapping[str, str]:
        """The dead nodes that had a worker, with Ray's reason."""
        found = self._training()
        return {
            found.names[node.id]: f"Ray lists it as dead: {node.why or 'no reason given'}"
            for node in found.lost
        }

    def watch(self) -> None:
        """None: Ray finds out by itself which nodes are lost."""
        return

    def by_hand(self) -> str:
        """See `reach.TriedByHand`."""
        return "ray status" if self.address == AUTO else f"ray status --address {self.address}"

    def site(self) -> Site:
        """Ray's own commands; see `launchers.reach.HasSite`."""
        at = "" if self.address == AUTO else f" {self.address}"
        return Site(
            see="ray list nodes --detail",
            capture=f"hangdoctor dump --ray{at}",
            restart="ray job list; ray job stop SUBMISSION_ID (of a script that was not submitted: end it), then start it again",
            memory="memory of the node (Ray itself kills workers where it is full)",
        )

    def enter(self, capture: JobCapture) -> None:
        """Note where the actors of the ranks are; the ranks of dead ones are gone."""
        found = self._training()
        if found.workers:
            capture.job = f"ray:{found.workers[0].actor.job}"
        capture.notes += ray_state.placement(found)
        seen = {rank.rank for node in capture.nodes for rank in node.ranks}
        for worker, why in ray_state.dead_workers(found):
            name = found.names[worker.actor.node]
            capture.notes.append(
                f"Ray lists the actor of rank {worker.rank} ({name}) as dead: {why}"
            )
            home = next((node for node in capture.nodes if node.node == name), None)
            if home is not None and worker.rank not in seen:
                gone = RankCapture(pid=0, rank=worker.rank, node=name, gone=True)
                gone.world_size = capture.world_size
                home.ranks.append(gone)

    def without_ranks(self, error: NoRanksFound) -> NoRanksFound:
        """The same, with how Ray says that the newest training ended."""
        return NoRanksFound(f"{self._ended}; {error}", _OVER) if self._ended else error

    def _training(self) -> ray_state.Training:
        if self._found is None:
            state = self._ask_state()
            if not any(node.alive for node in state.nodes):
                raise JobNotFound("the Ray cluster has no live node", _HELP["connection"])
            self._found = ray_state.training(state)
            self._ended = ray_state.ended(state)
        return self._found

    def _ask_state(self) -> ray_state.RayState:
        self._folder = Path(tempfile.mkdtemp(prefix="hangdoctor-ray-"))
        os.mkfifo(self._folder / "ask", 0o600)
        python = self.python or sys.executable
        try:
            self._driver = subprocess.Popen(
                [python, str(_DRIVER), self.address, str(self._folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=clean_environment(os.environ),
                start_new_session=True,
            )
        except OSError as error:
            shutil.rmtree(self._folder, ignore_errors=True)
            said = f"{python} cannot be started: {error.strerror}"
            raise LauncherError(said, self._help("import")) from error
        state = self._read_state(time.monotonic() + self.seconds)
        if state.error:
            self._end()
            kind = JobNotFound if state.error == "connection" else LauncherError
            what = _SAID[state.error].format(python=self.python or "this Python")
            raise kind(f"{what}: {state.says}", self._help(state.error))
        return state

    def _help(self, error: str) -> str:
        """What to do about an error of the driver."""
        help = _HELP[error]
        return _OTHER_PYTHON_HELP if self.python and help == _PYTHON_HELP else help

    def _read_state(self, deadline: float) -> ray_state.RayState:
        assert self._driver is not None and self._driver.stdout is not None
        pipe, text = self._driver.stdout, b""
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while not text.endswith(b"\n"):
                left = deadline - time.monotonic()
                data = (
                    os.read(pipe.fileno(), 1 << 16) if left > 0 and selector.select(left) else b""
                )
                if not data:
                    break
                text += data
        try:
            return msgspec.json.decode(text, type=ray_state.RayState)
        except msgspec.DecodeError:
            ended = self._driver.poll()
            self._end()
        if ended is not None:
            said = f"Ray's driver ended with exit code {ended}"
            raise LauncherError(said, self._help("import"))
        raise LauncherError(
            f"the Ray cluster ({self.address}) did not answer within {self.seconds:.0f} s",
            "Check it: ray status --address ADDRESS. " + _HELP["connection"],
        )

    def _request(self, node: str, argv: Sequence[str], connected: bool) -> str:
        number = str(self._count)
        self._count += 1
        asked = {"node": node, "argv": list(argv), "connected": connected}
        (self._folder / f"{number}.json").write_bytes(msgspec.json.encode(asked))
        for name in ("in", "out", "err"):
            os.mkfifo(self._folder / f"{number}.{name}", 0o600)
        return number

    def _end(self) -> None:
        """Kill the driver. In any other case it ends when its standard input does, with this process."""
        if self._driver is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._driver.pid, signal.SIGKILL)
            self._driver.wait()
            for pipe in (self._driver.stdin, self._driver.stdout):
                if pipe is not None:
                    pipe.close()
        shutil.rmtree(self._folder, ignore_errors=True)
