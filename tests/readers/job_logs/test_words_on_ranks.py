"""Which rank a text itself says to look at, and whose words they are; what is alike, and what is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.read_logs import diagnosed, named

WAIT = "[E ProcessGroupNCCL.cpp:464] [Rank {}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType={}, NumelIn={}, NumelOut={}, Timeout(ms)=10000) ran for 10917 milliseconds before timing out.\n"


def wait(rank: int, op: str = "ALLREDUCE", numel: int = 64) -> str:
    return WAIT.format(rank, op, numel, numel)


@pytest.mark.parametrize(
    "line",
    [
        "Rank 2 is the faulty rank\n",
        "rank 2 seems to be stuck\n",
        "[rank2]: is hung\n",
        "monitor: detected rank 2 is hanging.\n",
    ],
)
def test_a_program_names_the_rank_itself(tmp_path: Path, line: str) -> None:
    found = diagnosed(tmp_path, line + wait(2))
    assert found.status == "hang" and named(found) == [("not_entered", [2])], found.summary
    assert "by the program's own word" in found.summary and found.causes[0].confidence <= 0.6


@pytest.mark.parametrize(
    "text",
    [
        "Rank 2 is the faulty rank\n",  # nothing waited
        "Rank 2 is the faulty rank\nRank 3 is the faulty rank\n" + wait(1),
        "Rank 2 is stuck with old weights, reloading them\n" + wait(1),
        "if rank 2 is slow, lower the batch\n" + wait(1),
    ],
)
def test_words_that_name_no_rank_to_look_at(tmp_path: Path, text: str) -> None:
    assert diagnosed(tmp_path, text).causes == []


def test_whom_a_monitored_barrier_waited_for(tmp_path: Path) -> None:
    text = (
        "[rank3]: RuntimeError: Rank 3 successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0. Please check rank 0 logs for faulty rank.\n"
        "[rank3]:  Original exception: \n"
        "[rank3]: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:133] Timed out waiting 600000ms for send operation to complete\n"
    )
    found = diagnosed(tmp_path, text)
    assert found.causes == [] and "for rank 0" in found.summary
    assert "read its log first" in found.summary and "nothing shows" not in found.summary


def test_sizes_that_differ_are_not_alike(tmp_path: Path) -> None:
    apart = diagnosed(tmp_path, wait(1, "COALESCED", 563) + wait(7, "COALESCED", 1075))
    assert apart.causes == [] and "rank 1 with 563, rank 7 with 1075" in apart.summary
    assert "alike" not in apart.summary
    same = diagnosed(tmp_path, wait(1, "COALESCED") + wait(7, "COALESCED"))
    assert "alike" in same.summary and "sizes" not in same.summary


CUT = 'Traceback (most recent call last):\n  File "/job/fit.py", line 306, in <module>\n    fit(arguments)\n'
LOGGED = "2026-09-07 08:44:35,278 ERROR fit.py:308 in <module> -- gave up on 7ad2 with rank id: 2\n"


def test_a_loggers_line_before_a_cut_traceback_names_its_rank(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(LOGGED + CUT)
    (tmp_path / "b.log").write_text(wait(0) + wait(3))
    found = diagnosed(tmp_path, "")
    assert named(found) == [("error", [2])] and found.causes[0].confidence <= 0.5
    after = wait(0) + wait(3) + LOGGED.replace("id: 2", "id: 3") + CUT
    for name in ("a.log", "b.log"):
        (tmp_path / name).unlink()
    assert diagnosed(tmp_path, after).causes == [], "it follows from the wait"


def test_libfabrics_endpoint_is_no_rendezvous_port(tmp_path: Path) -> None:
    text = "Abort(16) on node 0 (rank 0 in comm 0): Fatal error in PMPI_Init: Other MPI error, error stack: OFI EP enable failed (ofi_init.c:1359:create_endpoint:Address already in use)\n"
    found = diagnosed(tmp_path, text)
    assert "libfabric" in found.summary and "rendezvous" not in found.summary
    torch = "RuntimeError: The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).\n"
    assert "rendezvous port 29500" in diagnosed(tmp_path, torch).summary


CRASH = "[n3:987:0:987] Caught signal 11 (Segmentation fault: invalid permissions for mapped object at address 0x15)\n"
ABORT = "MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD\nwith errorcode 7.\n\n"


def test_a_crash_after_an_mpi_abort_follows_from_it(tmp_path: Path) -> None:
    assert named(diagnosed(tmp_path, ABORT + CRASH)) == [("dead", [1])]
    before = diagnosed(tmp_path, CRASH + ABORT)
    assert "987" in before.summary and "segmentation" in before.summary


def test_an_error_of_mpi_before_the_signals_it_sends(tmp_path: Path) -> None:
    text = "".join(
        f"Abort(15) on node {n} (rank {n} in comm 0): Fatal error in internal_Wait: Other MPI error\n"
        f"x4c{n}: rank {n} died from signal 15\n"
        for n in (15, 20)
    )
    found = diagnosed(tmp_path, text)
    assert found.causes == [] and "MPI_Wait" in found.summary
    assert "no cause before" not in found.summary


def test_an_abort_of_cxx_at_the_exit(tmp_path: Path) -> None:
    text = (
        "pure virtual method called\nterminate called without an active exception\n"
        "E1019 08:21:39.599000 3036 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: -6) local_rank: 1 (pid: 42) of binary: /bin/python\n"
    )
    found = diagnosed(tmp_path, text)
    assert named(found) == [("error", [1])] and "pure virtual" in found.summary


STALL = (
    "One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks\n"
)


def stalled(*rows: str) -> str:
    return f"{STALL}Missing ranks:\n" + "".join(f"{row}\n" for row in rows)


def test_a_later_list_of_horovod_shows_another_operation(tmp_path: Path) -> None:
    first = stalled("0: [broadcast.flag]")
    second = stalled("0: [broadcast.flag]", "1: [allreduce.a, allreduce.b, allreduce.c ...]")
    found = diagnosed(tmp_path, first + second)
    assert named(found) == [("order", [])] and "rank 1 in broadcast.flag" in found.summary
    assert "rank 0 in allreduce.a" in found.summary
    alone = diagnosed(tmp_path, first + stalled("1: [allreduce.a, allreduce.b]"))
    assert "different calls" not in alone.summary, "the first may have come by then"


CALL = "n1:{pid}:9 [{gpu}] NCCL INFO {op}: opCount {seq} sendbuff 0x1 recvbuff 0x2 count {count} datatype 7 op 0 root 0 comm 0x5 [nranks=2] stream 0x6\n"


def calls(*made: tuple[int, str, int, int]) -> str:
    return "".join(
        CALL.format(pid=30 + gpu, gpu=gpu, op=op, seq=seq, count=count)
        for gpu, op, seq, count in made
    )


def test_calls_that_all_have_one_number_are_not_placed(tmp_path: Path) -> None:
    one = ((0, "AllReduce", 0, 1), (1, "AllReduce", 0, 1), (0, "AllGather", 0, 260))
    text = calls(*one, (1, "AllGather", 0, 260), (0, "AllReduce", 0, 64))
    assert diagnosed(tmp_path, text).causes == []
    numbered = calls((0, "AllReduce", 1, 1), (1, "AllGather", 1, 260))
    assert named(diagnosed(tmp_path, numbered)) == [("mismatch", [0, 1])]


def test_barriers_of_different_numbers_are_one_operation(tmp_path: Path) -> None:
    text = "RuntimeError: Detected mismatch between collectives on ranks. Rank 1 is running collective: CollectiveFingerPrint(SequenceNumber=1OpType=BARRIER), but Rank 2 is running collective: CollectiveFingerPrint(SequenceNumber=0OpType=BARRIER).\n"
    found = diagnosed(tmp_path, text)
    assert found.status == "failed" and named(found) == [("mismatch", [1, 2])]
    assert "operations with different numbers: barrier #1 and barrier #0" in found.summary
    assert "so that one is 1 call ahead" in found.summary
    assert "other tensors" not in found.summary


def test_who_else_there_is_beside_a_lone_waiter(tmp_path: Path) -> None:
    size = "world_size: 2\n"
    silent = diagnosed(tmp_path, size + wait(1))
    assert silent.causes == [] and "no such line of rank 0: look there first" in silent.summary
    spoke = diagnosed(tmp_path, size + wait(1) + "[rank0]: closing the communicator\n")
    assert spoke.causes == [] and "look there first" not in spoke.summary
