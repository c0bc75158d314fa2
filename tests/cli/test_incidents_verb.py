"""`hangdoctor incidents` finds the folder that is meant; and a collector's last line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hangdoctor.cli.sidecar import local_folder
from hangdoctor.collector.instructions import Counters, farewell
from hangdoctor.model.capture import JobCapture
from hangdoctor.model.diagnosis import Cause, Diagnosis, Job
from hangdoctor.storage.incidents import Incidents
from hangdoctor.text.plain import safe_name
from tests.support.plain_ranks import PORT, processes, ranks
from tests.support.stage import hangdoctor


def keep(folder: Path, ranks: list[int], at: float) -> None:
    """An incident for each of these ranks, the last one kept at that time."""
    incidents = Incidents(folder)
    for rank in ranks:
        cause = Cause("stopped", [rank], ["n2"], 0.9, f"Rank {rank} is stopped.")
        told = Diagnosis("hang", Job("slurm:7.0", 4, ["n1", "n2"]), cause.summary, [cause])
        incidents.save(JobCapture("slurm:7.0", taken=1_700_000_000.0), told, "report", "stall")
    os.utime(incidents.folder / "index.sqlite", (at, at))


def run(home: Path, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    return hangdoctor(
        "incidents", *words, cwd=home, code=code, env=os.environ | {"HOME": str(home)}
    )


def test_without_a_folder_it_is_the_newest_job_and_that_is_said(tmp_path: Path) -> None:
    jobs = tmp_path / ".hangdoctor" / "jobs"
    (jobs / "without-incidents").mkdir(parents=True)
    assert "has no folder of a collector" in run(tmp_path, "list", code=2).stderr
    keep(jobs / "slurm-1", [1], 1e9)
    alone = run(tmp_path, "list")
    assert (
        "Rank 1" in alone.stdout
        and alone.stderr == "hangdoctor: incidents of ~/.hangdoctor/jobs/slurm-1\n"
    )
    keep(jobs / "slurm-2", [2], 1.5e9)
    found = run(tmp_path, "list")
    head, only = found.stdout.splitlines()
    assert head.split()[:2] == ["ID", "TIME"] and head.split()[-4:] == [
        "STATUS",
        "KIND",
        "RANKS",
        "VERDICT",
    ]
    for name, value in (("TIME", "2023-11-1"), ("KIND", "stopped"), ("VERDICT", "Rank 2")):
        assert head.index(name) == only.index(value)
    assert (
        "incidents of ~/.hangdoctor/jobs/slurm-2, the newest; there are slurm-2, slurm-1 (--job NAME)"
        in found.stderr
    )


@pytest.mark.full
def test_the_folder_may_stand_before_and_behind_the_verb(tmp_path: Path) -> None:
    jobs = tmp_path / ".hangdoctor" / "jobs"
    for number in (1, 2):
        keep(jobs / f"slurm-{number}", [number], number * 1e8)
    one, two = (str(jobs / f"slurm-{number}") for number in (1, 2))
    for words in (
        ("list", "--folder", one),
        ("--folder", one, "list"),
        ("list", "--job", "slurm-1"),
        ("--job", "slurm-1", "list"),
        ("--job", "slurm-2", "list", "--job", "slurm-1"),
        ("--folder", two, "list", "--job", "slurm-1"),
        ("--folder", one, "--job", "slurm-2", "list"),
    ):
        told = run(tmp_path, *words)
        assert "Rank 1" in told.stdout and told.stderr == "", words
    assert "no incidents" in run(tmp_path, "list", "--folder", str(tmp_path), code=1).stderr


def test_nothing_is_removed_from_a_folder_that_no_one_named(tmp_path: Path) -> None:
    folder = tmp_path / ".hangdoctor" / "jobs" / "slurm-1"
    keep(folder, [1, 2], 1e9)
    refused = run(tmp_path, "prune", "--keep", "1", code=2).stderr
    assert (
        "Choose it with --job NAME or --folder DIR. There are: slurm-1" in refused
        and len(Incidents(folder).rows()) == 2
    )
    assert "removed" in run(tmp_path, "prune", "--keep", "1", "--job", "slurm-1").stdout
    assert len(Incidents(folder).rows()) == 1


def test_the_last_line_of_a_collector_is_what_is_not_zero() -> None:
    assert farewell(Counters(), 0) == "stopped; no agent has reported"
    told = Counters(
        reports=812, incidents=1, false_alarms=2, malformed=1, messages=900, bytes=12345
    )
    assert (
        farewell(told, 3)
        == "stopped: 1 incident, 2 false alarms, 812 reports, 1 malformed message, 3 unknown keys refused"
    )


def test_the_script_of_a_running_job_names_its_folder(tmp_path: Path) -> None:
    script = tmp_path / f"pipe{PORT}.py"
    script.write_text("import sys, time; open(sys.argv[2], 'w').close(); time.sleep(600)")
    port = PORT + 70
    name = safe_name(local_folder(f"127.0.0.1:{port}"))
    keep(tmp_path / ".hangdoctor" / "jobs" / name, [1], 1e9)
    [environ] = ranks(port, 1)
    with processes(tmp_path, [(environ, "")], command=[sys.executable, str(script)]):
        assert "Rank 1" in run(tmp_path, "list", "--job", script.name).stdout
    assert script.name in run(tmp_path, "list", "--job", script.name, code=1).stderr
