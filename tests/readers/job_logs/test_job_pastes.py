"""Jobs as they are pasted: hosts by their addresses, screens without line ends, launchers that repeat what they
saw, programs that a rank had called, and the same error of several ranks.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from hangdoctor.model.diagnosis import Diagnosis
from tests.support.read_logs import diagnosed

BEGIN = "Traceback (most recent call last):\n"
OWN = '  File "/job/fit.py", line 12, in begin\n    go()\n'
TABLE = (
    "Root Cause (first observed failure):\n[0]:\n  time      : 2026-01-02_10:00:00\n  host      : n7\n"
    "  rank      : 3 (local_rank: 3)\n  exitcode  : 1 (pid: 812)\n  error_file: <N/A>\n"
)


def of(folder: Path, text: str) -> Diagnosis:
    return diagnosed(folder, {"job.log": text})


def _addressed(line: str) -> str:
    return "".join(f"10.7.0.{n}: {text}\n" for n, text in [(4, "begins"), (5, "begins")]) + line


def test_an_address_before_each_line_is_the_host(tmp_path: Path) -> None:
    torn = "10.7.0.5: tool: not allowed[rank5]: Traceback (most recent call last):\n"
    stack = '10.7.0.5: [rank5]:   File "/job/fit.py", line 12, in begin\n10.7.0.5: [rank5]: ValueError: bad\n'
    [cause] = of(tmp_path, _addressed(torn + stack)).causes
    assert (cause.ranks, cause.nodes) == ([5], ["10.7.0.5"])
    assert "ValueError in begin (fit.py:12): bad" in cause.summary


def test_a_time_or_a_version_is_no_host(tmp_path: Path) -> None:
    text = "10:07:05: begins\n10:07:06: begins\n2.4.1: begins\n" + BEGIN + OWN + "ValueError: bad\n"
    [cause] = of(tmp_path, text).causes
    assert cause.nodes == [] and "ValueError" in cause.summary


def test_records_of_a_screen_in_one_line_are_read_apart(tmp_path: Path) -> None:
    head = "2026-01-02 10:00:00,123 - job - INFO - [rank2]: "
    rows = [BEGIN.strip(), '  File "/job/fit.py", line 12, in begin', "    go()", "ValueError: bad"]
    [cause] = of(tmp_path, "".join((head + row).ljust(140) for row in rows) + "\n").causes
    assert cause.ranks == [2] and "ValueError in begin (fit.py:12): bad" in cause.summary


def test_a_gathered_traceback_is_of_the_rank_that_it_names(tmp_path: Path) -> None:
    text = (
        "[rank0]: torch.distributed.checkpoint.api.CheckpointException: CheckpointException ranks:dict_keys([6])\n"
        "[rank0]: Traceback (most recent call last): (RANK 6)\n"
        '[rank0]:   File "/job/keep.py", line 9, in keep\n[rank0]: OSError: disk is gone\n'
    )
    [cause] = of(tmp_path, text).causes
    assert cause.ranks == [6] and "OSError in keep (keep.py:9)" in cause.summary


def test_a_program_that_a_rank_had_called_is_its_own_failure(tmp_path: Path) -> None:
    failed = "[rank1]: subprocess.CalledProcessError: Command '['/usr/bin/ninja', '-v']' returned non-zero exit status 1.\n"
    frames = '[rank1]: Traceback (most recent call last):\n[rank1]:   File "/job/fit.py", line 12, in begin\n'
    then = (
        "\n[rank1]: The above exception was the direct cause of the following exception:\n\n"
        + frames
    )
    [cause] = of(tmp_path, frames + failed + then).causes
    assert cause.ranks == [1] and "ninja, failed" in cause.summary
    (tmp_path / "b").mkdir()
    why = "[rank1]: RuntimeError: Error building extension 'fast': no such header\n"
    [cause] = of(tmp_path / "b", frames + failed + then + why).causes
    assert "Error building extension" in cause.summary


def test_a_launcher_that_called_a_rank_is_not(tmp_path: Path) -> None:
    command = "subprocess.CalledProcessError: Command '['/usr/bin/python3', '-u', 'make.py']' returned non-zero exit status 1.\n"
    said = of(tmp_path, BEGIN + OWN + command)
    assert said.status == "unknown" and said.causes == []


LAUNCHES = (
    '  File "/opt/lib/python3.11/site-packages/accelerate/commands/launch.py", line 9, in launch\n'
)


def test_what_a_launcher_raises_below_an_end_is_no_cause(tmp_path: Path) -> None:
    text = TABLE + BEGIN + LAUNCHES + "RuntimeError: 'accelerate-launch fit.py' failed\n"
    [cause] = of(tmp_path, text).causes
    assert cause.ranks == [3] and "as torchrun saw it" in cause.summary


def test_what_it_raises_alone_is_one(tmp_path: Path) -> None:
    [cause] = of(tmp_path, BEGIN + LAUNCHES + "RuntimeError: no such option\n").causes
    assert cause.ranks == [] and "launcher" in cause.summary


DEEPSPEED = "[2026-01-02 10:00:00,1] [ERROR] [launch.py:321:sigkill_handler] ['python3', '-u', 'fit.py', '--local_rank=5', '--abort-on-nan'"


@pytest.mark.parametrize("rest", ["\n", "] exits with return code = 1\n"])
def test_the_last_command_of_deepspeeds_launcher_accuses_nobody(tmp_path: Path, rest: str) -> None:
    said = of(tmp_path, DEEPSPEED + rest)
    assert said.status == "unknown" and said.causes == []


def test_parameters_without_a_gradient_name_their_ranks(tmp_path: Path) -> None:
    why = "Expected to have finished reduction in the prior iteration before starting a new one.\n"
    text = f"RuntimeError{why}: \n{why}"
    for rank in (4, 1):
        text += f"Parameter indices which did not receive grad for rank {rank}: 7 8 9\n"
    [cause] = of(tmp_path, text).causes
    assert cause.ranks == [1, 4] and "failed alike, and which of them was first" in cause.summary


ASSERTED = "../aten/src/ATen/native/cuda/Indexing.cu:1308: look: block: [5,0,0], thread: [9,0,0] Assertion `i < size` failed.\n"


def test_an_assertion_of_a_kernel_is_known_and_takes_its_rank_from_the_exception(
    tmp_path: Path,
) -> None:
    torn = ASSERTED.replace("block: [5", "block: [5,0: block: [6")
    [cause] = of(tmp_path, torn).causes
    assert cause.ranks == [] and "out of range" in cause.summary
    (tmp_path / "b").mkdir()
    raised = "[rank2]: RuntimeError: CUDA error: device-side assert triggered\n"
    [cause] = of(tmp_path / "b", ASSERTED + raised).causes
    assert cause.ranks == [2] and "out of range" in cause.summary


def test_a_missing_program_is_missing_for_all_that_say_so(tmp_path: Path) -> None:
    line = "/opt/bin/python: can't open file '/job/fit.py': [Errno 2] No such file or directory\n"
    end = "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: 2) local_rank: 0 (pid: 362) of binary: /opt/bin/python\n"
    [cause] = of(tmp_path, 3 * line + end).causes
    assert "and 2 more failed alike" in cause.summary
    (tmp_path / "b").mkdir()
    [cause] = of(tmp_path / "b", line + end).causes
    assert cause.ranks == [0] and "failed first" in cause.summary


STARTS = "initializing ddp: GLOBAL_RANK: {}, MEMBER: {}/4\n"


def test_nodes_that_count_from_the_same_rank(tmp_path: Path) -> None:
    text = "".join(STARTS.format(rank, rank + 1) for rank in (0, 1, 0, 1))
    [cause] = of(tmp_path, text).causes
    assert "call themselves ranks 0-1, 2 of them by each number" in cause.summary
    assert "NODE_RANK" in cause.advice
    (tmp_path / "b").mkdir()
    text = "".join(STARTS.format(rank, rank + 1) for rank in (0, 1, 2, 0))
    [cause] = of(tmp_path / "b", text).causes
    assert "not rank 3" in cause.summary and "NODE_RANK" not in cause.advice


ERRORS = "[2026-01-02 10:0{}:00] [rank{}]: torch.OutOfMemoryError: CUDA out of memory.\n"


def test_a_clock_tells_who_ran_out_of_memory_first(tmp_path: Path) -> None:
    [cause] = of(tmp_path, ERRORS.format(0, 2) + ERRORS.format(0, 3)).causes
    assert "failed alike" in cause.summary and cause.ranks == [2, 3]
    (tmp_path / "b").mkdir()
    [cause] = of(tmp_path / "b", ERRORS.format(0, 2) + ERRORS.format(5, 3)).causes
    assert "failed first" in cause.summary


def test_a_watchdogs_line_that_a_screen_cut_is_a_wait(tmp_path: Path) -> None:
    torn = "of NCCL 10:00:58 Process.cpp:17] [PG ID 0 PG GUID 0(default_pg) Rank 0] Exception (either an error or timeout) detected by watchdog at work: 1, last enque[30/142]\n"
    whole = "[PG ID 0 PG GUID 0(default_pg) Rank 1] Timeout at NCCL work: 1, last enqueued NCCL work: 1, last completed NCCL work: -1.\n"
    said = of(tmp_path, torn + whole)
    assert said.status == "unknown" and "ranks 0-1 timed out" in said.summary


def test_a_card_that_could_not_register_memory_is_why_nccl_failed(tmp_path: Path) -> None:
    text = (
        "> [rank9]: RuntimeError: NCCL Error 2: unhandled system error (run with NCCL_DEBUG=INFO for details)\n>\n"
        "> [2026-01-02 10:00:00] n7:145:148 [0] misc/wrap.cc:18 NCCL WARN Call to ibv_reg_mr_iova2 failed with error Invalid argument\n"
    )
    [cause] = of(tmp_path, text).causes
    assert cause.nodes == ["n7"] and "ibv_reg_mr_iova2: Invalid argument" in cause.summary


@pytest.mark.parametrize(
    "last",
    [
        "subprocess.CalledProcessError: Command 'ssh -o PasswordAuthentication=no n12 hostname' returned non-zero exit status 255.\n",
        "subprocess.CalledProcessError: Command '['ssh n12 hostname -I']' returned non-zero exit status 255.\n",
        "RuntimeError: Using hostfile at /job/hosts but host=n12 was not reachable via ssh. Remove it.\n",
    ],
)
def test_the_host_that_deepspeeds_launcher_could_not_reach(tmp_path: Path, last: str) -> None:
    frame = (
        '  File "/opt/lib/python3.11/site-packages/deepspeed/launcher/runner.py", line 9, in main\n'
    )
    [cause] = of(tmp_path, BEGIN + frame + last).causes
    assert cause.nodes == ["n12"] and "could not reach it by ssh" in cause.summary


def test_a_name_without_an_address_is_no_download(tmp_path: Path) -> None:
    text = "(Actor pid=36, ip=10.1.3.4) [0]:[W socket.cpp:558] [c10d] The IPv6 network addresses of (head-x, 5017) cannot be retrieved (gai error: -2 - Name or service not known).\n"
    [cause] = of(tmp_path, text).causes
    assert "head-x" in cause.summary and "download" not in cause.summary


def test_gloos_none_is_no_host(tmp_path: Path) -> None:
    text = "[E108 17:22:04.118509503 ProcessGroupGloo.cpp:143] Gloo connectFullMesh failed with [../gloo/transport/tcp/pair.h:301] Connect timeout [none]\n"
    [cause] = of(tmp_path, text).causes
    assert "none" not in cause.summary


def test_a_guard_against_nan_names_its_node(tmp_path: Path) -> None:
    text = "AssertionError: Rank 3: found NaN in local grad norm. Device: 3, node: gpu-n7\n"
    [cause] = of(tmp_path, BEGIN + OWN + text).causes
    assert (cause.ranks, cause.nodes) == ([3], ["gpu-n7"])


NOTICE = "n7:239:245 [3] NCCL INFO TUNER/Plugin: Plugin load returned 2 : libx.so: cannot open shared object file: No such file\n"
WAITED = "[rank3]:[E1119 13:21:12.5127 ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=BROADCAST, NumelIn=1, NumelOut=1, Timeout(ms)=1800000) ran for 1800000 milliseconds before timing out.\n"


def test_what_nccl_tells_by_the_way_is_no_error(tmp_path: Path) -> None:
    said = of(tmp_path, NOTICE + WAITED)
    assert said.status == "unknown" and "rank 3 waits" in said.summary
    (tmp_path / "b").mkdir()
    own = "ImportError: libx.so: cannot open shared object file: No such file\n"
    [cause] = of(tmp_path / "b", BEGIN + OWN + own).causes
    assert "a Python module is missing or cannot be loaded" in cause.summary


def test_who_was_told_of_anothers_wait_says_so(tmp_path: Path) -> None:
    told = "[rank0]:[E804 23:05:54.8174 ProcessGroupNCCL.cpp:1914] [PG ID 0 PG GUID 0(default_pg) Rank 0] Received a dump signal due to a collective timeout from  rank 13 and we will try our best to dump the debug info.\n"
    said = of(tmp_path, told)
    assert said.status == "unknown" and "rank 13 waits" in said.summary


def test_a_call_to_cuda_inside_nccl(tmp_path: Path) -> None:
    text = BEGIN + OWN + "RuntimeError: NCCL error in: /w/c10d/P.cpp:60, unhandled cuda error\n"
    [cause] = of(tmp_path, text).causes
    assert "a CUDA call inside NCCL failed" in cause.summary


def test_a_dead_actor_in_one_line_with_others(tmp_path: Path) -> None:
    dead = "4 ip: 10.1.59.27 The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR "
    [cause] = of(tmp_path, dead + "(Actor pid=74, ip=10.1.59.27) " + WAITED).causes
    assert cause.nodes == ["10.1.59.27"] and "worker died" in cause.summary


def test_an_errors_name_that_the_end_cuts_is_no_error(tmp_path: Path) -> None:
    frame = '  File "/job/fit.py", line 12, in begin\n    assert world > 1\n'
    [cause] = of(tmp_path, BEGIN + frame + "Asse").causes
    assert "last line is missing in begin (fit.py:12)" in cause.summary
    assert "'assert world > 1'" in cause.summary
    (tmp_path / "b").mkdir()
    [cause] = of(tmp_path / "b", BEGIN + frame + "AssertionError").causes
    assert "AssertionError in begin" in cause.summary
    (tmp_path / "c").mkdir()
    [cause] = of(tmp_path / "c", BEGIN + frame + "Runti").causes
    assert "missing" in cause.summary


GENERAL = "[rank2]: torch.distributed.DistBackendError: NCCL error in: /w/c10d/P.cpp:60, unhandled cuda error (run with NCCL_DEBUG=INFO for details)\n"


@pytest.mark.parametrize(
    ("beside", "says"),
    [
        (
            "[rank2]: Last error:\n[rank2]: Cuda failure 1 'invalid argument'\n",
            "failed: invalid argument",
        ),
        (
            "n7:96:91 [0] transport/p2p.cc:238 NCCL WARN failed to open a handle : 217 no peer access\n",
            "failed: failed to open a handle",
        ),
        ("[rank2]: Last error:\n[rank2]: Cuda failure 2 'out of memory'\n", "GPU's memory is full"),
        ("", "a CUDA call inside NCCL failed."),
    ],
)
def test_nccls_own_lines_say_which_call_failed(tmp_path: Path, beside: str, says: str) -> None:
    frames = '[rank2]: Traceback (most recent call last):\n[rank2]:   File "/job/fit.py", line 12, in begin\n'
    [cause] = of(tmp_path, frames + GENERAL + beside).causes
    assert cause.ranks == [2] and says in f"{cause.summary}."


def test_a_sentence_of_the_program_where_a_traceback_is_cut(tmp_path: Path) -> None:
    cut = (
        BEGIN + '  File "/job/fit.py", line 12, in begin\n    "Give a number of steps that is a mul'
    )
    [cause] = of(tmp_path, cut).causes
    assert "the last line of source is '\"Give a number of steps that is a mul'" in cause.summary
    (tmp_path / "b").mkdir()
    [cause] = of(tmp_path / "b", cut.replace('"Give a number of', '"steps",')).causes
    assert "last line of source" not in cause.summary


def test_an_address_made_of_a_name_of_digits(tmp_path: Path) -> None:
    line = "[W socket.cpp:697] [c10d] The client socket has failed to connect to [::ffff:{}]:47389 (errno: 110 - Connection timed out).\n"
    [cause] = of(tmp_path, line.format("0.0.1.9") * 2).causes
    assert "0.0.1.9 is no host's address" in cause.summary and cause.kind == "start_stall"
    for number, address in enumerate(("10.0.1.9", "0.0.0.0")):
        (tmp_path / str(number)).mkdir()
        [cause] = of(tmp_path / str(number), line.format(address) * 2).causes
        assert "is no host's address" not in cause.summary


def test_a_message_that_ends_with_a_stop_has_one(tmp_path: Path) -> None:
    frame = '  File "/job/fit.py", line 12, in begin\n    go()\n'
    found = of(tmp_path, BEGIN + frame + "AssertionError: the sizes have to be alike.\n")
    assert "alike." in found.summary and "alike.." not in found.summary
