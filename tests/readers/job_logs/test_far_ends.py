"""Lines that name the other end of a connection, or the node where a task could not begin."""

from __future__ import annotations

from pathlib import Path

from tests.support.read_logs import diagnosed, named

GRPC = (
    "[rank{0}] UNAVAILABLE: failed to connect to all addresses; last error: UNKNOWN: "
    "ipv4:10.0.0.5:8476: Failed to connect to remote host: Connection refused\n"
)


def test_the_host_that_open_mpi_lost_is_named(tmp_path: Path) -> None:
    text = (
        "step 10 loss 0.2\nAn MPI communication peer process has unexpectedly disconnected.  This\n"
        "usually indicates a failure in the peer process.\n\n"
        "  Local host: n3\n  Local PID:  7720\n  Peer host:  n6\n"
    )
    found = diagnosed(tmp_path, text)
    assert found.causes[0].nodes == ["n6"] and "the connection to host n6 first" in found.summary
    other = "Open MPI failed to connect\n  Local host: n3\n  Peer host:  n6\n"
    assert diagnosed(tmp_path, "step 10 loss 0.2\n" + other).causes == [], "words of another fault"


def test_an_address_that_did_not_answer_is_where_to_look(tmp_path: Path) -> None:
    text = GRPC.format(0) + GRPC.format(3)
    found = diagnosed(tmp_path, text)
    assert found.causes == [] and "lost a connection to 10.0.0.5" in found.summary
    steps = "".join(f"step {n} loss 0.2\n" for n in (1, 2, 3))
    again = diagnosed(tmp_path, text + steps)
    assert "10.0.0.5" not in again.summary, "it was tried again until it was there"


def test_a_node_where_slurm_could_not_start_a_task(tmp_path: Path) -> None:
    line = "srun: error: Task launch for StepId=36.0 failed on node n31: Job credential expired\n"
    found = diagnosed(tmp_path, line)
    assert found.causes[0].nodes == ["n31"] and found.causes[0].kind == "start_stall"
    assert "Slurm could not start its task: Job credential expired" in found.summary


def test_a_rendezvous_that_was_gone_at_the_end_is_no_start_that_failed(tmp_path: Path) -> None:
    line = (
        "WARNING:torch.distributed.elastic.rendezvous.dynamic_rendezvous:The node 'n2_314_0' has "
        "failed to shutdown the rendezvous '3045' due to an error of type RendezvousConnectionError.\n"
    )
    found = diagnosed(tmp_path, "step 10 loss 0.2\n" + line)
    assert (found.status, found.causes) == ("unknown", []), found.summary
    assert "lost the rendezvous store" in found.summary
    clean = diagnosed(tmp_path, "step 9/10 loss 0.2\nstep 10/10 loss 0.2\n" + line)
    assert clean.status == "healthy", clean.summary


def test_who_waited_in_the_same_operation_is_no_lone_waiter(tmp_path: Path) -> None:
    counters = (
        "[rank{0}]:[E602 11:17:52.399340163 ProcessGroupNCCL.cpp:2268] [PG ID 1 PG GUID 1 Rank {0}]  "
        "failure detected by watchdog at work sequence id: 47 PG status: last enqueued work: 49, last completed work: 46\n"
    )
    wait = (
        "[rank2]:[E602 11:17:52.400612945 ProcessGroupNCCL.cpp:632] [Rank 2] Watchdog caught "
        "collective operation timeout: WorkNCCL(SeqNum=47, OpType=ALLREDUCE, NumelIn=4, NumelOut=4,"
        " Timeout(ms)=600000) ran for 600080 milliseconds before timing out.\n"
    )
    found = diagnosed(tmp_path, counters.format(0) + wait + counters.format(2))
    assert named(found) == [] and "ranks 0,2 timed out in all_reduce #47 alike" in found.summary
