"""An agent goes on where a file system or /proc of a process does not answer."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangdoctor.agents.node_ranks import Ranks
from hangdoctor.agents.patient_search import PatientSearch
from hangdoctor.agents.tracked_rank import Tracked
from hangdoctor.clock import FakeClock
from hangdoctor.probe.box import BoxWriter
from hangdoctor.readers import discover
from hangdoctor.readers.box_position import BoxWatch, Glance
from hangdoctor.readers.discover import Found
from hangdoctor.time_limit import OutOfTime, Patience
from hangdoctor.transport.messages import RankNow
from tests.support.stage import wait_until
from tests.support.stuck_files import stuck

pytestmark = pytest.mark.timeout(60)


def tracked(rank: int, pid: int, folder: Path) -> Tracked:
    environ = {"HANGDOCTOR_DIR": str(folder)}
    found = Found(pid, 1, rank, 2, rank, 2, "j", 0.0, "me", [], environ)
    return Tracked(found, RankNow(rank, pid))


def test_what_hangs_is_asked_once_until_it_has_answered() -> None:
    patience, answer, asked = Patience(0.1), threading.Event(), []

    def work() -> int:
        asked.append(threading.current_thread())
        answer.wait(30)
        return len(asked)

    for _ in range(3):
        with pytest.raises(OutOfTime):
            patience.ask("it", work)
    assert len(asked) == 1
    assert patience.ask("another", lambda: 5) == 5
    answer.set()
    asked[0].join(30)
    assert patience.ask("it", work) == 2
    with pytest.raises(ZeroDivisionError):
        patience.ask("it", lambda: 1 // 0)


def test_a_folder_of_boxes_that_does_not_answer(tmp_path: Path) -> None:
    """The rank beside it has its box in another folder, and is followed by it."""
    (tmp_path / "boxes").mkdir()
    box = BoxWriter(tmp_path / "boxes", "patient", 1 << 20)
    ranks = Ranks(lambda jobs: [], FakeClock().monotonic)
    try:
        with stuck(tmp_path / "stuck") as folder:
            ranks.tracked[0] = tracked(0, os.getppid(), folder)
            ranks.tracked[1] = tracked(1, os.getpid(), tmp_path / "boxes")
            ranks.search()
            assert [now.box for now in ranks.look()] == [False, True]
    finally:
        ranks.close()
        box.remove()


class HangingBox(BoxWatch):
    """A box on a file system that has stopped answering since it was opened."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.answer = threading.Event()
        self.reads: list[threading.Thread] = []

    def read(self) -> Glance:
        self.reads.append(threading.current_thread())
        self.answer.wait(30)
        return super().read()


def test_a_box_whose_file_system_stops_answering(tmp_path: Path) -> None:
    (tmp_path / "boxes").mkdir()
    written = BoxWriter(tmp_path / "boxes", "patient", 1 << 20)
    box = HangingBox(str(written.path))
    ranks = Ranks(lambda jobs: [], FakeClock().monotonic, host=PatientSearch(seconds=0.1))
    ranks.tracked[0] = tracked(0, os.getpid(), tmp_path / "boxes")
    ranks.tracked[0].box = box
    try:
        assert [[now.box for now in ranks.look()] for _ in range(3)] == [[False]] * 3
        assert len(box.reads) == 1, "it was asked again while it hung"
        box.answer.set()
        box.reads[0].join(30)
        assert [now.box for now in ranks.look()] == [True]
    finally:
        box.answer.set()
        ranks.close()
        written.remove()


@pytest.fixture
def processes() -> Iterator[list[int]]:
    """Two ranks of one job."""
    code = "import time; print('up', flush=True); time.sleep(600)"
    environs = [
        {
            "RANK": str(n),
            "WORLD_SIZE": "2",
            "LOCAL_RANK": str(n),
            "TORCHELASTIC_RUN_ID": f"patient-{os.getpid()}",
        }
        for n in range(2)
    ]
    started = [
        subprocess.Popen([sys.executable, "-S", "-c", code], env=e, stdout=subprocess.PIPE)
        for e in environs
    ]
    try:
        for process in started:
            assert process.stdout is not None and process.stdout.readline() == b"up\n"
        yield [process.pid for process in started]
    finally:
        for process in started:
            process.kill()
            process.communicate(timeout=20)


class LockedProc:
    """/proc of one process, whose memory is locked: reading it does not end before `answer`."""

    def __init__(self, pid: int) -> None:
        self.pid, self.answer, self.asked = pid, threading.Event(), 0

    def __call__(self, pid: int, uid: int | None) -> Found | None:
        if pid == self.pid:
            self.asked += 1
            self.answer.wait(30)
        return discover.candidate(pid, uid)


def test_a_process_whose_proc_does_not_answer(processes: list[int]) -> None:
    """The rank beside it is found; it is found itself once it answers."""
    locked = LockedProc(processes[1])
    host = PatientSearch(locked, seconds=4.0)

    def found() -> list[int]:
        jobs, _ = host.jobs()
        return [
            f.rank for job in jobs if job.key.endswith(f"patient-{os.getpid()}") for f in job.ranks
        ]

    try:
        assert found() == found() == [0]
        assert locked.asked == 1, "it was asked again while it hung"
    finally:
        locked.answer.set()
    wait_until(lambda: found() == [0, 1], "both ranks")
