"""A driver of the user's own Ray: prints what Ray knows, then runs commands on its nodes.

    python hangdoctor/launchers/ray_driver ADDRESS FOLDER

It needs nothing but the standard library and Ray, and is a process of its own, since Ray cannot be
asked under a deadline: whoever started it kills it. It ends when its standard input does.

The first line of its output is JSON: what `_state` returns, or {"error": ...}. From then on each
number that comes through FOLDER/ask names a file FOLDER/N.json with {"node", "argv"}: the command is
run there as a task, its output goes through the pipes FOLDER/N.out and N.err, its exit code into
N.code before that. With {"connected": true} it runs in an actor instead, its output comes as it is
written, what comes through the pipe N.in is its input, and it ends when N.out has no reader.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import sys
import threading
from pathlib import Path
from typing import Any

_CONTROLLER = "TrainController"
_LOG_MOST = 1 << 20  # bytes of a controller's log, its last ones
_LOG_S = 10.0
_EXCHANGE_S = 0.1  # of one turn with a command that is spoken to


def _run(argv: list[str]) -> tuple[bytes, bytes, int]:
    """On the node: run the command, which ends with this task."""
    import ctypes
    import subprocess

    def end_with_task() -> None:
        ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL

    done = subprocess.run(
        argv, stdin=subprocess.DEVNULL, capture_output=True, cwd="/", preexec_fn=end_with_task
    )
    return done.stdout, done.stderr, done.returncode


class _Session:
    """On the node: a command that is spoken to. It ends with its actor."""

    def __init__(self, argv: list[str]) -> None:
        import ctypes
        import subprocess

        def end_with_actor() -> None:
            ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL

        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            argv, stdin=pipe, stdout=pipe, stderr=pipe, cwd="/", preexec_fn=end_with_actor
        )
        self.open = {1: self.process.stdout, 2: self.process.stderr}

    def exchange(self, data: bytes | None, seconds: float) -> tuple[bytes, bytes, int | None]:
        """Give it input, None for its end; (output, errors, exit code) of at most so many seconds."""
        import contextlib
        import os
        import select

        with contextlib.suppress(OSError, ValueError):
            if data:
                os.write(self.process.stdin.fileno(), data)  # type: ignore[union-attr]
            elif data is None:
                self.process.stdin.close()  # type: ignore[union-attr]
        said = {1: b"", 2: b""}
        pipes = {pipe.fileno(): n for n, pipe in self.open.items()}  # type: ignore[union-attr]
        for fd in select.select(list(pipes), [], [], seconds)[0]:
            said[pipes[fd]] = os.read(fd, 1 << 16)
            if not said[pipes[fd]]:
                del self.open[pipes[fd]]
        code = None if self.open else self.process.wait()
        return said[1], said[2], code


def _log_end(pid: int, most: int) -> str:
    """On the node: the end of what a process wrote into its standard error's file."""
    import os

    fd = os.open(f"/proc/{pid}/fd/2", os.O_RDONLY | os.O_NONBLOCK)
    try:
        return os.pread(fd, most, max(0, os.fstat(fd).st_size - most)).decode(errors="replace")
    finally:
        os.close(fd)


class _Driver:
    def __init__(self, address: str) -> None:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        ray.init(address=address, log_to_driver=False, logging_level="error")
        self.ray: Any = ray
        self.on: Any = NodeAffinitySchedulingStrategy

    def task(self, function: Any, node: str, *arguments: object) -> Any:
        """Start a task on a node: without CPUs, so that a full cluster has room for it."""
        remote = self.ray.remote(num_cpus=0, max_retries=0)(function)
        pinned = self.on(node_id=node, soft=False)
        return remote.options(scheduling_strategy=pinned).remote(*arguments)

    def state(self) -> dict[str, object]:
        """The nodes, the actors, and the logs of the actors that direct trainings."""
        nodes = [_plain_node(node) for node in self.ray.nodes()]
        actors = self._actors()
        logs = {
            str(actor["id"]): self._log(actor)
            for actor in actors
            if actor["class"] == _CONTROLLER and actor["state"] == "ALIVE"
        }
        return {"version": self.ray.__version__, "nodes": nodes, "actors": actors, "logs": logs}

    def _actors(self) -> list[dict[str, object]]:
        try:
            from ray._private import state

            return [_plain_actor(actor) for actor in state.actors().values()]
        except (ImportError, AttributeError):
            from ray.util.state import list_actors

            return [_listed_actor(actor) for actor in list_actors(detail=True, limit=10_000)]

    def _log(self, actor: dict[str, object]) -> str:
        try:
            read = self.task(_log_end, str(actor["node"]), actor["pid"], _LOG_MOST)
            return str(self.ray.get(read, timeout=_LOG_S))
        except Exception:  # any of Ray's, or of the file: its ranks are then numbered by each node
            return ""

    def serve(self, folder: Path, number: str) -> None:
        """Run one command; what it says goes through its two pipes."""
        asked = json.loads((folder / f"{number}.json").read_text())
        if asked.get("connected"):
            self._connect(asked["node"], asked["argv"], _Pipes(folder, number))
            return
        try:
            told = self.ray.get(self.task(_run, asked["node"], asked["argv"]))
        except Exception as error:  # Ray could not, in its own words
            told = (b"", f"Ray: {_words(error)}\n".encode(), 1)
        output, errors, code = told
        (folder / f"{number}.code").write_text(str(code))
        for name, data in (("out", output), ("err", errors)):
            with contextlib.suppress(BrokenPipeError):  # whoever asked is no longer interested
                (folder / f"{number}.{name}").write_bytes(data)

    def _connect(self, node: str, argv: list[str], pipes: _Pipes) -> None:
        """Run a command and hand on what is said on both sides, until one of them has ended."""
        session = None
        code: int | None = None
        try:
            pinned = self.on(node_id=node, soft=False)
            session = self.ray.remote(num_cpus=0)(_Session)
            session = session.options(scheduling_strategy=pinned).remote(argv)
            while code is None and pipes.wanted():
                told = session.exchange.remote(pipes.said(), _EXCHANGE_S)
                output, errors, code = self.ray.get(told)
                pipes.write(output, errors)
        except Exception as error:  # Ray could not, in its own words
            pipes.write(b"", f"Ray: {_words(error)}\n".encode())
        pipes.end(1 if code is None else code)
        if session is not None:
            self.ray.kill(session)


class _Pipes:
    """This end of a command that is spoken to: three pipes to whoever asked for it."""

    def __init__(self, folder: Path, number: str) -> None:
        self.code = folder / f"{number}.code"
        self.input = os.open(folder / f"{number}.in", os.O_RDONLY)
        self.output = os.open(folder / f"{number}.out", os.O_WRONLY)
        self.errors = os.open(folder / f"{number}.err", os.O_WRONLY)
        self.heard_all = False

    def said(self) -> bytes | None:
        """What has come, b"" for nothing; None once, when no more will."""
        if self.heard_all or not select.select([self.input], [], [], 0)[0]:
            return b""
        data = os.read(self.input, 1 << 16)
        self.heard_all = not data
        return data or None

    def wanted(self) -> bool:
        """Whether the output still has a reader."""
        poll = select.poll()
        poll.register(self.output, 0)
        return not poll.poll(0)

    def write(self, output: bytes, errors: bytes) -> None:
        """Hand it on; what no one reads any more is dropped."""
        for fd, data in ((self.output, output), (self.errors, errors)):
            while data:
                try:
                    data = data[os.write(fd, data) :]
                except BrokenPipeError:
                    break

    def end(self, code: int) -> None:
        """It has ended with this code."""
        self.code.write_text(str(code))
        for fd in (self.input, self.output, self.errors):
            os.close(fd)


def _plain_node(node: dict[str, Any]) -> dict[str, object]:
    return {
        "id": node["NodeID"],
        "host": node.get("NodeManagerHostname", ""),
        "address": node.get("NodeManagerAddress", ""),
        "alive": bool(node.get("Alive")),
        "why": node.get("DeathReasonMessage", ""),
    }


def _plain_actor(actor: dict[str, Any]) -> dict[str, object]:
    return {
        "id": actor["ActorID"],
        "class": actor["ActorClassName"],
        "name": actor["Name"],
        "job": actor["JobID"],
        "node": actor["Address"]["NodeID"],
        "address": actor["Address"]["IPAddress"],
        "pid": int(actor.get("Pid", 0)),
        "state": actor["State"],
        "started": int(actor.get("StartTime", 0)),
        "why": _death(actor.get("DeathCause")),
    }


def _listed_actor(actor: Any) -> dict[str, object]:
    """The same of an actor as Ray's state API lists it, which does not say where a node is."""
    cause = actor.death_cause or {}
    said = (cause.get("actor_died_error_context") or {}).get("error_message", "")
    return {
        "id": actor.actor_id,
        "class": actor.class_name,
        "name": actor.name or "",
        "job": actor.job_id,
        "node": actor.node_id or "",
        "address": "",
        "pid": actor.pid or 0,
        "state": actor.state,
        "started": 0,
        "why": _in_short(str(said)),
    }


def _death(cause: Any) -> str:
    """Ray's words for the end of an actor, in one line."""
    context = getattr(cause, "actor_died_error_context", None)
    return _in_short(str(getattr(context, "error_message", "")))


def _in_short(said: str) -> str:
    """One line, without the numbers and the advice that Ray puts behind its reason."""
    for tail in (" lease_id=", " Some common causes include"):
        said = " ".join(said.split()).partition(tail)[0]
    return said.rstrip(",")[:500]


def _words(error: Exception) -> str:
    return _in_short(str(error)) or type(error).__name__


def _own_output() -> int:
    """A copy of standard output for the answer alone: what Ray prints goes nowhere."""
    own = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    return own


def _answer(output: int, told: dict[str, object]) -> None:
    with os.fdopen(output, "w") as answer:
        answer.write(json.dumps(told) + "\n")


def _end_with_input(folder: Path) -> None:
    """Wait for the end of standard input, then end, whatever Ray is doing."""
    while sys.stdin.buffer.read(1 << 12):
        pass
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


def _main(address: str, folder: Path) -> None:
    threading.Thread(target=_end_with_input, args=(folder,), daemon=True).start()
    output = _own_output()
    try:
        driver = _Driver(address)
        state = driver.state()
    except ImportError as error:
        _answer(output, {"error": "import", "says": _words(error)})
        return
    except ConnectionError as error:
        _answer(output, {"error": "connection", "says": _words(error)})
        return
    except Exception as error:  # any of Ray's: another version, a wrong address
        _answer(output, {"error": "ray", "says": _words(error)})
        return
    _answer(output, state)
    both = os.open(folder / "ask", os.O_RDWR)  # also for writing: it has no end
    with os.fdopen(both) as asked:
        for line in asked:
            threading.Thread(target=driver.serve, args=(folder, line.strip()), daemon=True).start()


if __name__ == "__main__":
    _main(sys.argv[1], Path(sys.argv[2]))
