"""One rank whose process group is a Python class, with handles of its own making.

Prints what a job can see of them. The same must be printed with and without the probe, but for the
last line: whether the probe is on, and what it has recorded.
"""

import os
import sys
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from hangdoctor.probe import folder as folders
from hangdoctor.probe.process_probe import probe as state
from hangdoctor.readers.blackbox import read_box
from tests.support.forked import each, leave

what = each(sys.argv[1:])
heard: list[str] = []


class Slotted:
    """No attributes but its own, and no weak references."""

    __slots__ = ("waited",)

    def is_completed(self) -> bool:
        return True

    def wait(self, timeout: Any = None) -> bool:
        self.waited = True
        return True


class Asked(type):
    """A class that tells and raises when it is asked for anything that it has not."""

    def __getattr__(cls, name: str) -> Any:
        heard.append(f"class {name}")
        raise KeyError(name)


class Mute(metaclass=Asked):
    """Everything that can be asked of it is heard, and raises; but it can be waited for."""

    def wait(self, timeout: Any = None) -> bool:
        return True

    def hear(self, *args: Any) -> Any:
        heard.append(sys._getframe().f_code.co_name)
        raise KeyError("mute")

    __bool__ = __len__ = __iter__ = __repr__ = __getitem__ = hear
    __eq__ = __getattr__ = hear  # type: ignore[assignment]
    __class__ = property(hear)  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]


class Finished(Mute):
    def is_completed(self) -> bool:
        return True


class Subclass(dist.Work):
    """One of torch's, in Python, that neither waits nor tells as torch's does."""

    def __init__(self) -> None:
        super().__init__()

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        return True


class Inherits(dist.Work):
    """One that leaves it to torch whether it is done."""

    def is_completed(self) -> bool:
        return super().is_completed()


KINDS: dict[str, Any] = {
    "slots": Slotted,
    "class raises": Mute,
    "attributes raise": Finished,
    "subclass": Subclass,
    "tuple": tuple,
    "inherits": Inherits,
}


class Group(dist.ProcessGroup):
    """All of it is Python's; an operation only returns a handle of the kind that is tried."""

    def __init__(self, rank: int, size: int) -> None:
        super().__init__(rank, size)

    def _any(self, *args: Any, **kwargs: Any) -> Any:
        return KINDS[what]()

    allreduce = broadcast = allgather = _any  # type: ignore[assignment]
    send = recv = _any  # type: ignore[assignment]

    def getBackendName(self) -> str:
        return "theirs"


def make(store: Any, rank: int, size: int, timeout: Any) -> Group:
    return Group(rank, size)


def tried(call: Any, *args: Any, **kwargs: Any) -> str:
    """What came of it, and of waiting for what it returned."""
    try:
        work = call(*args, **kwargs)
        if type(work) is Inherits:
            return f"{work.is_completed()} {type(work).__name__}"
        waited = type(work).wait(work) if type(work) not in (tuple, type(None)) else None
        return f"{type(work).__name__} {waited}"
    except Exception as error:
        return f"{type(error).__name__} {error}"


def last() -> str:
    if os.environ.get("HANGDOCTOR_DISABLE") == "1":
        return "-"
    if state.recorder is None:
        return f"off: {read_box(next(folders.job_folder(os.environ).glob('*.blackbox'))).box.note}"
    ops = read_box(state.recorder.box.path).ops.operations
    return "on " + " ".join(f"{o.op}#{o.seq}{o.shapes}" for o in ops if o.shapes)


dist.Backend.register_backend("theirs", make, devices=["cpu"])
dist.init_process_group("theirs", store=dist.HashStore(), rank=0, world_size=1)
two = torch.ones(2)
for _ in range(2):
    print(tried(dist.all_reduce, two, async_op=True), heard)
    print(tried(dist.broadcast, two, 0, async_op=True), heard)
    print(tried(dist.isend, two, 0), heard)
    print(tried(dist.irecv, two, 0), heard)
    print(tried(dist.irecv, two), heard)
    heard.clear()
print(tried(dist.all_reduce, two, sooner=True, async_op=True), heard)
print(last())
leave()
