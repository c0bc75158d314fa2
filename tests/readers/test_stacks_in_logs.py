"""Stacks that stand in other texts: in a job's log, below a person's own headings, and as Julia prints them."""

from __future__ import annotations

from pathlib import Path

from hangdoctor.readers.frames_without_numbers import numbered
from tests.support.read_logs import diagnosed, ranks_of

GUARD = "[2031-01-04 10:00:00 TP{n}] Watchdog timeout (self.watchdog_timeout=300)\n"
DUMP = (
    "[2031-01-04 10:00:00 TP{n}] Pyspy dump for PID {pid}:\nProcess {pid}: serve::worker\n"
    "Python v3.11.10 (/w/python3.11)\n\n"
    'Thread {pid} (idle): "MainThread"\n    wait (threading.py:327)\n    take (lake.py:40)\n    <module> (run.py:9)\n\n'
)
JULIA = (
    "signal (15): Terminated\nin expression starting at /w/lake.jl:23\n"
    "unknown function (ip: 0x7fbedea02bc8)\n"
    "opal_progress at /usr/lib/libopen-pal.so.40 (unknown line)\n"
    "{torn}PMPI_Barrier at /usr/lib/libmpi.so (unknown line)\n"
    "Barrier at /w/MPI/src/collective.jl:17 [inlined]\nmain at /w/lake.jl:13\n"
)


def test_a_guards_stacks_are_shown(tmp_path: Path) -> None:
    text = (
        GUARD.format(n=0)
        + GUARD.format(n=1)
        + DUMP.format(n=0, pid=811)
        + DUMP.format(n=1, pid=812)
    )
    found = diagnosed(tmp_path, text)
    assert found.status == "unknown" and not found.causes
    assert any(frame.name == "take" for group in found.stacks for frame in group.frames)
    assert "Next time, hangdoctor dump" not in found.summary


def test_not_where_the_job_failed(tmp_path: Path) -> None:
    crash = "[rank1]: RuntimeError: CUDA error: an illegal memory access was encountered\n"
    found = diagnosed(tmp_path, crash + GUARD.format(n=0) + DUMP.format(n=0, pid=811))
    assert not found.stacks and ranks_of(found) == [1]


def test_below_a_persons_headings(tmp_path: Path) -> None:
    text = (
        "===== node-0 PID 811 =====      (ranks 0,1,2 all look like this)\n"
        'Thread 0x7f... (active): "MainThread"\n'
        "    all_reduce (torch/distributed/distributed_c10d.py:2050)\n    fill (lake.py:214)\n    <module> (lake.py:301)\n\n"
        "===== node-0 PID 814 =====      (rank 3)\n"
        'Thread 0x7f... (active): "MainThread"\n'
        "    __next__ (torch/utils/data/dataloader.py:631)\n    fill (lake.py:207)     <-- still there\n    <module> (lake.py:301)\n"
    )
    found = diagnosed(tmp_path, {"stacks.txt": text})
    assert ranks_of(found) == [3] and found.job.world_size == 4


def test_julias_frames() -> None:
    for torn in ("", "Lake tests |    1      1  44m\n"):
        lines = numbered(JULIA.format(torn=torn)).splitlines()
        frames = [line for line in lines if line.startswith("#")]
        assert frames[0].startswith("#0  opal_progress () from ") and len(frames) == 4
    assert not numbered("we met at /w/lake.jl:3 (unknown line) and\nwent on\nfor long\n")


def test_a_process_that_waited_and_was_ended(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, {"stacks.txt": JULIA.format(torn="")})
    assert found.status == "unknown" and not found.causes
