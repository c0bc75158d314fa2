"""Forms in which people keep the state of MPI programs: queues of messages, tables of ranks, stacks by hand."""

from __future__ import annotations

from pathlib import Path

from hangdoctor.diagnosis import diagnose
from hangdoctor.readers import called_stacks
from hangdoctor.readers.offline import read
from tests.support.read_logs import diagnosed

QUEUE = """\
[n7:812] Communicator MPI_COMM_WORLD [0x7ff790c40240](0) rank 19 recv_seq 1394 num_procs 32 last_probed 70
[n7:812] [Rank 4] expected_seq 39 ompi_proc 0x55f5b6041ae0 send_seq 12
[n7:812] {}
[n7:812] req 0x55f5b6a1ff00 peer 4 tag 77 addr 0x55f5b64238b0 count 1 datatype MPI_INT [0x7ff790c222a0] [ ] req_seq 1393
[n7:812] [Rank 6] expected_seq 5 ompi_proc 0x55f5b619e150 send_seq 6
"""
TABLE = """\
Rank | Nodename |  Command |  Pid | State |   Time | Pri |
   0 |       n4 |     melt | 7509 |     R |   3:27 |  20 |
   1 |       n4 |     melt | 7510 |     S |   0:13 |  20 |
   2 |       n5 |     melt | 4319 |     R |   3:26 |  20 |
"""
BY_HAND = """\
[Task A]
Source:Line              Call
layer.F90:568            call MPI_BCAST(vec,n,MPI_LOGICAL,root,comm,ierr)
fields.F90:86            call layer_bcast(present, root)
driver.F90:92            call fields_init()

[Task B]
waiting.F90:18           call MPI_WAITANY(n,reqs,one,status,ier)
driver.F90:95            call settle(ocean)
"""


def test_a_receive_that_nothing_has_come_for(tmp_path: Path) -> None:
    verdict = diagnosed(tmp_path, QUEUE.format("expected specific receives"))
    assert verdict.causes == [] and "rank 19 from rank 4 with tag 77" in verdict.summary
    assert "stack of rank 4 first" in verdict.summary and "6" not in verdict.summary


def test_messages_that_came_are_no_receives(tmp_path: Path) -> None:
    verdict = diagnosed(tmp_path, QUEUE.format("unexpected frags"))
    assert verdict.causes == [] and "tag 77" not in verdict.summary


def test_states_of_ranks_accuse_nobody(tmp_path: Path) -> None:
    verdict = diagnosed(tmp_path, TABLE)
    assert (
        verdict.causes == []
        and "ranks 0,2 at work (R) and rank 1 asleep or stopped" in verdict.summary
    )


def test_stacks_written_down_with_the_calls_of_their_lines(tmp_path: Path) -> None:
    (tmp_path / "stacks.txt").write_text(BY_HAND)
    said = diagnose(read([tmp_path / "stacks.txt"]))
    assert (said.status, said.causes) == ("unknown", [])
    assert "Task A waits in MPI_Bcast in layer_bcast (layer.F90:568)" in said.summary
    assert "Task B waits in MPI_Waitany" in said.summary


def test_lines_that_were_searched_for_are_no_stack() -> None:
    assert called_stacks.read("a.c:10: MPI_Send(b);\na.c:20: MPI_Recv(b);\na.c:30: f();\n") == []
    assert called_stacks.read("a.f90:10 call one()\nb.f90:20 call two()\n") == []
