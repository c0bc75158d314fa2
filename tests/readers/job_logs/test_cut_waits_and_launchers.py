"""Tracebacks that are cut in a wait for others, what launchers say of themselves, and many that fail alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.read_logs import diagnosed, named

HEAD = 'Traceback (most recent call last):\n  File "/job/fit.py", line 20, in main\n    data = load_tiles(args)\n'
FIRST = (
    '  File "/job/tiles.py", line 7, in load_tiles\n    with args.main_process_first(desc="tiles"):\n'
    '  File "/site-packages/transformers/training_args.py", line 2035, in main_process_first\n    dist.barrier()\n'
)
STORE = '  File "/job/tiles.py", line 9, in load_tiles\n    key = store.get("depth")\n'


def test_a_traceback_that_is_cut_in_main_process_first(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, f"{HEAD}{FIRST}Ru\n")
    assert (found.status, found.causes) == ("unknown", []), found.summary
    assert (
        "a rank ended in a wait for other ranks, main_process_first at load_tiles (tiles.py:7)"
        in (found.summary)
    )
    assert "the main process (rank 0, or the first one of its node)" in found.summary


def test_a_traceback_that_is_cut_in_a_store(tmp_path: Path) -> None:
    found = diagnosed(
        tmp_path, f"[rank5]: {(HEAD + STORE).replace(chr(10), chr(10) + '[rank5]: ')}"
    )
    assert (found.status, found.causes) == ("unknown", []), found.summary
    assert "rank 5 ended in a wait for other ranks, store.get" in found.summary


def test_a_traceback_that_is_cut_in_its_own_work(tmp_path: Path) -> None:
    own = '  File "/job/tiles.py", line 9, in load_tiles\n    depth = tile[3] / 0\n'
    found = diagnosed(tmp_path, f"{HEAD}{own}")
    assert "ended in a wait for other ranks" not in found.summary, found.summary


def test_an_option_that_mpirun_does_not_take(tmp_path: Path) -> None:
    text = (
        "Open MPI has detected that a parameter given to a command line\noption does not match the expected format:\n\n"
        "  Option: n\n  Param:  lakeSolver\n\nThis is frequently caused by omitting to provide the parameter\n"
    )
    found = diagnosed(tmp_path, text)
    assert found.status == "failed" and named(found) == [("error", [])], found.summary
    assert found.summary.startswith("The launcher was called with an option that it does not take")
    assert "Option: n, Param: lakeSolver" in found.summary


@pytest.mark.parametrize(
    "line",
    [
        "srun: unrecognized option '--gpu-bnd=closest'",
        "torchrun: error: the following arguments are required: training_script",
        "[mpiexec@lake1] match_arg (lib/utils/args.c:166): unrecognized argument ppnode",
    ],
)
def test_other_launchers_that_were_called_wrongly(tmp_path: Path, line: str) -> None:
    found = diagnosed(tmp_path, f"{line}\n")
    assert found.status == "failed", found.summary
    assert "was called with an option that it does not take" in found.summary


def test_ctrl_c_at_a_launcher(tmp_path: Path) -> None:
    text = "f2v32: completed first barrier in 0.017s\n ^Cflux-job: one more ctrl-C within 2s to cancel or ctrl-Z to detach\n"
    found = diagnosed(tmp_path, text)
    assert found.status == "unknown" and "SIGINT" in found.summary, found.summary


def test_srun_that_gives_up_output_saw_nothing_fail(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, "srun: error: Abandoning IO 60 secs after job shutdown initiated\n")
    assert (found.status, found.causes) == ("unknown", []), found.summary


def test_a_launchers_error_that_is_of_no_process(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, "srun: fatal: cannot read the map of the lake\n")
    assert found.summary.startswith("A launcher printed a failure, and whose it is does not show")


def test_a_daemon_that_ended_before_it_reported_back(tmp_path: Path) -> None:
    text = "ORTE daemon has unexpectedly failed after launch and before\ncommunicating back to mpirun.\n"
    found = diagnosed(tmp_path, text)
    assert found.status == "failed" and "ended before it could report back" in found.summary


def test_the_endpoint_of_torchruns_settings(tmp_path: Path) -> None:
    text = (
        "  rdzv_backend     : c10d\n  rdzv_endpoint    : 10.7.0.16\n"
        "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has failed.\n"
    )
    found = diagnosed(tmp_path, text)
    assert "Between a rank and 10.7.0.16" in found.summary, found.summary


def test_a_stamp_without_seconds_hides_no_rank(tmp_path: Path) -> None:
    line = (
        "2031-02-18 12:54 [rank{0}]:[E218 04:54:22.86{0} ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation "
        "timeout: WorkNCCL(SeqNum={1}, OpType=ALLREDUCE, NumelIn=32, NumelOut=32, Timeout(ms)=600000) ran for 600045 milliseconds before timing out.\n"
    )
    found = diagnosed(tmp_path, line.format(13, 216) + line.format(15, 57))
    assert "ranks 13,15 timed out in several operations" in found.summary, found.summary


# ------------------------------------------------------------------ many that fail alike


def test_a_fault_of_several_gpus_in_one_moment(tmp_path: Path) -> None:
    line = "2031-08-31T17:43:36.7{0}Z Memory access fault by GPU node-{0} (Agent handle: 0x50) on address 0x7f. Reason: Unknown.\n"
    found = diagnosed(tmp_path, "".join(map(line.format, (4, 2, 3))))
    assert "and 2 more failed alike" in found.summary and "GPU node-2-4" in found.summary


def test_an_assertion_that_two_processes_print(tmp_path: Path) -> None:
    line = "Assertion failed in file ../lake/tile.c at line 81: tile->depth > 0\n"
    found = diagnosed(tmp_path, f"{line}{line}")
    assert found.summary.startswith("2 processes printed a failure alike"), found.summary


def test_a_line_that_comes_twice_need_not_be_of_two(tmp_path: Path) -> None:
    line = "FATAL: spectral mode 9 cannot be inverted\n"
    found = diagnosed(tmp_path, f"{line}{line}")
    assert "2 processes" not in found.summary, found.summary


def test_a_failed_kernel_beside_nccls_general_word(tmp_path: Path) -> None:
    stamp = "ERROR 01-29 20:00:47 multiproc_worker_utils.py:240] "
    general = (
        "RuntimeError: NCCL error: unhandled cuda error (run with NCCL_DEBUG=INFO for details)"
    )
    text = (
        f"(VllmWorkerProcess pid=50) {stamp}Traceback (most recent call last):\n"
        f'(VllmWorkerProcess pid=50) {stamp}  File "/job/wrap.py", line 254, in NCCL_CHECK\n'
        f"(VllmWorkerProcess pid=50) {stamp}{general}\n"
        "[rank3]:[E129 20:00:47.374645555 ProcessGroupNCCL.cpp:1595] [PG ID 2 PG GUID 3 Rank 3] Process group watchdog "
        "thread terminated with exception: CUDA error: an illegal memory access was encountered\n"
    )
    found = diagnosed(tmp_path, text)
    assert named(found) == [("error", [3])], found.summary
    assert "in the same second process 50 printed" in found.summary
    assert "which of the two was first does not show" in found.summary


def test_mpiexecs_host_and_rank(tmp_path: Path) -> None:
    lines = (
        '[lake1:{0}]Traceback (most recent call last):\n[lake1:{0}]  File "/job/tiles.py", line 9, in depth\n'
        "[lake1:{0}]    return tile[3]\n[lake1:{0}]KeyError: 3\n"
    )
    steps = [f"[lake1:{rank}] tile {tile}\n" for tile in range(3) for rank in (2, 0, 1)]
    found = diagnosed(tmp_path, "".join([*steps, *map(lines.format, range(3))]))
    assert named(found) == [("error", [0, 1, 2])], found.summary


def test_numbers_of_processes_are_no_ranks(tmp_path: Path) -> None:
    lines = "[lake1:{0}] reading tiles\n[lake1:{0}] ERROR the tile has no depth\n"
    found = diagnosed(tmp_path, "".join(map(lines.format, (335, 336, 335, 336))))
    assert all(cause.ranks == [] for cause in found.causes), found.summary


def test_an_engines_limit_for_its_workers_is_a_wait(tmp_path: Path) -> None:
    text = (
        'Traceback (most recent call last):\n  File "/site-packages/vllm/shm_broadcast.py", line 443, in acquire_read\n'
        "    raise TimeoutError\nTimeoutError\n\n"
        "The above exception was the direct cause of the following exception:\n\n"
        'Traceback (most recent call last):\n  File "/site-packages/vllm/multiproc_executor.py", line 193, in collective_rpc\n'
        '    raise TimeoutError(f"RPC call to {method} timed out.") from e\n'
        "TimeoutError: RPC call to execute_model timed out.\n"
    )
    found = diagnosed(tmp_path, text)
    assert (found.status, found.causes) == ("unknown", []), found.summary
    assert "a worker did not answer the engine's call of execute_model in time" in found.summary
