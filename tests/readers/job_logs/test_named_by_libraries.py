"""Libraries and launchers that name a rank, and those that only report what they met.

Texts by the formats of their own strings.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.read_logs import diagnosed, named

UCC = """\
terminate called after throwing an instance of 'c10::Error'
  what():  [Rank 3][ProcessGroupUCC-1][COMM_CHECK]
	Aborting comms #{seq} (op=ALLTOALL_BASE) due to the problematic ranks: [ 5 ]
		Ranks [5 6] are '{state}'
	Comms status of other ranks:
		Ranks [3 4] are last known progressing comms #{seq} (op=ALLTOALL_BASE)
"""


def test_ranks_that_ucc_did_not_see_come(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, UCC.format(seq=40, state="Collective wasn't posted"))
    assert named(found) == [("not_entered", [5, 6])] and found.status == "hang"
    assert "all_to_all_single #40 (UCC's own check)" in found.summary
    assert "NCCL" not in found.causes[0].advice
    found = diagnosed(tmp_path, UCC.format(seq=40, state="Waiting for the network"))
    assert found.causes == [] and "UCC ended an operation" in found.summary


def message(sender: int, to: int) -> str:
    return f"Message id {70 + sender} from task {sender} (10.8.1.{sender}) to task {to} (10.8.1.{to // 4}) timed out.\n"


def test_the_task_that_took_no_message_of_several(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, message(1, 24) + message(9, 24))
    assert named(found) == [("unreachable", [24])] and found.causes[0].nodes == ["10.8.1.6"]
    assert "took no message of ranks 1,9" in found.summary
    found = diagnosed(tmp_path, message(1, 24) + message(9, 25))
    assert named(found) == [("unreachable", [24, 25])], "two tasks of one host"


@pytest.mark.parametrize(
    "text",
    [
        message(1, 24),  # one pair alone
        message(1, 24) + message(9, 40),  # tasks of two hosts
        message(1, 24) + message(24, 1) + message(9, 24),  # it waits for one of them itself
    ],
)
def test_messages_between_whose_ends_nothing_decides(tmp_path: Path, text: str) -> None:
    found = diagnosed(tmp_path, text)
    assert named(found) == [("unreachable", [])] and found.summary.startswith("Between rank")


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("ERROR: 0031-250  task 3: Segmentation fault\nERROR: 0031-250  task 1: Terminated\n", [3]),
        ("ERROR: 0031-300  Forcing all remote tasks to exit due to exit code 1 in task 5\n", [5]),
        ("ERROR:  One or more process (first noticed rank 4) terminated with signal 9\n", [4]),
        (
            "[n4:mpispawn_0][child_handler] MPI process (rank: 6, pid: 12) terminated with signal 11 -> abort job\n",
            [6],
        ),
        (
            "[n4:mpispawn_0][child_handler] MPI process (rank: 6, pid: 12) exited with status 3\n",
            [6],
        ),
        ("[n4:mpi_rank_7][error_sighandler] Caught error: Segmentation fault (signal 11)\n", [7]),
    ],
)
def test_launchers_that_name_who_ended_first(tmp_path: Path, text: str, ranks: list[int]) -> None:
    assert named(diagnosed(tmp_path, text)) == [("dead", ranks)]


def test_tasks_that_poe_ended_itself(tmp_path: Path) -> None:
    assert diagnosed(tmp_path, "ERROR: 0031-250  task 1: Terminated\n").causes == []


MPICH = "MPICH ERROR [Rank 11] [job id 4.0] [n7] - Abort(26) (rank 11 in comm 0): Fatal error in PMPI_Allreduce: {}, error stack:\n"
CANCELED = "MPIDI_OFI_handle_cq_error(1075): OFI poll failed (ofi_events.c:1077:MPIDI_OFI_handle_cq_error:Input/output error - CANCELED)\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            MPICH.format("Other MPI error") + CANCELED,
            "rank 11 printed that its call of PMPI_Allreduce",
        ),
        (
            MPICH.format("Process failed"),
            "another process had failed, as MPI found in PMPI_Allreduce",
        ),
        (
            "torch.distributed.DistBackendError: NCCL error in: /p/x.cpp:16, unhandled system error, NCCL version 2.19.3\n",
            "a process printed that NCCL failed",
        ),
    ],
)
def test_a_call_that_failed_is_no_lost_connection(tmp_path: Path, text: str, says: str) -> None:
    found = diagnosed(tmp_path, text)
    assert (found.status, found.causes) == ("unknown", [])
    assert says in found.summary and "connection" not in found.summary


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("dequeue_and_set_error(596).......: Communication error with rank 5\n", "to rank 5"),
        (
            "[n1][[22,1],3][btl_tcp_frag.c:241:mca_btl_tcp_frag_recv] peer: n2 mca_btl_tcp_frag_recv: readv failed: Connection reset by peer (104)\n",
            "rank 3 lost a connection to n2",
        ),
        (
            "[1705.12] [n1:14 :0]      ucp_ep.c:1504 UCX  ERROR ep 0x7f: Connection reset by remote peer\n",
            "the other end had ended, or the network to it broke",
        ),
    ],
)
def test_lost_connections_leave_open_what_ended_them(tmp_path: Path, text: str, says: str) -> None:
    found = diagnosed(tmp_path, text)
    assert (found.status, found.causes) == ("unknown", []) and says in found.summary


def test_hosts_that_open_mpi_could_not_connect(tmp_path: Path) -> None:
    text = (
        "A process or daemon was unable to complete a TCP connection\nto another process:\n"
        "  Local host:    n1\n  Remote host:   n7\nThis is usually caused by a firewall.\n"
    )
    found = diagnosed(tmp_path, text)
    assert named(found) == [("start_stall", [])] and "Between a rank on n1 and n7" in found.summary


def test_limits_of_a_node_that_ucx_met(tmp_path: Path) -> None:
    locked = "[170.1] [n1:14 :0] ib_iface.c:1049 UCX  ERROR ibv_create_cq(cqe=40) failed: Cannot allocate memory : Please set max locked memory (ulimit -l) to 'unlimited'\n"
    assert "limit on locked memory" in diagnosed(tmp_path, locked).summary
    shared = "[170.1] [n1:14 :0] mm_posix.c:206 UCX  ERROR Not enough memory to write total of 42 bytes. Please check that /dev/shm or the directory you specified has more available memory.\n"
    assert "/dev/shm" in diagnosed(tmp_path, shared).summary


def test_the_task_for_which_pals_ended_all_others(tmp_path: Path) -> None:
    swept = "x32.cm.site: rank 0 died from signal 15\n"
    for end in ("exited with code 255", "exited with code 134", "died from signal 6"):
        found = diagnosed(tmp_path, f"x31.cm.site: rank 7 {end}\n{swept}")
        assert named(found) == [("dead", [7])] and found.causes[0].nodes == ["x31.cm.site"]
    crash = "x31.cm.site: rank 7 exited with code 1\nx33.cm.site: rank 9 died from signal 11\n"
    assert ("dead", [9]) not in named(diagnosed(tmp_path, crash + swept)), "it came after the stop"
    assert diagnosed(tmp_path, swept).causes == []
    found = diagnosed(tmp_path, f"x34.cm.site: shepherd died from signal 9\n{swept}")
    assert named(found) == [("dead", [])] and found.causes[0].nodes == ["x34.cm.site"]


def test_the_task_that_flux_saw_end(tmp_path: Path) -> None:
    text = "0.5s: flux-shell[0]: FATAL: doom: python: task rank 5 on host n3 failed and exit-on-error is set\n"
    assert named(diagnosed(tmp_path, text)) == [("dead", [5])]


FATAL = """\
[n5:123] *** An error occurred in MPI_Bcast
[n5:123] *** reported by process [3456789,3]
[n5:123] *** on communicator MPI_COMM_WORLD
[n5:123] *** {}
[n5:123] *** MPI_ERRORS_ARE_FATAL (processes in this communicator will now abort,
"""


def test_open_mpis_word_on_a_call(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, FATAL.format("MPI_ERR_ROOT: invalid root"))
    assert named(found) == [("error", [3])] and "MPI_ERR_ROOT: invalid root" in found.summary
    found = diagnosed(tmp_path, FATAL.format("MPI_ERR_PROC_FAILED: Process Failure"))
    assert (
        found.causes == [] and "rank 3 on n5 printed that MPI failed in MPI_Bcast" in found.summary
    )
    found = diagnosed(tmp_path, FATAL.format("MPI_ERR_TRUNCATE: message truncated"))
    assert named(found) == [("mismatch", [])], "either side may be wrong"


STALLED = "[0]<stderr>:W horovod/common/stall_inspector.cc:107] tensors were broadcasted by subset of ranks and are waiting\nStalled ranks:\n"


def test_horovods_list_in_which_ranks_have_submitted_different_operations(tmp_path: Path) -> None:
    rows = "0: [gather.noname.4]\n1: [gather.noname.4]\n2: [sum.noname.7]\n3: [gather.noname.4, sum.noname.7]\n"
    found = diagnosed(tmp_path, STALLED + rows)
    assert named(found) == [("order", [])], found.summary
    assert "rank 2 in gather.noname.4" in found.summary
    assert "ranks 0-1 in sum.noname.7" in found.summary and "rank 3 is in none" in found.summary


def test_horovods_list_of_ranks_that_are_only_late(tmp_path: Path) -> None:
    nested = diagnosed(tmp_path, STALLED + "2: [grad_1, grad_2]\n3: [grad_2]\n")
    assert named(nested) == [("not_entered", [2, 3])]
    again = STALLED + "2: [grad_1]\nstep 30 loss 0.5\n" + STALLED + "3: [grad_9]\n"
    assert named(diagnosed(tmp_path / "again", again))[0][0] == "not_entered", "two lists"
    cut = diagnosed(tmp_path / "cut", STALLED + "2: [grad_1, grad_2 ...]\n3: [grad_3, ...]\n")
    assert named(cut) == [("not_entered", [2, 3])]
