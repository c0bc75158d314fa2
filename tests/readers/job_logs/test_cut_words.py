"""Lines that are cut, and limits of a start at which not all had come."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.read_logs import diagnosed

ONE = (
    "RuntimeError: Detected mismatch between collectives on ranks. Rank 1 is running collective: "
    "CollectiveFingerPrint(SequenceNumber=21, OpType=BROADCAST, TensorShape=[1], TensorDtypes=Lo"
)


def test_a_check_of_operations_that_is_cut_is_no_lost_connection(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, f"step 5 loss 0.2\n[rank1]: {ONE}\n")
    assert found.causes == [] and "ranks made different calls" in found.summary
    assert "OpType=BROADCAST" in found.summary and "connection" not in found.summary


def test_a_watchdogs_line_that_is_cut_is_a_wait(tmp_path: Path) -> None:
    line = (
        "[rank6]:[E624 04:14:29.225547137 ProcessGroupNCCL.cpp:1896] [PG ID 1 PG GUID 1 Rank 6] "
        "Process group watchdog thread terminated with exception: [Rank 6] Watchdog caught co"
    )
    for end in ("", "llective operation timeout: WorkNCCL(SeqNum=8, OpTy"):
        found = diagnosed(tmp_path, f"step 5 loss 0.2\n{line}{end}\n")
        assert found.causes == [] and "only rank 6 waits in the log" in found.summary


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (
            "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError",
            "Fewer nodes than the job has (--nnodes) came to the rendezvous",
        ),
        (
            "Stopping coordination service as cluster registration failed. This may be due to 1) "
            "some tasks crashed earlier before connecting.",
            "Not all tasks of the job had registered with JAX's coordinator",
        ),
    ],
)
def test_a_start_to_which_not_all_came(tmp_path: Path, line: str, says: str) -> None:
    found = diagnosed(tmp_path, line + "\n")
    assert says in found.summary, found.summary
    assert [c.kind for c in found.causes] == ["start_stall"] and not found.causes[0].ranks


def test_the_server_that_brpc_lost_is_where_to_look(tmp_path: Path) -> None:
    line = (
        "W1102 21:14:35.889020  1432 src/brpc/input_messenger.cpp:213] Fail to read from fd=37 "
        "SocketId=515@10.0.0.17:8001@52683: Connection reset by peer\n"
    )
    found = diagnosed(tmp_path, line)
    assert found.causes == [] and "lost a connection to 10.0.0.17" in found.summary
