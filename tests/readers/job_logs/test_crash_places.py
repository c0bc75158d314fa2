"""Where a process crashed, by the stack that stands beneath the signal in a log."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangdoctor.model.log_facts import KnownError
from hangdoctor.readers.job_logs.crash_places import CrashPlaces
from hangdoctor.readers.job_logs.native_frames import frame_of
from hangdoctor.readers.job_logs.prefix import Said
from tests.support.read_logs import diagnosed

OPEN_MPI = """\
[n4:{pid}] *** Process received signal ***
[n4:{pid}] Signal: Segmentation fault (11)
[n4:{pid}] Signal code: Address not mapped (1)
[n4:{pid}] [ 0] /lib64/libpthread.so.0(+0x11390)[0x7f732e9c3390]
[n4:{pid}] [ 1] /lib64/libc.so.6(killpg+0x40)[0x7f732e9c3391]
[n4:{pid}] [ 2] /opt/melt/bin/melt({name}+0x1f)[0x4021ff]
[n4:{pid}] [ 3] /opt/melt/bin/melt(main+0x10)[0x402110]
[n4:{pid}] *** End of error message ***
"""
UCX = """\
[n4:812 :0:812] Caught signal 11 (Segmentation fault: address not mapped to object at address 0x8)
==== backtrace (tid:    812) ====
 0  /opt/ucx/lib/libucs.so.0(ucs_handle_error+0x2e4) [0x7f12]
 1  /opt/ucx/lib/libucs.so.0(+0x2b1) [0x7f13]
 2  /opt/ucx/lib/libucs.so.0(+0x2d1) [0x7f14]
 3  /lib64/libc.so.6(+0xcf) [0x7f15]
 4  /opt/melt/bin/melt(heat_cells+0x77) [0x4021ff]
"""
ABSEIL = """\
*** SIGSEGV received at time=1795700000 on cpu 3 ***
PC: @     0x7fe1204a2b10  (unknown)  heat_cells()
    @     0x7fe1204a2b20        720  main()
"""
FORTRAN = """\
Program received signal SIGSEGV: Segmentation fault - invalid memory reference.

Backtrace for this error:
#0  0x7f164bd3ac5d in ???
#1  0x55c745315dd9 in heat_cells_
\tat /src/heat.f90:120
"""
PYTHON = """\
Fatal Python error: Segmentation fault

Thread 0x00007f2e93fff640 (most recent call first):
  File "/opt/melt/watch.py", line 46 in watch

Current thread 0x00007f2ea0870640 (most recent call first):
  File "/opt/melt/cells.py", line 12 in heat_cells
  File "/opt/melt/run.py", line 30 in main
"""
BY_TORCHRUN = """\
  traceback : Signal 11 (SIGSEGV) received by PID 812
*** SIGSEGV
  File "/opt/melt/run.py", line 30 in main
"""


@pytest.mark.parametrize(
    ("log", "place"),
    [
        (OPEN_MPI.format(pid=812, name="heat_cells"), "first in heat_cells:"),
        (OPEN_MPI.format(pid=812, name="_ZN4Melt5cells4heatEi"), "first in Melt::cells::heat:"),
        (UCX, "first in heat_cells:"),
        (ABSEIL, "first in heat_cells:"),
        (FORTRAN, "in heat_cells_ (heat.f90:120)"),
        (PYTHON, "in heat_cells (cells.py:12):"),
    ],
)
def test_the_function_of_a_crash_is_said(tmp_path: Path, log: str, place: str) -> None:
    assert place in diagnosed(tmp_path, log).summary


@pytest.mark.parametrize(
    "log",
    [
        OPEN_MPI.format(pid=812, name="").replace("(main+0x10)", "(__libc_start_main+0x10)"),
        BY_TORCHRUN,
    ],
)
def test_the_system_around_it_is_no_place(tmp_path: Path, log: str) -> None:
    assert "segmentation fault)." in diagnosed(tmp_path, log).summary


def test_places_that_differ_are_not_said_of_all(tmp_path: Path) -> None:
    one, other = OPEN_MPI.format(pid=812, name="heat"), OPEN_MPI.format(pid=813, name="cool")
    said = diagnosed(tmp_path, one + other).summary
    assert "2 processes" in said and "heat" not in said and "cool" not in said


def test_mixed_stacks_belong_to_their_processes(tmp_path: Path) -> None:
    one, other = (OPEN_MPI.format(pid=pid, name="heat").splitlines() for pid in (812, 813))
    mixed = [line for pair in zip(one, other, strict=True) for line in pair]
    assert "in heat." in diagnosed(tmp_path, "\n".join(mixed)).summary


CAUGHT = """\
Wed Nov 11 09:53:10 2026[1,7]<stderr>:==== backtrace ====
Wed Nov 11 09:53:10 2026[1,7]<stderr>: 2 0x0000000000067b1c mxm_handle_error()  /src/mxm/debug.c:641
Wed Nov 11 09:53:10 2026[1,7]<stderr>: 3 0x000000000006806c mxm_error_signal_handler()  /src/mxm/debug.c:616
Wed Nov 11 09:53:10 2026[1,7]<stderr>: 4 0x0000000000035670 killpg()  ??:0
Wed Nov 11 09:53:10 2026[1,7]<stderr>: 5 0x0000000000036a11 heat_cells()  /src/heat.inl:210
"""
TWO_IN_A_SECOND = """\
Wed Nov 11 09:53:10 2026[1,7]<stderr>:[n4:812:0] Caught signal 11 (Segmentation fault)
Wed Nov 11 09:53:{} 2026[1,3]<stderr>:[n5:813:0]       heat.c:231  Fatal: {}
"""


def test_a_stack_below_a_handler_is_that_of_a_crash(tmp_path: Path) -> None:
    said = diagnosed(tmp_path, CAUGHT)
    assert said.causes[0].ranks == [7]
    assert "in heat_cells (heat.inl:210): the process crashed" in said.summary


@pytest.mark.parametrize(
    ("second", "words", "open_which"),
    [
        (10, "Failed to map the table of cells 17", True),
        (10, "Connection reset by peer", False),
        (12, "Failed to map the table of cells 17", False),
    ],
)
def test_what_another_rank_gave_up_over_in_the_same_second(
    tmp_path: Path, second: int, words: str, open_which: bool
) -> None:
    said = diagnosed(tmp_path, TWO_IN_A_SECOND.format(second, words)).summary
    assert ("which of the two was first does not show" in said) == open_which


def test_processes_without_ranks_behind_a_stamp_are_told_apart(tmp_path: Path) -> None:
    line = (
        "Mon Nov 30 11:53:22 2026<stderr>:[n{}:28771:0:28771] Caught signal 11 (Segmentation fault)"
    )
    said = diagnosed(tmp_path, f"{line.format(1)}\n{line.format(2)}\n").summary
    assert "2 processes on n[1-2] failed alike" in said


TWO_HEADED = """\
[n4:812:0:812] Caught signal 11 (Segmentation fault: address not mapped to object at address 0x8)
[n4:813:0:813] Caught signal 11 (Segmentation fault: address not mapped to object at address 0x8)
==== backtrace (tid:    813) ====
 0 0x0000000000002137 ucs_debug_print_backtrace()  /src/ucx/debug.c:656
 1 0x000000000006c247 {}()  ???:0
==== backtrace (tid:    812) ====
 0 0x0000000000002137 ucs_debug_print_backtrace()  /src/ucx/debug.c:656
 1 0x000000000006c247 {}()  ???:0
"""


@pytest.mark.parametrize(("other", "said"), [("heat_cells", True), ("cool_cells", False)])
def test_headings_tell_whose_stack_comes_next(tmp_path: Path, other: str, said: bool) -> None:
    summary = diagnosed(tmp_path, TWO_HEADED.format("heat_cells", other)).summary
    assert "2 processes" in summary and ("in heat_cells" in summary) == said


@pytest.mark.parametrize(
    ("row", "name"),
    [
        (
            "[ 3] ./melt(void melt::cool<melt::Ice<int> >(melt::Ice<int> const&, long)+0x158) [0x4a]",
            "melt::cool",
        ),
        ("[ 3] ./melt(_ZN4melt4coolINS_3IceEEEvi+0x158) [0x4a]", "melt::cool"),
        ("    @     0x7fe1204a2b20        720  (unknown)", None),
        ("    @     0x7fe1204a2b20  melt::cool()", "melt::cool"),
    ],
)
def test_names_in_frames(row: str, name: str | None) -> None:
    frame = frame_of(row)
    assert (frame.name if frame is not None else None) == name


def begun(*rows: str) -> CrashPlaces:
    """A crash in line 1, and what stands below it."""
    places = CrashPlaces()
    places.begin(KnownError(rule="segfault", line=1), Said())
    for line, row in enumerate(rows, start=2):
        places.feed(Said(text=row), line)
    return places


def test_words_behind_a_number_do_not_hold_a_stack_open() -> None:
    """They look like the first part of a frame: the lines below are no parts of it without end."""
    assert begun("[ 1] melt(ic").reads
    assert not begun("[ 1] melt goes on", *["day done"] * 60).reads


def test_the_first_part_of_a_frame_does_not_outlast_its_stack() -> None:
    places = begun("[ 0] melt(heat+0x1) [0x12]", *["day done"] * 3, "[ 1] melt(ic")
    places.feed(Said(text="much later [0x12]"), 600)
    assert not places.reads
