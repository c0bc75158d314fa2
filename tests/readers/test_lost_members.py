"""A child of the ranks' parent that has ended is one of them, and the parent is not."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from hangdoctor.readers import connections, families, lost_members
from hangdoctor.readers.lost_members import Started
from tests.support.stage import wait_until

pytestmark = pytest.mark.timeout(120)
CHILD = """
import socket, sys, time
held = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
time.sleep(600)
"""


@pytest.fixture
def served() -> Iterator[tuple[socket.socket, list[subprocess.Popen[bytes]]]]:
    """A server in this process and three children, which are connected to it."""
    server = socket.create_server(("127.0.0.1", 0))
    port = str(server.getsockname()[1])
    children = [subprocess.Popen([sys.executable, "-c", CHILD, port]) for _ in range(3)]
    ends = [server.accept()[0] for _ in children]
    yield server, children
    for child in children:
        child.kill()
        child.wait(timeout=20)
    for end in [*ends, server]:
        end.close()


def test_a_worker_has_no_connection_but_those_of_its_parent(
    served: tuple[socket.socket, list[subprocess.Popen[bytes]]],
) -> None:
    server, children = served
    words = [sys.executable, "-c", "import time; time.sleep(600)"]
    with subprocess.Popen(words, pass_fds=[server.fileno()]) as worker:
        try:
            found = [families._member(pid) for pid in (children[0].pid, worker.pid)]
            rank, other = (member for member in found if member is not None)
            assert families._without_workers(os.getpid(), [rank, other]) == [rank]
            rank.environ = {"LOCAL_RANK": "1"}
            assert families._without_workers(os.getpid(), [other, rank]) == [rank]
        finally:
            worker.kill()


def test_the_one_that_ended_keeps_its_place(
    served: tuple[socket.socket, list[subprocess.Popen[bytes]]],
) -> None:
    _, children = served
    pids = [child.pid for child in children]
    first, ended, last = [families._member(pid) for pid in pids]
    assert first is not None and ended is not None and last is not None
    living = [Started(m.started, m.pid) for m in (first, last)]
    ticks = os.sysconf("SC_CLK_TCK")
    assert lost_members.zombies_among(os.getpid(), living, ticks) == []
    os.kill(ended.pid, signal.SIGKILL)
    dead = [Started(ended.started, ended.pid)]
    wait_until(
        lambda: lost_members.zombies_among(os.getpid(), living, ticks) == dead, "it is a zombie"
    )
    family = families._numbered(os.getpid(), None, [first, last], dead)
    assert family is not None
    assert (family.ranks, family.local_size, family.world_size) == ([0, 2], 3, 3)


def test_a_parent_that_only_serves_a_store_is_no_rank(
    served: tuple[socket.socket, list[subprocess.Popen[bytes]]],
) -> None:
    _, children = served
    pids = [child.pid for child in children]
    own = families._member(os.getpid())
    members = [member for pid in pids if (member := families._member(pid)) is not None]
    assert own is not None and len(members) == 3
    assert connections.only_serves(os.getpid(), pids) and not families._is_rank(own, members)
    assert not connections.only_serves(pids[0], [os.getpid()]), "it has asked, not served"
    for member in members:  # what Lightning's launcher gives: it is the first rank itself
        member.environ["LOCAL_RANK"] = "1"
    assert families._is_rank(own, members)
