"""What the agent makes of a rank: waiting or working, its time-outs, and clocks that someone sets."""

from __future__ import annotations

import contextlib
import os
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangdoctor.agents.node_ranks import Ranks
from hangdoctor.agents.tracked_rank import Tracked
from hangdoctor.clock import FakeClock
from hangdoctor.probe import format as fmt
from hangdoctor.probe.box import BoxWriter
from hangdoctor.readers import blackbox
from hangdoctor.readers.box_position import BoxWatch
from hangdoctor.readers.discover import Found, Job
from hangdoctor.transport.messages import RankNow, Report, encode, from_agent
from tests.support.stage import switches, wait_until

SPIN = "import time; print(flush=True); end = time.monotonic() + 600\nwhile time.monotonic() < end: pass"
NAPS = "import threading, time; print('up', flush=True)\nwhile True: time.sleep(0.01)"
GROUPS = """
import sys, time
from datetime import timedelta
import hangdoctor.probe as p; p.install()
import torch.distributed as dist
dist.init_process_group("gloo", timeout=timedelta(seconds=77))
print("world", flush=True); sys.stdin.readline()
dist.new_group([0], timeout=timedelta(seconds=33))
print("group", flush=True); sys.stdin.readline()
"""


RANK = """
import hangdoctor.probe as probe
probe.install()
probe.iteration(2)
print("up", flush=True); input()
probe.iteration(3)
print("trains", flush=True); input()
"""


class Node:
    """One rank, its box written by the test, and clocks that the test sets."""

    def __init__(self, folder: Path, pid: int, environ: dict[str, str] | None = None) -> None:
        self.clock = FakeClock()
        self.shift = 0.0
        self.box = BoxWriter(folder, "ranks-test", 1 << 20)
        self.ranks = Ranks(
            lambda jobs: jobs, self.clock.monotonic, lambda: self.clock.wall() + self.shift
        )
        found = Found(
            pid=pid,
            ppid=1,
            rank=0,
            world_size=2,
            local_rank=0,
            local_world_size=2,
            job="j",
            started=0.0,
            user="me",
            argv=[],
            environ=environ or {},
        )
        self.tracked = Tracked(
            found, RankNow(0, pid), BoxWatch(self.box.path), self.clock.monotonic()
        )
        self.ranks.tracked[0] = self.tracked
        self.serial = 0

    def enter(self, flags: int = 0, outcome: int = 0, left: bool = False, age: float = 0.0) -> None:
        """The rank enters an operation `age` seconds ago, by the clock of its node."""
        self.serial += 1
        begin, slots, width = self.box.regions["ring"]
        at = round((self.clock.wall() + self.shift - age) * 1e9)
        record = (
            self.serial,
            self.serial,
            at,
            0,
            0,
            0,
            0,
            -1,
            1,
            flags,
            0,
            at if left else 0,
            outcome,
            self.serial,
        )
        fmt.RECORD.pack_into(self.box.map, begin + self.serial % slots * width, *record)
        fmt.THREAD.pack_into(
            self.box.map, self.box.regions["threads"][0], 7, self.serial, 0, 0, b"MainThread"
        )

    def set(self, place: tuple[int, str], value: int) -> None:
        struct.pack_into(place[1], self.box.map, place[0], value)

    def look(self, seconds: float = 1.0) -> RankNow:
        self.clock.advance(seconds)
        [now] = self.ranks.look()
        return now


@pytest.fixture
def spinning() -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-c", SPIN], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    yield process.pid
    process.kill()
    process.wait()
    process.stdout.close()


def burn(pid: int, seconds: float = 0.4) -> None:
    """Until the process has used that much more of a processor."""

    def used() -> float:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    begin = used()
    wait_until(lambda: used() > begin + seconds, "the process spins")


def test_a_rank_that_spins_for_its_device_waits_and_one_that_computes_works(
    tmp_path: Path, spinning: int
) -> None:
    node = Node(tmp_path, spinning)
    node.set(fmt.H_FLAGS, fmt.RUNS_AHEAD)
    node.enter(fmt.ASYNC, fmt.STARTED)  # enqueued; no one knows that it is complete
    node.look()
    burn(spinning)
    assert node.look().busy  # at once it may still be computing
    node.look(3.0)
    burn(spinning)
    assert not node.look().busy
    node.enter(left=True)  # complete, and the stack is in the job's own code: it works
    node.look(3.0)
    node.look(3.0)
    burn(spinning)
    assert node.look().busy
    node.set(fmt.H_FLAGS, 0)
    node.enter(fmt.ASYNC, fmt.STARTED)  # gloo: the handle is open, and the rank computes meanwhile
    node.look(3.0)
    node.look(3.0)
    burn(spinning)
    assert node.look().busy


def test_a_stack_that_cannot_be_read_is_tried_again_before_the_next_is_due() -> None:
    """The time for two stacks of one place is limited: one that failed must not use up half of it."""
    clock = FakeClock()
    clock.advance(100.0)
    # Until it is told to go on it is a shell: py-spy can say nothing of it.
    shell = ["sh", "-c", f'read go; exec {sys.executable} -c "$0"', NAPS]
    with subprocess.Popen(
        shell, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            ranks = Ranks(lambda jobs: jobs, clock.monotonic)
            found = Found(
                pid=process.pid,
                ppid=1,
                rank=0,
                world_size=1,
                local_rank=0,
                local_world_size=1,
                job="j",
                started=0.0,
                user="me",
                argv=[],
                environ={},
            )
            ranks.tracked[0] = Tracked(found, RankNow(0, process.pid))
            assert not ranks.look()[0].still
            process.stdin.write("go\n")
            process.stdin.flush()
            assert process.stdout.readline() == "up\n"
            for seconds, still in ((10.0, False), (31.0, True)):
                before = switches(process.pid)
                wait_until(lambda b=before: switches(process.pid) != b, "it runs")  # type: ignore[misc]
                clock.advance(seconds)
                [now] = ranks.look()
                assert now.still is still, ranks.tracked[0].stacks
        finally:
            process.kill()


def test_time_outs_are_read_from_the_box_and_the_environment_else_torchs_defaults(
    tmp_path: Path,
) -> None:
    pid = os.getpid()
    node = Node(tmp_path, pid)
    node.look()
    assert node.ranks.timeout_s == 1800
    node.set(fmt.H_FLAGS, fmt.RUNS_AHEAD)
    node.look()
    assert node.ranks.timeout_s == 600
    node.set(fmt.H_TIMEOUT_MS, 77_000)
    node.look()
    assert node.ranks.timeout_s == 77
    told = Node(
        tmp_path, pid, {"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "120", "DEEPSPEED_TIMEOUT": "10"}
    )
    told.look()
    assert told.ranks.timeout_s == 120
    assert Ranks(lambda jobs: jobs).timeout_s == 0


def test_a_clock_that_is_set_by_an_hour_is_no_progress_and_no_age(tmp_path: Path) -> None:
    for hour in (3600.0, -3600.0):
        node = Node(tmp_path, os.getpid())
        node.enter()
        node.look()
        assert [round(node.look().idle_s) for _ in range(3)] == [2, 3, 4]
        node.shift += hour  # someone sets the clock while the rank waits
        assert [round(node.look().idle_s) for _ in range(3)] == [5, 6, 7]
        node.enter(age=0.2)
        now = node.look()
        assert now.idle_s < 1.3 and -1 <= now.waits <= 100


def test_a_rank_that_is_stuck_already_is_as_old_as_its_box_says(tmp_path: Path) -> None:
    def found(set_by: float = 0.0) -> float:
        """The age at the first sample: the job began 100 s ago, its last event was 85 s ago, and
        its clock was set in between.
        """
        node = Node(tmp_path, os.getpid())
        node.clock.advance(1000.0)
        node.set(fmt.H_CREATED_WALL, round((node.clock.wall() - 100) * 1e9))
        node.set(fmt.H_CREATED_MONO, round((node.clock.monotonic() - 100) * 1e9))
        node.enter(age=84.0)
        node.shift += set_by
        return round(node.look(1.0).idle_s)

    assert found() == 85
    assert found(3600.0) == 85 and found(-3600.0) == 0, "never older than either clock says"


def test_a_rank_without_an_event_has_stood_since_its_box_was_made(tmp_path: Path) -> None:
    node = Node(tmp_path, os.getpid())
    node.clock.advance(1000.0)
    node.set(fmt.H_CREATED_WALL, round((node.clock.wall() - 40) * 1e9))
    node.set(fmt.H_CREATED_MONO, round((node.clock.monotonic() - 40) * 1e9))
    assert round(node.look(1.0).idle_s) == 41


@pytest.mark.torch
def test_the_probe_records_the_shortest_time_out_of_the_groups(tmp_path: Path) -> None:
    environ = os.environ | {
        "RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "0",
        "HANGDOCTOR_DIR": str(tmp_path),
    }
    process = subprocess.Popen(
        [sys.executable, "-c", GROUPS],
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )
    try:
        assert process.stdout is not None and process.stdin is not None
        for said, seconds in (("world", 77), ("group", 33)):
            assert process.stdout.readline().strip() == said
            [box] = blackbox.find_boxes(tmp_path)
            seen = BoxWatch(box.path)
            assert seen.read().timeout_s == seconds
            seen.close()
            process.stdin.write("\n")
            process.stdin.flush()
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        process.wait()


def test_numbers_that_no_message_could_carry_do_not_silence_the_node(tmp_path: Path) -> None:
    """A collector drops a message with a field out of range, and after ten of them ignores the
    agent.
    """
    node = Node(tmp_path, os.getpid(), {"DEEPSPEED_TIMEOUT": "9" * 12})
    node.set(fmt.H_ITERATION, -7)
    node.set(fmt.H_TIMEOUT_MS, 10**15)
    report = Report(1, 1, 0.0, [node.look()], timeout_s=node.ranks.timeout_s)
    told = from_agent(encode(report))
    assert isinstance(told, Report) and told.ranks[0].iteration == -1


def test_ranks_of_the_run_before_are_not_dead_ones_of_the_next(
    tmp_path: Path, spinning: int
) -> None:
    node = Node(tmp_path, os.getpid())
    gone = subprocess.Popen([sys.executable, "-c", ""])
    ranks = node.ranks

    def run(key: str, *pids: int) -> Job:
        return Job(
            key,
            [
                Found(
                    pid=pid,
                    ppid=1,
                    rank=rank,
                    world_size=len(pids),
                    local_rank=0,
                    local_world_size=2,
                    job=key,
                    started=0.0,
                    user="me",
                    argv=[],
                    environ={},
                )
                for rank, pid in enumerate(pids)
            ],
        )

    ranks._take(run("slurm:7.0", os.getpid(), gone.pid))
    gone.wait()
    ranks._take(run("slurm:7.1", spinning))
    assert [(r.rank, r.over) for r in ranks.look()] == [(0, False)]


def wait_for(ranks: dict[int, subprocess.Popen[str]], said: str) -> None:
    for process in ranks.values():
        assert process.stdout is not None and process.stdout.readline() == f"{said}\n"


@contextlib.contextmanager
def boxed_ranks(folder: Path, numbers: range) -> Iterator[dict[int, subprocess.Popen[str]]]:
    """Processes with a box each, in one folder, that wait for a line."""
    started: dict[int, subprocess.Popen[str]] = {}
    environ = os.environ | {"WORLD_SIZE": "9", "HANGDOCTOR_DIR": str(folder)}
    try:
        for rank in numbers:
            started[rank] = subprocess.Popen(
                [sys.executable, "-c", RANK],
                env=environ | {"RANK": str(rank)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=folder.parent,
            )
        wait_for(started, "up")  # every box is made before the first rank trains
        for process in started.values():
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        wait_for(started, "trains")
        yield started
    finally:
        for process in started.values():
            process.kill()
            process.communicate()


def found_in(folder: Path, ranks: dict[int, subprocess.Popen[str]]) -> list[RankNow]:
    """What an agent that comes now sees of a job with these processes."""
    environ = {"HANGDOCTOR_DIR": str(folder)}
    found = [
        Found(process.pid, 1, rank, 9, rank, 9, "j", 0.0, "me", [], environ)
        for rank, process in ranks.items()
    ]
    late = Ranks(lambda jobs: jobs)
    late._take(Job("j", found))
    try:
        return late.look()
    finally:
        late.close()


def test_a_rank_that_died_before_the_agent_came_is_reported_dead(tmp_path: Path) -> None:
    with boxed_ranks(tmp_path / "boxes", range(3)) as ranks:
        dead = ranks.pop(1)
        dead.kill()
        dead.wait()
        told = found_in(tmp_path / "boxes", ranks)
        dead.communicate()
    assert [(r.rank, r.over, r.box, r.finished) for r in told] == [
        (0, False, True, False),
        (1, True, True, False),
        (2, False, True, False),
    ]
    assert told[1].pid == dead.pid and told[1].iteration == 3


def test_what_an_earlier_start_left_behind_is_no_dead_rank(tmp_path: Path) -> None:
    """A launcher that starts its ranks again uses the same folder, perhaps for fewer of them."""
    folder = tmp_path / "boxes"
    with boxed_ranks(folder, range(3)):
        pass
    with boxed_ranks(folder, range(2)) as ranks:
        assert len(blackbox.find_boxes(folder)) == 5, "the boxes of before are still there"
        assert [(r.rank, r.over) for r in found_in(folder, ranks)] == [(0, False), (1, False)]


def test_folders_that_go_while_boxes_are_looked_for_end_nothing(tmp_path: Path) -> None:
    """Jobs on the same node end, and take their folders along."""
    done = threading.Event()

    def others() -> None:
        while not done.is_set():
            for number in range(20):
                (tmp_path / f"job{number}" / "boxes").mkdir(parents=True)
            for number in range(20):
                (tmp_path / f"job{number}" / "boxes").rmdir()
                (tmp_path / f"job{number}").rmdir()

    thread = threading.Thread(target=others)
    thread.start()
    try:
        assert [blackbox.find_boxes(tmp_path) for _ in range(500)] == [[]] * 500
    finally:
        done.set()
        thread.join()
