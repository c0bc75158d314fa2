"""A simulated capture of a large job: operations from the accuracy benchmark's simulator, stacks
and /proc made up around them.
"""

from __future__ import annotations

import json
import random

from benchmarks.accuracy.simulate import Settings, simulate
from hangdoctor.model.capture import (
    Frame,
    JobCapture,
    NodeCapture,
    ProcessSample,
    RankCapture,
    SilentNode,
    ThreadSample,
)
from hangdoctor.model.layout import Layout
from hangdoctor.model.operations import RankOps
from hangdoctor.text.ranges import number_in

PER_NODE = 8
_TORCH = "/env/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
_PIPE = "/env/lib/python3.11/site-packages/deepspeed/runtime/pipe/engine.py"


def capture(
    layout: Layout, kind: str = "not_entered", seed: int = 1, silent_nodes: int = 1
) -> JobCapture:
    """Every rank with operations, two samples, nine threads, and what py-spy printed; the last
    nodes say nothing.
    """
    case = simulate(kind, layout, seed, Settings(ring=50))
    before = {o.rank: o for o in case.before}
    culprits = (
        set(case.truth.ranks) if kind in ("not_entered", "two_faults") else set()
    )  # who is outside any operation
    nodes: dict[str, NodeCapture] = {}
    silent: dict[str, list[int]] = {}
    count = layout.world_size // PER_NODE
    quiet = {
        n
        for n in range(count - silent_nodes, count)
        if not set(case.truth.ranks) & set(range(n * PER_NODE, (n + 1) * PER_NODE))
    }
    rng = random.Random(seed)
    for ops in case.after:
        number = ops.rank // PER_NODE
        name = f"gpu{number:03d}"
        if number in quiet:
            silent.setdefault(name, []).append(ops.rank)
            continue
        node = nodes.setdefault(name, NodeCapture(name, "slurm:2180718.0", layout=layout))
        node.ranks.append(_rank(ops, before.get(ops.rank), name, ops.rank in culprits, rng))
        node.raw[f"{node.ranks[-1].pid}.1.json"] = _printed(node.ranks[-1])
    return JobCapture(
        "slurm:2180718.0",
        list(nodes.values()),
        [SilentNode(n, "no answer within 20 s", r) for n, r in silent.items()],
        world_size=layout.world_size,
        layout=layout,
        settle_s=1.0,
        taken=max(o.entered_s for ops in case.after for o in ops.operations) + 600,
        took_s=4.2,
    )


def _rank(
    ops: RankOps, before: RankOps | None, node: str, culprit: bool, rng: random.Random
) -> RankCapture:
    frames = _stack(ops, culprit)
    pid = 40_000 + rng.randrange(20_000)
    main = ThreadSample(
        pid,
        "MainThread",
        "S",
        "hrtimer_nanosleep" if culprit else "futex_wait_queue",
        frames=frames,
        switches=100,
    )
    idle = [
        ThreadSample(
            pid + 1 + i,
            f"Thread-{i} (_run)",
            "S",
            frames=[
                Frame("wait", "/usr/lib/python3.11/threading.py", 324),
                Frame("_run", "/job/lib/background.py", 20 + i % 3),
                Frame("run", "/usr/lib/python3.11/threading.py", 982),
            ],
        )
        for i in range(8)
    ]
    samples = [ProcessSample(at, "S", 900.0, threads=[main, *idle]) for at in (0.1, 1.2)]
    return RankCapture(
        pid=pid,
        rank=ops.rank,
        node=node,
        world_size=ops.world_size,
        local_rank=ops.rank % PER_NODE,
        gpu=str(ops.rank % PER_NODE),
        local_world_size=PER_NODE,
        samples=samples,
        ops=ops,
        ops_before=before,
    )


def _stack(ops: RankOps, culprit: bool) -> list[Frame]:
    """Innermost first: what leads to the operation that the rank is in, through some layers that
    depend on it.
    """
    now = next((o for o in reversed(ops.operations) if o.state != "done"), ops.operations[-1])
    top = [
        Frame("read_shard", "/job/data/shards.py", 88, code="block = self.file.read(size)"),
        Frame("next_batch", "/job/data/loader.py", 141),
    ]
    if not culprit:
        top = [
            Frame(now.op, _TORCH, 2000 + len(now.op) * 37),
            Frame("wrapper", _TORCH.replace("distributed_c10d", "c10d_logger"), 83),
        ]
    site, _, line = now.site.rpartition(":")
    name, _, file = site.partition(" (")
    middle = [
        Frame(
            name or "step",
            f"/job/{file or 'train.py'}",
            number_in(line.rstrip(")"), 7),
        )
    ]
    engine = [
        Frame(f"_exec_{ops.phase or 'schedule'}", _PIPE, 1209),
        Frame("_exec_schedule", _PIPE, 1490),
        Frame("train_batch", _PIPE, 388),
    ]
    outer = [Frame(f"layer_{i}", f"/job/model/block_{i % 4}.py", 10 * i) for i in range(14)]
    return [
        *top,
        *middle,
        *outer,
        *engine,
        Frame("main", "/job/pretrain.py", 300),
        Frame("<module>", "/job/pretrain.py", 341),
    ]


def _printed(rank: RankCapture) -> str:
    """What `py-spy dump --json` prints of a process."""
    threads = rank.samples[-1].threads
    return json.dumps(
        [
            {
                "pid": rank.pid,
                "thread_id": t.tid,
                "thread_name": t.name,
                "active": False,
                "owns_gil": False,
                "frames": [
                    {"name": f.name, "filename": f.file, "line": f.line, "locals": None}
                    for f in t.frames
                ],
            }
            for t in threads
        ]
    )
