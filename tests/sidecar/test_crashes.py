"""A job that crashes under a sidecar: the incident says who failed first and how, and is no hang."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterable
from pathlib import Path

import psutil
import pytest

from hangdoctor.collector.core import Core
from hangdoctor.collector.instructions import Conclude, Send, Settings
from hangdoctor.storage.incidents import Incident
from hangdoctor.transport import messages as msg
from hangdoctor.watch.stall_watch import Settings as Bounds
from hangdoctor.watch.stall_watch import StallWatch
from tests.support.ended_jobs import PROGRAM, RANKS, TORCHRUN
from tests.support.polling import incidents
from tests.support.ports import free_port
from tests.support.sidecar_stage import Job, Start
from tests.support.stage import wait_until

pytestmark = [pytest.mark.torch, pytest.mark.timeout(240)]

CRASHES = [
    ("kill", "dead", "killed by SIGKILL"),
    ("exception", "error", "ValueError"),
    ("segfault", "dead", "SIGSEGV"),
    ("exit", "dead", "exit code 3"),
]
# `tests/cli/test_ended_jobs.py` has all of them, told apart by the same code.
ALWAYS = (("exception", True), ("segfault", False))
WATCHED = [
    pytest.param(
        *case,
        probed,
        id=f"{case[0]}-{'probe' if probed else 'bare'}",
        marks=() if (case[0], probed) in ALWAYS else pytest.mark.full,
    )
    for case in CRASHES
    for probed in (True, False)
]


def watched(job: Job, start: Start, kind: str, probed: bool, dismissed: bool = False) -> Incident:
    """The incident that a sidecar keeps of a job of three ranks, the third of which ends by KIND.

    With `dismissed`, its agent gets SIGTERM as soon as the last rank has ended.
    """
    key = f"crash-{os.getpid()}-{kind}-{probed}"
    local = ("--local", "--job", key, "--folder", str(job.folder))
    sidecar = start("sidecar", "-m", "hangdoctor", "sidecar", *local)
    wait_until(lambda: job.said("sidecar", "its agent has connected") == 1, "its agent reports")
    environ = {
        "OMP_NUM_THREADS": "1",
        "HANGDOCTOR_DIR": str(job.logs / "boxes"),
        "TORCHELASTIC_RUN_ID": key,
        "GO": str(job.logs / "go"),
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    run = ["-m", "hangdoctor", "run", "--quiet", "--", sys.executable] if probed else []
    torchrun = [*TORCHRUN, str(free_port()), "--rdzv_id", key, str(PROGRAM), kind, "2", "between"]
    start("job", *run, *torchrun, **environ)
    wait_until(lambda: followed(sidecar.pid) == RANKS, "the agent follows all ranks", 100)
    (job.logs / "go").touch()
    if dismissed:
        wait_until(lambda: followed(sidecar.pid) == 0, "all ranks have ended", 100)
        agents_of(sidecar.pid).send_signal(signal.SIGTERM)
    wait_until(lambda: bool(incidents(job)), "an incident", 100)
    [found] = incidents(job)
    return found


def agents_of(sidecar: int) -> psutil.Process:
    below = psutil.Process(sidecar).children(recursive=True)
    [agent] = [p for p in below if "agent" in p.cmdline()]
    return agent


def followed(sidecar: int) -> int:
    """Processes whose end the sidecar's agent waits for."""
    count = 0
    below = [child.pid for child in psutil.Process(sidecar).children(recursive=True)]
    for process in [sidecar, *below]:
        with contextlib.suppress(OSError):  # a helper of the agent that has ended meanwhile
            for link in Path(f"/proc/{process}/fd").iterdir():
                with contextlib.suppress(OSError):
                    count += "pidfd" in str(link.readlink())
    return count


@pytest.mark.parametrize(("kind", "cause", "says", "probed"), WATCHED)
def test_the_incident_names_who_failed_first(
    job: Job, start: Start, kind: str, cause: str, says: str, probed: bool
) -> None:
    found = watched(job, start, kind, probed)
    saved = json.loads((job.folder / "incidents" / found.id / "diagnosis.json").read_text())
    assert (found.status, found.ranks) == ("failed", "2"), (job.logs / "sidecar.log").read_text()
    if probed or cause == "dead":  # without a probe an exception is an exit code
        assert [c["kind"] for c in saved["causes"]] == [cause]
        assert says in found.summary
    assert "ended: the job is over" in found.reason


@pytest.mark.full
def test_an_agent_that_is_dismissed_with_the_crash_stays_for_the_capture(
    job: Job, start: Start
) -> None:
    """As Slurm does it: the steps of a job get SIGTERM within a second of its end."""
    found = watched(job, start, "kill", probed=False, dismissed=True)
    assert (found.status, found.kind, found.ranks) == ("failed", "dead", "2"), found.summary
    said = "its agent has left: stopped by SIGTERM"
    wait_until(lambda: job.said("sidecar", said) == 1, "and then it goes", 30)


# ----------------------------------------------------------------- in simulated time


def core_with(*ranks: msg.RankNow) -> Core:
    core = Core(Settings(), StallWatch(Bounds()))
    core.received(b"p", msg.encode(msg.Hello("a", "n1", "job", 2)), 1.0, 0.0)
    tell(core, 1, ranks, 1.0)
    return core


def tell(core: Core, seq: int, ranks: Iterable[msg.RankNow], now: float) -> None:
    core.received(b"p", msg.encode(msg.Report(seq, 1, 0.0, ranks=list(ranks))), now, 0.0)


def captures(core: Core, begin: int, end: int) -> int:
    """Captures that begin within some seconds, each answered with nothing at once."""
    begun = 0
    for second in range(begin, end):
        out = core.tick(float(second), 0.0)
        asked = [
            i.message for i in out if isinstance(i, Send) and isinstance(i.message, msg.Capture)
        ]
        begun += len(asked)
        for one in asked:
            answer = msg.Captured(one.id, error="none", no_ranks=True)
            out += core.received(b"p", msg.encode(answer), second + 0.1, 0.0)
        for done in [i for i in out if isinstance(i, Conclude)]:
            core.concluded(done.id, "failed", second + 0.2)
    return begun


def over(rank: int, **how: bool) -> msg.RankNow:
    return msg.RankNow(rank, over=True, **how)


def test_each_end_is_captured_once_and_a_good_one_never() -> None:
    finished = [over(rank, box=True, finished=True) for rank in (0, 1)]
    assert captures(core_with(*finished), 2, 60) == 0
    core = core_with(over(0, failed=True), over(1, box=True))
    assert captures(core, 2, 60) == 1
    tell(core, 2, [msg.RankNow(0, box=True), msg.RankNow(1, box=True)], 60.0)
    assert captures(core, 60, 63) == 0
    tell(core, 3, [over(0, box=True), over(1, failed=True)], 63.0)
    assert captures(core, 63, 80) == 1


def test_while_a_rank_runs_the_job_is_not_over() -> None:
    core = core_with(over(0, failed=True), msg.RankNow(1))
    assert captures(core, 2, 30) == 0
