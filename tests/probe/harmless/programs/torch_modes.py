"""Would notice tensors in modes (functions, dispatch, fake, compiled, traced, profiled, autocast) that are computed or seen otherwise."""

import cProfile
import os
import sys

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import witness
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

dist.init_process_group("gloo")


class Functions(TorchFunctionMode):
    def __init__(self):
        self.seen = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.seen.append(getattr(function, "__name__", str(function)))
        return function(*args, **(kwargs or {}))


class Refusing(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        raise PermissionError(getattr(function, "__name__", "?"))


class Dispatched(TorchDispatchMode):
    def __init__(self):
        self.seen = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.seen.append(str(function))
        return function(*args, **(kwargs or {}))


class Mine(torch.Tensor):
    seen = []

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        cls.seen.append(getattr(function, "__name__", str(function)))
        return super().__torch_function__(function, types, args, kwargs)


def operations(tensor):
    dist.all_reduce(tensor)
    dist.broadcast(tensor, 0)
    dist.all_gather([torch.empty_like(tensor)], tensor)
    work = dist.all_reduce(tensor, async_op=True)
    work.wait()
    dist.all_reduce_coalesced([tensor])
    dist.all_to_all_single(torch.empty_like(tensor), tensor)
    return tensor


for mode in (Functions(), Dispatched()):
    with mode:
        operations(torch.ones(3))
    print(type(mode).__name__, mode.seen)
with Refusing():
    for call in (
        dist.all_reduce,
        lambda x: dist.broadcast(x, 0),
        lambda x: dist.barrier(),
        lambda x: dist.reduce(x, 0),
    ):
        try:
            print(call(torch.Tensor.__new__(torch.Tensor)))
        except Exception as error:
            print(type(error).__name__, error)
mine = torch.ones(3).as_subclass(Mine)
Mine.seen.clear()
operations(mine)
print("subclass", Mine.seen, type(mine).__name__)
print("parameter", operations(torch.nn.Parameter(torch.ones(3), requires_grad=False)))

with FakeTensorMode():
    fake = torch.ones(3)
    for call in (
        lambda: dist.all_reduce(fake),
        lambda: functional.all_reduce(fake, "sum", dist.group.WORLD).shape,
    ):
        try:
            print("fake", call())
        except Exception as error:
            print("fake", type(error).__name__, str(error)[:60])
with torch.device("meta"), torch.inference_mode():
    print(torch.ones(3).shape)
with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
    print("autocast", operations(torch.ones(3) @ torch.ones(3, 3)))
sparse = torch.eye(3).to_sparse()
dist.all_reduce(sparse)
print("sparse", sparse.is_coalesced(), sparse.to_dense().sum())


def step(x):
    y = functional.all_reduce(x * 2, "sum", dist.group.WORLD)
    z = x + 1
    dist.all_reduce(z)
    return y + z.sum()


graphs = []


def backend(graph, inputs):
    graphs.append([str(node.target).partition(" at ")[0] for node in graph.graph.nodes])
    return graph.forward


compiled = torch.compile(step, backend=backend)
print("compiled", compiled(torch.ones(3)), compiled(torch.ones(4)), step(torch.ones(3)))
print(graphs)
print(torch._dynamo.utils.counters["graph_break"].values(), torch._dynamo.utils.counters["stats"])
print(
    "traced",
    [
        str(n.target)
        for n in torch.fx.symbolic_trace(
            lambda x: functional.all_reduce(x, "sum", dist.group.WORLD)
        ).graph.nodes
    ],
)

with torch.profiler.profile(with_stack=False) as profile:
    operations(torch.ones(3))
print(sorted(e.key for e in profile.key_averages() if "c10d" in e.key or "gloo" in e.key))
calls = []
profiler = cProfile.Profile()
profiler.runcall(operations, torch.ones(3))
sys.settrace(
    lambda frame, event, arg: (
        calls.append(frame.f_code.co_name) if frame.f_code.co_filename == __file__ else None
    )
)
operations(torch.ones(3))
sys.settrace(None)
print(calls)
witness.note("end")
torch.save(operations(torch.ones(3)), os.path.join(os.environ["TMPDIR"], "kept"))
dist.destroy_process_group()
