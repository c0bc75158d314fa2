"""Where a stack stands, and which of two is further."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hangdoctor.diagnosis.position import compare
from hangdoctor.model.capture import Frame, ThreadSample
from hangdoctor.model.layout import Layout, guess_layout
from hangdoctor.stacks.place_search import find_place, python_frames
from hangdoctor.stacks.rank_thread import rank_thread
from hangdoctor.stacks.user_code import is_users
from hangdoctor.text.ranges import format_hosts, format_ranks, parse_hosts, parse_ranks

C10D = "/site-packages/torch/distributed/distributed_c10d.py"


def stack(*frames: str, code: str = "") -> list[Frame]:
    """``"name file:line"`` from the innermost out; `code` is the innermost source line."""
    made = []
    for text in frames:
        name, _, at = text.rpartition(" ")
        file, _, line = at.rpartition(":")
        made.append(Frame(name, file, int(line)))
    made[0].code = code
    return made


@pytest.mark.parametrize(
    ("frames", "kind", "op", "line"),
    [
        ([f"all_reduce {C10D}:9", "train train.py:3"], "collective", "all_reduce", 3),
        (
            [f"all_gather {C10D}:9", f"all_gather_object {C10D}:5", "train train.py:3"],
            "collective",
            "all_gather_object",
            3,
        ),
        (
            [
                f"barrier {C10D}:1",
                f"new_group {C10D}:2",
                f"init_process_group {C10D}:3",
                "main t.py:8",
            ],
            "start",
            "init_process_group",
            8,
        ),
        (
            [
                f"recv {C10D}:1",
                "recv /site-packages/deepspeed/comm/comm.py:4",
                "recv /site-packages/deepspeed/runtime/pipe/p2p.py:5",
                "_exec e.py:6",
            ],
            "p2p",
            "recv",
            6,
        ),
        (
            [
                f"reduce_scatter_tensor {C10D}:4962",
                "wrapper /site-packages/typing_extensions.py:3140",
                "TorchBackend.reduce_scatter_tensor /site-packages/deepspeed/comm/torch.py:437",
                "_reduce grads.py:23",
            ],
            "collective",
            "reduce_scatter_tensor",
            23,
        ),
        (
            [
                "sleep_in_reduce user.py:1",
                f"_object_to_tensor {C10D}:2",
                f"all_gather_object {C10D}:3",
                "train train.py:4",
            ],
            "code",
            "",
            1,
        ),
        # A function of that name elsewhere is not the collective
        (["all_reduce mine.py:1", "train train.py:3"], "code", "", 1),
        (
            [
                "__getitem__ d.py:3",
                "fetch /site-packages/torch/utils/data/_utils/fetch.py:5",
                "train t.py:9",
            ],
            "data",
            "data loader",
            3,
        ),
        (
            [
                "write /site-packages/torch/serialization.py:5",
                "save /site-packages/torch/serialization.py:7",
                "save_checkpoint t.py:9",
            ],
            "checkpoint",
            "save",
            9,
        ),
        # Activation checkpointing
        (
            ["checkpoint /site-packages/torch/utils/checkpoint.py:5", "forward t.py:9"],
            "code",
            "",
            9,
        ),
        ([f"destroy_process_group {C10D}:4", "main t.py:9"], "end", "destroy_process_group", 9),
        # As torch 2.13's own stack of a wait for a functional collective is.
        (
            [
                "make_autograd_impl.<locals>.autograd_impl /site-packages/torch/_library/autograd.py:123",
                "OpOverloadPacket.__call__ /site-packages/torch/_ops.py:1279",
                "wait_tensor /site-packages/torch/distributed/_functional_collectives.py:142",
                "step t.py:9",
            ],
            "collective",
            "functional collective",
            9,
        ),
        (["_shutdown /usr/lib/python3.11/threading.py:1500"], "end", "interpreter exit", 1500),
    ],
)
def test_places(frames: list[str], kind: str, op: str, line: int) -> None:
    place = find_place(stack(*frames))
    assert (place.kind, place.op) == (kind, op)
    assert place.frame is not None and place.frame.line == line


GATHER = [
    f"all_gather {C10D}:9",
    "_gpu_gather_one /v/site-packages/accelerate/utils/operations.py:335",
    "gather /v/site-packages/accelerate/accelerator.py:2500",
    "evaluate /app/train.py:88",
    "main /app/train.py:120",
]


def test_the_users_line_is_named_and_the_frameworks_is_known() -> None:
    place = find_place(stack(*GATHER))
    assert place.frame is not None and place.caller is not None
    assert (place.frame.name, place.frame.line) == ("evaluate", 88)
    assert place.caller.name == "_gpu_gather_one"
    # What multiprocessing spawns begins with a line of its own.
    place = find_place(stack(*GATHER[:3], "<module> <string>:1"))
    assert place.frame is not None and place.frame.name == "_gpu_gather_one"
    # Sleeping in a framework, outside of any communication
    place = find_place(stack("poll /v/site-packages/lightning/fabric/x.py:3", *GATHER[3:]))
    assert place.frame is not None and place.caller is not None
    assert (place.kind, place.frame.name, place.caller.name) == ("code", "evaluate", "poll")
    # No line of the user's: the framework's
    place = find_place(stack(*GATHER[:3]))
    assert place.frame is not None and place.frame.name == "_gpu_gather_one"


def test_one_operation_of_a_framework_called_from_two_lines_is_two_places() -> None:
    other = [*GATHER[:3], "evaluate /app/train.py:99", GATHER[4]]
    assert find_place(stack(*GATHER)).at != find_place(stack(*other)).at


@pytest.mark.parametrize(
    ("file", "users"),
    [
        ("/app/train.py", True),
        ("train.py", True),
        ("<string>", True),
        ("/tmp/ipykernel_12/345.py", True),
        ("/home/me/Megatron-LM/megatron/training/training.py", True),
        ("/v/lib/python3.11/site-packages/mine/x.py", False),
        ("/usr/lib/python3/dist-packages/x.py", False),
        ("/opt/conda/lib/python3.11/threading.py", False),
        ("accelerate/utils/operations.py", False),
        ("torch/_ops.py", False),
        ("<frozen runpy>", False),
        ("<eval_with_key>.3", False),
        ("/v/bin/vllm", False),
        ("", False),
    ],
)
def test_whose_code_it_is(file: str, users: bool) -> None:
    assert is_users(Frame("f", file, 3)) is users


LOOP = "/v/lib/python3.11/site-packages/ray/_private/worker.py:900"
WAIT = "wait /usr/lib/python3.11/threading.py:320"


@pytest.mark.parametrize(
    "main",
    [
        ["select /usr/lib/python3.11/selectors.py:468", "_run_once /l/asyncio/base_events.py:1884"],
        [f"main_loop {LOOP}", "<module> /v/site-packages/ray/_private/workers/default_worker.py:3"],
        [WAIT, "wait /usr/lib/python3.11/concurrent/futures/_base.py:305", "main t.py:1"],
        [WAIT, "result /usr/lib/python3.11/concurrent/futures/_base.py:451", "main t.py:1"],
        [WAIT, "wait /usr/lib/python3.11/threading.py:622", "main t.py:1"],
        [WAIT, "get /usr/lib/python3.11/queue.py:171", "main t.py:1"],
    ],
)
def test_the_thread_that_communicates_speaks_for_a_main_thread_that_waits(main: list[str]) -> None:
    first = ThreadSample(1, "MainThread", frames=stack(*main))
    loop = ThreadSample(2, "Thread-1", frames=stack(*GATHER))
    assert rank_thread([first, loop])[0] is loop
    busy = ThreadSample(1, "MainThread", frames=stack("forward /app/model.py:3", *main))
    assert rank_thread([busy, loop])[0] is busy


RAY = "/v/site-packages/ray"
RAY_GET = [f"get_objects {RAY}/_private/worker.py:1007", f"get {RAY}/_private/worker.py:3009"]
RAY_GET += [f"wrapper {RAY}/_private/client_mode_hook.py:134"]
IN_TRAIN = f"{RAY}/train/v2/_internal/execution"
SYNC = [*RAY_GET, f"broadcast_from_rank_zero {IN_TRAIN}/collective_impl.py:53"]
REPORT = [f"TrainContext._sync_checkpoint_dir_name_across_ranks {IN_TRAIN}/context.py:348"]
REPORT += [f"TrainContext.report {IN_TRAIN}/context.py:474"]
REPORT += [f"report {RAY}/train/v2/api/train_fn_utils.py:128", "train_loop /app/train.py:28"]


@pytest.mark.parametrize(
    ("frames", "kind", "op"),
    [
        ([*SYNC, *REPORT], "collective", "report"),
        (
            [*SYNC, f"barrier {RAY}/train/collective/collectives.py:90", REPORT[-1]],
            "collective",
            "barrier",
        ),
        ([f"upload {RAY}/train/v2/_internal/util.py:3", *REPORT[1:]], "code", ""),
        ([*RAY_GET, "train_loop /app/train.py:28"], "code", ""),
    ],
)
def test_barriers_of_ray_train_are_its_actors(frames: list[str], kind: str, op: str) -> None:
    place = find_place(stack(*frames))
    assert (place.kind, place.op) == (kind, op)
    assert place.frame is not None and place.frame.name == "train_loop"


def test_a_thread_of_the_users_speaks_for_a_main_thread_without_a_line_of_theirs() -> None:
    main = ThreadSample(1, "MainThread", frames=stack("serve /v/site-packages/some/worker.py:3"))
    loop = ThreadSample(2, "Thread-1", frames=stack("load_batch /app/data.py:40"))
    log = ThreadSample(3, "Thread-2", frames=stack("run /v/site-packages/wandb/x.py:40"))
    assert rank_thread([main, log, loop], blocked={1})[0] is loop
    assert rank_thread([main, log, loop])[0] is main  # it may be at work
    # The user's own lock: another thread of theirs is not the one that trains
    lock = ThreadSample(1, "MainThread", frames=stack(WAIT, "step /app/train.py:7"))
    assert rank_thread([lock, loop], blocked={1, 2})[0] is lock


def test_waits_without_a_frame_of_their_own_need_the_source_line_and_stillness() -> None:
    frames = stack("train t.py:3", code="handle.wait()")
    assert find_place(frames, blocked=True).kind == "collective"
    assert find_place(frames, blocked=False).kind == "code"
    assert (
        find_place(stack("train t.py:3", code="done.wait(timeout=3)"), blocked=True).kind == "code"
    )
    backward = stack(
        "_engine_run_backward /site-packages/torch/autograd/graph.py:8",
        "backward /site-packages/torch/_tensor.py:6",
        "train t.py:5",
    )
    assert (find_place(backward, blocked=True).kind, find_place(backward, blocked=False).kind) == (
        "collective",
        "code",
    )
    assert (
        find_place(stack("train t.py:3", code="loss = loss.item()"), blocked=True).kind == "device"
    )


@pytest.mark.parametrize(
    ("code", "kind", "op"),
    [
        ("world.Allreduce(part, total)", "collective", "Allreduce"),
        ("group = world.Create_group(members, tag=3)", "collective", "Create_group"),
        ("row = comm.Split(color=rank // 2, key=rank)", "collective", "Split"),
        ("x = self.comm.bcast(x, root=0)", "collective", "bcast"),
        ("MPI.COMM_WORLD.Barrier()", "collective", "Barrier"),
        ("self.win.Lock(0, MPI.LOCK_EXCLUSIVE)", "collective", "Lock"),
        ("window.Fence()", "collective", "Fence"),
        ("comm.barrier()", "collective", "barrier"),
        ("x = comm.recv(source=1)", "p2p", "recv"),
        ("self.comm.Recv(buffer, 0)", "p2p", "Recv"),
        ("MPI.Request.Waitall(requests)", "p2p", "Waitall"),
        ("x = data.gather(1, index)", "code", ""),
        ("message = connection.recv()", "code", ""),
        ("hub.barrier()", "code", ""),
    ],
)
def test_calls_of_mpi4py_are_told_by_their_line(code: str, kind: str, op: str) -> None:
    place = find_place(stack("step /app/t.py:3", code=code))
    assert (place.kind, place.op) == (kind, op)
    # Something is computed on that line first
    inside = find_place(stack("make /app/t.py:9", "step /app/t.py:3"))
    assert inside.kind == "code"


FUNCTIONAL = "/v/site-packages/torch/distributed/_functional_collectives.py"
FSDP = "/v/site-packages/torch/distributed/fsdp/_fully_shard"
JAX = "/v/site-packages/jax"


def test_jaxs_coordination_service_is_a_store() -> None:
    code = 'service.blocking_key_value_get("run", 1000)'
    place = find_place(stack("agree train.py:37", "main train.py:78", code=code))
    assert (place.kind, place.op) == ("collective", "store wait")


@pytest.mark.parametrize(
    ("frames", "code", "kind", "op"),
    [
        # An asynchronous tensor waits where it is first used.
        (
            [
                "forward_no_grad /v/site-packages/torch/_library/autograd.py:40",
                "apply /v/site-packages/torch/autograd/function.py:581",
                "autograd_impl /v/site-packages/torch/_library/autograd.py:123",
                "__call__ /v/site-packages/torch/_ops.py:1279",
                f"wait_tensor {FUNCTIONAL}:142",
                f"trigger_wait {FUNCTIONAL}:1115",
                f"unwrap {FUNCTIONAL}:1143",
                "tree_map /v/site-packages/torch/utils/_pytree.py:9",
                f"__torch_dispatch__ {FUNCTIONAL}:1160",
                "forward /app/model.py:7",
            ],
            "",
            "collective",
            "functional collective",
        ),
        (
            [f"foreach_all_gather_copy_out {FSDP}/_fsdp_collectives.py:449", "step /app/t.py:7"],
            "all_gather_work.wait()",
            "collective",
            "wait for a collective's handle",
        ),
        (
            [
                "_wait_batch_p2p /v/site-packages/torch/distributed/pipelining/schedules.py:683",
                "step /app/t.py:7",
            ],
            "w.wait()",
            "p2p",
            "send or recv of a pipeline stage",
        ),
        # A checkpoint's own functions are named like collectives, and run its writers.
        (
            [
                "fsync /v/site-packages/torch/distributed/checkpoint/filesystem.py:9",
                "all_reduce /v/site-packages/torch/distributed/checkpoint/utils.py:9",
                "save /app/t.py:7",
            ],
            "",
            "checkpoint",
            "fsync",
        ),
        (
            [
                "_value /v/site-packages/jax/_src/array.py:9",
                f"process_allgather {JAX}/experimental/multihost_utils.py:99",
                "evaluate /app/t.py:7",
            ],
            "",
            "collective",
            "process_allgather",
        ),
    ],
)
def test_frameworks_places(frames: list[str], code: str, kind: str, op: str) -> None:
    place = find_place(stack(*frames, code=code))
    assert (place.kind, place.op) == (kind, op)
    assert place.frame is not None and place.frame.line == 7


def test_the_thread_that_communicates_speaks_for_a_main_thread_that_joins() -> None:
    main = ThreadSample(
        1, "MainThread", frames=stack("join /usr/lib/python3.11/threading.py:9", "main t.py:1")
    )
    loop = ThreadSample(2, "Thread-1", frames=stack(f"all_reduce {C10D}:9", "loop t.py:4"))
    idle = ThreadSample(
        3,
        "Thread-2",
        frames=stack(
            "wait /usr/lib/python3.11/threading.py:320", "_monitor /site-packages/torch/x.py:4"
        ),
    )
    thread, place = rank_thread([main, idle, loop])
    assert thread is loop and place.op == "all_reduce"


def test_native_frames_are_passed_over_and_tell_where_python_does_not() -> None:
    mixed = stack(
        "pthread_cond_wait libc.so.6:0",
        "c10d::AllreduceWork::wait libtorch_cpu.so:0",
        f"all_reduce {C10D}:9",
        "train t.py:4",
    )
    assert find_place(mixed).op == "all_reduce"
    assert find_place(
        stack("c10d::Work::wait libtorch_cpu.so:0", "train t.py:4", code="x")
    ).kind in ("collective", "code")


def test_a_users_own_rules_come_first(tmp_path: Path) -> None:
    rules = tmp_path / "places.toml"
    rules.write_text(
        '[[rule]]\nkind = "collective"\nfunction = "exchange_halos"\nfile = "ocean/mesh\\\\.py$"\nop = "="\ngroup = "world"\n'
    )
    code = (
        "import json; from hangdoctor.stacks.place_search import find_place; from hangdoctor.model.capture import Frame\n"
        "p = find_place([Frame('exchange_halos', '/app/ocean/mesh.py', 7), Frame('main', '/app/run.py', 3)])\n"
        "print(json.dumps([p.kind, p.op, p.group]))"
    )

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"HANGDOCTOR_PLACES": str(rules)},
            capture_output=True,
            text=True,
        )

    assert json.loads(run().stdout) == ["collective", "exchange_halos", "world"]
    rules.write_text('[[rule]]\nkind = "collective"\nfunktion = "x"\n')
    assert "unknown field 'funktion'" in run().stderr


def test_which_stack_is_further() -> None:
    def at(*lines: int, **counters: int) -> list[Frame]:
        return [
            Frame(f"f{i}", "t.py", line, values=counters if i == 0 else {})
            for i, line in enumerate(lines)
        ]

    assert compare(at(5, 10), at(5, 12)) == -1
    assert compare(at(6, 10), at(5, 12)) == 1
    assert compare(at(5, 10), at(5, 10)) == 0
    assert compare(at(9, step=3), at(5, step=4)) == -1  # the counter decides before the line
    assert (
        compare(
            [Frame("f", "t.py", 5), Frame("g", "t.py", 1)],
            [Frame("f", "t.py", 5), Frame("h", "t.py", 9)],
        )
        is None
    )


def test_ranges_and_hosts() -> None:
    assert format_ranks([3, 1, 2, 0, 8]) == "0-3,8" and parse_ranks("0-3,8") == [0, 1, 2, 3, 8]
    assert format_hosts(["n1", "n2", "n3", "login"]) == "login,n[1-3]"
    assert parse_hosts("r7i6n[0-1,04],x") == ["r7i6n0", "r7i6n1", "r7i6n04", "x"]
    for hosts in (["n9", "n10", "n11"], ["a-01", "a-02", "b"], ["10.0.0.1", "10.0.0.2"]):
        assert sorted(parse_hosts(format_hosts(hosts))) == sorted(hosts)


def test_layout_of_megatron() -> None:
    layout = Layout(dp=2, pp=2, tp=2)
    assert (layout.group("tp", 5), layout.group("dp", 5), layout.group("pp", 5)) == (
        [4, 5],
        [5, 7],
        [1, 5],
    )
    assert layout.same_role(5) == [7]
    assert guess_layout(["python", "x.py", "--tensor-model-parallel-size", "2"], {}, 8) == Layout(
        dp=4, pp=1, tp=2
    )
    assert guess_layout(["python", "x.py"], {"PP_SIZE": "4"}, 8) == Layout(dp=2, pp=4, tp=1)
    assert guess_layout(["python", "x.py", "--tensor-model-parallel-size=3"], {}, 8) is None
    told = ["python", "x.py", "--tp", "2", "--dp", "2", "--pp", "2"]
    assert guess_layout(told, {}, 8) == layout
    assert guess_layout(["python", "x.py", "--tp", "2", "--dp", "2", "--cp", "2"], {}, 8) is None
    for axis in ("tp", "dp", "pp"):
        assert sorted(r for g in layout.groups(axis) for r in g) == list(range(8))


DDP = "/site-packages/torch/nn/parallel/distributed.py"
MULTIPROCESSING = "/usr/lib/python3.11/multiprocessing/process.py"


def test_a_process_that_multiprocessing_started_waits_for_no_child() -> None:
    """Its own `run` is around all that it does; to join another one is a wait."""
    started = stack(
        "augment train.py:19", "worker train.py:42", f"BaseProcess.run {MULTIPROCESSING}:108"
    )
    assert find_place(started).kind == "code"
    joins = stack(f"BaseProcess.join {MULTIPROCESSING}:149", "main train.py:60")
    assert find_place(joins).kind == "child"


def test_a_forward_that_does_not_run_waits_for_a_broadcast() -> None:
    forward = stack(f"DDP._pre_forward {DDP}:1775", f"DDP.forward {DDP}:1886", "step train.py:43")
    waits = find_place(forward, blocked=True)
    assert (waits.kind, waits.op) == ("collective", "broadcast in DistributedDataParallel")
    assert waits.frame is not None and waits.frame.line == 43
    assert find_place(forward).kind == "code"


def test_a_counter_of_a_loop_that_is_over_says_nothing() -> None:
    """One is in its 19th batch; the other has left the loop after 18, for the validation below."""
    batch = Frame("main", "train.py", 100, values={"epoch": 3, "i": 18}, counts="i")
    after = Frame("main", "train.py", 106, values={"epoch": 3, "i": 17}, counts="epoch", past="i")
    assert (compare([after], [batch]), compare([batch], [after])) == (1, -1)
    later = Frame("main", "train.py", 100, values={"epoch": 4, "i": 2}, counts="i")
    assert compare([after], [later]) == -1


def test_a_thread_of_the_probe_is_no_place_of_the_job() -> None:
    """Below Ray the main thread serves calls, and a heartbeat of ours waits beside it."""
    serves = Frame("Worker.main_loop", "/site-packages/ray/_private/worker.py", 1069)
    main = ThreadSample(tid=1, name="MainThread", state="S", frames=[serves])
    beat = Frame("Probe._beat", "/opt/hangdoctor/probe/process_probe.py", 175)
    ours = ThreadSample(tid=2, name="Thread-1", state="S", frames=[beat])
    assert python_frames(ours.frames) == []
    thread, place = rank_thread([main, ours])
    assert thread is main and place.frame == serves
