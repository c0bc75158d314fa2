"""gdb's list of threads, and py-spy's threads below a line of ps: stacks without the usual heads."""

from __future__ import annotations

from pathlib import Path

from hangdoctor.diagnosis import diagnose
from hangdoctor.readers.offline import read

THREADS = """\
(gdb) info threads
  Id   Target Id         Frame
* 1    Thread 0x7fc73ac5d700 (LWP 52422) "" select_poll_poll () at /src/Modules/clinic/selectmodule.c.h:219
  2    Thread 0x7fc6b59e6700 (LWP 52574) "" pthread_cond_wait@@GLIBC_2.3.2 () at ../sysdeps/pthread_cond_wait.S:185
  3    Thread 0x7fc6b71e9700 (LWP 52742) "" 0x00007fc739c909c8 in accept4 (fd=7, flags=524288) at ../sysdeps/accept4.c:40
"""
BELOW_PS = """\
Stack dump for ada     20768  0.1  0.1 1751908 151888 pts/0  Sl   12:48   0:01 ray_worker
Thread 0x7F4AA36D9700 (active)
\t _flush_events (ray/profiling.py:97)
\t run (threading.py:864)
Thread 0x7F4AACDE7700 (active)
\t _get_next_task (ray/worker.py:988)
\t main_loop (ray/worker.py:1005)
\t <module> (ray/default_worker.py:105)
"""


def said_of(tmp_path: Path, text: str) -> str:
    (tmp_path / "stacks.txt").write_text(text)
    verdict = diagnose(read([tmp_path / "stacks.txt"]))
    assert verdict.causes == []
    return verdict.summary


def test_a_list_of_threads(tmp_path: Path) -> None:
    assert "process 52422 is in select_poll_poll" in said_of(tmp_path, THREADS)


def test_the_thread_that_began_in_a_module_is_the_main_one(tmp_path: Path) -> None:
    said = said_of(tmp_path, BELOW_PS)
    assert "_get_next_task (worker.py:988)" in said and "_flush" not in said
