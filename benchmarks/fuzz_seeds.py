"""What the mutations start from: the files under tests/data, and what the writers of this project
make.
"""

from __future__ import annotations

import os
import random
import struct
import tempfile
import time
from functools import lru_cache
from pathlib import Path

from benchmarks.box_records import Record
from hangdoctor.model.capture import (
    Frame,
    JobCapture,
    NodeCapture,
    Process,
    ProcessSample,
    RankCapture,
    ThreadSample,
)
from hangdoctor.model.operations import Group, Mark, Operation, RankOps
from hangdoctor.probe import format as boxes
from hangdoctor.probe.box import BoxWriter
from hangdoctor.probe.calls import format as calls
from hangdoctor.probe.calls.ring import Ring
from hangdoctor.probe.nccl import format as nccl_events
from tests.support.nccl_files import Row, nccl_file

DATA = Path(__file__).resolve().parents[1] / "tests" / "data"


def files(pattern: str) -> list[bytes]:
    """The files of the repository that match."""
    return [
        p.read_bytes()
        for p in sorted(DATA.glob(pattern))
        if p.is_file() and not p.name.startswith("VERSIONS")
    ]


@lru_cache(maxsize=1)
def box() -> bytes:
    """A black box of 512 KiB with threads, groups, texts and operations."""
    with tempfile.TemporaryDirectory() as folder:
        made = BoxWriter(Path(folder), "job", 512 << 10)
        made.add_group("00" * 8, 8, "0-7", "default_pg", instance=0)
        made.add_group("11" * 8, 4, "0-6:2,9", "dp", instance=0)
        made.add_thread(0, os.getpid(), "MainThread")
        begin, slots, width = made.regions["ring"]
        signature, site = (
            made.intern("all_reduce\tsum\tfloat32\t[4, 8]"),
            made.intern("step (train.py:40)"),
        )
        now = time.time_ns()
        for serial in range(1, 40):
            entered = now + serial * 1000
            flags = 0
            if serial % 9 == 0:
                flags = boxes.MARK
            elif serial % 7 == 0:
                flags = boxes.SEND
            left = entered + 500 if serial < 39 else 0
            at = begin + serial % slots * width
            record = Record(
                serial=serial,
                seq=serial,
                entered=entered,
                group=serial % 2,
                signature=signature,
                site=site,
                root_or_peer=1,
                iteration=3,
                flags=flags,
                left=left,
                check=serial,
            )
            made.map[at : at + boxes.RECORD.size] = record.packed()
        struct.pack_into("<QQ", made.map, boxes.HEADER_BYTES, os.getpid(), 39)
        data = bytes(made.map)
        made.remove()
        return data


@lru_cache(maxsize=1)
def nccl() -> bytes:
    """NCCL's events of a rank: collectives, sends and a captured graph, the last ones pending."""
    rows = []
    for number in range(1, 60):
        kernels = (2, 2) if number < 50 else (number % 3, 0)
        directed = number % 7 == 0
        kind = nccl_events.SEND if directed else nccl_events.COLLECTIVE
        flags = nccl_events.SEES_KERNELS | (nccl_events.CAPTURED if number % 11 == 0 else 0)
        rows.append(Row(number, 6 if directed else number % 5, kind, kernels, flags, peer=1))
    return nccl_file(rows, rank=0, ranks=2)


@lru_cache(maxsize=1)
def ring() -> bytes:
    """A file of calls with a few functions and events, cut to 64 KiB."""
    with tempfile.TemporaryDirectory() as folder:
        made = Ring(Path(folder, "r.blackbox"), 1 << 20, 0, 8)
        codes = [made.code_id("train.py", f"f{n}", n, "train") for n in range(5)]
        data = bytearray(made.map)
    begin, codes_at = (
        (64 << 10) - 512 * calls.EVENT_BYTES,
        calls.HEADER_BYTES + 16 * calls.THREAD.size,
    )
    old = struct.unpack_from(calls.H_CODES[1], data, calls.H_CODES[0])
    texts = struct.unpack_from(calls.H_TEXTS[1], data, calls.H_TEXTS[0])
    data[codes_at : codes_at + 1024] = data[old[0] : old[0] + 1024]
    data[codes_at + 1024 : codes_at + 2048] = data[texts[0] : texts[0] + 1024]
    struct.pack_into(calls.H_CODES[1], data, calls.H_CODES[0], codes_at, 64, calls.CODE.size)
    struct.pack_into(calls.H_TEXTS[1], data, calls.H_TEXTS[0], codes_at + 1024, 1024, 1)
    struct.pack_into(calls.H_RING[1], data, calls.H_RING[0], begin, 512, calls.EVENT_BYTES)
    thread = (os.getpid(), 0, 200, 0, b"MainThread")  # tid, first event, last event + 1, zero, name
    calls.THREAD.pack_into(data, calls.HEADER_BYTES, *thread)
    struct.pack_into(calls.H_THREADS_USED[1], data, calls.H_THREADS_USED[0], 1)
    struct.pack_into(calls.H_HEAD[1], data, calls.H_HEAD[0], 200)
    for serial in range(200):
        event = (serial * 1000, codes[serial % 5], 0, 1 + serial % 2, serial // 512 & 0xFF)
        calls.EVENT.pack_into(data, begin + serial * calls.EVENT_BYTES, *event)
    return bytes(data[: 64 << 10])


def history(rank: int) -> RankOps:
    groups = [Group("a" * 16, list(range(8)), "default_pg"), Group("b" * 16, [0, 2, 4, 6], "dp")]
    found = RankOps(rank, 8, groups=groups, iteration=3, phase="forward", clock="n1/00")
    found.marks = [Mark("phase", 1.7e9, text="forward"), Mark("iteration", 1.7e9 + 1, 3)]
    for n in range(1, 20):
        op = Operation(
            "a" * 16,
            n,
            "all_reduce",
            "done",
            reduce_op="sum",
            shapes="[4, 8]",
            dtype="float32",
            site="f (a.py:3)",
        )
        op.entered_s, op.left_s = 1.7e9 + n, 1.7e9 + n + 0.5
        found.operations.append(op)
    found.operations[-1].state, found.operations[-1].left_s = "entered", 0.0
    return found


@lru_cache(maxsize=1)
def node() -> NodeCapture:
    """One node with four ranks, their stacks and operations."""
    ranks = []
    for n in range(4):
        frames = [
            Frame("all_reduce", "/x/torch/distributed/c10d.py", 9, values={"step": 3}),
            Frame("step", "train.py", 40),
        ]
        samples = [
            ProcessSample(
                0.1, "S", threads=[ThreadSample(7, "MainThread", "S", "futex", frames=frames)]
            )
        ] * 2
        rank = RankCapture(
            pid=100 + n,
            argv=["python", "train.py"],
            samples=samples,
            rank=n,
            node="n1",
            world_size=8,
        )
        rank.children = [Process(200 + n, 100 + n, "worker", ["python"])]
        rank.ops, rank.ops_before = history(n), history(n)
        ranks.append(rank)
    return NodeCapture("n1", "slurm:7.0", ranks, notes=["a note"])


def job() -> JobCapture:
    return JobCapture("slurm:7.0", [node()], world_size=8, settle_s=1.0, taken=1.7e9)


def bundle_files() -> dict[str, bytes]:
    """The files of a saved bundle, by name."""
    from hangdoctor.diagnosis import diagnose
    from hangdoctor.storage import bundle

    with tempfile.TemporaryDirectory() as folder:
        path = bundle.save(Path(folder) / "b", job(), diagnose(job()), "report", ["hangdoctor"])
        return {p.name: p.read_bytes() for p in path.iterdir() if p.is_file()}


def one_of(seeds: list[bytes], chance: random.Random) -> bytes:
    return chance.choice(seeds)
