"""Connections that failed name neither end; operations of two ranks that differ; errors beside progress bars."""

from __future__ import annotations

from pathlib import Path

from tests.support.read_logs import diagnosed, logs_of, named
from tests.support.written_logs import caught, counters

REMOTE = (
    "[rank9]:[E ProcessGroupNCCL.cpp:1414] [PG 0 Rank 9] Process group watchdog thread terminated with exception: NCCL error: "
    "remote process exited or there was a network error, NCCL version 2.20.5\n"
    "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\nLast error:\n"
)


def test_a_broken_connection_is_between_two(tmp_path: Path) -> None:
    for status in (5, 12):
        error = f"NET/IB : Got completion from peer 10.5.0.34<33956> with error {status}, opcode 0, len 1, vendor err 244 (Recv)\n"
        verdict = diagnosed(tmp_path, REMOTE + error)
        [cause] = verdict.causes
        assert (cause.kind, cause.ranks, cause.nodes) == ("in_communication", [], ["10.5.0.34"])
        assert "10.5.0.34" in verdict.summary and cause.confidence <= 0.6


def test_a_refused_connection_accuses_nobody(tmp_path: Path) -> None:
    said = "n1:209:243 [1] misc/socket.cc:544 NCCL WARN socketPollConnect: connect {}returned Connection refused, exceeded error retry count"
    for peer in ("", "to 10.0.0.7<4711> "):
        verdict = diagnosed(tmp_path, said.format(peer) + " (35)\n")
        [cause] = verdict.causes
        assert (cause.kind, cause.ranks) == ("start_stall", [])
        assert cause.nodes == (["10.0.0.7", "n1"] if peer else [])  # both ends, or neither
    verdict = diagnosed(
        tmp_path,
        said.format("") + "\n[rank0]: Traceback (most recent call last):\n"
        '[rank0]:   File "/job/data.py", line 4, in load\n[rank0]: ValueError: bad\n',
    )
    assert named(verdict) == [("error", [0])], "an error of its own explains why it refuses"


def test_two_that_wait_in_different_operations(tmp_path: Path) -> None:
    log = caught(1, 2635, size=1) + counters(1, 2635, 2634, work=2635)
    other = caught(0, 2667, "_REDUCE_SCATTER_BASE", size=8, size_out=4)
    other += counters(0, 2667, 2666, work=2667)
    for text in (log + other, other + log):
        verdict = diagnosed(tmp_path, text)
        assert named(verdict) == [("order", [0, 1])] and verdict.status == "hang"
        assert "all_reduce #2635" in verdict.summary and "#2667" in verdict.summary
    ahead = caught(1, 2635, "BROADCAST", size=1) + caught(0, 2667, size=1)
    assert diagnosed(tmp_path, ahead).causes == [], "the root of a broadcast may run ahead"


def test_a_report_that_all_have_joined_names_nobody(tmp_path: Path) -> None:
    verdict = diagnosed(tmp_path, "  [0,1,2,3] joined but didn't finish collective #39\n")
    assert named(verdict) == [("in_communication", [])] and "ranks 0-3" in verdict.summary


def test_an_error_at_the_end_of_a_progress_bar(tmp_path: Path) -> None:
    log = "{'loss': 0.45, 'epoch': 1.22}\n 41%|██  | 366/903 [5:15:39<6:53:09, 46.16s/it]"
    log += (
        "HW Exception by GPU node-9 (Agent handle: 0x6) reason :GPU Hang\nAborted (core dumped)\n"
    )
    log += caught(2) + counters(2, 83, 80) + caught(3) + counters(3, 83, 80)
    verdict = diagnosed(tmp_path, log)
    assert [c.kind for c in verdict.causes] == ["error"] and "GPU node-9 hangs" in verdict.summary
    [error] = [
        f for f in logs_of(tmp_path / "job.log").facts if getattr(f, "rule", "") == "gpu_hang"
    ]
    assert error.at == 0.0, "a stamp from below is no stamp"  # type: ignore[attr-defined]


def test_what_stopped_nothing_is_no_cause(tmp_path: Path) -> None:
    """A complaint before the first iteration, and a bar that was drawn anew in one line."""
    log = "CommandNotFoundError: Your shell has not been properly configured\n"
    log += "  0%|  | 0/50 [00:00<?, ?it/s]  2%|  | 1/50 [10:31<8:35:20]  20%|█ | 10/50 [1:44:58<7:00:04]"
    log += "slurmstepd: error: *** JOB 41 ON n1 CANCELLED AT 2026-04-14T16:20:46 DUE TO TIME LIMIT ***\n"
    verdict = diagnosed(tmp_path, log)
    assert (verdict.status, verdict.causes) == ("unknown", []) and "time limit" in verdict.summary


def test_a_line_on_where_the_job_begins_is_no_progress(tmp_path: Path) -> None:
    """All ranks fail alike; another one's "resuming" came after the first error."""
    errors = [
        f"[rank{rank}]: Traceback (most recent call last):\n"
        f'[rank{rank}]:   File "/job/resume.py", line 18, in <module>\n'
        f"[rank{rank}]:     net.load_state_dict(saved)\n"
        f"[rank{rank}]: RuntimeError: Error(s) in loading state_dict for Sequential:\n"
        for rank in range(3)
    ]
    verdict = diagnosed(tmp_path, errors[0] + "resuming at step 1200\n" + "".join(errors[1:]))
    assert [cause.ranks for cause in verdict.causes] == [[0, 1, 2]]
