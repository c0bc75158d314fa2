"""Signs of life that need no interpreter: real processes that are stopped, or whose GIL is kept."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangdoctor.probe.record_core import native
from hangdoctor.readers.blackbox import Contents, read_box
from hangdoctor.readers.ended_waits import silent_ranks
from tests.support.probe_ranks import ROOT, environment
from tests.support.stage import wait_until

pytestmark = pytest.mark.skipif(
    not hasattr(native, "lock_switches"), reason="the extension was not built for this interpreter"
)
SILENT_S = 7.0  # more than a rank without a heartbeat needs
RANK = """
import os, sys
from hangdoctor.probe.process_probe import probe
from hangdoctor.train.faults import acts
probe.begin_uncounted(int(sys.argv[1]), 4, "mpi")
print("ready", flush=True)
sys.stdin.readline()
acts.hold_gil() if sys.argv[1] == "2" else acts.sleep()
"""


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """Four processes with boxes, of which the last one keeps its GIL from its first line of input on."""
    env = environment(tmp_path, HANGDOCTOR_WORKER_SERVER="0")
    command = [sys.executable, "-c", RANK]
    started = [
        subprocess.Popen(
            [*command, str(rank)],
            cwd=ROOT,
            env=env,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for rank in range(4)
    ]
    try:
        for process in started:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
        yield started
    finally:
        for process in started:
            process.kill()
            process.communicate()


def boxes(folder: Path) -> list[Contents]:
    found = [read_box(path) for path in folder.glob("*.blackbox")]
    return sorted(found, key=lambda contents: contents.box.rank)


def test_a_stopped_process_and_one_whose_gil_is_kept_are_told_apart(
    tmp_path: Path, ranks: list[subprocess.Popen[str]]
) -> None:
    wait_until(lambda: all(c.box.pulse_s > 0 for c in boxes(tmp_path)), "a sign of life of each")
    begun = max(c.box.heartbeat_s for c in boxes(tmp_path))
    for process in ranks:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    ranks[1].send_signal(signal.SIGSTOP)

    def is_over() -> bool:
        healthy, stopped, kept, _ = [c.box for c in boxes(tmp_path)]
        last = max(stopped.heartbeat_s, kept.heartbeat_s, begun)
        return min(healthy.heartbeat_s, kept.pulse_s) > last + SILENT_S

    wait_until(is_over, lambda: str([c.box for c in boxes(tmp_path)]), 100)
    for process in ranks:
        process.kill()
    found = {fact.rank: fact.how for fact in silent_ranks(boxes(tmp_path), [])}
    assert found == {1: "stopped", 2: "gil"}
    assert boxes(tmp_path)[0].box.lock_held_s == 0


def test_a_heartbeat_alone_that_is_kept_shows_nothing(
    tmp_path: Path, ranks: list[subprocess.Popen[str]]
) -> None:
    """The process ran, and its GIL was free; and a box without such signs is as it was."""
    wait_until(lambda: all(c.box.pulse_s > 0 for c in boxes(tmp_path)), "a sign of life of each")
    for process in ranks:
        process.kill()
    left = boxes(tmp_path)
    for contents in left:
        contents.box.heartbeat_s = contents.box.pulse_s = 1020.0
        contents.box.lock_held_s = 0.0
    left[1].box.heartbeat_s = 1005.0
    assert silent_ranks(left, []) == []
    left[1].box.pulse_s, left[1].box.lock_held_s = 0.0, -1.0
    [silent] = silent_ranks(left, [])
    assert silent.how == ""
    # It was stopped for a while, and went on; then who kept the GIL does not show.
    left[1].box.pulse_s, left[1].box.lock_held_s = 1019.0, 1018.0
    [silent] = silent_ranks(left, [])
    assert silent.how == ""


CHILD = """
import os, signal, sys, threading
from hangdoctor.probe.process_probe import probe
probe.begin_uncounted(0, 2, "mpi")
tasks = lambda: sorted(os.listdir("/proc/self/task"), key=int)
for task in tasks()[1:]:
    status = open(f"/proc/self/task/{task}/status").read()
    blocked = int(status.split("SigBlk:")[1].split()[0], 16)
    print("takes", [s.name for s in (signal.SIGTERM, signal.SIGALRM, signal.SIGUSR1, signal.SIGCHLD)
                    if not blocked >> s - 1 & 1])
print("threads", len(tasks()), len(threading.enumerate()), probe._kept.box.keep_pulse(), len(tasks()), flush=True)
child = os.fork()
if not child:
    first = len(tasks())
    probe.begin_uncounted(1, 2, "mpi")
    print("child", first, len(tasks()), flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""


def test_its_thread_takes_no_signal_and_a_forked_child_has_its_own(tmp_path: Path) -> None:
    env = environment(tmp_path, HANGDOCTOR_WORKER_SERVER="0")
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CHILD],
        cwd=ROOT,
        env=env,
        text=True,
        capture_output=True,
        timeout=60,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.splitlines() == [
        "takes []",
        "takes []",
        "threads 3 1 None 3",
        "child 1 3",
    ]
    assert len(os.listdir(tmp_path)) == 1, "the child's, which left by os._exit"


LEAVES = """
import atexit, ctypes
# Runs behind the probe's own end, as CPython ends threads that ask for a lock that is gone.
atexit.register(lambda: ctypes.CDLL(None).pthread_exit(None))
from hangdoctor.probe.process_probe import probe
probe.begin_uncounted(0, 2, "mpi")
"""


def test_a_main_thread_that_leaves_alone_ends_the_process(tmp_path: Path) -> None:
    env = environment(tmp_path, HANGDOCTOR_WORKER_SERVER="0")
    command = [sys.executable, "-c", LEAVES]
    ended = subprocess.run(command, cwd=ROOT, env=env, timeout=60)
    assert ended.returncode == 0 and os.listdir(tmp_path) == []
