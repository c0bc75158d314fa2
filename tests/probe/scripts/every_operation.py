"""Calls everything that the probe records, prints a digest of results and exceptions, and saves its own box's contents.

The output must not depend on the probe: the test compares a run with it to one without.
"""

import contextlib
import hashlib
import inspect
import os
import pickle
import sys
import threading
import warnings
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed import all_reduce as imported_by_name

warnings.filterwarnings("ignore", category=FutureWarning)
saved_to = sys.argv[1]
results: list[str] = []


def keep(name: str, *values: object) -> None:
    raw = [v.numpy().tobytes() if isinstance(v, torch.Tensor) else repr(v).encode() for v in values]
    results.append(f"{name} {hashlib.sha256(b'|'.join(raw)).hexdigest()[:16]}")


def data(*shape: int, of: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(of))


def error(name: str, call: object) -> None:
    try:
        call()
        results.append(f"{name} no exception")
    except Exception as e:
        # Without addresses and ports, which differ from run to run.
        results.append(f"{name} {type(e).__name__}: {str(e)[:60]}")


dist.init_process_group("gloo", timeout=timedelta(seconds=60))
rank, world = dist.get_rank(), dist.get_world_size()

# ---- collectives
t = data(4, of=rank)
dist.all_reduce(t)
imported_by_name(t, op=dist.ReduceOp.MAX)
keep("all_reduce", t)
t = data(3, 2, of=rank)
dist.broadcast(t, src=1)
dist.reduce(t, 2, op=dist.ReduceOp.SUM)
keep("broadcast", t)
outs = [torch.empty(5) for _ in range(world)]
dist.all_gather(outs, data(5, of=rank))
keep("all_gather", *outs)
out = torch.empty(world * 2)
with contextlib.suppress(AttributeError):
    dist.all_gather_into_tensor(out, data(2, of=rank))
keep("all_gather_into_tensor", out)
outs = [torch.empty(2) for _ in range(world)] if rank == 0 else None
dist.gather(data(2, of=rank), outs, dst=0)
keep("gather", *(outs or []))
ins = [data(2, of=i) for i in range(world)] if rank == 1 else None
out = torch.empty(2)
dist.scatter(out, ins, src=1)
keep("scatter", out)
out = torch.empty(3)
dist.reduce_scatter(out, [data(3, of=rank + i) for i in range(world)])
keep("reduce_scatter", out)
out = torch.empty(2)
dist.reduce_scatter_tensor(out, data(2 * world, of=rank))
keep("reduce_scatter_tensor", out)
out = torch.empty(world)
dist.all_to_all_single(out, data(world, of=rank))
keep("all_to_all_single", out)
parts = [of + 1 for of in range(world)]  # every rank sends K + 1 rows to rank K
mine = torch.empty(world * (rank + 1))
dist.all_to_all_single(mine, data(sum(parts), of=rank), [rank + 1] * world, input_split_sizes=parts)
keep("all_to_all_single", mine)
error(
    "all_to_all",
    lambda: dist.all_to_all(
        [torch.empty(1) for _ in range(world)], list(data(world, of=rank).split(1))
    ),
)
dist.barrier()

# ---- asynchronous: awaited, polled, dropped
t = data(4, of=rank)
handle = dist.all_reduce(t, async_op=True)
keep("wait", handle.wait())
polled = dist.all_reduce(t, async_op=True)
while not polled.is_completed():
    pass
del polled
dropped = dist.all_reduce(t, async_op=True)
dropped.get_future().wait()
del dropped
keep("async", t)

# ---- objects
everything: list[object] = [None] * world
dist.all_gather_object(everything, {"rank": rank})
gathered = [None] * world if rank == 0 else None
dist.gather_object(("x", rank), gathered, dst=0)
told = [rank, "b"]
dist.broadcast_object_list(told, src=2)
mine: list[object] = [None]
dist.scatter_object_list(mine, [f"for {i}" for i in range(world)] if rank == 0 else None, src=0)
keep("objects", everything, gathered, told, mine)

# ---- point to point, in a ring
right, left = (rank + 1) % world, (rank - 1) % world
got = torch.empty(6)
if rank == 0:
    dist.send(data(6, of=rank), right)
    source = dist.recv(got)
else:
    source = dist.recv(got, left)
    dist.send(got, right)
keep("ring", got, source)
sending, receiving = (
    dist.isend(data(7, of=rank), right, tag=5),
    dist.irecv(into := torch.empty(7), left, None, 5),
)
receiving.wait()
sending.wait()
batched = torch.empty(8)
ops = [
    dist.P2POp(dist.isend, data(8, of=rank), right, tag=2),
    dist.P2POp(dist.irecv, batched, left, tag=2),
]
for work in dist.batch_isend_irecv(ops):
    work.wait()
listed: list[object] = [None]
if rank == 0:
    dist.send_object_list(["hello"], 1)
elif rank == 1:
    dist.recv_object_list(listed, 0)
keep("p2p", into, batched, listed)

# ---- groups: equal sets made twice, one that this rank is not in
pair = dist.new_group([0, 1])
same_again = dist.new_group([0, 1])
odd = dist.new_group([0, 2])
if rank in (0, 1):
    dist.all_reduce(t, group=pair)
    dist.all_reduce(t, group=same_again)
    dist.broadcast(t, group=pair, group_src=1)
if rank in (0, 2):
    dist.barrier(group=odd)
dist.all_reduce(t, group=pair)  # rank 2 is no member: a warning of torch's, nothing else
if rank in (0, 1):
    dist.destroy_process_group(same_again)
keep("groups", t)
dist.monitored_barrier(timeout=timedelta(seconds=30))
with dist.distributed_c10d._coalescing_manager():
    for i in range(2):
        dist.all_reduce(t[i : i + 1])
keep("coalesced", t)

# ---- the store
store = dist.distributed_c10d._get_default_store()
if rank == 0:
    store.set("probe-test", "value")
store.wait(["probe-test"])
keep("store", store.get("probe-test"))

# ---- exceptions
error("no tensor", lambda: dist.all_reduce("nonsense"))
error("unknown argument", lambda: dist.all_reduce(t, nonsense=1))
error("no argument", lambda: dist.broadcast())
error("wrong root", lambda: dist.broadcast(t, src=99))
error("wrong list", lambda: dist.batch_isend_irecv([1]))
error("wrong op", lambda: dist.P2POp(dist.all_reduce, t, 0))
error("short store wait", lambda: store.wait(["never"], timedelta(milliseconds=50)))
dist.all_reduce(t)  # counted as before: what torch refused has not been

# ---- other threads, one after the other so that all ranks agree on the order
for _ in range(2):
    worker = threading.Thread(target=lambda: dist.all_reduce(t), name="communicator")
    worker.start()
    worker.join()
keep("threads", t, sorted(x.name for x in threading.enumerate()))

# ---- a forked child leaves the parent's box alone, and makes its own when it joins a group
child = os.fork()
if child == 0:
    dist.all_reduce  # noqa: B018 - looked at, not called: gloo's threads are not here
    os._exit(0)
os.waitpid(child, 0)

# ---- functions look as they did
keep(
    "names",
    dist.all_reduce.__name__,
    dist.all_reduce.__module__,
    str(inspect.signature(dist.all_reduce)),
)
keep("pickle", pickle.loads(pickle.dumps(dist.all_reduce)) is dist.all_reduce)
dist.barrier()

if "hangdoctor" in sys.modules and saved_to != "-":
    import msgspec

    from hangdoctor.readers.blackbox import find_boxes, read_box

    (box,) = find_boxes(os.environ["HANGDOCTOR_DIR"], pids=[os.getpid()])
    Path(saved_to, f"{rank}.json").write_bytes(msgspec.json.encode(read_box(box.path)))
dist.barrier()
dist.destroy_process_group()
print("\n".join(results))
