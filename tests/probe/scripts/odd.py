"""One rank that does what the argument says, which is odd but allowed, and prints what became of it and of the probe."""

import contextlib
import datetime
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import torch
import torch.distributed as dist

from hangdoctor import probe
from hangdoctor.probe import folder as folders
from hangdoctor.probe import torchnames
from hangdoctor.probe.process_probe import probe as state
from hangdoctor.readers.blackbox import read_box

what = sys.argv[1]
if what == "stderr":  # as programs do that write their log to two places; it cannot even be flushed

    class Tee:
        def write(self, text: str) -> int:
            return len(text)

    sys.stderr = Tee()  # type: ignore[assignment]

if what == "beginning":  # a handler that says what it does, while the probe makes its box

    def say(number: int, frame: object) -> None:
        probe.phase("checkpoint")

    def prepare(folder: Path) -> Path:
        os.kill(os.getpid(), signal.SIGUSR1)
        return made(folder)

    made = folders.prepare
    signal.signal(signal.SIGUSR1, say)
    folders.prepare = prepare  # type: ignore[assignment]

if (
    what == "meanwhile"
):  # another thread writes, and starts a program, while torch's server is being made
    real = torchnames.worker_server()

    def slowly(path: str) -> object:
        thread = threading.Thread(target=meanwhile)
        thread.start()
        thread.join()
        return real(path)

    def meanwhile() -> None:
        os.write(2, b"half a line, ")
        late = ["/bin/sh", "-c", "read go; echo from a program >&2"]
        started.append(subprocess.Popen(late, stdin=subprocess.PIPE))
        kind = "file" if Path("/proc/self/fd/2").is_file() else "pipe"
        os.write(1, f"stderr is a {kind}\n".encode())

    started: list[subprocess.Popen[bytes]] = []
    torchnames.worker_server = lambda: slowly

dist.init_process_group("gloo")
recorder = state.recorder
assert recorder is not None
path = recorder.box.path


def on() -> str:
    return "on" if state.recorder is recorder else f"off: {read_box(path).box.note}"


def refused(**arguments: object) -> str:
    try:
        dist.broadcast(torch.ones(1), **arguments)
    except (RuntimeError, TypeError, ValueError) as error:
        return type(error).__name__
    return "done"


if what == "refused":
    calls: list[dict[str, object]] = [
        {"group_src": 99},
        {"group_src": -7},
        {"src": "0"},
        {"src": 2**40},
        {"src": [0]},
    ]
    print(*(refused(**call) for call in calls), on())
    dist.broadcast(torch.ones(1), 0)
    print(read_box(path).ops.operations[-1].root)
elif what == "generator":  # torch takes any iterable of keys; it can be gone through once
    store = dist.distributed_c10d._get_default_store()
    store.set("there", "1")
    store.wait(key for key in ["there"])
    try:
        store.wait((key for key in ["there", "never"]), datetime.timedelta(milliseconds=200))
    except RuntimeError as error:
        print(type(error).__name__, on())
elif what == "handler":

    class Preempted(Exception):
        pass

    # Such a file lies below the standard library's folder in conda and in containers, and is
    # not a part of it.
    name = str(Path(os.__file__).parent / "site-packages" / "cluster" / "signals.py")
    space = {"Preempted": Preempted}
    exec(compile("def handler(number, frame):\n    raise Preempted", name, "exec"), space)
    signal.signal(signal.SIGUSR1, space["handler"])  # type: ignore[arg-type]

    def known(*told: object) -> None:
        os.kill(os.getpid(), signal.SIGUSR1)

    # Where the call came from is looked up in Python by the one, and asked for by the extension.
    recorder._sites = type("Interrupted", (), {"get": staticmethod(known)})  # type: ignore[assignment]
    recorder.locate = known  # type: ignore[assignment,method-assign]
    with contextlib.suppress(Preempted):
        dist.all_reduce(torch.ones(1))
        print("the exception was swallowed")
    print(on())
elif what == "stderr":
    sys.stderr = sys.__stderr__
    print(on(), read_box(path).box.state)
elif what == "numbers":
    probe.iteration(3.0)  # type: ignore[arg-type]
    probe.micro_batch(torch.tensor(2))  # type: ignore[arg-type]
    with probe.phase(None):  # type: ignore[arg-type]
        dist.all_reduce(torch.ones(1))
    box = read_box(path)
    print(
        on(),
        box.ops.iteration,
        box.box.micro_batch,
        repr(box.ops.phase),
        box.ops.operations[-1].iteration,
    )
    probe.iteration("third")  # type: ignore[arg-type]
    probe.iteration(1 << 70)
    print(on(), read_box(path).ops.iteration)
elif what == "beginning":
    print(on())
elif what == "socket":
    print(on(), read_box(path).ops.notes)
elif what == "moved":  # someone puts a file in the place of the folder
    path.parent.rename(f"{path.parent}.away")
    path.parent.write_text("")
elif what == "meanwhile":
    os.write(2, b"and the rest\n")
    started[0].communicate(b"go\n")
    print(on())
elif what == "elsewhere":
    print(path.is_absolute(), path.parent)
dist.destroy_process_group()
