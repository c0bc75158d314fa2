"""Lines of tools that look into processes, lines that a mail has broken, and the rank of a file's only process."""

from __future__ import annotations

from pathlib import Path

from tests.support.read_logs import diagnosed

BROKEN = """\
[n7:00381] *** Process received signal ***
[n7:00381] Signal: Segmentation fault (11)
[n7:00381] [ 0] [0xb7f8640c]
[n7:00381] [ 1] /opt/melt/lib/libheat.so.\x20
0(heat_cells+0x123) [0xb7b95456]
[n7:00381] [ 2] /opt/melt/lib/libheat.so.0 \x20
[0xb7bcb093]
[n7:00381] *** End of error message ***
mpirun noticed that process rank 2 with PID 399 on node n7 exited \x20
on signal 11 (Segmentation fault).
"""
TOOLS = """\
[2026-11-04 11:58:44 TP1] Pyspy failed to dump PID 1131. Error: Error: Failed to copy Py_Version symbol
Reason: Permission denied (os error 13)
[2026-11-04 11:58:44 TP1] Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)
"""
REFUSED = "n13:941:943 [0] include/socket.h:390 NCCL WARN Connect to 10.38.1.12<21724> failed : Connection refused\n"
SETTINGS = "auto allocate gpu\ndevices ids are 0\nnothing else\nself.dist_world_size: 4\nself.dist_rank: {}\n"
WAYS_OUT = """\
n2:53:99 [7] NCCL INFO bootstrap.cc:270 -> 2
n2:50:40 [4] NCCL INFO init.cc:1350 -> 2

n2:51:40 [5] misc/socket.cc:483 NCCL WARN socketStartConnect: Connect to fe80::96%ib1<17943> failed : Software caused connection abort
n2:51:40 [5] NCCL INFO misc/socket.cc:564 -> 2
"""


def test_broken_frames_and_the_broken_line_of_the_end(tmp_path: Path) -> None:
    said = diagnosed(tmp_path, BROKEN)
    assert said.causes[0].ranks == [2] and "in heat_cells (libheat.so.0)" in said.summary


def test_a_tool_that_failed_is_no_failure_of_the_job(tmp_path: Path) -> None:
    said = diagnosed(tmp_path, TOOLS)
    assert said.causes == [] and "saw no progress" in said.summary


def test_the_rank_that_the_only_process_printed(tmp_path: Path) -> None:
    said = diagnosed(tmp_path, SETTINGS.format(3) + REFUSED)
    assert "Between rank 3 on n13 and 10.38.1.12" in said.summary


def test_a_rank_that_several_processes_may_have_printed(tmp_path: Path) -> None:
    other = REFUSED.replace(":941:", ":942:")
    assert "rank 3" not in diagnosed(tmp_path, SETTINGS.format(3) + REFUSED + other).summary


def test_a_warning_says_more_than_the_way_out(tmp_path: Path) -> None:
    said = diagnosed(tmp_path, WAYS_OUT)
    assert said.causes == [] and "process 51" in said.summary and "Connect to fe80" in said.summary
    assert "no failure before it" not in said.summary


WARNED = "n1:40:48 [0] net_fast.cc:765 NCCL WARN Cannot get incoming CPU.\n"
WENT_ON = "n1:40:55 [0] NCCL INFO NET/Fast : Connected after 1000 retries.\n"
ABORTED = """\
[n3:412] *** Process received signal ***
[n3:412] Signal: Aborted (6)
[n3:412] *** End of error message ***
[n3:412:0] Caught signal 11 (Segmentation fault: address not mapped to object at address 0x56)
"""
ENDS = """\
[1,1]<stderr>:[n5:926] *** End of error message ***
[1,0]<stderr>:[n5:925] *** Process received signal ***
[1,0]<stderr>:[n5:925] Signal: Segmentation fault (11)
"""


def test_a_warning_that_nccl_went_on_after_is_no_failure(tmp_path: Path) -> None:
    assert diagnosed(tmp_path, WARNED + WENT_ON).causes == []


def test_a_crash_in_the_handler_of_an_abort_is_not_the_first(tmp_path: Path) -> None:
    assert diagnosed(tmp_path, ABORTED).causes == []


def test_the_end_of_another_stack_is_another_crash(tmp_path: Path) -> None:
    assert "Rank 0 (n5) and 1 more on n5 failed alike" in diagnosed(tmp_path, ENDS).summary
