"""What failed, in words of drivers, libraries and launchers that are easily taken for something else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.read_logs import diagnosed, named

RAISED = 'Traceback (most recent call last):\n  File "/job/fit.py", line 12, in begin\n    go()\n'


@pytest.mark.parametrize(
    ("text", "says", "never"),
    [
        (f"{RAISED}RuntimeError: CUDA error: invalid device ordinal\n", "does not see", "Xid"),
        (
            "2026-01-02 07:57:34.5: E lake.cc:9] failed call to cuDeviceGet: CUDA_ERROR_INVALID_DEVICE\n",
            "does not see",
            "Xid",
        ),
        (
            'hipErrorNoBinaryForGpu: Unable to find code object for all current devices!"\n    host-x86_64 - [Unsupported]\n',
            "not built for this kind of GPU",
            "Unsupported",
        ),
        (
            f"{RAISED}zmq.error.ZMQError: Address already in use (addr='tcp://127.0.0.1:29236')\n",
            "ZeroMQ address tcp://127.0.0.1:29236",
            "master-port",
        ),
        (
            f"{RAISED}OSError: [Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): address already in use\n",
            "port 8000 is taken",
            "master-port",
        ),
        (
            "ib_md.c:325 UCX ERROR ibv_reg_mr(address=0xa0, length=264, access=0xf) failed: Cannot allocate memory\n",
            "could not register memory (ibv_reg_mr: Cannot allocate memory)",
            "free -g",
        ),
        (
            "[cli_0]: write_line error; fd=10 buf=:cmd=init pmi_version=1 pmi_subversion=1\n:\n"
            "system msg for write_line failure : Bad file descriptor\n[cli_0]: Unable to write to PMI_fd\n",
            "launcher (PMI)",
            "dmesg",
        ),
        (
            "slurmstepd: error: pyxis:     mkdir: cannot create directory '/lake/42': Permission denied\n"
            "slurmstepd: error: pyxis: couldn't start container\n",
            "could not be started (pyxis): mkdir: cannot create directory '/lake/42': Permission denied",
            "dmesg",
        ),
        (
            "GLEX_ERR(cn14): _Progress(172), err\nCQE:status=Dest_Key:opcode=RDMA_WRITE\nyhrun: Job step aborted: Waiting up to 2 seconds for job step to finish.\n",
            "reported an error: status=Dest_Key:opcode=RDMA_WRITE",
            "yhrun",
        ),
        ("cudaErrorMemoryAllocation: out of memory\n", "GPU's memory is full", "free -g"),
    ],
)
def test_what_it_was_and_what_to_do(tmp_path: Path, text: str, says: str, never: str) -> None:
    found = diagnosed(tmp_path, text)
    assert found.status == "failed", found.summary
    assert says in found.summary
    assert never not in found.summary + found.causes[0].advice


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (f"{RAISED}MemoryError\n", "memory that it asked the node for"),
        (
            f"{RAISED}OSError: [Errno 12] Cannot allocate memory\n",
            "memory that it asked the node for",
        ),
        (f"{RAISED}RuntimeError: CUDA error: an unknown one\n", "a call to CUDA failed"),
        (
            f"{RAISED}RuntimeError: The server socket has failed to listen on any local network address. port: 29571, name: EADDRINUSE\n",
            "the rendezvous port",
        ),
    ],
)
def test_what_stays_as_it_was(tmp_path: Path, text: str, says: str) -> None:
    assert says in diagnosed(tmp_path, text).summary


CREATION = (
    "ray.exceptions.ActorDiedError: The actor died because of an error raised in its creation task, "
    "ray::Lake.__init__() (pid=2757, ip=10.4.0.2, actor_id=aa71, repr=<Lake object at 0xff>)\n"
)


def test_an_error_in_the_creation_of_an_actor(tmp_path: Path) -> None:
    """The error itself is the cause, of the actor's process; no memory was lacking."""
    inner = (
        '  File "/job/lake.py", line 8, in __init__\n    open_shore()\nValueError: no such shore\n'
    )
    found = diagnosed(tmp_path, RAISED + CREATION + inner)
    assert named(found) == [("error", [])]
    assert "ValueError" in found.summary and "2757" in found.summary and "10.4.0.2" in found.summary
    assert "oom" not in found.causes[0].advice
    alone = diagnosed(tmp_path, RAISED + CREATION)
    assert named(alone) == [("error", [])] and "could not be created" in alone.summary
    assert "2757" in alone.summary and "oom" not in alone.causes[0].advice


def test_a_code_that_is_no_signal(tmp_path: Path) -> None:
    for line in (
        "srun: error: n3: task 0: Exited with exit code {}\n",
        "srun: error: n3: task 0: Exited with exit code {}\nsrun: Terminating StepId=7.0\n",
    ):
        assert "exit code 174" in diagnosed(tmp_path, line.format(174)).summary
        assert "SIGSEGV" in diagnosed(tmp_path, line.format(139)).summary


def test_a_job_that_ctrl_c_ended(tmp_path: Path) -> None:
    end = "mpirun noticed that process rank 0 with PID 597 on node n1 exited on signal 2 (Interrupt).\n"
    found = diagnosed(tmp_path, "step 4\n^Cmpirun: killing job...\n\n" + end)
    assert (found.status, found.causes) == ("unknown", [])
    assert "Ctrl-C" in found.summary and "no cause" not in found.summary


def test_a_process_of_mpirun_that_it_lost(tmp_path: Path) -> None:
    text = "ORTE has lost communication with its daemon located on node:\n\n  hostname:  n4\n"
    found = diagnosed(tmp_path, text)
    assert named(found) == [("unreachable", [])] and found.causes[0].confidence < 0.8
    assert "network" in found.summary + found.causes[0].advice
    slurm = diagnosed(tmp_path, {"job.log": "srun: error: Node failure on n4\n"})
    assert slurm.causes[0].confidence > 0.9


def test_an_abort_is_before_the_crash_of_another(tmp_path: Path) -> None:
    """Who crashes while MPI_Abort ends the job was ended by it."""
    abort = "MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD\nwith errorcode 0.\n"
    crash = "[n7:987:0:987] Caught signal 11 (Segmentation fault: invalid permissions)\n"
    memory = "fill failed: cudaErrorMemoryAllocation: out of memory\n"
    assert named(diagnosed(tmp_path, memory + abort + crash)) == [("error", [1])]
    before = diagnosed(tmp_path, crash + abort)
    assert "segmentation fault" in before.summary, before.summary


ABORTED = (
    "WARNING:torch.distributed.elastic.multiprocessing.api:Sending process 38 closing signal SIGTERM\n"
    "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -6) local_rank: 1 (pid: 37) of binary: /v/python\n"
)
HEAP = (
    "free(): invalid pointer",
    "malloc(): corrupted top size",
    "double free or corruption (!prev)",
    "corrupted size vs. prev_size",
    "*** stack smashing detected ***: terminated",
)


@pytest.mark.parametrize("words", HEAP)
def test_the_words_of_the_c_library_above_an_abort(tmp_path: Path, words: str) -> None:
    found = diagnosed(tmp_path, f"filling lake 8\n{words}\n{ABORTED}")
    assert named(found) == [("error", [1])], found.summary
    assert "heap corrupted" in found.summary


def test_the_same_words_on_the_way_out_of_a_victim(tmp_path: Path) -> None:
    lost = f"{RAISED}RuntimeError: [lake.cc:12] Connection closed by peer [10.0.0.4]:29571\n"
    found = diagnosed(tmp_path, f"{lost}{HEAP[0]}\n{ABORTED}")
    assert "heap" not in found.summary, found.summary


def test_what_a_crashed_process_printed_right_before(tmp_path: Path) -> None:
    crash = "[n7:987:0:987] Caught signal 11 (Segmentation fault: invalid permissions)\n"
    words = "[n7:{}:2] lake_md.c:62 UCX ERROR lakeGetShore(&shore) has failed. ret:invalid shore\n"
    found = diagnosed(tmp_path, "filling\n" + words.format(987) + crash)
    assert named(found) == [("dead", [])], "the words are told, and are not said to be the cause"
    assert "right after it had printed 'lake_md.c:62" in found.summary
    code = "[n7:987] Signal code: Invalid permissions (2)\n"
    for before in (words.format(988), code, words.format(987) + "filling lake 8\n" * 6):
        other = diagnosed(tmp_path, "filling\n" + before + crash)
        assert "right after" not in other.summary, other.summary


def test_an_exception_is_no_hang(tmp_path: Path) -> None:
    """A connection that was refused ended the process: nothing waits; a time-out did wait."""
    refused = "n1:41:52 [4] misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to 10.9.1.4<45> failed : Connection refused\n"
    raised = (
        f"{RAISED}RuntimeError: NCCL error: remote process exited or there was a network error\n"
    )
    assert diagnosed(tmp_path, refused + raised).status == "failed"
    assert diagnosed(tmp_path, refused).status == "hang"


def test_a_long_message_keeps_its_end(tmp_path: Path) -> None:
    names = ", ".join(f"lake{n}" for n in range(30))
    found = diagnosed(
        tmp_path, f"{RAISED}ValueError: expected one of {names} at the start of: sea\n"
    )
    assert "expected one of lake0" in found.summary and "start of: sea" in found.summary
