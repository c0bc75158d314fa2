"""Disks that are full: the collector's, where incidents and what it knows are kept, and the
agents', where reports wait.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangdoctor.collector import capture_reason
from hangdoctor.collector.instructions import Conclude
from hangdoctor.errors import CollectorError
from hangdoctor.model.capture import JobCapture, NodeCapture, RankCapture
from hangdoctor.sidecar import actions
from hangdoctor.sidecar.concluding import Concluder
from hangdoctor.storage import bundle
from hangdoctor.storage.incidents import Incidents
from hangdoctor.transport import keys
from hangdoctor.transport.spool import Spool
from tests.support.sidecar_stage import Job, Start
from tests.support.stage import wait_until


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 640 KiB."""
    place = tmp_path / "small"
    place.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=640k", "tmpfs", str(place)], capture_output=True
    ).returncode:
        pytest.skip("needs the right to mount")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(place: Path) -> Path:
    filler = place / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while file.write(b"x" * 4096) == 4096:
            pass
    return filler


def test_collector_and_agents_on_a_full_disk_lose_nothing(small: Path, start: Start) -> None:
    job = Job(small, start)
    job.logs = small.parent
    collector = job.collector()
    job.rank(0, "full-test")
    agents = [
        job.begin(
            f"agent-{n}",
            "-m",
            "hangdoctor",
            "agent",
            "--folder",
            str(job.folder),
            "--node",
            n,
            "--job",
            "full-test",
            "--interval",
            "0.2",
            "--spool",
            str(small / f"spool-{n}"),
        )
        for n in ("na", "nb")
    ]
    wait_until(lambda: len(job.positions()) == 2, "both report")
    filler = fill(small)
    wait_until(
        lambda: job.said("collector", "cannot be used") > 0,
        "the collector cannot keep how far it is",
    )
    collector.send_signal(signal.SIGUSR1)
    wait_until(lambda: job.said("collector", "Will try again") > 0, "the incident has no room", 60)
    assert collector.poll() is None and all(a.poll() is None for a in agents)
    filler.unlink()
    wait_until(
        lambda: [r.state for r in Incidents(job.folder).rows()].count("saved") == 1,
        "the incident is kept later",
        60,
    )
    before = {n: p.seq for n, p in job.positions().items()}
    wait_until(
        lambda: all(p.seq > before[n] + 1 for n, p in job.positions().items()),
        "reports are acknowledged again",
    )
    for process in (*agents, collector):
        process.terminate()
        assert process.wait(timeout=20) == 0
    assert all((p.received, p.lost) == (p.seq, 0) for p in job.positions().values())


def test_a_disk_that_becomes_read_only_ends_no_one(small: Path) -> None:
    spool = Spool(small / "spool")
    for _ in range(3):
        spool.put(b"before")
    subprocess.run(["mount", "-o", "remount,ro", str(small)], check=True)
    assert spool.put(b"after") == 4 and spool.disk_error
    spool.ack(4)
    assert len(spool) == 0
    with pytest.raises(CollectorError, match="cannot be written"):
        keys.write_private(small / "spool" / "key", b"")


def test_an_incident_that_finds_no_room_until_the_end_is_kept_elsewhere(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = Concluder(Incidents(small), actions.Actor(actions.Config()))
    filler = fill(small)
    rank = RankCapture(pid=1, rank=0, node="n1", world_size=1, gone=True)
    handler(
        Conclude(
            "c1",
            JobCapture(
                "slurm:7.0",
                [NodeCapture("n1", "slurm:7.0", [rank])],
                taken=1_700_000_000.0,
                world_size=1,
            ),
            capture_reason.asked("asked"),
        )
    )
    handler.again()
    assert not [p for p in (small / "incidents").iterdir() if p.is_dir()]
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "elsewhere"))
    handler.again(last=True)
    [kept] = (tmp_path / "elsewhere").iterdir()
    assert bundle.load(kept).job == "slurm:7.0"
    filler.unlink()
    handler.again()  # it is kept: not a second time
    assert not [p for p in (small / "incidents").iterdir() if p.is_dir()]


def test_the_sidecar_of_one_machine_captures_and_takes_its_agent_with_it(
    job: Job, start: Start
) -> None:
    job.rank_with_box(0, "local-test")
    process = start(
        "sidecar",
        "-m",
        "hangdoctor",
        "sidecar",
        "--local",
        "--job",
        "local-test",
        "--folder",
        str(job.folder),
    )
    wait_until(
        lambda: job.said("sidecar", "its agent has connected (1 node)") == 1, "its agent reports"
    )
    process.send_signal(signal.SIGUSR1)
    wait_until(lambda: job.said("sidecar", "saved in") == 1, "the capture is kept")
    assert os.listdir(job.folder / "incidents")
    process.send_signal(
        signal.SIGHUP
    )  # as a closed terminal does; SIGTERM is what the other tests end it by
    assert process.wait(timeout=20) == 0
    said = (job.folder / "logs" / f"agent-{os.uname().nodename}.log").read_text()
    assert "Traceback" not in said and job.said("sidecar", "Traceback") == 0
