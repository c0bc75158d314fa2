"""Jobs of PBS from outside: what qstat says, and what is printed where a job cannot be captured."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from hangdoctor.errors import LauncherError, UsageError
from hangdoctor.launchers import pbs, pbs_job
from tests.support.stage import hangdoctor

DATA = Path(__file__).parents[1] / "data" / "pbs"
# Answers as qstat does: by its options and the job.
_QSTAT = """#!/bin/sh
for job; do :; done
if [ "$2" != -F ] && [ "$1" != -x ]; then cat {data}/torque-running.txt; exit; fi
case $job in
  548) echo "qstat: invalid option -- 'F'" >&2; exit 2;;
  6) [ "$1" = -x ] && exec cat {data}/finished.json
     echo "qstat: 6.head Job has finished, use -x or -H to obtain historical job information" >&2; exit 35;;
  5) [ "$1" = -x ] && echo "qstat: PBS is not configured to maintain job history" >&2 && exit 2
     echo "qstat: 5.head Job has finished, use -x or -H to obtain historical job information" >&2; exit 35;;
  7) exec cat {data}/queued.json;;
  8*) exec cat {data}/array.json;;
  9) echo "qstat: cannot connect to server head (errno=15010)" >&2; exit 15;;
  1008*) exec cat {data}/cores-running.json;;
  *) echo "qstat: Unknown Job Id $job" >&2; exit 153;;
esac
"""


@pytest.fixture
def qstat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that knows the jobs of tests/data/pbs."""
    program = tmp_path / "bin" / "qstat"
    program.parent.mkdir()
    program.write_text(_QSTAT.format(data=DATA))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.delenv("PBS_NODEFILE", raising=False)


@pytest.mark.parametrize(
    ("file", "job", "hosts"),
    [
        (
            "polaris-running.json",
            "1147579.polaris-pbs-01.hsn.cm.polaris.alcf.anl.gov",
            ["x3006c0s31b1n0", "x3006c0s37b0n0", "x3006c0s37b1n0", "x3006c0s7b0n0"],
        ),
        ("cores-running.json", "1008.head", ["calc0", "calc1"]),
        ("torque-running.txt", "548.moab", [f"n{n:03d}" for n in range(3, 11)]),
    ],
)
def test_the_nodes_of_a_running_job(file: str, job: str, hosts: list[str]) -> None:
    found = pbs_job.parse_answer((DATA / file).read_text())
    assert found is not None
    assert (found.id, found.state, pbs_job.running_hosts(found)) == (job, "R", hosts)


def test_nodes_by_vnodes_alone_and_what_is_no_name() -> None:
    attributes = {"job_state": "R", "exec_vnode": "(n1[0]:ncpus=4+n1[1]:mem=2gb)+(n2[0]:ncpus=1)"}
    found = pbs_job.parse_answer(json.dumps({"Jobs": {"3.head": attributes}}))
    assert found is not None and found.hosts == ["n1", "n2"]
    attributes["exec_host"] = "-oProxyCommand=x/0+n1/0"
    hostile = pbs_job.parse_answer(json.dumps({"Jobs": {"3.head": attributes}}))
    assert hostile is not None and hostile.hosts == ["n1"]
    for nothing in ("", "{}", '{"Jobs":{}}', "{", "no PBS", '{"Jobs":7}'):
        assert pbs_job.parse_answer(nothing) is None


@pytest.mark.parametrize(
    ("job", "said"),
    [
        (
            "7",
            "job 7.head has not started: it is queued (Not Running: Insufficient amount of resource: ngpus)",
        ),
        (
            "8[]",
            "job 8[].head is an array\n  Choose one of its jobs: qstat -t 8[].head; --pbs '8[1].head'",
        ),
        ("6", "job 6.head has ended with exit status 271 (Job run at Mon Nov 20 at 03:15"),
        ("5", "job 5 has ended\n  Diagnose its output"),
        ("9", "qstat failed: qstat: cannot connect to server head (errno=15010)"),
        ("99", "PBS knows no job 99\n"),
    ],
)
def test_a_job_that_cannot_be_captured(qstat: None, job: str, said: str) -> None:
    with pytest.raises(LauncherError) as caught:
        pbs_job.PbsJobReach(job).nodes()
    assert said in f"{caught.value}\n  {caught.value.help}"


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("H", "has not started: it is held"),
        ("W", "has not started: it is waiting for its start time"),
        ("S", "is suspended by PBS: all of its processes are stopped"),
        ("E", "is ending"),
        ("R", "PBS names no node of job 3.head"),
    ],
)
def test_states_in_words(state: str, words: str) -> None:
    with pytest.raises(pbs_job.JobNotRunning, match=words):
        pbs_job.running_hosts(pbs_job.PbsJob("3.head", state))


def test_a_torque_without_json_is_asked_again(qstat: None) -> None:
    nodes = pbs_job.PbsJobReach("548").nodes()
    assert nodes == [f"n{n:03d}" for n in range(3, 11)]


def test_without_qstat_it_says_where_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(LauncherError, match="qstat was not found") as caught:
        pbs_job.PbsJobReach("548").nodes()
    assert "inside the job with --pbs alone" in caught.value.help


def test_inside_the_job_its_own_mpiexec_is_used(qstat: None, tmp_path: Path) -> None:
    from hangdoctor.cli.targets import THIS_JOB, reach_of

    nodes = tmp_path / "nodes"
    nodes.write_text("n1\n")
    inside = {"PBS_JOBID": "1008.head", "PBS_NODEFILE": str(nodes)}
    assert pbs_job.here("1008", inside) and pbs_job.here("1008.head", inside)
    assert not pbs_job.here("1009", inside) and not pbs_job.here("1008", {})
    assert not pbs_job.here("1008", {**inside, "PBS_NODEFILE": "/nonexistent"})
    assert isinstance(reach_of("pbs", {"pbs": THIS_JOB}), pbs.PbsReach)
    assert isinstance(reach_of("pbs", {"pbs": "1008"}), pbs_job.PbsJobReach)
    refused = hangdoctor("dump", "--pbs", "--timeout", "3", cwd=tmp_path, code=2)
    assert "PBS_NODEFILE is not set" in refused.stderr and "--pbs JOBID" in refused.stderr
    queued = hangdoctor("sidecar", "--folder", "f", "--pbs", "7", cwd=tmp_path, code=1)
    assert "job 7.head has not started: it is queued" in queued.stderr


def test_ids() -> None:
    for job in ("12", "12.head", "12[3]", "12[].head.example.org", " 12 "):
        assert pbs_job.parse_job(job) == job.strip()
    for job in ("", "seven", "-12", "12;ls", "12 13", "12.-o"):
        with pytest.raises(UsageError):
            pbs_job.parse_job(job)


def test_pals_is_known_by_its_path_too() -> None:
    assert pbs.flavour("mpiexec version 1.7.1 /OPT/CRAY/PALS/1.7/BIN/MPIEXEC") is pbs.pals
