"""Connections that failed: who tried, from where, and the address of the other end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.read_logs import diagnosed, named

LIMIT = "[E419 13:27:42.301344821 socket.cpp:1011] [c10d] The client socket has timed out after 60000ms while trying to connect to (n1, 29500).\n"
BEGIN = "[init] host={} rank={} world=4 master=n1:29500\n"
RAISED = '[rank3]: Traceback (most recent call last):\n[rank3]:   File "/job/train.py", line 9, in main\n'


@pytest.mark.parametrize(
    "line",
    [
        LIMIT,
        LIMIT.replace("ms while", "ms\n  while"),
        "[W socket.cpp:697] [c10d] The client socket has failed to connect to [n1]:47389 (errno: 110 - Connection timed out).\n",
        "[E socket.cpp:753] [c10d] The client socket has failed to connect to any network address of (n1, 47389).\n",
    ],
)
def test_who_could_not_reach_the_rendezvous_and_where_it_is(tmp_path: Path, line: str) -> None:
    found = diagnosed(tmp_path, BEGIN.format("n2", 1) + line)
    assert named(found) == [("start_stall", [])], found.summary
    assert found.summary.startswith("Between rank 1 on n2 and n1: the process could not reach")


def test_in_the_last_line_of_a_traceback(tmp_path: Path) -> None:
    error = "torch.distributed.DistNetworkError: The client socket has timed out after 60000ms while trying to connect to (172.17.0.9, 46229)."
    found = diagnosed(tmp_path, f"{RAISED}[rank3]: {error}\n")
    assert named(found) == [("start_stall", [])], found.summary
    assert found.summary.startswith("Between rank 3 and 172.17.0.9: ")


def test_an_address_of_both_versions(tmp_path: Path) -> None:
    line = "[W socket.cpp:697] [c10d] The client socket has failed to connect to [::ffff:10.0.0.5]:47389 (errno: 110 - Connection timed out).\n"
    found = diagnosed(tmp_path, line + line.replace("[::ffff:10.0.0.5]", "10.0.0.5"))
    assert found.causes[0].nodes == ["10.0.0.5"], found.summary


def test_where_several_begin_at_once_nothing_shows_who_tried(tmp_path: Path) -> None:
    begin = "".join(BEGIN.format("n2", rank) for rank in (1, 2, 3))
    found = diagnosed(tmp_path, begin + LIMIT)
    assert found.summary.startswith("Between a rank and n1: "), found.summary


def test_who_says_that_it_begins_has_come(tmp_path: Path) -> None:
    """Rank 0 counts those that came: it is not the one without a line."""
    count = "torch.distributed.DistStoreError: Timed out after 121 seconds waiting for clients. 1/2 clients joined.\n"
    begin = BEGIN.replace("world=4", "world=2")
    steps = "a line of the program\n" * 4
    text = begin.format("n1", 0) + count + steps + begin.format("n2", 1) + LIMIT
    found = diagnosed(tmp_path, text)
    assert named(found) == [("start_stall", [])], found.summary
    assert "Between rank 1 on n2 and n1" in found.summary


def test_the_address_that_a_connection_was_lost_to(tmp_path: Path) -> None:
    lost = (
        RAISED
        + "[rank3]: RuntimeError: [/work/gloo/transport/tcp/pair.cc:598] Connection closed by peer [{}]:12717\n"
    )
    found = diagnosed(tmp_path, lost.format("10.0.0.5"))
    assert (found.status, found.causes) == ("unknown", [])
    assert "rank 3 lost a connection to 10.0.0.5: it ended or could not be reached" in found.summary
    found = diagnosed(tmp_path, lost.format("127.0.0.1"))
    assert "rank 3 lost a connection: the process at the other end had ended" in found.summary


def test_several_hosts_that_infiniband_lost(tmp_path: Path) -> None:
    line = "{}:19:20 [1] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer fe80::966d:ae03:8b:{}%ib0<53249> with error 10, opcode 32564, len 32564, vendor err 81 (Send)\n"
    found = diagnosed(tmp_path, line.format("n1", "df78") + line.format("n2", "df50"))
    assert named(found) == [("in_communication", [])], found.summary
    assert "Between ranks on n[1-2] and fe80::966d:ae03:8b:df50%ib0" in found.summary
