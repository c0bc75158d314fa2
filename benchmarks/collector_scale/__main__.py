"""Simulated agents over real sockets on one machine, 8 ranks each, against a real collector process
with its keys.

Every agent reports each second; then one rank does not move and all reports stop changing.
Measured, from the collector's first request for a capture on: seconds until every node has answered
and until the verdict is saved, bytes of the captures for each rank, processor time and memory of
the collector. The simulated agents share the machine with it; their own processor time between
trigger and verdict stands beside the collector's. `python -m benchmarks.collector_scale --nodes 128
512 2048`; with `--relays 8` the agents report to so many collectors below the first, and the
busiest of these is measured, too.

100,000 ranks: `python -m benchmarks.collector_scale --nodes 500 --relays 2 --crowd 12000
--collectors 8`. Of the 12,500 nodes 500 are agents as above; of the others 8 simulated collectors
speak, so that the first collector gets from real sockets all that it would get. They answer 0.5 s
after the time between the two samples, as a quiet node does.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import multiprocessing
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
import zmq
import zmq.asyncio

from benchmarks.collector_scale.crowd import Crowd
from benchmarks.progress import say
from hangdoctor.collector.core import KEEP_LEAST
from hangdoctor.collector.instructions import Settings
from hangdoctor.model.capture import Frame, NodeCapture, ProcessSample, RankCapture, ThreadSample
from hangdoctor.model.layout import Layout
from hangdoctor.model.operations import Group, Operation, RankOps, group_uid
from hangdoctor.readers import rank_operations as boxes
from hangdoctor.storage.incidents import Incidents
from hangdoctor.transport import address, keys
from hangdoctor.transport import messages as msg
from hangdoctor.transport.capture_codec import pack_capture

RANKS = 8
OPERATIONS = 80
STUCK = 5


def main() -> None:
    """Measure each number of nodes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, nargs="+", default=[128])
    parser.add_argument("--relays", type=int, default=0)
    parser.add_argument(
        "--crowd", type=int, default=0, help="nodes beside these, behind simulated collectors"
    )
    parser.add_argument("--collectors", type=int, default=8, help="at most this many of these")
    flags = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 16_384)), hard))
    for nodes in flags.nodes:
        with tempfile.TemporaryDirectory() as name:
            asyncio.run(measure(Path(name), nodes, flags))


# --------------------------------------------------------------------------- what a node answers


def stack(stuck: bool) -> list[Frame]:
    """The frames of a rank that waits, or of the stuck one."""
    top = (
        [Frame("read_batch", "/job/data.py", 41)]
        if stuck
        else [
            Frame("all_reduce", "/env/torch/distributed/distributed_c10d.py", 2991),
            Frame("wrapper", "/env/torch/distributed/c10d_logger.py", 83),
        ]
    )
    return (
        top
        + [Frame(f"level_{i}", f"/job/model_{i % 5}.py", 10 * i) for i in range(18)]
        + [Frame("<module>", "/job/train.py", 9)]
    )


@functools.lru_cache(maxsize=64)
def group_of(layout: Layout, axis: str, rank: int) -> Group:
    """The group of an axis that its lowest rank is in: those of a large job are long to make."""
    members = layout.group(axis, rank)
    return Group(group_uid(members), members, axis)


def operations(rank: int, layout: Layout, stuck: bool, keep: int = OPERATIONS) -> RankOps:
    """The end of the same history on all ranks, at times of each one's own; the stuck one has not
    entered the last operation.
    """
    chance = random.Random(rank)
    groups = [
        group_of(layout, "tp", rank // RANKS * RANKS),
        group_of(layout, "dp", rank % RANKS),
        group_of(layout, "world", 0),
    ]
    found = []
    for i in range(max(0, OPERATIONS - 2 * keep), OPERATIONS):
        last = i == OPERATIONS - 1
        if stuck and last:
            break
        group, begin = groups[2 if last else i % 2], 1000.0 + i * 0.01 + 0.005 * chance.random()
        found.append(
            Operation(
                group.uid,
                i // 2 + 1,
                "all_reduce",
                "entered" if last else "done",
                reduce_op="sum",
                shapes="[4096, 1024]",
                dtype="bfloat16",
                site="train_step (train.py:77)",
                thread=rank + 100,
                entered_s=begin,
                left_s=0.0 if last else begin + 0.004 * chance.random(),
                iteration=i // 10,
            )
        )
    return RankOps(
        rank,
        layout.world_size,
        groups=groups,
        operations=found,
        overwritten=True,
        iteration=OPERATIONS // 10,
    )


def capture(node: int, layout: Layout, keep: int = OPERATIONS) -> NodeCapture:
    """What one simulated node answers."""
    ranks = []
    chance = random.Random(node)
    for rank in range(node * RANKS, (node + 1) * RANKS):
        stuck = rank == STUCK
        samples = []
        for at in (0.0, 1.0):
            threads = [
                ThreadSample(
                    rank + 100,
                    "MainThread",
                    "S",
                    "futex_wait",
                    syscall="futex",
                    cpu_s=100 + chance.random(),
                    switches=chance.randrange(9000),
                    frames=stack(stuck),
                )
            ]
            threads += [
                ThreadSample(
                    rank + 200 + i,
                    f"Thread-{i}",
                    "S",
                    "futex_wait",
                    syscall="futex",
                    cpu_s=chance.random(),
                    switches=chance.randrange(900),
                    frames=stack(False)[-8:],
                )
                for i in range(4)
            ]
            samples.append(ProcessSample(at, "S", 100.0, threads=threads))
        ops = operations(rank, layout, stuck, keep)
        ranks.append(
            RankCapture(
                pid=rank + 100,
                argv=["python", "train.py"],
                samples=samples,
                rank=rank,
                world_size=layout.world_size,
                local_rank=rank % RANKS,
                local_world_size=RANKS,
                ops=ops,
                ops_before=ops,
            )
        )
    return NodeCapture(f"n{node}", "slurm:1.0", ranks, layout)


def packed(what: tuple[int, Layout, int]) -> bytes:
    """What a node answers, trimmed to as many operations as the collector asks for."""
    node, layout, keep = what
    taken = capture(node, layout, keep)
    for rank in taken.ranks:
        assert rank.ops is not None and rank.ops_before is not None
        rank.ops = boxes.trim(rank.ops, keep)
        rank.ops_before = boxes.trim(rank.ops_before, KEEP_LEAST)
    return pack_capture(taken)


def news_of(node: int, seq: int) -> list[msg.RankNow]:
    """Where its ranks are, while the job goes on."""
    return [
        msg.RankNow(r, idle_s=0.1, iteration=seq, op="all_reduce", seq=seq, inside=True, box=True)
        for r in range(node * RANKS, (node + 1) * RANKS)
    ]


# --------------------------------------------------------------------------- agents


class Fleet:
    """All simulated agents in one process."""

    def __init__(self, nodes: int, folder: Path, relays: int = 0, crowd: int = 0) -> None:
        """`crowd` more nodes are in the job and not here."""
        self.nodes, self.folder, self.relays, self.total = nodes, folder, relays, nodes + crowd
        self.layout = Layout(dp=self.total, tp=RANKS)
        self.context = zmq.asyncio.Context()
        self.context.set(zmq.MAX_SOCKETS, nodes + 100)
        self.stalled_at = 0.0
        self.asked_at = 0.0
        self.asked_cpu = (
            0.0,
            0.0,
        )  # processor seconds at the trigger: of the simulated agents, of the collector
        self.watched = psutil.Process()
        self.answered = 0
        self.answered_at = 0.0
        self.bytes = 0
        settings = Settings()
        self.keep = max(
            KEEP_LEAST, min(settings.keep_ops, settings.keep_all_ops // (self.total * RANKS))
        )
        self.packed: list[bytes] = []
        self.welcome = 0

    def pack(self) -> None:
        """Make the answers of all nodes of the job."""
        with multiprocessing.Pool(2) as pool:  # a real node does this on its own processor
            wanted = [(n, self.layout, self.keep) for n in range(self.total)]
            self.packed = pool.map(packed, wanted, chunksize=64)

    async def agent(self, node: int) -> None:
        made = keys.load(self.folder)
        socket: Any = self.context.socket(zmq.DEALER)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.IDENTITY, f"agent{node}".encode())
        socket.curve_serverkey = made.collector.public
        socket.curve_publickey, socket.curve_secretkey = made.agent.public, made.agent.secret
        where = (
            address.relay_folder(self.folder, f"r{node % self.relays}")
            if self.relays
            else self.folder
        )
        socket.connect(address.published(where))
        await socket.send_multipart(
            msg.encode(msg.Hello(f"agent{node}", f"n{node}", "slurm:1.0", self.total * RANKS))
        )
        reporting = asyncio.create_task(self.report(socket, node))
        try:
            while True:
                message = msg.from_collector(await socket.recv_multipart())
                if isinstance(message, msg.Welcome):
                    self.welcome += 1
                elif isinstance(message, msg.Capture):
                    if not self.asked_at:
                        self.asked_at, self.asked_cpu = (
                            time.monotonic(),
                            (time.process_time(), sum(self.watched.cpu_times()[:2])),
                        )
                        assert message.keep_ops == self.keep, message
                    body = self.packed[node]
                    self.bytes += len(body)
                    await socket.send_multipart(msg.encode(msg.Captured(message.id, body)))
                    self.answered += 1
                    self.answered_at = time.monotonic()
        finally:
            reporting.cancel()

    async def report(self, socket: Any, node: int) -> None:
        """Full reports while the job goes on, and one every two seconds without news in the stall."""
        seq = 0
        await asyncio.sleep(node / self.nodes)
        while True:
            if self.welcome >= self.nodes:
                seq += 1
                news = [] if self.stalled_at else news_of(node, seq)
                await socket.send_multipart(msg.encode(msg.Report(seq, 1, time.time(), news)))
            await asyncio.sleep(2.0 if self.stalled_at else 1.0)


async def measure(folder: Path, nodes: int, flags: argparse.Namespace) -> None:
    """Start collectors and agents, and print one row."""
    relays: int = flags.relays
    collectors = [start(folder, "log", "--capture-timeout", "60")]
    try:
        while not address.published(folder):
            await asyncio.sleep(0.1)
        for number in range(relays):
            collectors.append(
                start(folder, f"relay{number}", "--parent", "auto", "--name", f"r{number}")
            )
        while not all(
            address.published(address.relay_folder(folder, f"r{n}")) for n in range(relays)
        ):
            await asyncio.sleep(0.1)
        await run(folder, nodes, collectors, flags)
    finally:
        for process in collectors:
            process.terminate()
        for process in collectors:
            process.wait()
        print((folder / "log").read_text()[-400:]) if "Traceback" in (
            folder / "log"
        ).read_text() else None


def start(folder: Path, log_name: str, *more: str) -> subprocess.Popen[bytes]:
    environ = os.environ | {
        "PYTHONPATH": os.pathsep.join(
            [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
        )
    }
    where = ("--folder", str(folder), "--bind", "tcp://127.0.0.1:*")
    with (folder / log_name).open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "hangdoctor", "collect", *where, *more], stderr=log, env=environ
        )


def of_relays(relays: list[psutil.Process], before: list[float]) -> str:
    """The most that any collector below the first needed: processor seconds from trigger to
    verdict, memory.
    """
    if not relays:
        return ""
    spent = max(sum(p.cpu_times()[:2]) - b for p, b in zip(relays, before, strict=True))
    return f"; {len(relays)} relays: the busiest {spent:.1f} processor seconds, {max(peak_mb(p.pid) for p in relays):.0f} MB at most"


def peak_mb(pid: int) -> float:
    line = next(
        line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if "VmHWM" in line
    )
    return int(line.split()[1]) / 1024


def crowd_of(folder: Path, fleet: Fleet, collectors: int) -> Crowd | None:
    """The nodes of the job that the fleet has no agents for."""
    others = list(range(fleet.nodes, fleet.total))
    if not others:
        return None
    bodies = {n: fleet.packed[n] for n in others}
    crowd = Crowd(folder, others, collectors, fleet.total * RANKS, news_of, bodies)
    crowd.capture_s = 0.5
    return crowd


async def run(
    folder: Path, nodes: int, collectors: list[subprocess.Popen[bytes]], flags: argparse.Namespace
) -> None:
    watched, *relays = (psutil.Process(p.pid) for p in collectors)
    say(f"the answers of {nodes + flags.crowd} nodes are made")
    fleet = Fleet(nodes, folder, len(relays), flags.crowd)
    fleet.pack()
    fleet.watched = watched
    crowd = crowd_of(folder, fleet, flags.collectors)
    say(f"{nodes} agents come, and the collector learns their rhythm")
    tasks = [asyncio.create_task(fleet.agent(n)) for n in range(nodes)]
    tasks += [asyncio.create_task(crowd.run())] if crowd else []
    begin = time.monotonic()
    while "rhythm is known" not in (folder / "log").read_text():
        await asyncio.sleep(0.5)
        assert time.monotonic() - begin < 900, (folder / "log").read_text()[-2000:]
    say("all report for 10 s")
    steady = sum(watched.cpu_times()[:2])
    await asyncio.sleep(10)
    steady = (sum(watched.cpu_times()[:2]) - steady) / 10
    say("all stand still: until the verdict is saved")
    before = [sum(p.cpu_times()[:2]) for p in relays]
    fleet.stalled_at = time.monotonic()
    if crowd is not None:
        crowd.stands = True
    incidents = Incidents(folder)
    while not (rows := [r for r in await asyncio.to_thread(incidents.rows) if r.state == "saved"]):
        await asyncio.sleep(0.5)
        assert time.monotonic() - fleet.stalled_at < 400, (folder / "log").read_text()[-2000:]
    done = time.monotonic()
    spent = (
        time.process_time() - fleet.asked_cpu[0],
        sum(watched.cpu_times()[:2]) - fleet.asked_cpu[1],
    )
    answered_at = max(fleet.answered_at, crowd.answered_at if crowd else 0.0)
    size = fleet.bytes + (crowd.bytes if crowd else 0)
    count = fleet.answered + (crowd.answered if crowd else 0)
    print(
        f"{fleet.total} nodes, {fleet.total * RANKS} ranks: {answered_at - fleet.asked_at:.1f} s until all have answered, "
        f"{done - fleet.asked_at:.1f} s from trigger to saved verdict, {size / fleet.total / RANKS:.0f} bytes a rank, "
        f"collector {steady:.0%} of a core while all report, {peak_mb(watched.pid):.0f} MB at most; processor seconds from "
        f"trigger to verdict: collector {spent[1]:.1f}, simulated nodes {spent[0]:.1f}; load {os.getloadavg()[0]:.0f}; "
        f"{rows[0].kind} {rows[0].ranks} ({count} answers){of_relays(relays, before)}",
        flush=True,
    )
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    fleet.context.destroy(linger=0)


if __name__ == "__main__":
    main()
