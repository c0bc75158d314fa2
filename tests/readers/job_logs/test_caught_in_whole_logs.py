"""Whole logs, as a job leaves them: most tracebacks in them are of errors that the program caught
and lived with.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from hangdoctor.model.log_facts import PythonError
from hangdoctor.readers.job_logs.stamps import Clock
from tests.support.read_logs import diagnosed, logs_of, named


def trace(error: str, line: int = 13) -> str:
    """A traceback without a prefix, as `logging.exception` prints it."""
    frame = f'  File "/home/me/denoise.py", line {line}, in fetch\n    return self[k]\n'
    return f"Traceback (most recent call last):\n{frame}{error}\n"


def missed(rank: int, second: int, level: int) -> str:
    at = f"2026-11-27 05:53:{second:02d},381 [{rank}] denoise:15"
    return f"{at} ERROR cache miss for noise level {level}, computing it\n" + trace(
        f"KeyError: {level}"
    )


def steps(number: int, second: int) -> str:
    return "".join(
        f"2026-11-27 05:53:{second:02d},40{r} [{r}] denoise:51 DEBUG it={number} mse=1.{r}3\n"
        for r in range(4)
    )


ENDS = "".join(
    f"2026-11-27 05:54:31,01{r} [{r}] denoise:59 INFO training finished after 4 iterations\n"
    for r in range(4)
)
BEGINS = steps(0, 13) + steps(1, 14) + steps(2, 15) + missed(2, 15, 1) + missed(0, 15, 8)


def test_the_number_behind_a_stamp_is_the_rank_that_caught_it(tmp_path: Path) -> None:
    text = BEGINS + steps(3, 16) + steps(4, 17) + steps(5, 18)
    found = diagnosed(tmp_path, text + ENDS)
    assert (found.status, found.causes) == ("healthy", []), found.summary


def test_the_one_that_did_not_go_on_is_named(tmp_path: Path) -> None:
    alone = "2026-11-27 05:53:16,400 [2] denoise:51 DEBUG it=3 mse=1.13\n"
    found = diagnosed(tmp_path, BEGINS + alone)
    assert named(found) == [("error", [0])], found.summary


GOES_ON = "ERROR:root:[worker 0] snapshot to secondary storage failed, primary is fine\n"
LOST = trace("FileNotFoundError: [Errno 2] No such file or directory: '/mnt/second/latest'", 52)
ENDED = (
    '[rank1]: Traceback (most recent call last):\n[rank1]:   File "/home/me/train.py", line 70, in <module>\n'
    '[rank1]:     main()\n[rank1]:   File "/home/me/train.py", line 33, in collate\n'
    '[rank1]:     assert n % 8 == 0, f"bad length {n}"\n[rank1]: AssertionError: bad length 31\n'
)


def test_what_was_caught_comes_after_what_ended_a_process(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, (GOES_ON + LOST) * 3 + ENDED)
    assert named(found) == [("error", [1])] and "AssertionError in collate" in found.summary
    (tmp_path / "alone").mkdir()
    alone = diagnosed(tmp_path / "alone", GOES_ON + LOST)
    assert "FileNotFoundError" in alone.summary, "where nothing else ended one"


RENDERS = "[0] rendering failed at {}, continuing headless\n" + trace("RuntimeError: no GLX", 31)
ABORTED = (
    'Traceback (most recent call last):\n  File "/home/me/dqn.py", line 57, in <module>\n    main()\n'
    '  File "/home/me/dqn.py", line 26, in sample\n    return rows[i]\nIndexError: list index out of range\n'
) + (
    "-" * 74
    + "\nMPI_ABORT was invoked on rank 2 in communicator MPI_COMM_WORLD\n  Proc: [[2022,1],2]\n  Errorcode: 1\n"
)


def test_a_line_that_comes_again_above_a_traceback_is_the_programs_own(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, "".join(RENDERS.format(n) for n in (0, 500, 1000)) + ABORTED)
    assert named(found) == [("error", [2])] and "IndexError" in found.summary, found.summary


def test_of_ranks_that_fail_alike_the_line_above_is_no_sign_of_that(tmp_path: Path) -> None:
    alike = "".join(f"[{r}] epoch 0 done\n" + trace("ValueError: bad config") for r in range(4))
    assert "ValueError" in diagnosed(tmp_path, alike).summary


FAILED_ONCE = (
    '[rank3]: Traceback (most recent call last):\n[rank3]:   File "/home/me/seg.py", line 15, in tiles\n'
    "[rank3]: BlockingIOError: [Errno 11] Resource temporarily unavailable\n"
    "E1127 06:14:49.814000 11 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: -6) local_rank: 3 (pid: 18) of binary: /usr/bin/python\n"
)
STARTED = "[W1127 06:14:40.683752078 socket.cpp:207] [c10d] The hostname of the client socket cannot be retrieved. err=-3\n"


def printed(last: int, ranks: int = 4) -> str:
    """Standard output of two attempts; in the second all of these ranks finish."""
    first = 1795760084.32
    rows = [
        f"{first + n / 2:.2f} r{r} a{n // 20} i={n % 20} ce=0.7{r}\n"
        for n in range(last)
        for r in range(4)
    ]
    return "".join(rows) + "".join(f"r{r} finished\n" for r in range(ranks))


def test_an_attempt_that_all_ranks_finished_later_is_the_last(tmp_path: Path) -> None:
    (tmp_path / "seg.err").write_text(STARTED + FAILED_ONCE)
    (tmp_path / "seg.out").write_text(printed(40))
    found = diagnosed(tmp_path, {})
    assert found.status == "healthy", found.summary
    assert any("had ended by a failure of rank 3" in note for note in found.notes)


def test_one_that_a_rank_did_not_finish_is_not(tmp_path: Path) -> None:
    (tmp_path / "seg.err").write_text(STARTED + FAILED_ONCE)
    (tmp_path / "seg.out").write_text(printed(40, ranks=3))
    assert named(diagnosed(tmp_path, {})) == [("error", [3])]


def test_a_script_says_which_rank_the_shell_saw_killed(tmp_path: Path) -> None:
    shell = "go.sh: line 6:    17 Killed                  RANK=$R python gnn.py > logs/rank$R.log 2>&1\n"
    own = "".join(f"rank {r}: exit status {137 if r == 2 else 1}\n" for r in range(4))
    found = diagnosed(tmp_path, shell + own)
    assert named(found) == [("dead", [2])], found.summary


def test_the_file_is_named_where_each_process_has_one(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"fno.{number}.out").write_text(f"INFO:fno.{number}:step 270 |g| 0.1\n")
    with (tmp_path / "fno.1.out").open("a") as file:
        file.write(trace("ValueError: field 271 has shape (31,)"))
    said = diagnosed(tmp_path, {}).summary
    assert "A rank (the log does not show which; its file is fno.1.out) failed first" in said


NESTED = "[1,0]<stderr>:[[1,0]<stderr>:2020-01-15 22:44:33[1,0]<stderr>:: W horovod/common/stall_inspector.cc:105] One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting for remainder of ranks for more than 60 seconds.\n\n[1,0]<stderr>:Stalled ranks:\n\n[1,0]<stderr>:2: [HorovodAllreduce][1,0]<stderr>:\n\n"


def test_mpiruns_tag_before_each_word(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, "step 10 loss 0.2\n" + NESTED * 2)
    assert named(found) == [("not_entered", [2])], found.summary


CTEST = (
    "31: =================================== FAILURES ===================================\n"
    "31: _ TestOptimizers.test_accuracy[64-lenet] _\n31: self = <test.TestOptimizers object>\n"
    "31: {}Error 12 (Cannot allocate memory) at (devices/IB_SEG.c:45):Memory registration failed (libibverbs)\n"
)


@pytest.mark.parametrize(("said", "ranks"), [("[Rank    1]: ", [1]), ("", [])])
def test_ctests_number_before_each_line_is_no_rank(
    tmp_path: Path, said: str, ranks: list[int]
) -> None:
    found = diagnosed(tmp_path, CTEST.format(said))
    assert [c.ranks for c in found.causes] == [ranks], found.summary


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "[n1-2:29823:0:29823]      wireup.c:346  Assertion `index < count' failed: lane=3/7\n",
            "Process 29823 on n1-2 failed first: an assertion of UCX failed, `index < count` at wireup.c:346",
        ),
        (
            "[n7:1622:0:1622] ib_mlx5_log.c:177  Local protection on mlx5_0:1/IB (synd 0x4 vend 0x51 hw_synd 0/2)\n",
            "Process 1622 on n7 failed first: the InfiniBand card mlx5_0:1 could not take a buffer of its own side",
        ),
        (
            "F0911 14:31:16.057638  5678 SocketChannel.cpp:54] Check failed: len >= 0  peer=10.0.0.42: Connection timed out [110]\n",
            "Between a rank and 10.0.0.42: the connection failed: Connection timed out",
        ),
        (
            "E0523 18:38:30.050364  1005 grpc_client.cc:236] proc param error:name:[fc_0.b_0] ep:[10.0.0.12:30002] grpc error:Deadline Exceeded\n",
            "Between a rank and 10.0.0.12: a parameter server did not answer",
        ),
        (
            "n1:6482:6482 [0] misc/strongstream.cc:60 NCCL WARN Cuda failure 'CUDA driver is a stub library'\n",
            "it loaded the stub of libcuda.so",
        ),
        (
            "    VRFY (sizeof(MPI_Offset)>4) failed at line  479 in ../../testpar/t_mdset.c\n",
            "a check of the program failed: sizeof(MPI_Offset)>4 at t_mdset.c:479",
        ),
    ],
)
def test_their_words(tmp_path: Path, text: str, says: str) -> None:
    assert says in diagnosed(tmp_path, "step 10 loss 0.2\n" + text).summary


def test_a_worker_of_dask_that_lost_its_scheduler_is_no_culprit(tmp_path: Path) -> None:
    lost = "distributed.worker - INFO - Connection to scheduler broken.  Reconnecting...\n"
    cut = (
        'Traceback (most recent call last):\n  File "/v/distributed/worker.py", line 850, in send\n'
    )
    found = diagnosed(tmp_path, lost + cut)
    assert found.causes == [] and "lost its connection to the scheduler" in found.summary


def test_a_stamp_in_seconds_since_the_epoch() -> None:
    assert Clock().read("1795760084.32 r0 i=0") == (1795760084.32, 13)
    assert Clock().read("1795760084.32%") == (0.0, 0)


def test_the_message_of_an_error_does_not_go_on_for_long(tmp_path: Path) -> None:
    """A logger's lines in between are another speaker's, by the name in them."""
    begin = "2026-11-27 06:07:02,486 words.3 ERROR: handler failed, detached\n" + trace(
        "KeyError: 'bleu'", 32
    )
    steps_of = "".join(
        f"2026-11-27 06:07:02,5 words.3 INFO: ep 1 it {n} nll 1.4\n" for n in range(99)
    )
    limit = "Current run is terminating due to exception: [unbound_buffer.cc:78] Timed out waiting 12000ms for recv operation to complete\n"
    (tmp_path / "rank3.log").write_text(begin + steps_of + limit)
    [error] = [f for f in logs_of(tmp_path / "rank3.log").facts if isinstance(f, PythonError)]
    assert (error.error, error.rule, error.survived) == ("KeyError", "", True)


def test_an_error_that_was_caught_again_and_again_is_no_failure_at_its_end(tmp_path: Path) -> None:
    """As of a push of metrics at each tenth step, which never gets through."""
    text = ""
    for number in range(60):
        text += steps(number, 16 + number // 2)
        if number % 10 == 9:
            text += missed(1, 16 + number // 2, number // 10) + missed(2, 16 + number // 2, 3)
    verdict = diagnosed(tmp_path, text)
    assert verdict.causes == [] and verdict.status == "unknown", verdict.summary


TABLE = """\
E1127 09:24:28.087000 12 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1) local_rank: 2 (pid: 18) of binary: /usr/bin/python
============================================================
main.py FAILED
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-27_09:24:28
  host      : localhost
  rank      : 2 (local_rank: 2)
  exitcode  : 1 (pid: 18)
  error_file: <N/A>
============================================================
"""


def test_the_error_of_the_one_that_failed_goes_before_one_that_was_caught(tmp_path: Path) -> None:
    own = (
        "[rank2]: Traceback (most recent call last):\n"
        '[rank2]:   File "/home/me/main.py", line 110, in <module>\n[rank2]:     main()\n'
        "[rank2]: ValueError: no such shard\n"
    )
    text = steps(0, 13) + trace("FileNotFoundError: [Errno 2] No such file or directory: 'rng0.pt'")
    verdict = diagnosed(tmp_path, text + steps(1, 14) + own + TABLE)
    assert named(verdict) == [("error", [2])] and "no such shard" in verdict.summary
    alone = diagnosed(tmp_path, text + TABLE)
    assert "FileNotFoundError" in alone.summary, "without it that is all there is"


def test_a_caught_error_without_a_speaker_is_not_the_word_of_who_exited(tmp_path: Path) -> None:
    text = BEGINS
    for number in range(3, 60):
        text += steps(number, 16 + number // 2) + (missed(1, 20, 7) if number % 9 == 0 else "")
    text += TABLE.replace("exitcode  : 1", "exitcode  : 3").replace("exitcode: 1", "exitcode: 3")
    verdict = diagnosed(tmp_path, text)
    assert named(verdict) == [("dead", [2])] and "exit code 3" in verdict.summary
