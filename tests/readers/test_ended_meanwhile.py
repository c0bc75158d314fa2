"""A job that ends while it is captured is said to have ended, and how; it never hangs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hangdoctor.diagnosis import diagnose
from hangdoctor.launchers.local import LocalLauncher
from hangdoctor.model.capture import NodeCapture, RankCapture
from hangdoctor.model.diagnosis import Diagnosis
from hangdoctor.readers import ended_meanwhile, families, proc, rank_operations
from hangdoctor.readers.families import Family, Member
from hangdoctor.readers.node import CaptureOptions
from hangdoctor.readers.node_session import Session
from hangdoctor.readers.process_exits import ExitWatch
from tests.support import plain_ranks
from tests.support.stage import wait_until

pytestmark = pytest.mark.timeout(120)

COUNT = 3
PORT = plain_ranks.PORT + 9
# Ends with the code that it finds in a file of its own, which is written when it shall.
WAITER = """import os, sys, time
open(sys.argv[1], "w").close()
order = sys.argv[1] + ".end"
while not os.path.exists(order):
    time.sleep(0.01)
sys.exit(int(open(order).read()))
"""


class Job:
    """Ranks that end when a test says so."""

    def __init__(self, folder: Path, pids: list[int]) -> None:
        self.folder, self.pids = folder, pids

    def end(self, rank: int, code: int = 0) -> None:
        """Have a rank end with this code, and wait until it has."""
        draft = self.folder / f"draft.{rank}"
        draft.write_text(str(code))
        draft.rename(self.folder / f"ready.{rank}.end")
        wait_until(lambda: proc.stat_fields(self.pids[rank])[0] == "Z", "the rank has ended")

    def end_all(self) -> None:
        for rank in range(COUNT):
            self.end(rank)


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    with plain_ranks.processes(
        tmp_path, [(env, WAITER) for env in plain_ranks.ranks(PORT, COUNT)]
    ) as pids:
        yield Job(tmp_path, pids)


@pytest.fixture
def during(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Callable[[], None]], Diagnosis]:
    """A dump of the job in which something happens before the step of this name."""

    def dump(step: str, act: Callable[[], None]) -> Diagnosis:
        before = getattr(Session, step)

        def then(session: Session, *words: object) -> object:
            act()
            return before(session, *words)

        monkeypatch.setattr(Session, step, then)
        options = CaptureOptions(job=f"127.0.0.1:{PORT}", settle_s=0.1, timeout_s=60)
        return diagnose(LocalLauncher().capture(options, lambda line: None))

    return dump


@pytest.mark.parametrize("step", ["ask_gpus", "settle"])
def test_a_clean_end_is_neither_a_hang_nor_health(job: Job, during, step: str) -> None:
    found = during(step, job.end_all)
    assert found.status == "unknown" and not found.causes and not found.waits
    ended = "Could not tell: the job ended while it was being read."
    assert found.summary == f"{ended} All its ranks ended with exit code 0."
    assert {row.state for row in found.ranks} == {"ended"}


def test_the_rank_that_failed_first_is_named(
    job: Job, during, monkeypatch: pytest.MonkeyPatch
) -> None:
    watches: list[ExitWatch] = []

    class Kept(ExitWatch):
        def __init__(self) -> None:
            super().__init__()
            watches.append(self)

    monkeypatch.setattr(ended_meanwhile, "ExitWatch", Kept)

    def fail() -> None:
        job.end(1, 3)
        wait_until(lambda: watches[0].of(job.pids[1]), "its end was seen")
        time.sleep(2 * ended_meanwhile._APART_S)
        job.end(0, 1)
        job.end(2, 1)

    found = during("settle", fail)
    assert found.status == "failed" and [c.ranks for c in found.causes] == [[1]]
    assert found.summary.startswith("The job ended while it was being read. Rank 1 ")
    assert "exit code 3" in found.summary
    assert all(row.place.startswith("was in <module>") for row in found.ranks)


def test_a_rank_that_still_leaves_is_waited_for(
    job: Job, during, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ended_meanwhile, "_OTHERS_S", 50.0)
    wait = ended_meanwhile.Leaving.wait_for_others

    def last_leaves(leaving: ended_meanwhile.Leaving, seconds: float) -> None:
        (job.folder / "ready.2.end").write_text("0")
        wait(leaving, seconds)

    monkeypatch.setattr(ended_meanwhile.Leaving, "wait_for_others", last_leaves)
    found = during("settle", lambda: [job.end(rank) for rank in (0, 1)])
    assert found.status == "unknown" and "exit code 0" in found.summary, found


def test_ranks_that_are_started_again_are_captured(job: Job, during, tmp_path: Path) -> None:
    later = tmp_path / "again"
    later.mkdir()
    again = plain_ranks.processes(later, [(env, WAITER) for env in plain_ranks.ranks(PORT, COUNT)])
    started: list[int] = []

    def restart() -> None:
        if not started:
            job.end_all()
            started.extend(again.__enter__())

    try:
        found = during("settle", restart)
    finally:
        again.__exit__(None, None, None)
    assert [row.pid for row in found.ranks] == started and "ended" not in found.summary


def test_a_family_whose_members_have_ended_is_no_job(job: Job) -> None:
    """Between finding them and naming their owner."""
    gone = 2**22 + 1  # beyond every process number
    member = Member(gone, 1, started=1, argv=["python"], environ={})
    family = Family("key", 1, [member, member], [0, 1], world_size=2, by_order=True)
    assert families._job(family) is None


def test_boxes_that_were_not_read_in_time_are_not_taken_for_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    capture = NodeCapture("n1", ranks=[RankCapture(pid=1, rank=0)])
    session = Session(CaptureOptions(timeout_s=0.5), time.monotonic(), capture)
    released = threading.Event()

    def slowly(ranks: object, known: set[Path], **_: object) -> list[str]:
        known.add(Path("/dev/shm/boxes"))
        released.wait(60)
        return []

    monkeypatch.setattr(rank_operations, "attach", slowly)
    try:
        session.attach_boxes()
    finally:
        released.set()
    assert capture.boxes_unread and "the deadline of 0.5 s came first" in capture.notes[0]
