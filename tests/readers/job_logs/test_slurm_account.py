"""Slurm's account of a job, from what scontrol 22.05.8 printed for jobs that ended on a real
cluster.
"""

from __future__ import annotations

from pathlib import Path

from hangdoctor.diagnosis import diagnose
from hangdoctor.launchers.slurm_account import from_scontrol
from hangdoctor.model.capture import JobCapture
from hangdoctor.model.log_facts import JobLogs
from hangdoctor.readers import job_logs
from tests.support.read_logs import named

LINE = (
    "JobId=2 JobName=train.sh UserId=root(0) GroupId=root(0) MCS_label=N/A JobState={} Reason=NonZeroExitCode Requeue=1 Restarts=0 "
    "BatchFlag=1 ExitCode={} RunTime=00:00:46 TimeLimit=UNLIMITED SubmitTime=2026-11-22T02:29:49 EndTime=2026-11-22T02:30:35 "
    "NodeList=n[1-2] BatchHost=n1 NumNodes=2 TRES=cpu=4,node=2,billing=4 Command=/job/train.sh WorkDir={} StdErr={}/%x-%j.err "
    "StdIn=/dev/null StdOut={}/out-%j.log Power="
)


def account(folder: Path, state: str, code: str = "1:0"):  # type: ignore[no-untyped-def]
    return from_scontrol("2", LINE.format(state, code, folder, folder, folder))


def test_the_files_of_output_are_found(tmp_path: Path) -> None:
    (tmp_path / "out-2.log").write_text("x")
    (tmp_path / "train.sh-2.err").write_text("x")
    found = account(tmp_path, "FAILED", "137:0")
    assert sorted(p.name for p in found.outputs) == ["out-2.log", "train.sh-2.err"]
    assert (found.state, found.exit_code, found.nodes, found.over) == (
        "FAILED",
        137,
        "n[1-2]",
        True,
    )


def test_how_it_ended_is_part_of_the_verdict(tmp_path: Path) -> None:
    said = {"NODE_FAIL": "unreachable", "OUT_OF_MEMORY": "dead"}
    for state in ("NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT", "CANCELLED", "COMPLETED"):
        told = account(tmp_path, state, "0:0")
        logs = job_logs.with_account(
            JobLogs(), "Slurm's account", told.sentence(), told.facts(), told.ended
        )
        verdict = diagnose(JobCapture("slurm:2", origin="files", logs=logs))
        assert [kind for kind, _ in named(verdict)] == ([said[state]] if state in said else [])
        assert (verdict.status == "healthy") == (state == "COMPLETED")
    assert not account(tmp_path, "RUNNING").over
