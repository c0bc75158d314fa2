"""The peer that the line of an MPI call says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hangdoctor.readers.pyspy_frames import parse_json
from hangdoctor.stacks.call_peers import of_rank, peer_names, peers, tags, waited_for

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


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("self.rank - 1", {"src": 1}),
        ("(comm.Get_rank() + 1) % comm.Get_size()", {"src": 3}),
        ("MPI.COMM_WORLD.rank - 2", {"src": 0}),
        ("self.comm.size - 1", {"src": 3}),
        ("self.team.rank - 1", {}),  # its number in a part of the job
        ("self.left", {}),
        ("self.rank()", {}),
    ],
)
def test_a_programs_own_rank_may_be_an_attribute(source: str, found: dict[str, int]) -> None:
    assert of_rank(f"self.comm.Recv(x, source={source}, tag=step)", 2, 4) == found
    assert of_rank("comm.Recv(row, source=left)", 2, 4) == {}


def test_the_handle_that_a_line_waits_for() -> None:
    assert waited_for("dist.isend(w, dst=dst).wait()") == "isend"
    assert waited_for("req = comm.irecv(source=0).wait()") == "irecv"
    assert waited_for("work.wait()") == waited_for("dist.isend(w, dst=1)") == ""
    assert waited_for("a.isend(w, 1).wait(), b.irecv(w, 0).wait()") == ""  # which of them?
    assert waited_for("dist.all_reduce(w, async_op=True).wait()") == waited_for("x.wait(") == ""


def test_the_variables_that_say_the_peer() -> None:
    assert peer_names("dist.isend(w, dst=(peer + 1) % world).wait()") == {"peer", "world"}
    assert peer_names("dist.irecv(w, left).wait()") == {"left"}
    assert peer_names("dist.irecv(w, self.left).wait()") == {"self"}
    assert peer_names("work.wait()") == peer_names("dist.irecv(w).wait()") == set()


def test_the_variables_that_a_call_gives_as_its_tag() -> None:
    numbers = {"step": 41, "rank": 2, "n": 7}
    assert tags("self.comm.Recv(x, source=self.rank - 1, tag=step)", numbers) == {"step": 41}
    both = "comm.sendrecv(x, dest=1, sendtag=step, source=0, recvtag=n)"
    assert tags(both, numbers) == {"step": 41, "n": 7}
    assert tags("comm.Recv(x, source=0, tag=step + 1)", numbers) == {}
    assert (
        tags("comm.Recv(x, source=0, tag=unknown)", numbers) == tags("comm.Recv(x,", numbers) == {}
    )


def test_a_stack_keeps_the_variables_that_say_the_peer_and_no_others(tmp_path: Path) -> None:
    program = tmp_path / "ring.py"
    program.write_text("dist.irecv(w, src=left).wait()\n")
    variables = [{"name": n, "arg": False, "repr": r} for n, r in (("left", "3"), ("key", "77"))]
    frame = {"name": "ring", "filename": str(program), "line": 1, "locals": variables}
    [thread] = parse_json(json.dumps([{"thread_id": 1, "frames": [frame]}]).encode())
    assert thread.frames[0].values == {"left": 3}
