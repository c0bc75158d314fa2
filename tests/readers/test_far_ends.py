"""The other end of a connection that a rank is blocked on."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from hangdoctor.model.capture import FarEnd, ProcessSample, RankCapture, ThreadSample
from hangdoctor.readers import connections, far_ends
from tests.support.captures import WAIT, captured, judged, sample, stack, still, thread

SERVER = """
import socket, threading
accepted = socket.fromfd(0, socket.AF_INET, socket.SOCK_STREAM).accept()
print("up", flush=True)
threading.Event().wait()
"""
ASK = stack(("recv_into", "/usr/lib/python3.11/socket.py", 706), ("ask", "/app/train.py", 34))


def blocked_on(pid: int, inode: int, call: str = "recvfrom(7 -> socket:[{}])") -> RankCapture:
    call = call.format(inode)
    threads = [ThreadSample(pid, "MainThread", syscall=call)]
    return RankCapture(pid=pid, rank=0, samples=[ProcessSample(0.0, threads=threads)])


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", [socket.AF_INET, socket.AF_INET6])
def test_the_process_at_the_other_end_is_found(kind: socket.AddressFamily) -> None:
    host = "127.0.0.1" if kind == socket.AF_INET else "::1"
    with socket.socket(kind) as listener:
        listener.bind((host, 0))
        listener.listen()
        port = listener.getsockname()[1]
        words = [sys.executable, "-I", "-c", SERVER]
        server = subprocess.Popen(words, stdin=listener.fileno(), stdout=subprocess.PIPE)
    try:
        with socket.create_connection((host, port)) as asking:
            assert server.stdout is not None and server.stdout.readline() == b"up\n"
            inode = os.fstat(asking.fileno()).st_ino
            rank = blocked_on(os.getpid(), inode)
            far_ends.attach([rank, RankCapture(pid=server.pid, rank=1)])
            far = rank.far_ends[f"socket:[{inode}]"]
            assert far.address in (f"{host}:{port}", f"[{host}]:{port}")
            assert far.pid == server.pid and far.argv[:3] == words[:3]
    finally:
        server.kill()
        server.communicate()
    gone = blocked_on(os.getpid(), 1)
    far_ends.attach([gone])
    assert gone.far_ends == {}


@pytest.mark.timeout(60)
def test_the_process_at_the_other_end_of_a_pipe_is_found() -> None:
    reader = subprocess.Popen(["sleep", "1000"], stdin=subprocess.PIPE)
    try:
        assert reader.stdin is not None
        inode = os.fstat(reader.stdin.fileno()).st_ino
        writes = blocked_on(os.getpid(), inode, "write(7 -> pipe:[{}])")
        reads = blocked_on(os.getpid(), inode, "read(7 -> pipe:[{}])")
        far_ends.attach([writes])
        far_ends.attach([reads])  # it has the writing end itself, and no other process
    finally:
        reader.kill()
        reader.communicate()
    assert writes.far_ends[f"pipe:[{inode}]"] == FarEnd("", reader.pid, "sleep", ["sleep", "1000"])
    assert reads.far_ends == {}


def test_of_another_host_its_address_is_known() -> None:
    mine = connections.Socket(5, "0700000A", 8080, own="0100000A")
    mapped = connections.Socket(5, "0" * 16 + "FFFF00000700000A", 443, own="0100000A")
    assert far_ends.address_of(mine) == "10.0.0.7:8080"
    assert far_ends.address_of(mapped) == "10.0.0.7:443"


def test_what_serves_a_rank_is_said() -> None:
    call = "recvfrom(7 -> socket:[12])"
    waiting = [still(rank, WAIT) for rank in (1, 3)]
    serves = thread(stack(("do_GET", "/app/serve.py", 16)), tid=21, name="Thread-8")
    two = captured(2, [sample(at, thread(WAIT), serves) for at in (0.0, 1.0)])
    asks = captured(0, [sample(at, thread(ASK, syscall=call)) for at in (0.0, 1.0)])
    asks.far_ends = {"socket:[12]": FarEnd("127.0.0.1:80", two.pid, "python", ["python", "t.py"])}
    said = judged(asks, two, *waiting)
    assert [cause.ranks for cause in said.causes] == [[0]], said.summary
    advice = said.causes[0].advice
    assert "is rank 2 (pid 11), with MainThread at step (train.py:31); Thread-8 at do_GET" in advice
