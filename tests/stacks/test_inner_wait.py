"""What a thread waits for inside of its own process, by its innermost frames."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangdoctor.model.frame import Frame
from hangdoctor.report.terminal_report import plain
from hangdoctor.stacks.inner_wait import inner_wait
from tests.support.read_logs import diagnosed

USER = Frame("fill", "/w/lake.py", 31)


def native(*names: str) -> list[Frame]:
    return [Frame(name, "libdeep.so", 0) for name in names]


@pytest.mark.parametrize(
    ("inner", "what"),
    [
        (native("sched_yield", "0x7f12", "ur::level_zero::urEventWait"), "device"),
        (native("clock_gettime", "cuEventSynchronize"), "device"),
        (native("cudaStreamSynchronize"), "device"),
        (native("hipDeviceSynchronize"), "device"),
        (native("ioctl", "aclrtSynchronizeStreamWithTimeout"), "device"),
        (native("futex_wait", "std::thread::join()"), "thread"),
        (native("__GI___wait4"), "child"),
        ([Frame("poll", "/usr/lib/python3.11/multiprocessing/popen_fork.py", 27)], "child"),
        ([Frame("_try_wait", "/usr/lib/python3.11/subprocess.py", 1917)], "child"),
        ([Frame("_wait_for_tstate_lock", "/usr/lib/python3.11/threading.py", 1119)], "thread"),
        ([Frame("_shutdown", "/usr/lib/python3.11/threading.py", 1590)], "exit"),
    ],
)
def test_what_is_waited_for(inner: list[Frame], what: str) -> None:
    found = inner_wait([*inner, USER])
    assert found is not None and found.what == what


@pytest.mark.parametrize(
    "inner",
    [
        [],
        native("sched_yield"),
        native("cudaLaunchKernel"),
        native("ncclWaitEventSynchronizer"),
        [Frame("wait", "/usr/lib/python3.11/threading.py", 320)],  # of a condition
        [Frame("run", "/w/subprocess_of_mine.py", 3)],
    ],
)
def test_what_is_none_of_these(inner: list[Frame]) -> None:
    assert inner_wait([*inner, USER]) is None


def test_a_lone_stack_is_of_a_process_and_no_rank(tmp_path: Path) -> None:
    text = (
        'Process 422: python lake.py\nThread 422 (active): "MainThread"\n    sched_yield (libc.so.6)\n'
        "    ur::level_zero::urEventWait (libur_adapter_level_zero.so.0)\n    fill (lake.py:31)\n    main (lake.py:9)\n"
    )
    found = diagnosed(tmp_path, {"stack.txt": text})
    assert found.called == "process 422" and not found.causes
    assert (
        "process 422 waits for its device (ur::level_zero::urEventWait) in fill (lake.py:31)"
        in found.summary
    )
    assert "rank 0  " not in plain(found)
