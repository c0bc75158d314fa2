"""One rank that lives through what the argument says, with the extension or without, and prints what came of it."""

from __future__ import annotations

import _thread
import copy
import copyreg
import gc
import inspect
import os
import pickle
import signal
import sys
import tempfile
import threading
import time
import types
import weakref
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode

from hangdoctor.probe import record_core as hot
from hangdoctor.probe.box import BoxWriter
from hangdoctor.probe.process_probe import probe
from hangdoctor.probe.recorder import Recorder
from hangdoctor.readers.blackbox import read_box
from tests.support.forked import each, leave

FAR = 4e9  # seconds: the year 2096


def own_box():  # type: ignore[no-untyped-def]
    from hangdoctor.readers.blackbox import find_boxes, read_box

    return read_box(find_boxes(os.environ["HANGDOCTOR_DIR"], pids=[os.getpid()])[0].path)


def looks() -> None:
    """What others see of a wrapped function."""
    function, original = dist.all_reduce, dist.all_reduce.__wrapped__
    assert (
        inspect.isfunction(function)
        and function.__name__ == "all_reduce"
        and function.__doc__ == original.__doc__
    )
    assert inspect.signature(function) == inspect.signature(original)
    assert (
        pickle.loads(pickle.dumps(function)) is function
        and function.__module__ == original.__module__
    )
    holder = type("Holder", (), {"reduce": function})()
    assert inspect.ismethod(holder.reduce)  # a method, as any function of Python
    assert copyreg.dispatch_table is not None
    # Made again out of its parts, as some libraries copy functions: it still reduces.
    parts = (function.__code__, function.__globals__, "again", None, function.__closure__)
    for kind in (types.FunctionType, type(function)):
        tensor = torch.ones(2)
        assert kind(*parts)(tensor) is None and tensor.tolist() == [1, 1]
    assert weakref.ref(function)() is copy.copy(function) is copy.deepcopy(function) is function
    assert vars(function)["__wrapped__"] is original and function.__kwdefaults__ is None
    print("as the original")


class Seen(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.functions: list[str] = []

    def __torch_function__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.functions.append(getattr(function, "__name__", str(function)))
        return function(*args, **(kwargs or {}))


class Loud(torch.Tensor):
    asked: list[str] = []

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        cls.asked.append(getattr(function, "__name__", str(function)))
        return super().__torch_function__(function, types, args, kwargs or {})


def modes() -> None:
    """A function mode and a subclass of the job see the same calls with the wrapper and without."""
    tensor, loud = torch.ones(2, 3), torch.ones(3).as_subclass(Loud)
    parameter = torch.nn.Parameter(torch.ones(5), requires_grad=False)
    for t in (tensor, parameter):
        for _ in range(3):
            dist.all_reduce(t)
    seen = []
    for call in (dist.all_reduce.__wrapped__, dist.all_reduce):
        Loud.asked.clear()
        with Seen() as mode:
            for t in (tensor, parameter, loud):
                call(t)
        seen.append((list(mode.functions), list(Loud.asked)))
    assert seen[0] == seen[1], seen
    print("same", [o.shapes for o in own_box().ops.operations[-3:]])


def shapes() -> None:
    """Shapes are those of each call, whatever was remembered of earlier ones."""
    tensor = torch.zeros(4)
    for size in ((4,), (2, 3), (), (0,), (1, 2, 3, 4, 5, 6, 7), (9,), (4,)):
        tensor.resize_(size)
        dist.all_reduce(tensor)
        dist.all_reduce(tensor.to(torch.int64), op=dist.ReduceOp.MAX)
        dist.broadcast(tensor[:0] if tensor.ndim else tensor, src=0)
    print(
        [
            (o.shapes, o.dtype, o.reduce_op, o.root)
            for o in own_box().ops.operations
            if o.op != "init_process_group"
        ]
    )


def recent() -> None:
    """More shapes and lines than the extension keeps at hand, in turns, and another box on the way."""
    line = "\n" * 8 + "lambda tensor: reduce(tensor)"
    space = {"reduce": dist.all_reduce}
    lines = [eval(compile(line[number:], f"line{number}.py", "eval"), space) for number in range(8)]
    tensors = [torch.zeros(size) for size in range(1, 81)]
    mine = probe.recorder
    for turn in range(3):
        for tensor in tensors:
            for call in lines:
                call(tensor)
        if turn == 1:
            print(_in_another_box(tensors[::-1], lines[::-1]))
            probe.recorder = mine
    print([(o.shapes, o.site) for o in own_box().ops.operations if o.op == "all_reduce"])


def _in_another_box(tensors: list[torch.Tensor], lines: list[Callable[[object], object]]) -> object:
    """Texts and lines have other numbers there."""
    with tempfile.TemporaryDirectory() as folder:
        other = probe.recorder = Recorder(BoxWriter(Path(folder), "another"))
        other.learn_world()
        for tensor, call in zip(tensors, lines * 10, strict=True):
            call(tensor)
        return [(o.shapes, o.site) for o in read_box(other.box.path).ops.operations]


def clock() -> None:
    """What stands in for the C library's clock stands in for the extension's too."""
    before = time.time()
    dist.barrier()
    print(before > FAR, before <= own_box().ops.operations[-1].entered_s <= time.time())


def handlers() -> None:
    """Ctrl-C comes where it may, again and again: each is the job's, none is lost, and nothing is left half done."""
    caught, armed, stop = 0, False, threading.Event()

    def handler(signum: int, frame: object) -> None:
        # One raise each time that the loop asks for one: none may come between two `try` blocks.
        nonlocal armed
        if armed:
            armed = False
            raise KeyboardInterrupt

    def interrupt() -> None:
        while not stop.wait(0.002):
            os.kill(os.getpid(), signal.SIGINT)

    signal.signal(signal.SIGINT, handler)
    sizes = iter(range(1, 1 << 30))
    thread = threading.Thread(target=interrupt)
    thread.start()
    while caught < 100:
        try:
            armed = True
            while True:
                dist.barrier()
                # A new signature each time: Python is asked.
                dist.all_reduce(torch.zeros(next(sizes)))
        except KeyboardInterrupt:
            caught += 1
    stop.set()
    thread.join()
    assert not probe.broken and probe.recorder is not None
    dist.all_reduce(torch.ones(1))
    last = own_box().ops.operations[-1]
    print("caught", caught, last.op, last.state, own_box().torn)


def threads() -> None:
    """Threads of Python and bare ones, that come and go; each has its own place in the table."""
    groups = [dist.new_group([0]) for _ in range(4)]
    done = threading.Semaphore(0)

    def work(group: object) -> None:
        for _ in range(50):
            dist.all_reduce(torch.ones(2), group=group)
        done.release()

    for _ in range(5):
        for i, group in enumerate(groups):
            if i % 2:
                threading.Thread(target=work, args=(group,)).start()
            else:
                _thread.start_new_thread(work, (group,))
        for _ in groups:
            done.acquire()
        gc.collect()
    found = own_box()
    per_group: dict[str, list[int]] = {}
    for o in found.ops.operations:
        if o.op == "all_reduce":
            per_group.setdefault(o.group, []).append(o.seq)
    print(
        sorted(len(v) for v in per_group.values()),
        all(v == list(range(1, 251)) for v in per_group.values()),
        found.torn,
    )


def hook() -> None:
    """Called by C with no frame of Python above it."""
    done = threading.Event()
    _thread.start_new_thread(dist.barrier, ())
    end = time.monotonic() + 60
    while time.monotonic() < end and not any(
        o.op == "barrier" and o.state == "done" for o in own_box().ops.operations
    ):
        done.wait(0.01)
    print("on" if probe.recorder is not None else own_box().box.note)


def waits() -> None:
    """Handles that are waited for, polled or dropped by threads that have recorded nothing."""
    last = []

    def elsewhere(work: object, how: str) -> None:
        thread = threading.Thread(target=getattr(work, how))
        thread.start()
        thread.join()

    for how in ("wait", "is_completed"):
        work = dist.all_reduce(torch.ones(2), async_op=True)
        while not work.is_completed.__wrapped__(work):
            time.sleep(0.001)
        elsewhere(work, how)
        last.append(own_box().ops.operations[-1].state)
        work.wait()
    work = dist.all_reduce(torch.ones(2), async_op=True)
    last.append(own_box().ops.operations[-1].state)
    del work
    last.append(own_box().ops.operations[-1].state)
    last.append(len(probe.recorder.outstanding))
    print(*last, "off" if probe.broken else "on")


what = each(sys.argv[1:])
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
assert (hot.native is None) == (os.environ.get("HANGDOCTOR_RECORD_PURE") == "1"), hot.native
{
    "looks": looks,
    "modes": modes,
    "shapes": shapes,
    "handlers": handlers,
    "threads": threads,
    "hook": hook,
    "waits": waits,
    "recent": recent,
    "clock": clock,
}[what]()
leave()
