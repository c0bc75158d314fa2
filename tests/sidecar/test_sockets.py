"""Collector and agents as real processes over real sockets: restarts, strangers, floods, ends."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import zmq

from hangdoctor.collector.instructions import Position
from hangdoctor.transport import address, capture_codec, keys
from hangdoctor.transport import messages as msg
from tests.support.sidecar_stage import Job, Start
from tests.support.stage import hangdoctor, wait_until


def answer(socket: Any, seconds: float = 60.0) -> msg.FromCollector:
    assert socket.poll(seconds * 1000), "no answer"
    return msg.from_collector(socket.recv_multipart())


def greet(socket: Any, node: str) -> None:
    socket.send_multipart(msg.encode(msg.Hello(f"agent-of-{node}", node)))
    assert isinstance(answer(socket), msg.Welcome)


def test_a_collector_that_is_killed_and_started_again_misses_and_doubles_nothing(job: Job) -> None:
    collector = job.collector()
    agents = []
    job.rank(0, "restart-test")
    for node in ("na", "nb", "nc", "nd"):
        agents.append(job.agent(node, "restart-test"))
    wait_until(
        lambda: len(job.positions()) == 4 and all(p.received > 0 for p in job.positions().values()),
        "all report",
    )
    for _ in range(2):
        before = {n: p.seq for n, p in job.positions().items()}
        collector.kill()
        collector.wait()
        said = job.said("collector", "its agent has connected")
        collector = job.collector()
        wait_until(
            lambda n=said: job.said("collector", "its agent has connected") >= n + 4,
            "all are back",
            60,
        )  # type: ignore[misc]
        wait_until(
            lambda b=before: all(p.seq > b[n] for n, p in job.positions().items()), "all go on"
        )  # type: ignore[misc]
    for agent in agents:
        agent.terminate()
        assert agent.wait(timeout=20) == 0
    wait_until(lambda: job.said("collector", "its agent has left") == 4, "all have said goodbye")
    collector.terminate()
    assert collector.wait(timeout=20) == 0
    for position in job.positions().values():
        assert (position.received, position.lost) == (position.seq, 0)


def test_an_agent_that_is_killed_is_succeeded_without_loss(job: Job) -> None:
    job.collector()
    job.rank(0, "kill-test")
    agent = job.agent("na", "kill-test")
    wait_until(lambda: job.positions().get("na", Position()).received > 0, "it reports")
    agent.kill()
    agent.wait()
    seq = job.positions()["na"].seq
    job.agent("na", "kill-test")
    wait_until(lambda: job.positions()["na"].seq > seq + 1, "its successor goes on")
    assert job.positions()["na"].lost == 0
    assert job.positions()["na"].received == job.positions()["na"].seq


def test_an_agent_comes_back_with_the_keys_that_a_new_collector_has_made(job: Job) -> None:
    collector = job.collector()
    job.rank(0, "keys-test")
    job.agent("na", "keys-test")
    wait_until(lambda: job.said("collector", "its agent has connected") == 1, "it reports")
    collector.kill()
    collector.wait()
    shutil.rmtree(job.folder / "keys")  # as is advised where they are damaged or not private
    job.collector()
    wait_until(lambda: job.said("collector", "its agent has connected") == 2, "it is back", 60)


def test_strangers_are_refused_and_counted_and_the_other_side_is_checked(job: Job) -> None:
    job.collector()
    with job.peer(own=False) as stranger, job.peer() as known:
        stranger.send_multipart(msg.encode(msg.Hello("stranger", "n1")))
        wait_until(
            lambda: job.said("collector", "an unknown key was refused") > 0,
            "the stranger is counted",
        )
        greet(known, "n2")
        assert not stranger.poll(0)
    with job.peer(curve=False) as plain:
        plain.send_multipart(msg.encode(msg.Hello("plain", "n3")))
        with job.peer(name=b"again") as known:
            greet(known, "n4")
        assert not plain.poll(0)
    assert "n1" not in job.positions() and "n3" not in job.positions()
    log = (job.logs / "collector.log").read_text()
    for pair in (keys.load(job.folder).agent, keys.load(job.folder).collector):
        assert pair.secret.decode() not in log


def test_hostile_peers_with_the_key_cost_the_others_nothing(job: Job) -> None:
    collector = job.collector()
    with (
        job.peer(name=b"good") as good,
        job.peer(name=b"bad") as bad,
        job.peer(name=b"huge") as huge,
    ):
        greet(good, "n1")
        for i in range(1000):
            bad.send_multipart([msg.PROTOCOL, os.urandom(i % 300)])
            bad.send_multipart([b"hangdoctor/1", b"\x91" * 3000])
        huge.send_multipart([msg.PROTOCOL, b"x" * (msg.MAX_CAPTURE + msg.MAX_SMALL + 1000)])
        with job.peer(name=b"flood") as flood:
            for _ in range(5000):
                flood.send_multipart(msg.encode(msg.Hello("flooder", "n2")))
            for seq in range(1, 6):
                good.send_multipart(msg.encode(msg.Report(seq, 1, 0.0, [msg.RankNow(0)])))
            acked = 0
            while acked < 5:
                told = answer(good)
                acked = told.acked if isinstance(told, msg.Ack) else acked
            wait_until(
                lambda: job.said("collector", "is disconnected") >= 2,
                "garbage and flood are cut off",
            )
    assert collector.poll() is None
    assert job.positions()["n1"].received == 5


def test_the_soft_limit_of_open_files_is_no_limit_of_nodes(job: Job) -> None:
    low = (
        "import os, resource as r, sys; r.setrlimit(r.RLIMIT_NOFILE, (64, r.getrlimit(r.RLIMIT_NOFILE)[1])); "
        + ("os.execv(sys.executable, [sys.executable, *sys.argv[1:]])")
    )
    begin = job.begin
    job.begin = lambda name, *argv: begin(name, "-c", low, *argv)
    job.collector()
    with contextlib.ExitStack() as stack:
        for number in range(80):
            greet(stack.enter_context(job.peer(name=b"p%d" % number)), f"n{number}")


def test_another_version_is_refused_with_a_clear_line_on_both_sides(
    job: Job, tmp_path: Path
) -> None:
    job.collector()
    with job.peer() as old:
        old.send_multipart([b"hangdoctor/2", b"whatever"])
        told = answer(old)
        assert isinstance(told, msg.Rejected) and "hangdoctor/2" in told.why
    wait_until(
        lambda: job.said("collector", "the other side speaks hangdoctor/2") == 1,
        "the line in the log",
    )


def test_a_collector_that_cannot_start_says_why(job: Job, tmp_path: Path) -> None:
    job.collector()
    taken = address.published(job.folder)
    other = hangdoctor(
        "collect", "--folder", str(tmp_path / "other"), "--bind", taken, cwd=tmp_path, code=1
    )
    assert "cannot listen on" in other.stderr
    refused = hangdoctor(
        "collect",
        "--folder",
        str(tmp_path / "o"),
        "--insecure",
        "--bind",
        "tcp://*:7001",
        cwd=tmp_path,
        code=2,
    )
    assert "--insecure works only on this machine" in refused.stderr
    unreachable = hangdoctor(
        "agent",
        "--insecure",
        "--collector",
        "tcp://127.0.0.1:*",
        "--spool",
        str(tmp_path / "s"),
        cwd=tmp_path,
        code=1,
    )
    assert "cannot connect to" in unreachable.stderr
    assert "no folder was given" in hangdoctor("collect", cwd=tmp_path, code=2).stderr
    assert (
        "no target was given"
        in hangdoctor("sidecar", "--folder", str(tmp_path / "o"), cwd=tmp_path, code=2).stderr
    )


class FakeCollector:
    """The other side of one agent, steered by the test."""

    def __init__(self) -> None:
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.ROUTER)
        self.port = self.socket.bind_to_random_port("tcp://127.0.0.1")
        self.peer = b""
        self.reports: list[msg.Report] = []

    def next(self, kind: type, seconds: float = 40.0) -> Any:
        """The next message of a kind; reports on the way are kept and acknowledged."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and self.socket.poll(left * 1000):
            self.peer, *frames = self.socket.recv_multipart()
            message = msg.from_agent(frames)
            if isinstance(message, msg.Report):
                self.reports.append(message)
                self.say(msg.Ack(message.seq))
            if isinstance(message, kind):
                return message
        raise AssertionError(f"no {kind.__name__}")

    def say(self, message: msg.FromCollector) -> None:
        self.socket.send_multipart([self.peer, *msg.encode(message)])


@pytest.mark.parametrize("more", [["--while-heard"], []])
def test_an_agent_whose_output_no_process_reads_ends_where_asked_to(
    job: Job, more: list[str]
) -> None:
    """What sshd does at the end of a connection: it sends no signal, it closes the pipe."""
    collector = FakeCollector()
    to = ["--insecure", "--collector", f"tcp://127.0.0.1:{collector.port}", "--interval", "0.2"]
    command = ["-m", "hangdoctor", "agent", *to, "--spool", str(job.logs / "spool"), *more]
    agent = subprocess.Popen([sys.executable, *command], stderr=subprocess.PIPE)
    try:
        collector.next(msg.Hello)
        collector.say(msg.Welcome(0))
        collector.next(msg.Report)
        assert agent.stderr is not None
        agent.stderr.close()
        if more:
            assert collector.next(msg.Bye).why == "the command that started it has ended"
            assert agent.wait(timeout=20) == 0
        else:
            for _ in range(3):
                collector.next(msg.Report)
            assert agent.poll() is None
    finally:
        agent.kill()
        agent.wait(timeout=20)


def test_one_agent_captures_once_more_survives_nonsense_and_ends_with_its_job(
    job: Job, start: Start
) -> None:
    collector = FakeCollector()
    rank = job.rank(3, "fake-test")
    agent = start(
        "agent",
        "-m",
        "hangdoctor",
        "agent",
        "--insecure",
        "--collector",
        f"tcp://127.0.0.1:{collector.port}",
        "--job",
        "fake-test",
        "--node",
        "nx",
        "--interval",
        "0.2",
        "--linger",
        "1",
        "--spool",
        str(job.logs / "spool"),
    )
    hello = collector.next(msg.Hello)
    assert hello.node == "nx"
    collector.say(msg.Welcome(0))
    report = collector.next(msg.Report)
    while not report.ranks:
        report = collector.next(msg.Report)
    assert [(r.rank, r.pid, r.box, r.over) for r in report.ranks] == [(3, rank.pid, False, False)]
    collector.say(msg.Capture("c1", settle_s=2.0, timeout_s=20.0))
    collector.say(msg.Capture("c2", settle_s=0.1, timeout_s=20.0))
    collector.say(msg.Capture("c3", settle_s=0.1, timeout_s=20.0))
    assert collector.next(msg.Declined).id == "c2"  # one waits: the newest
    captured = collector.next(msg.Captured)
    assert (captured.id, captured.error) == ("c1", "")
    asked_meanwhile = collector.next(msg.Captured)
    assert (asked_meanwhile.id, asked_meanwhile.error) == ("c3", "")
    capture = capture_codec.unpack_capture(captured.body)
    assert [(r.rank, len(r.samples)) for r in capture.ranks] == [(3, 2)]
    for frames in (
        [b"", b""],
        [msg.PROTOCOL, b"\xff"],
        [b"hangdoctor/9", b""],
        [msg.PROTOCOL, b"x", b"y"],
    ):
        collector.socket.send_multipart([collector.peer, *frames])
    collector.say(msg.WhoAreYou())
    assert collector.next(msg.Hello).agent == hello.agent
    collector.say(msg.Welcome(collector.reports[-1].seq))
    rank.kill()
    rank.wait()
    while not (told := collector.next(msg.Report)).ranks or not told.ranks[0].over:
        pass
    assert collector.next(msg.Bye).why == "its job has ended"
    assert agent.wait(timeout=20) == 0
    seqs = [r.seq for r in collector.reports]
    assert seqs == list(range(1, len(seqs) + 1))
    assert not (job.logs / "spool").exists()
    collector.context.destroy(linger=0)


def test_a_collector_that_is_restarted_hears_of_ranks_that_stand_still(
    job: Job, start: Start
) -> None:
    """A job hangs, nothing changes: a collector that came later would never see that it does."""
    collector = FakeCollector()
    job.rank(0, "still-test")
    start(
        "agent",
        "-m",
        "hangdoctor",
        "agent",
        "--insecure",
        "--collector",
        f"tcp://127.0.0.1:{collector.port}",
        "--job",
        "still-test",
        "--interval",
        "0.2",
        "--spool",
        str(job.logs / "spool"),
    )
    collector.next(msg.Hello)
    collector.say(msg.Welcome(0))
    while not collector.next(msg.Report).ranks:
        pass
    for _ in range(2):
        while collector.next(msg.Report).ranks:
            pass
        collector.say(msg.WhoAreYou())
        collector.next(msg.Hello)
        collector.say(msg.Welcome(collector.reports[-1].seq))
        assert any(
            collector.next(msg.Report).ranks for _ in range(3)
        )  # one or two may have been under way
    collector.context.destroy(linger=0)


def test_a_locked_index_does_not_hold_up_the_watch(job: Job) -> None:
    """Someone else's lock on incidents/index.sqlite keeps the collector from writing, not from
    seeing the stall.
    """
    job.collector("--stall-after", "2")
    with job.peer() as socket:
        greet(socket, "n1")
        index = sqlite3.connect(job.folder / "incidents" / "index.sqlite")
        index.execute("BEGIN EXCLUSIVE")
        asked = None
        for seq in range(1, 200):
            socket.send_multipart(
                msg.encode(msg.Report(seq, 1, 0.0, [msg.RankNow(0, idle_s=0.2 * seq, box=True)]))
            )
            while asked is None and socket.poll(200):
                told = msg.from_collector(socket.recv_multipart())
                asked = told if isinstance(told, msg.Capture) else None
        assert asked is not None
        index.rollback()
        index.close()
        socket.send_multipart(msg.encode(msg.Report(200, 1, 0.0)))
        while not (isinstance(told := answer(socket), msg.Ack) and told.acked == 200):
            pass


def test_sigterm_ends_an_agent_in_the_middle_of_a_capture(job: Job, start: Start) -> None:
    collector = FakeCollector()
    job.rank(0, "term-test")
    agent = start(
        "agent",
        "-m",
        "hangdoctor",
        "agent",
        "--insecure",
        "--collector",
        f"tcp://127.0.0.1:{collector.port}",
        "--job",
        "term-test",
        "--interval",
        "0.2",
        "--spool",
        str(job.logs / "spool"),
    )
    collector.next(msg.Hello)
    collector.say(msg.Welcome(0))
    while not collector.next(msg.Report).ranks:
        pass
    collector.say(msg.Capture("c1", settle_s=60.0, timeout_s=100.0))
    collector.say(msg.Capture("c2"))
    collector.say(msg.Capture("c3"))
    collector.next(msg.Declined)  # the first is under way, and the third waits
    agent.terminate()
    assert agent.wait(timeout=20) == 0  # the capture alone would last a minute
    collector.context.destroy(linger=0)
