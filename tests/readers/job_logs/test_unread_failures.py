"""Failures in words that no rule knows: who speaks, what counts as one, and what does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangdoctor.readers.job_logs.failure_words import is_clean_end, is_own, judged
from hangdoctor.readers.job_logs.named_in_line import named as named_in
from tests.support.read_logs import diagnosed, logs_of, named

PLAIN = "reading the mesh of lake.dat\nsetting up the columns\n"
UNKNOWN = "in words that are not known here"


@pytest.mark.parametrize(
    ("line", "ranks", "who"),
    [
        ("rank 5: ERROR the soil column of tile 81 has no water table", [5], "Rank 5"),
        ("[3]TIDES ERROR: boundary file has an illegal header", [3], "Rank 3"),
        ("pe=00002 FAIL in glacier_flow <slope is negative>", [2], "Rank 2"),
        ("[n7:4811:0:4811] fatal: the halo of block 12 is torn", [], "Process 4811 on n7"),
        ("n4:rank6.lake: Unable to open the ring of the adapter", [6], "Rank 6 (n4)"),
        ("Worker TideWorker-4 died unexpectedly", [], "Worker TideWorker-4"),
        ("FATAL: spectral mode 9 cannot be inverted", [], "A process (its line names none)"),
    ],
)
def test_who_speaks(tmp_path: Path, line: str, ranks: list[int], who: str) -> None:
    found = diagnosed(tmp_path, f"{PLAIN}{line}\n")
    assert named(found) == [("error", ranks)], found.summary
    assert found.status == "failed"
    assert found.summary.startswith(f"{who} was the first to print a failure, {UNKNOWN}: '")
    assert "job.log:3" in found.summary


def test_an_unnamed_process_is_no_rank_0(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, f"{PLAIN}fatal error: cannot map tile 0 of 4\n")
    assert named(found) == [("error", [])], found.summary


def test_several_that_say_alike(tmp_path: Path) -> None:
    text = "".join(f"rank {n}: ERROR tile {n * 7} has no neighbour\n" for n in (2, 0, 5))
    found = diagnosed(tmp_path, PLAIN + text)
    assert named(found) == [("error", [0, 2, 5])], found.summary
    assert "printed a failure alike, and which was first does not show" in found.summary


def test_devices_of_one_process(tmp_path: Path) -> None:
    line = "n5:610:70{0} [{0}] ring.cc:81 NCCL WARN Error while mapping ring buffer of {0} pages\n"
    text = "".join(line.format(n) for n in (2, 5))
    found = diagnosed(tmp_path, PLAIN + text)
    assert found.summary.startswith("Process 610 (devices 2,5) on n5 was the first"), found.summary


def test_the_line_that_says_why_rather_than_the_general_one(tmp_path: Path) -> None:
    lines = (
        "rank 4: ERROR: job failed\nrank 4: ERROR lake depth is below the bed\nrank 4: aborting\n"
    )
    found = diagnosed(tmp_path, PLAIN + lines)
    assert "lake depth is below the bed' (job.log:4)" in found.summary


def test_the_last_cause_of_a_chain(tmp_path: Path) -> None:
    lines = "rank 4: ERROR the step was not taken\nrank 4: caused by: no such species argon\n"
    found = diagnosed(tmp_path, PLAIN + lines)
    assert "no such species argon' (job.log:4)" in found.summary


def test_a_launchers_word_names_whose_line_it_was(tmp_path: Path) -> None:
    text = "the column solver got an illegal value in argument 6\nmpiexec: process rank 2 exited abnormally\n"
    found = diagnosed(tmp_path, PLAIN + text)
    assert named(found) == [("error", [2])], found.summary
    assert "as a line below it shows" in found.summary
    assert "illegal value in argument 6' (job.log:3)" in found.summary


def test_a_launchers_word_alone_names_nobody(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, f"{PLAIN}flux-shell: FATAL: a task of lake.x crashed badly\n")
    assert named(found) == [("error", [])], found.summary
    assert found.summary.startswith("A launcher saw a process fail, and which one does not show")


def test_a_call_to_another_rank_accuses_nobody(tmp_path: Path) -> None:
    line = "rank 3 on n2: FATAL the halo exchange failed: connection closed by peer 10.0.0.8\n"
    found = diagnosed(tmp_path, PLAIN + line)
    assert named(found) == [("in_communication", [])], found.summary
    assert found.status == "failed"
    assert found.summary.startswith(
        "Between rank 3 on n2 and 10.0.0.8: a call, a wait or a connection failed"
    )
    assert found.summary.rstrip(".").endswith("these logs show no failure before it")


def test_who_only_says_that_something_failed_decides_nothing(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, f"{PLAIN}rank 1: ERROR: job failed\nAborted (core dumped)\n")
    assert (found.status, found.causes) == ("unknown", []), found.summary


def test_the_head_of_a_traceback_is_no_failure_of_its_own(tmp_path: Path) -> None:
    stack = 'Traceback (most recent call last):\n  File "/job/a.py", line 3, in tile\n'
    lost = "ConnectionResetError: [Errno 104] Connection reset by peer\n"
    found = diagnosed(tmp_path, f"rank 1: ERROR the tile loop hit an obstacle\n{stack}{lost}")
    assert named(found) != [("error", [1])], found.summary


STACK = (
    "Abort(7) on node 4 (rank 4 in comm 0): Fatal error in internal_Recv: Other MPI error, error stack:\n"
    "internal_Recv(60)......: MPI_Recv(buf=0x7f, count=9, MPI_FLOAT, 2, 0, MPI_COMM_WORLD, status=0x1) failed\n"
    "MPIR_Wait(70)..........:\n"
)


def test_the_innermost_line_of_an_error_stack(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, f"{STACK}MPIDI_LAKE_map(355)....: lake_handle_map failed\n")
    assert named(found) == [("error", [4])], found.summary
    assert "'lake_handle_map failed' (job.log:1, the end of the stack of " in found.summary


def test_without_it_the_call_lies_between_two(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, STACK)
    assert named(found) == [("in_communication", [])], found.summary
    assert found.summary.startswith("Between rank 4 and rank 2: its MPI_Recv from rank 2 failed")


def test_a_failure_before_the_words_that_follow_from_one(tmp_path: Path) -> None:
    cause = "rank 1: ERROR the forcing file ends at day 12\n"
    found = diagnosed(tmp_path, f"{PLAIN}{cause}{STACK}")
    assert named(found) == [("error", [1])], found.summary


@pytest.mark.parametrize(
    "line",
    [
        "rank 2: WARNING: could not find the optional file tides.nml",
        "rank 2: cannot reach the archive, will retry in 30 s",
        "rank 2: checked 812 columns, 0 errors",
        "rank 2: error tolerance 1e-6 is used",
        "rank 2: mean error = 0.0041",
        "W lake/core/loader.cc:64] Could not load the fast library",
        "[rank2]:[W728 11:07:56.421 lake.cpp:16] could not reach the archive",
        "ERROR: 0031 task 4: Terminated",
        "rank 2: on_error = abort",
        "rank 2: the option --panic is deprecated",
        "rank 2: INFO no failure was found in the mesh",
        "DEBUG: cannot use the fast path, falling back to the slow one",
        "export LAKE_ERROR_FATAL=1",
        '  "summary": "Rank 3 died first",',
    ],
)
def test_what_is_no_failure(tmp_path: Path, line: str) -> None:
    found = diagnosed(tmp_path, f"{PLAIN}{line}\n")
    assert found.status == "unknown", found.summary


def test_progress_after_it(tmp_path: Path) -> None:
    text = "step 10 loss 2.1\nrank 2: failed to write the preview\nstep 11 loss 2.0\nstep 12 loss 2.0\n"
    found = diagnosed(tmp_path, text)
    assert found.status != "failed", found.summary


def test_a_plain_word_at_the_end_of_a_job_that_goes_on(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, "step 10 loss 2.1\nrank 2: failed to write the preview\n")
    assert found.status == "unknown", found.summary
    assert "failed to write the preview" in found.summary


def test_its_speaker_goes_on(tmp_path: Path) -> None:
    after = "".join(f"rank 2: column {name} is set up\n" for name in "abcdefghij")
    found = diagnosed(tmp_path, f"rank 2: could not read the cache\n{after}")
    assert found.status == "unknown", found.summary


def test_a_clean_end_after_it(tmp_path: Path) -> None:
    text = "rank 2: ERROR the preview was not written\nthe run is done\nsimulation finished\n"
    found = diagnosed(tmp_path, PLAIN + text)
    assert found.status != "failed", found.summary


def test_advice_in_a_frame_is_no_failure(tmp_path: Path) -> None:
    frame = "-" * 40
    advice = "".join(f"{n}. a process that cannot call finalize is aborted\n" for n in range(9))
    path = tmp_path / "job.log"
    path.write_text(f"{frame}\nThe run has ended.\n\n{advice}{frame}\n")
    assert logs_of(path).unread == []


def test_prose_is_no_log(tmp_path: Path) -> None:
    text = "rank 5: ERROR the soil column of tile 81 has no water table\n"
    assert diagnosed(tmp_path, {"NOTES.md": text, "job.log": PLAIN}).status == "unknown"


def test_waits_that_reached_their_limit_say_more(tmp_path: Path) -> None:
    wait = (
        "[rank1]:[E709 17:05:38.162 ProcessGroupNCCL.cpp:632] [Rank 1] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=9, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600020 milliseconds\n"
    )
    found = diagnosed(tmp_path, f"{wait}rank 1: ERROR the lake was left\n")
    assert found.status != "failed", found.summary


def test_the_words_before_a_death_without_any(tmp_path: Path) -> None:
    text = (
        "rank 3: column 8 overflowed: invalid depth\n"
        "MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD\nwith errorcode 9.\n"
    )
    found = diagnosed(tmp_path, PLAIN + text)
    assert named(found) == [("error", [3])], found.summary
    assert "column 8 overflowed" in found.summary and "then it called MPI_Abort" in found.summary
    assert "no error of its own" not in found.summary


@pytest.mark.parametrize(
    ("text", "strength"),
    [
        ("fatal: the lake is empty", 3),
        ("Assertion `depth > 0` failed.", 3),
        ("could not open basin.nc", 2),
        ("a non-fatal fault of the pump", None),
        ("#4 0x00007f12 in abort () from libc.so", None),
        ("forrtl: error (76): Abort trap signal", 3),
        ("LAKE WARN could not open the ring. RC: -22", 2),
    ],
)
def test_how_plainly(text: str, strength: int | None) -> None:
    words = judged(text)
    assert (words.strength if words is not None else None) == strength


def test_of_other_processes_or_its_own() -> None:
    assert is_own("gpu_handle_map failed")
    assert not is_own("poll failed (input/output error - CANCELED)")
    assert is_clean_end("All done, simulation completed")
    assert not is_clean_end("job completed with errors")


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("message from rank 3 was cut", "rank", -1),
        ("rank 2 and rank 5 differ", "rank", -1),
        ("rank 4/16 failed", "rank", -1),
        ("reduce failed, pid=4410", "pid", 4410),
        ("/task:37 was lost", "task", 37),
        ("main.cc:812 cannot go on", "pid", 0),
        ("cannot go on, on node lake-17", "node", "lake-17"),
        ("GPU 3 has fallen off the bus", "device", 3),
        ("no word from peer fe80::1:2 of the ring", "peer", "fe80::1:2"),
        ("completion from peer 10.0.0.9 failed", "peer", "10.0.0.9"),
    ],
)
def test_whom_a_line_names(text: str, field: str, value: object) -> None:
    assert getattr(named_in(text), field) == value
