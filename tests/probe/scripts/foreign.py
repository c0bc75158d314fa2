"""One rank whose own code is in the way: modes, odd arguments, exceptions at any time. Prints what a job can see.

The same must be printed with and without the probe, but for the last line, which says whether the probe is on.
"""

import ctypes
import os
import signal
import sys
import threading
import time
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from hangdoctor import probe
from hangdoctor.probe import folder as folders
from hangdoctor.probe import retention
from hangdoctor.probe.process_probe import probe as state
from hangdoctor.readers.blackbox import read_box
from tests.support.forked import each, leave

what = each(sys.argv[1:])
begin = {"backend": "gloo", "store": dist.HashStore(), "rank": 0, "world_size": 1}


def calls() -> None:
    """One of each kind of call."""
    ones = [torch.ones(2)]
    dist.all_reduce(ones[0])
    dist.broadcast(ones[0], 0)
    dist.all_gather([torch.zeros(2)], ones[0])
    dist.all_gather_into_tensor(torch.zeros(2), ones[0])
    dist.reduce_scatter(torch.zeros(2), ones)
    dist.all_to_all_single(torch.zeros(2), ones[0], [2], [2])
    dist.scatter(torch.zeros(2), ones, 0)
    dist.barrier()
    dist.all_reduce(ones[0], async_op=True).wait()
    probe.iteration(torch.tensor(3))  # type: ignore[arg-type]
    dist.new_group([0])
    sgd = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], 0.1)
    sgd.step()


def last() -> str:
    """Whether the probe is on, and the last operations that it has recorded."""
    if os.environ.get("HANGDOCTOR_DISABLE") == "1":
        return "-"
    recorder = state.recorder
    if recorder is None:
        return f"off: {read_box(next(folders.job_folder(os.environ).glob('*.blackbox'))).box.note}"
    ops = read_box(recorder.box.path).ops.operations[-3:]
    return "on " + " ".join(f"{o.op}#{o.seq}:{o.root}{o.shapes}" for o in ops)


def tried(function: Any, *args: Any, **kwargs: Any) -> str:
    try:
        function(*args, **kwargs)
    except Exception as error:
        return type(error).__name__
    return "done"


if what == "function mode":
    seen: list[str] = []

    class Counts(TorchFunctionMode):
        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(getattr(function, "__name__", str(function)))
            return function(*args, **(kwargs or {}))

    with Counts():
        dist.init_process_group(**begin)  # type: ignore[arg-type]
        calls()
    print(seen)
elif what == "mode that raises":

    class Raises(TorchFunctionMode):
        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if "__get__" in getattr(function, "__name__", ""):
                raise KeyError("an attribute was read")
            return function(*args, **(kwargs or {}))

    dist.init_process_group(**begin)  # type: ignore[arg-type]
    one = torch.ones(2)
    with Raises():
        print(
            tried(dist.all_reduce, one),
            tried(dist.broadcast, one, 0),
            tried(dist.all_gather, [one], one),
        )
elif what == "dispatch mode":
    seen = []

    class Dispatches(TorchDispatchMode):
        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    with Dispatches():
        dist.init_process_group(**begin)  # type: ignore[arg-type]
        calls()
    print(seen)
elif what == "subclass":
    seen = []

    class Mine(torch.Tensor):
        @classmethod
        def __torch_function__(
            cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(getattr(function, "__name__", str(function)))
            return super().__torch_function__(function, types, args, kwargs or {})

    dist.init_process_group(**begin)  # type: ignore[arg-type]
    mine = torch.ones(2).as_subclass(Mine)
    print(
        tried(dist.all_reduce, mine),
        tried(dist.broadcast, mine, 0),
        tried(dist.all_gather, [mine], mine),
        seen,
    )
elif what == "fake tensors":
    from torch._subclasses.fake_tensor import FakeTensorMode

    dist.init_process_group(**begin)  # type: ignore[arg-type]
    with FakeTensorMode():
        fake = torch.ones(2)
        print(tried(dist.all_reduce, fake), tried(dist.broadcast, fake, 0), tried(dist.barrier))
elif what == "odd arguments":
    heard: list[str] = []

    class Odd:
        """Everything that can be asked of it is heard, and raises."""

        def hear(self, *args: Any) -> Any:
            heard.append(sys._getframe().f_code.co_name)
            raise KeyError("odd")

        __bool__ = __len__ = __iter__ = __index__ = __int__ = __eq__ = __str__ = __repr__ = (
            __getitem__
        ) = hear
        __class__ = property(hear)  # type: ignore[assignment]
        __hash__ = None  # type: ignore[assignment]

    class OddList(list):  # type: ignore[type-arg]
        def __getitem__(self, place: Any) -> Any:
            heard.append("item")
            raise KeyError("odd")

        def __bool__(self) -> bool:
            heard.append("bool")
            raise KeyError("odd")

    dist.init_process_group(**begin)  # type: ignore[arg-type]
    two, odd = torch.ones(2), Odd()
    nested = torch.nested.nested_tensor([torch.ones(1), torch.ones(2)])
    print(tried(dist.all_to_all_single, torch.zeros(2), two, np.array([2]), np.array([2])))
    print(tried(dist.all_to_all_single, torch.zeros(2), two, torch.tensor([2]), torch.tensor([2])))
    for function, args in (
        (dist.all_reduce, (odd,)),
        (dist.all_reduce, (two, odd)),
        (dist.all_reduce, (nested,)),
        (dist.broadcast, (two, odd)),
        (dist.broadcast, (two, torch.tensor(0))),
        (dist.broadcast, (two, np.int64(0))),
        (dist.all_gather, (odd, two)),
        (dist.all_gather, (OddList([two]), two)),
        (dist.reduce_scatter, (two, odd)),
        (dist.scatter, (two, OddList([two]), 0)),
        (dist.all_to_all, (odd, odd)),
        (dist.send, (two, odd)),
        (dist.irecv, (odd, 0)),
        (dist.batch_isend_irecv, (odd,)),
        (dist.batch_isend_irecv, ([odd],)),
        (dist.all_gather_object, (odd, 1)),
        (dist.gather, (two, None, odd)),
        (dist.monitored_barrier, (None, odd)),
        (dist.all_to_all_single, (torch.zeros(2), two, odd, odd)),
    ):
        print(function.__name__, tried(function, *args), heard)
        heard.clear()
    print(tried(dist.all_reduce, two, async_op=odd), tried(dist.barrier, async_op=odd), heard)
    store = dist.distributed_c10d._get_default_store()
    print(tried(store.wait, odd), tried(store.get, odd), heard)
    dist.all_reduce(two)
elif what in ("their exception", "bare TimeoutError"):

    class Cancelled(Exception):
        pass

    raised = Cancelled if what == "their exception" else TimeoutError
    dist.init_process_group(**begin)  # type: ignore[arg-type]
    recorder = state.recorder

    def interrupted(text: str, share: float = 1.0) -> int:
        # As another thread would at this moment: the exception comes at one of the next instructions.
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(threading.get_ident()), ctypes.py_object(raised)
        )
        return 0

    if recorder is not None:
        # A thread that has not begun yet takes exceptions that are meant for the one that has made it.
        path, end = recorder.box.path, time.monotonic() + 30
        while (
            read_box(path).box.heartbeat_s == read_box(path).box.created_s
            and time.monotonic() < end
        ):
            time.sleep(0.01)
        recorder.box.intern = interrupted  # type: ignore[method-assign]
        said = tried(probe.phase, "forward")
        del recorder.box.intern
    else:
        said = raised.__name__
    print(said)
elif what == "alarm":

    def ring(number: int, frame: object) -> None:
        raise TimeoutError("their time limit")

    def tidy(*args: object) -> None:
        os.kill(os.getpid(), signal.SIGALRM)

    signal.signal(signal.SIGALRM, ring)
    as_ever, retention.tidy = retention.tidy, tidy  # type: ignore[assignment]
    first = tried(dist.init_process_group, **begin)
    retention.tidy = as_ever
    if os.environ.get("HANGDOCTOR_DISABLE") == "1":
        dist.destroy_process_group()
        first = "TimeoutError"  # without the probe nothing of ours was there to be interrupted
    print(first, tried(dist.init_process_group, **begin))
elif what == "alarm in an operation":

    def ring(number: int, frame: object) -> None:
        raise TimeoutError("their time limit")

    def alarm(*args: object, **more: object) -> int:
        os.kill(os.getpid(), signal.SIGALRM)
        return 0

    signal.signal(signal.SIGALRM, ring)
    dist.init_process_group(**begin)  # type: ignore[arg-type]
    recorder, first = state.recorder, "TimeoutError TimeoutError"
    if recorder is not None:
        # Where a new shape is described, and where the group of a call is looked for.
        recorder.box.intern = alarm  # type: ignore[method-assign]
        first = tried(dist.all_reduce, torch.ones(3, 5))
        del recorder.box.intern
        unknown = dist.new_group([0])
        recorder.groups.by_id.clear()
        recorder.groups.find = alarm  # type: ignore[method-assign, assignment]
        first += " " + tried(dist.all_reduce, torch.ones(2), group=unknown)
        del recorder.groups.find
    print(first, tried(dist.all_reduce, torch.ones(3, 5)))
elif what in ("mute", "mute within", "array"):

    class Mute(Exception):
        def __str__(self) -> str:
            print("asked", file=sys.stderr)
            raise RuntimeError("no words")

    dist.init_process_group(**begin)  # type: ignore[arg-type]
    print(last().partition(" ")[0] if what == "array" else "")
    if what == "array":
        sys.exit(np.array([1, 2]))  # type: ignore[arg-type]
    raise Mute if what == "mute" else ValueError(Mute())
print(last())
dist.destroy_process_group()
leave()
