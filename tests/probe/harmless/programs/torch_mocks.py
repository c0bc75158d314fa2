"""Would notice fakes and stand-ins for torch.distributed (groups, stores, handles, backends, worlds of threads) that behave otherwise."""

import datetime
import sys
import threading
import types

stub = types.ModuleType("stub")
exec(
    "def all_reduce(tensor): return 'stub'\ndef init_process_group(*a, **k): return 'stub group'",
    vars(stub),
)

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import witness  # noqa: E402
from torch.distributed import distributed_c10d as c10d  # noqa: E402
from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402

t = torch.ones(2)

# A whole world that is not there.
dist.init_process_group("fake", store=FakeStore(), rank=3, world_size=512)
dist.all_reduce(t)
dist.all_gather([torch.empty(2) for _ in range(512)], t)
print(
    t,
    dist.get_rank(),
    dist.get_world_size(),
    dist.new_group([1, 2]) is dist.GroupMember.NON_GROUP_MEMBER,
)
handles = [dist.isend(t, 5), dist.irecv(t, 5)]
print([h.wait() for h in handles])
with dist._coalescing_manager(async_ops=True) as manager:
    dist.all_reduce(t)
manager.wait()
witness.note("fake world")
dist.destroy_process_group()


# A group, a handle and a store that the job wrote itself, with their own ideas of what they are called.
class Handle(dist.Work):
    def __init__(self, tensors):
        super().__init__()
        self.future = torch.futures.Future()
        self.future.set_result(tensors)

    def wait(self, timeout=datetime.timedelta(seconds=1)):
        print("my wait", timeout)
        return True

    def is_completed(self):
        raise LookupError("never ask")

    def get_future(self):
        return self.future


class Group(dist.ProcessGroup):
    def allreduce(self, tensors, options=None):
        tensors[0].mul_(7)
        return Handle(tensors)

    def broadcast(self, tensors, options=None):
        raise ArithmeticError("mine")

    def getBackendName(self):  # noqa: N802
        return "mine"

    @property
    def group_desc(self):
        raise LookupError("no name")

    def __repr__(self):
        return "a group of my own"


class Store(dist.Store):
    def __init__(self):
        super().__init__()
        self.kept = {}

    def set(self, key, value):
        self.kept[key] = value if isinstance(value, bytes) else value.encode()

    def get(self, key):
        return self.kept[key]

    def add(self, key, n):
        self.kept[key] = str(int(self.kept.get(key, b"0")) + n).encode()
        return int(self.kept[key])

    def wait(self, keys, timeout=None):
        missing = [k for k in keys if k not in self.kept]
        if missing:
            raise LookupError(missing)


store = Store()
store.set("a", "1")
print(store.get("a"), store.add("n", 2), store.wait(["a"]))
try:
    store.wait(["b"])
except Exception as error:
    print(type(error).__name__, error)
prefixed = dist.PrefixStore("p", dist.HashStore())
prefixed.set("k", "v")
print(prefixed.get("k"), prefixed.check(["k"]))
try:
    prefixed.wait(["never"], datetime.timedelta(milliseconds=30))
except Exception as error:
    print(type(error).__name__)

dist.Backend.register_backend(
    "mine", lambda store, rank, size, timeout: Group(rank, size), devices=["cpu"]
)
dist.init_process_group("mine", store=dist.HashStore(), rank=0, world_size=1)
for call in (
    lambda: dist.all_reduce(t),
    lambda: dist.all_reduce(t, async_op=True).wait(),
    lambda: dist.broadcast(t, 0),
    lambda: dist.all_reduce(t, async_op=True).is_completed(),
):
    try:
        print(call(), t)
    except Exception as error:
        print(type(error).__name__, error)
witness.note("own group")
dist.destroy_process_group()

# A module that only looks like it, and one whose attributes bite.
real = sys.modules.pop("torch.distributed.distributed_c10d")
sys.modules["torch.distributed.distributed_c10d"] = stub
print(stub.init_process_group(), stub.all_reduce(t))
sys.modules["torch.distributed.distributed_c10d"] = real


class Biting(types.ModuleType):
    def __getattr__(self, name):
        raise RuntimeError(f"no {name}")


sys.modules["biting"] = Biting("biting")
print(c10d._get_default_timeout("gloo") > datetime.timedelta(0))

# Ranks that are threads of one process.
from torch.testing._internal.distributed import multi_threaded_pg  # noqa: E402

multi_threaded_pg._install_threaded_pg()
torch._C._distributed_c10d._set_thread_isolation_mode(True)
shared = dist.HashStore()
sums = {}


def rank(number):
    dist.init_process_group("threaded", rank=number, world_size=3, store=shared)
    mine = torch.full((2,), float(number))
    dist.all_reduce(mine)
    parts = [torch.zeros(1) for _ in range(3)]
    dist.all_gather(parts, torch.ones(1) * number)
    dist.barrier()
    sums[number] = (mine.tolist(), [p.item() for p in parts], dist.get_rank())
    dist.destroy_process_group()


threads = [threading.Thread(target=rank, args=(n,), daemon=True) for n in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join(20)
print(sorted(sums.items()))
multi_threaded_pg._uninstall_threaded_pg()
