"""Would notice functions of torch.distributed that look, pickle, reload, wrap, patch or warn otherwise when a job handles them."""

import collections
import copy
import functools
import importlib
import inspect
import pickle
import pydoc
import sys
import typing
import warnings
from unittest import mock

import torch
import torch.distributed as dist
import witness
from torch.distributed import *  # noqa: F403
from torch.distributed import all_reduce as early
from torch.distributed import distributed_c10d as c10d

NAMES = [
    n for n in sorted(vars(c10d)) if inspect.isfunction(getattr(c10d, n)) and not n.startswith("__")
]

for name in NAMES:
    function = getattr(c10d, name)
    print(
        name,
        inspect.signature(function),
        function.__module__,
        function.__qualname__,
        len(function.__doc__ or ""),
    )
    print(inspect.iscoroutinefunction(function), function.__annotations__.keys())
    if function.__module__ == c10d.__name__ and getattr(c10d, function.__name__, None) is function:
        assert (
            pickle.loads(pickle.dumps(function)) is function and copy.deepcopy(function) is function
        )
    assert len(inspect.getsource(function)) > 20
for name in ("all_reduce", "isend", "new_group", "init_process_group"):
    print(pydoc.plain(pydoc.render_doc(getattr(dist, name)))[:300])
print(early is dist.all_reduce is c10d.all_reduce, all_reduce is early)  # noqa: F405
print(typing.get_type_hints(dist.barrier))
print(
    sorted(n for n in dir(dist) if "hangdoctor" in n),
    sorted(vars(dist.Work).keys() & {"wait", "is_completed", "result"}),
)
for owner, name in ((dist.Work, "wait"), (dist.Store, "get"), (dist.TCPStore, "wait")):
    method = getattr(owner, name)
    print(owner.__name__, method.__name__, callable(method), (method.__doc__ or "")[:60])
    try:
        print(inspect.signature(method))
    except ValueError as error:
        print(str(error)[:20])

dist.init_process_group("gloo")
t = torch.ones(3)

# Patched before and after, as DeepSpeed, tests and monitors do.
calls = collections.Counter()
original = dist.all_reduce


def counted(tensor, *args, **kwargs):
    calls["all_reduce"] += 1
    return original(tensor, *args, **kwargs)


dist.all_reduce = functools.wraps(original)(counted)
dist.all_reduce(t)
c10d.all_reduce(t)
dist.all_reduce = original
print(calls, dist.all_reduce is original is early)
partial = functools.partial(dist.all_reduce, op=dist.ReduceOp.MAX, async_op=True)
print(partial(t).wait(), t, functools.lru_cache(dist.get_rank)())
with mock.patch("torch.distributed.all_reduce") as fake:
    dist.all_reduce(t, 1)
    print(fake.mock_calls == [mock.call(t, 1)])
with mock.patch.object(c10d, "all_reduce", autospec=True) as fake:
    c10d.all_reduce(t)
    try:
        c10d.all_reduce()
    except TypeError as error:
        print(error)
with (
    mock.patch.object(c10d.all_reduce.__wrapped__, "__doc__", "patched"),
    mock.patch.dict(sys.modules, {"torch.distributed": mock.MagicMock()}),
):
    sys.modules["torch.distributed"].all_reduce(t)
spec = mock.create_autospec(dist.broadcast)
try:
    spec()
except TypeError as error:
    print(error)

# Wrong calls: torch's own words, without a trace of anything else.
for wrong in (
    lambda: dist.all_reduce(),
    lambda: dist.all_reduce([1]),
    lambda: dist.all_reduce(t, group="x"),
    lambda: dist.broadcast(t, 9),
    lambda: dist.broadcast(t, src=0, nonsense=1),
    lambda: dist.send(t, 0),
    lambda: dist.all_gather([t], t, t, t, t),
    lambda: dist.new_group([5]),
    lambda: dist.all_to_all_single(t, t, [1], [2]),
    lambda: dist.init_process_group("gloo"),
    lambda: dist.batch_isend_irecv([]),
    lambda: dist.batch_isend_irecv(3),
    lambda: dist.P2POp(print, t, 0),
    lambda: dist.barrier(7),
    lambda: dist.reduce_scatter(t, 3),
    lambda: dist.all_gather_object(None, 1),
    lambda: dist.destroy_process_group("no"),
    lambda: dist.scatter_object_list([], [1]),
    lambda: dist.monitored_barrier(t),
    lambda: dist.gather(t, [t, t]),
):
    try:
        print(wrong())
    except Exception as error:
        told = (
            error.__context__,
            error.__cause__,
            error.__notes__ if hasattr(error, "__notes__") else None,
        )
        print(type(error).__name__, str(error)[:150], [type(x).__name__ for x in told])

# Warnings: how many, and which file and module they blame.
with warnings.catch_warnings(record=True) as heard:
    warnings.simplefilter("always")
    out = torch.zeros(3)
    dist._all_gather_base(out, t)
    dist._reduce_scatter_base(out, t)
    dist.all_reduce_coalesced([t])
    dist.all_gather_coalesced([[out]], [t])
    for _ in range(3):
        dist.get_world_size()
    dist.new_group([0], pg_options=None)
print(
    [
        (str(w.message)[:60], w.category.__name__, w.filename.rpartition("/")[2], w.lineno)
        for w in heard
    ]
)
warnings.simplefilter("error")
for deprecated in (dist._all_gather_base, dist._reduce_scatter_base):
    try:
        print(deprecated(out, t))
    except Warning as error:
        print(type(error).__name__, str(error)[:40])
warnings.simplefilter("default")
witness.note("end")
dist.destroy_process_group()

importlib.reload(importlib.import_module("torch.distributed.utils"))
again = importlib.reload(c10d)
print(again is c10d, len([n for n in NAMES if hasattr(again, n)]) == len(NAMES))
again.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
again.all_reduce(t)
print(t)
