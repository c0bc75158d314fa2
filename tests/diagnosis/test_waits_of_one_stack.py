"""Where one native stack without a rank is: in a lock or condition of its own runtime, or in MPI with the caller cut off."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangdoctor.cli.diagnose import load
from hangdoctor.diagnosis import diagnose

SYSCALL = "#0  0x0000200000a05e84 in syscall () from /lib64/libc.so.6\n"
WAIT = "#1  0x00002000046e1944 in Lake::Doorbell::wait_slow (this=0x1) at /lake/mutex.cc:316\n"
CONDITION = (
    "#2  0x00002000046e30a8 in Lake::UnfairCondVar::wait (this=0x1) at /lake/mutex.cc:1017\n"
)
CALLER = "#3  0x00002000046730d8 in Lake::Module::open_channels (this=0x1) at /lake/module.cc:88\n"


def _says(tmp_path: Path, text: str) -> str:
    (tmp_path / "stacks.txt").write_text(text)
    return diagnose(load([tmp_path])).summary


def test_the_caller_of_a_runtimes_own_primitive(tmp_path: Path) -> None:
    text = f"Thread 1 (Thread 0x2000067a9040 (LWP 3160)):\n{SYSCALL}{WAIT}{CONDITION}{CALLER}"
    said = _says(tmp_path, text)
    assert "waits for another thread of its own process in Lake::Module::open_channels" in said
    assert "wait_slow" not in said


def test_a_primitive_alone_is_told_as_it_is(tmp_path: Path) -> None:
    said = _says(tmp_path, f"Thread 1 (Thread 0x2000067a9040 (LWP 3160)):\n{SYSCALL}{WAIT}")
    assert "Lake::Doorbell::wait_slow" in said


@pytest.mark.parametrize("name", ["Lake::relax", "Lake::Waiter::fill", "block_solve"])
def test_the_programs_own_work_is_no_primitive(tmp_path: Path, name: str) -> None:
    own = f"#0  0x00002000046e1944 in {name} (n=3) at /lake/a.cc:3\n"
    said = _says(tmp_path, f"Thread 1 (Thread 0x20 (LWP 3160)):\n{own}{CALLER}")
    assert f"is in {name}" in said, said


def test_mpis_requests_with_the_caller_cut_off(tmp_path: Path) -> None:
    text = (
        "(gdb) bt\n#0  0x00000033abedf343 in poll () from /lib64/libc.so.6\n"
        "#1  0x00002aaaab047660 in opal_progress ()\n   from /ompi/install/lib/libopen-pal.so.6\n"
        "#2  0x00002aaaaaaf0e65 in ompi_request_default_wait_all ()\n   from /ompi/arch/x86_64_lin\n"
    )
    said = _says(tmp_path, text)
    assert "waits in a call of MPI, for its sends and receives" in said
    assert "in no collective" not in said
