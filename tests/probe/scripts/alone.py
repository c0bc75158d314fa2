"""One rank that lives through what the argument says, and prints what it computed."""

import contextlib
import io
import multiprocessing
import os
import sys

import torch
import torch.distributed as dist

what = sys.argv[1]


def own_box():  # type: ignore[no-untyped-def]
    from hangdoctor.readers.blackbox import find_boxes, read_box

    return [read_box(b.path) for b in find_boxes(os.environ["HANGDOCTOR_DIR"], pids=[os.getpid()])]


def child(port: int) -> None:
    os.environ["MASTER_PORT"] = str(port)
    before = len(own_box())
    dist.init_process_group("gloo")
    dist.all_reduce(torch.ones(1))
    (box,) = own_box()
    print("child", before, [o.op for o in box.ops.operations], flush=True)
    dist.destroy_process_group()


if what == "late":  # the job imported, saved and began everything before the probe came
    from torch.distributed import P2POp
    from torch.distributed import all_reduce as early

    saved = dist.isend
    dist.init_process_group("gloo")
    group = dist.new_group([0])
    from hangdoctor import probe

    assert probe.install() and probe.install()
    early(torch.ones(1))
    dist.all_reduce(torch.ones(2), group=group)
    P2POp(saved, torch.ones(1), 0)
    (box,) = own_box()
    print([(o.op, o.seq) for o in box.ops.operations], len(box.ops.groups))
    dist.destroy_process_group()
elif what == "fork":
    fork = multiprocessing.get_context("fork").Process(target=child, args=(int(sys.argv[2]),))
    from hangdoctor import probe

    probe.phase("set-up")  # the parent has a box already, and no threads of gloo's
    (parent,) = own_box()
    fork.start()
    fork.join()
    assert fork.exitcode == 0
    assert os.path.exists(parent.box.path)  # noqa: PTH110
    print("parent", own_box()[0].ops.phase, len(os.listdir(os.environ["HANGDOCTOR_DIR"])))
elif what in ("closed", "foreign", "overflow"):
    dist.init_process_group("gloo")
    from hangdoctor.probe.process_probe import probe as state

    recorder = state.recorder
    if what == "closed":
        path = recorder.box.path
        recorder._signatures = None  # both ways of recording look a new one up here
        for _ in range(3):
            dist.all_reduce(t := torch.ones(2))
        from hangdoctor.readers.blackbox import read_box

        box = read_box(path)
        print(t.tolist(), box.box.state, box.ops.notes[0].partition(" at ")[0], state.recorder)
    elif what == "foreign":
        # A signal handler's exception in the middle of the probe's own code belongs to the job.
        class Alarm(Exception):
            pass

        def known(*told):  # type: ignore[no-untyped-def]
            raise Alarm

        recorder.locate = known  # the extension asks where a call came from
        recorder._sites = type("Interrupted", (), {"get": staticmethod(known)})
        with contextlib.suppress(Alarm):
            dist.all_reduce(torch.ones(2))
            print("the exception was swallowed")
        print("on" if state.recorder is recorder else "off")
    else:
        for i in range(1, 4000):
            dist.broadcast(torch.empty(i), 0)
        (box,) = own_box()
        last = box.ops.operations[-1]
        print(
            box.ops.overwritten,
            len(box.ops.operations),
            last.seq,
            last.shapes,
            last.dtype,
            box.torn,
        )
    dist.destroy_process_group()
elif what == "compile":
    import torch._dynamo

    dist.init_process_group("gloo")
    world = dist.get_world_size()

    def step(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        dist.barrier()
        dist.all_reduce(y)
        return y + 1

    def whole(x: torch.Tensor) -> torch.Tensor:
        y = x * 3
        dist.all_reduce(y)
        return y - 1

    print(torch.compile(step, backend="eager")(torch.ones(3)).tolist())
    with contextlib.redirect_stderr(io.StringIO()):
        print(torch.compile(whole, backend="eager", fullgraph=True)(torch.ones(3)).tolist())
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for _ in range(2):
        weight.grad = torch.ones(2)
        torch.compile(lambda: optimizer.step(), backend="eager")()
    print(weight.tolist())
    print(
        torch._dynamo.utils.counters["stats"]["unique_graphs"],
        sum(torch._dynamo.utils.counters["graph_break"].values()),
    )
    outside = torch.compile(lambda x: x * 2, backend="eager")(torch.ones(2))
    dist.all_reduce(outside)
    print(outside.tolist())
    if "hangdoctor" in sys.modules:
        (box,) = own_box()
        assert [o.op for o in box.ops.operations][1] == "barrier", box.ops.operations
        assert box.ops.operations[-1].op == "all_reduce" and not box.ops.notes
    dist.destroy_process_group()
