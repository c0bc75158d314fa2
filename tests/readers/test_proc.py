"""What /proc says of processes whose state is known."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangdoctor.readers import proc

# Blocked in a read of its standard input, under a name that looks like the end of the field.
READS = "import os; open('/proc/self/comm', 'w').write('a) R (b'); print('up', flush=True); os.read(0, 1)"


@pytest.fixture
def reader() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-I", "-c", READS], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == b"up\n"
        while proc.syscall_of(process.pid, process.pid).partition("(")[0] != "read":
            assert process.poll() is None
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_process_that_reads(reader: subprocess.Popen[bytes]) -> None:
    pid = reader.pid
    pipe = str(Path(f"/proc/{pid}/fd/0").readlink())
    assert proc.syscall_of(pid, pid) == f"read(0 -> {pipe})"
    sample = proc.sample_process(pid, 2.5)
    assert (sample.at_s, sample.state) == (2.5, "S")
    [thread] = sample.threads
    assert (thread.tid, thread.state, thread.syscall) == (pid, "S", f"read(0 -> {pipe})")
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    assert sample.cpu_s == thread.cpu_s == ticks / os.sysconf("SC_CLK_TCK")
    lines = Path(f"/proc/{pid}/task/{pid}/status").read_text().splitlines()
    assert (
        thread.switches
        == sum(int(line.split()[-1]) for line in lines if "ctxt_switches" in line)
        > 0
    )
    assert sample.read_bytes >= 0 and sample.write_bytes >= 3, "it has said that it is up"
    assert proc.exit_code(pid) is None and not proc.is_frozen(pid)
    assert proc.status_fields(pid)["Name"] == "a) R (b"


def test_without_detail_only_the_state_is_read(reader: subprocess.Popen[bytes]) -> None:
    thread = proc.sample_thread(reader.pid, reader.pid, detail=False)
    assert thread is not None and (thread.state, thread.syscall, thread.wchan) == ("S", "", "")


def test_of_many_threads_the_first_are_looked_at_closely(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proc, "_DETAILED_THREADS", 2)
    done = threading.Event()
    threads = [threading.Thread(target=done.wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        sample = proc.sample_process(os.getpid(), 0.0)
        tids = [t.tid for t in sample.threads]
        assert tids == sorted(tids) == proc.thread_ids(os.getpid()) and len(tids) >= 4
        looked_at = [t.switches >= 0 for t in sample.threads]
        assert looked_at == [True, True] + [False] * (len(tids) - 2)
    finally:
        done.set()
        for thread in threads:
            thread.join()


@pytest.mark.parametrize(
    ("ends", "code"),
    [("os._exit(3)", 3), ("os._exit(0)", 0), ("os.kill(os.getpid(), 9)", -signal.SIGKILL)],
)
def test_how_a_zombie_ended(ends: str, code: int) -> None:
    process = subprocess.Popen([sys.executable, "-I", "-c", f"import os; {ends}"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert proc.exit_code(process.pid) == code
    assert proc.sample_process(process.pid, 0.0).state == "Z"
    process.wait()
    assert proc.exit_code(process.pid) is None


def test_a_process_that_is_gone() -> None:
    gone = 1 << 30
    assert (
        proc.stat_fields(gone) == []
        and proc.thread_ids(gone) == []
        and proc.status_fields(gone) == {}
    )
    assert proc.sample_thread(gone, gone) is None and proc.syscall_of(gone, gone) == ""
    sample = proc.sample_process(gone, 1.0)
    assert (sample.state, sample.threads) == ("", [])
    assert (proc.oom_kills(gone), proc.is_frozen(gone)) == (0, False)


# -------------------------------------------------------------------------- files of other machines


@pytest.fixture
def texts(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What is in files of /proc and /sys, by their path; the others are not there."""
    found: dict[str, str] = {}
    monkeypatch.setattr(proc, "_read", lambda path: found.get(path, ""))
    return found


def test_calls_that_are_not_known_or_not_on_a_file(
    texts: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proc, "_CALLS", proc._CALLS_X86_64)
    path = "/proc/7/task/8/syscall"
    for line, said in (
        ("running", ""),
        ("999 0x1 0x2", "syscall 999"),
        ("202 0x1 0x2", "futex"),
        ("-1 0x7f 0x2", ""),
        ("202", ""),
        ("0 0x5 0x2", "read(5)"),
        ("0 0x10", "read(16)"),
        ("", ""),
    ):
        texts[path] = line
        assert proc.syscall_of(7, 8) == said, line


def test_frozen_and_killed_for_memory(texts: dict[str, str]) -> None:
    texts["/proc/7/cgroup"] = "0::/job\n"
    assert not proc.is_frozen(7) and proc.oom_kills(7) == 0
    texts["/sys/fs/cgroup/job/cgroup.events"] = "populated 1\nfrozen 1\n"
    texts["/sys/fs/cgroup/job/memory.events"] = "oom 9\noom_kill 2\noom_group_kill 0\n"
    assert proc.is_frozen(7) and proc.oom_kills(7) == 2
    texts["/proc/7/cgroup"] = "5:cpu:/x\n4:freezer:/f\n3:memory:/m\n"
    assert not proc.is_frozen(7) and proc.oom_kills(7) == 0
    texts["/sys/fs/cgroup/freezer/f/freezer.state"] = "FREEZING\n"
    texts["/sys/fs/cgroup/memory/m/memory.oom_control"] = "oom_kill_disable 0\noom_kill 3\n"
    assert proc.is_frozen(7) and proc.oom_kills(7) == 3
    texts["/proc/7/cgroup"] = "nonsense\n"
    assert not proc.is_frozen(7) and proc.oom_kills(7) == 0


def test_an_old_stat_is_no_zombie_with_a_code(texts: dict[str, str]) -> None:
    fields = ["Z", *["0"] * 48, "768"]
    texts["/proc/7/stat"] = f"7 (x) {' '.join(fields)}"
    assert proc.exit_code(7) == 3
    texts["/proc/7/stat"] = f"7 (x) {' '.join(fields[:-1])}"
    assert proc.exit_code(7) is None
    texts["/proc/7/stat"] = f"7 (x) {' '.join(['X', *fields[1:-1], str(9)])}"
    assert proc.exit_code(7) == -9
    texts["/proc/7/stat"] = f"7 (x) {' '.join(['S', *fields[1:]])}"
    assert proc.exit_code(7) is None
    texts["/proc/7/stat"] = "7 (x) S" + " 0" * 11
    assert proc.sample_process(7, 0.0).state == ""
    texts["/proc/7/stat"] += " 0"
    sample = proc.sample_process(7, 0.0)
    assert (sample.state, sample.read_bytes, sample.write_bytes) == ("S", -1, -1)
    texts["/proc/7/io"] = "rchar: 5\nwchar: 6\nsyscr: 7\n"
    sample = proc.sample_process(7, 0.0)
    assert (sample.read_bytes, sample.write_bytes) == (5, 6)
    texts["/proc/7/task/8/stat"] = texts["/proc/7/stat"]
    of_thread = proc.sample_thread(7, 8)
    assert of_thread and (of_thread.read_bytes, of_thread.write_bytes) == (-1, -1)
    texts["/proc/7/task/8/io"] = "rchar: 3\nwchar: 4\n"
    of_thread = proc.sample_thread(7, 8)
    assert of_thread and (of_thread.read_bytes, of_thread.write_bytes) == (3, 4)


def test_system_calls_have_the_numbers_of_the_kernels_own_header() -> None:
    header = Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")
    if not header.exists():
        pytest.skip("needs the kernel's headers (linux-libc-dev)")
    found = re.findall(r"^#define __NR_(\w+) (\d+)$", header.read_text(), re.M)
    numbers = {int(number): name for name, number in found}
    assert {n: numbers[n] for n in proc._CALLS_X86_64} == proc._CALLS_X86_64
