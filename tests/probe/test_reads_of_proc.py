"""What a thread of the probe reads of procfs never closes a descriptor of the job's."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from hangdoctor.probe.record_core import native, read_proc

# As daemons do: all numbers are closed, whoever had them, and stand for files of the job's own at once.
PROGRAM = """
import os, sys, threading, time
from hangdoctor.probe.record_core import read_proc

over, reads = threading.Event(), [0]

def read():
    while not over.is_set():
        read_proc("/proc/self/stat", 256)
        reads[0] += 1
        time.sleep(0)

threading.Thread(target=read).start()
lost = rounds = 0
while rounds < 300 or reads[0] < 3000:
    os.closerange(3, 64)
    for fd in [os.open(os.devnull, os.O_WRONLY) for _ in range(12)]:
        try:
            os.write(fd, b"line")
        except OSError:
            lost += 1
    rounds += 1
over.set()
print(lost)
"""


@pytest.mark.timeout(60)
@pytest.mark.skipif(native is None, reason="no compiler was there")
def test_a_program_that_closes_all_keeps_what_it_opens() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout.strip()) == (0, "0"), ended.stderr


@pytest.mark.skipif(native is None, reason="no compiler was there")
def test_the_beginning_of_a_file_or_nothing() -> None:
    assert read_proc(f"/proc/{os.getpid()}/stat", 256).startswith(b"%d (" % os.getpid())
    assert len(read_proc("/proc/self/limits", 5)) == 5
    assert read_proc("/proc/self/no such file", 256) == b""
