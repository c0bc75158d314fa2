"""The peer that the line of an MPI call says."""

from __future__ import annotations

import pytest

from hangdoctor.stacks.call_peers import of_rank, peers

CALLS = {
    "comm.Recv(row, source=rank + 1, tag=UP + 100)": {"src": 3},
    "comm.Recv(row, left)": {"src": 1},
    "x = comm.recv(source=(rank - 3) % size)": {"src": 3},
    "comm.Send(out, rank // 2)": {"dst": 1},
    "comm.ssend(out, dest=rank ^ 1)": {"dst": 3},
    "comm.Sendrecv(a, dest=left, recvbuf=b, source=right)": {"src": 3, "dst": 1},
    "comm.Sendrecv(a, left, 0, b, source=right)": {"src": 3, "dst": 1},
    "comm.Sendrecv(a, dest=-1, recvbuf=b, source=none)": {},  # no process at all
    "comm.Recv(row, source=MPI.ANY_SOURCE)": {},
    "comm.Recv(row, source=rank / 2)": {},
    "comm.Recv(row, source=rank % 0)": {},
    "comm.Recv(row, source=True)": {},
    "comm.Recv(row)": {},
    "comm.Send(a, 1), comm.Recv(b, 3)": {},  # which of them?
    "queue.put(1, left)": {},
    "comm.Recv(row, source=rank + ": {},  # cut
}


@pytest.mark.parametrize("code", CALLS)
def test_who_the_peer_is(code: str) -> None:
    numbers = {"rank": 2, "size": 4, "left": 1, "right": 3, "none": -2}
    assert peers(code, numbers) == CALLS[code]


def test_a_programs_own_rank_is_known_by_its_name() -> None:
    assert of_rank("comm.Recv(row, source=my_rank - 1)", 2, 4) == {"src": 1}
    assert of_rank("comm.Recv(row, source=left)", 2, 4) == {}
