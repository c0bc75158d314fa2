"""`dump` on a real Slurm cluster of four nodes, with a real gloo job that hangs and nodes that
break.

The tests share one job: each brings it where it needs it, and mends what it broke. The two at the
end break it for good.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from hangdoctor.train.faults import outside
from tests.support.lab import LAB, Cluster, LabJob, wait_until

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.torch,
    pytest.mark.timeout(240),
]  # some wait for a silent node several times

PATIENCE = (
    "12"  # --timeout where a node is silent: long enough for the others on a machine that is busy
)
EVERYBODY = set(range(8))


def ranks_seen(diagnosis: dict[str, Any]) -> list[int]:
    return sorted(r["rank"] for r in diagnosis["ranks"])


def cause(diagnosis: dict[str, Any]) -> tuple[str, list[int], list[str]]:
    first = diagnosis["causes"][0]
    return first["kind"], first["ranks"], first["nodes"]


def test_a_rank_that_never_enters(cluster: Cluster, job: LabJob) -> None:
    job.hang(5)
    before = job.states()
    assert len(before) == 8
    diagnosis = cluster.dump("--jobid", job.id)
    assert diagnosis["status"] == "hang"
    assert cause(diagnosis) == ("not_entered", [5], ["n3"])
    assert diagnosis["missing"] == []
    assert diagnosis["job"]["id"] == f"slurm:{job.id}.0"
    assert diagnosis["job"]["nodes"] == ["n1", "n2", "n3", "n4"]
    assert {r["rank"]: r["node"] for r in diagnosis["ranks"]} == {
        r: f"n{r // 2 + 1}" for r in range(8)
    }
    assert {r["rank"]: r["gpu"] for r in diagnosis["ranks"]} == {r: str(r % 2) for r in range(8)}
    after = job.states()
    assert after.keys() == before.keys() and set(after.values()) <= {
        "S",
        "R",
    }  # all alive, none stopped


def test_preflight_asks_every_node_and_sees_who_is_there(cluster: Cluster, job: LabJob) -> None:
    job.hang(5)  # it runs, then, on every node
    words = ("preflight", "--jobid", job.id, "--gpus", "0", "--timeout", "60", "--json", "-")
    found = json.loads(cluster.login(sys.executable, "-m", "hangdoctor", *words))
    by = {f["check"]: f for f in found["findings"]}
    assert found["nodes"] == ["n1", "n2", "n3", "n4"] == sorted(by["left over"]["nodes"])
    assert by["same versions"]["verdict"] == "ok" and by["same clock"]["verdict"] == "ok"
    assert sorted(by["ptrace"]["nodes"]) == ["n1", "n2", "n3", "n4"] and "reached" not in by


@pytest.mark.full
def test_silent_nodes_explain_the_wait(cluster: Cluster, job: LabJob) -> None:
    """No one who can be seen is guilty: the ranks behind the silent nodes are named, and what did
    report is there.
    """
    job.hang(5)
    before = job.states()
    with (
        cluster.broken("n2", "freeze", job.id),
        cluster.broken("n3", "blackhole", job.id),
        cluster.broken("n4", "slurmd-stop", job.id),
    ):
        diagnosis = cluster.dump("--jobid", job.id, "--timeout", PATIENCE)
    assert cause(diagnosis) == ("unreachable", [2, 3, 4, 5, 6, 7], ["n2", "n3", "n4"])
    missing = sorted((m["node"], m["ranks"], m["what"]) for m in diagnosis["missing"])
    assert missing == [("n2", [2, 3], "node"), ("n3", [4, 5], "node"), ("n4", [6, 7], "node")]
    assert all("Slurm" in m["why"] for m in diagnosis["missing"])
    assert ranks_seen(diagnosis) == [0, 1]
    assert job.states().keys() == before.keys()
    assert "T" not in job.states().values()


def test_lost_nodes_do_not_cost_the_deadline(cluster: Cluster, job: LabJob) -> None:
    """A knock shows what happened to each, long before srun gives up: the deadline would end the
    test.
    """
    job.hang(5)
    with (
        cluster.broken("n2", "link-down", job.id),
        cluster.broken("n3", "slurmd-kill", job.id),
        cluster.broken("n4", "blackhole", job.id),
    ):
        diagnosis = cluster.dump("--jobid", job.id, "--timeout", "85")
    whys = {m["node"]: (m["ranks"], m["why"]) for m in diagnosis["missing"]}
    assert {n: ranks for n, (ranks, _) in whys.items()} == {
        "n2": [2, 3],
        "n3": [4, 5],
        "n4": [6, 7],
    }
    for node in ("n2", "n4"):
        assert whys[node][1].startswith("it did not answer on ports 6818 and 22 for ")
    assert whys["n3"][1].startswith("its slurmd is not running: port 6818 refused connections for ")
    assert all(
        "n1 reported within" in why and "Slurm still lists the node as up" in why
        for _, why in whys.values()
    )
    assert cause(diagnosis) == ("unreachable", [2, 3, 4, 5, 6, 7], ["n2", "n3", "n4"])


@pytest.mark.parametrize("fault", ["freeze", pytest.param("slurmd-stop", marks=pytest.mark.full)])
def test_a_stopped_node_does_not_cost_the_deadline(
    cluster: Cluster, job: LabJob, fault: str
) -> None:
    """Its kernel takes connections, and no program of it answers: the deadline would end the test."""
    job.hang(5)
    with cluster.broken("n4", fault, job.id):
        diagnosis = cluster.dump("--jobid", job.id, "--timeout", "85")
    [missing] = [m for m in diagnosis["missing"] if m["what"] == "node"]
    assert (missing["node"], missing["ranks"]) == ("n4", [6, 7])
    assert missing["why"].startswith("its slurmd does not answer on port 6818 for ")
    assert cause(diagnosis) == ("not_entered", [5], ["n3"])


@pytest.mark.full
def test_a_controller_that_does_not_answer(cluster: Cluster, job: LabJob) -> None:
    """slurmctld is stopped: the deadline is kept, and the message says who does not answer."""
    job.hang(5)
    begin = time.monotonic()
    with cluster.controller_stopped():
        said = cluster.refusal("--jobid", job.id, "--timeout", "6")
    assert "squeue did not answer within 3 s: Slurm's controller is down or overloaded" in said
    assert time.monotonic() - begin < 60, (
        "Slurm's own MessageTimeout is not waited for again and again"
    )
    assert cause(cluster.dump("--jobid", job.id)) == ("not_entered", [5], ["n3"])


def _asked(dump: subprocess.Popen[str]) -> list[str]:
    """The nodes that the dump's sruns wait for."""
    words = []
    with contextlib.suppress(psutil.Error):
        for child in psutil.Process(dump.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                words.append(" ".join(child.cmdline()))
    return sorted({node for w in words for node in re.findall(r"^srun --jobid=.* -w (n\d)", w)})


def test_a_node_that_is_only_slow_is_waited_for(cluster: Cluster, job: LabJob) -> None:
    """It does not move until the others have reported; its kernel answers meanwhile, and then its
    agent starts.
    """
    job.hang(5)
    command = [
        LAB / "cluster-node",
        "exec",
        "login",
        *cluster.dump_command("--json", "-", "--jobid", job.id, "--timeout", "60", "--settle", "0"),
    ]
    with (
        cluster.broken("n3", "slurmd-stop", job.id),
        subprocess.Popen(
            command,
            env=cluster.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as dump,
    ):
        waits = "the others have reported, and n3 has not"
        wait_until(lambda: _asked(dump) == ["n3"] or dump.poll() is not None, waits)
        cluster.node("slurmd-cont", "n3")
        out, err = dump.communicate(timeout=80)
    assert dump.returncode == 0, err
    diagnosis = json.loads(out)
    assert diagnosis["missing"] == []
    assert cause(diagnosis) == ("not_entered", [5], ["n3"])


def test_a_silent_node_is_not_blamed_where_a_rank_explains_the_wait(
    cluster: Cluster, job: LabJob
) -> None:
    job.hang(0)
    with cluster.broken("n3", "blackhole", job.id):
        diagnosis = cluster.dump("--jobid", job.id, "--timeout", PATIENCE)
    assert cause(diagnosis) == ("not_entered", [0], ["n1"])
    assert "unreachable" not in [c["kind"] for c in diagnosis["causes"]]
    assert [(m["ranks"], m["node"]) for m in diagnosis["missing"]] == [([4, 5], "n3")]
    assert ranks_seen(diagnosis) == [0, 1, 2, 3, 6, 7]


def test_from_inside_the_job(cluster: Cluster, job: LabJob) -> None:
    """In the batch script, with all of the job's own variables in the environment."""
    job.hang(5)
    (job.control / "inside.ask").touch()
    wait_until((job.control / "inside.code").exists, "the dump inside the job")
    assert (job.control / "inside.code").read_text().strip() == "0", (
        job.control / "inside.out"
    ).read_text()
    report = (job.control / "inside.out").read_text()
    assert "Rank 5 (n3" in report
    assert not cluster.processes("n1", "srun --jobid")


@pytest.mark.full
def test_a_monitoring_step_is_no_rank(cluster: Cluster, job: LabJob) -> None:
    job.hang(5)
    step = [
        "srun",
        f"--jobid={job.id}",
        "--overlap",
        "--gres=gpu:0",
        "-w",
        "n3",
        "-N1",
        "-n1",
        "--job-name=monitor",
    ]
    watcher = subprocess.Popen(
        [
            LAB / "cluster-node",
            "exec",
            "login",
            *step,
            sys.executable,
            "-c",
            "import time; print('up', flush=True); time.sleep(300)",
        ],
        env=cluster.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert watcher.stdout is not None
        assert watcher.stdout.readline() == b"up\n"
        diagnosis = cluster.node(
            "exec", "login", *cluster.dump_command("--json", "-", "--jobid", job.id)
        ).stdout
        assert '"world_size":8' in diagnosis.replace(" ", "")
        assert "monitor" in diagnosis  # the note that says which step is shown
        named = cluster.node(
            "exec", "login", *cluster.dump_command("-q", "--jobid", f"{job.id}.0")
        ).stdout
        assert named.startswith("Rank 5 (n3")
    finally:
        watcher.send_signal(signal.SIGKILL)
        watcher.wait(timeout=10)
        steps = cluster.login("squeue", "-h", "-s", "-j", job.id, "-o", "%i %j").splitlines()
        cluster.login("scancel", *[s.split()[0] for s in steps if s.endswith("monitor")])


def test_cancelled_it_leaves_no_srun(cluster: Cluster, job: LabJob) -> None:
    """Ctrl-C, SIGTERM, and even SIGKILL to hangdoctor itself, while a srun waits for a frozen node."""
    job.hang(5)
    command = [
        LAB / "cluster-node",
        "exec",
        "login",
        *cluster.dump_command("--jobid", job.id, "--timeout", "60"),
    ]
    with cluster.broken("n3", "freeze", job.id):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            # The background of a shell ignores SIGINT, and so would what is started there.
            with subprocess.Popen(
                command,
                env=cluster.env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            ) as dump:
                # By psutil: seconds after this srun begins, the frozen node is given up.
                wait_until(
                    lambda: "n3" in _asked(dump) or dump.poll() is not None,
                    "the srun that waits for n3",
                )
                assert dump.poll() is None, dump.communicate()
                [program] = psutil.Process(dump.pid).children()  # its nsenter is outside
                assert "hangdoctor dump" in " ".join(program.cmdline())
                program.send_signal(number)
                out, err = dump.communicate(timeout=20)
            assert not out
            assert dump.returncode in ((137, -9) if number is signal.SIGKILL else (130,)), err
            wait_until(
                lambda: not cluster.processes("login", "srun --jobid"), "no srun is left", 20
            )


@pytest.mark.full
def test_over_ssh(cluster: Cluster, job: LabJob, tmp_path: Path) -> None:
    if not cluster.ssh:
        pytest.skip("needs sshd (scripts/setup-slurm)")
    hosts = tmp_path / "hosts"
    hosts.write_text("# two slots each\nn1 slots=2\nn2 slots=2\n\nn3\nn4\nn4 slots=2\n10.77.0.4\n")
    job.hang(5)
    diagnosis = cluster.dump("--hostfile", str(hosts))
    assert cause(diagnosis) == ("not_entered", [5], ["n3"])
    assert ranks_seen(diagnosis) == list(range(8))
    assert any("are the same host" in n for n in diagnosis["notes"])


@pytest.mark.full
def test_over_a_gate_by_a_command_of_ones_own(cluster: Cluster, job: LabJob) -> None:
    """One of the names is none: the others are diagnosed without it."""
    if not cluster.ssh:
        pytest.skip("needs sshd (scripts/setup-slurm)")
    job.hang(5)
    own = ("--exec", "ssh -J login {host}", "--hosts", "n[1-4],n9")
    diagnosis = cluster.dump(*own)
    assert cause(diagnosis) == ("not_entered", [5], ["n3"])
    assert ranks_seen(diagnosis) == list(range(8)), diagnosis["missing"]
    [missing] = diagnosis["missing"]
    assert (missing["node"], missing["why"]) == ("n9", "stdio forwarding failed")
    assert not cluster.processes("n3", "agent --once")


QSTAT = """#!/bin/sh
[ "$*" = "-f -F json 1008" ] && cat <<END
{"Jobs":{"1008.head":{"job_state":"R","exec_host":"n1/0*2+n2/0*2+n3/0*2+n4/0*2"}}}
END
"""


@pytest.mark.full
def test_a_job_of_pbs_from_outside(cluster: Cluster, job: LabJob, tmp_path: Path) -> None:
    """No PBS runs here: a program answers as its qstat does; the nodes are reached by ssh."""
    if not cluster.ssh:
        pytest.skip("needs sshd (scripts/setup-slurm)")
    (tmp_path / "qstat").write_text(QSTAT)
    (tmp_path / "qstat").chmod(0o755)
    job.hang(5)
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    diagnosis = cluster.dump("--pbs", "1008", env=path)
    assert cause(diagnosis) == ("not_entered", [5], ["n3"])
    assert ranks_seen(diagnosis) == list(range(8))


@pytest.mark.full
def test_a_dead_node_over_other_launchers(cluster: Cluster, job: LabJob, tmp_path: Path) -> None:
    """mpiexec with a dead node hangs for good: what the others said counts there, too."""
    if not cluster.ssh or not all(shutil.which(c) for c in ("pdsh", "mpiexec")):
        pytest.skip("needs sshd, pdsh and mpiexec (scripts/setup-slurm)")
    hosts = tmp_path / "hosts"
    hosts.write_text("n1\nn2\nn3\nn4\n")
    job.hang(5)
    with cluster.broken("n3", "blackhole", job.id):
        found = [
            cluster.dump("--hostfile", str(hosts), "--timeout", PATIENCE),
            cluster.dump("--hostfile", str(hosts), "--remote-shell", "pdsh", "--timeout", PATIENCE),
            cluster.dump(
                "--pbs",
                "--timeout",
                PATIENCE,
                env={"PBS_NODEFILE": str(cluster.folder / "nodefile")},
            ),
        ]
    for diagnosis in found:
        assert cause(diagnosis) == ("unreachable", [4, 5], ["n3"])
        assert [(m["ranks"], m["node"]) for m in diagnosis["missing"]] == [([4, 5], "n3")]
        assert ranks_seen(diagnosis) == [0, 1, 2, 3, 6, 7]


def test_torchrun_under_srun(cluster: Cluster, torchrun_job: LabJob) -> None:
    """One task a node: ranks and world size are torchrun's, not Slurm's."""
    torchrun_job.hang(3)
    diagnosis = cluster.dump("--jobid", torchrun_job.id)
    assert cause(diagnosis) == ("not_entered", [3], ["n2"])
    assert diagnosis["job"]["world_size"] == 4
    assert ranks_seen(diagnosis) == [0, 1, 2, 3]
    torchrun_job.finish()
    cluster.login("scancel", torchrun_job.id)


@pytest.mark.full
def test_jobs_that_cannot_be_captured(cluster: Cluster, job: LabJob) -> None:
    ended = cluster.submit("-N1", script="true")
    foreign = cluster.submit("-N1", script="sleep 600", user="tester")
    held = cluster.submit("-N1", "-H", script="true")
    array = cluster.submit("-N1", "--array=1-2", script="sleep 600")
    empty = cluster.submit("-N1", script="srun sleep 600")
    try:
        cluster.wait_state(ended, "COMPLETED")
        cluster.wait_state(foreign, "RUNNING")
        wait_until(
            lambda: cluster.state(array) == "RUNNING\nRUNNING", "both tasks of the array run"
        )
        wait_until(
            lambda: f"{empty}.0" in cluster.login("squeue", "-h", "-s", "-j", empty, "-o", "%i"),
            "its step runs",
        )
        assert "Slurm knows no job 99999" in cluster.refusal("--jobid", "99999")
        assert f"job {ended} has ended: completed" in cluster.refusal("--jobid", ended)
        assert f"job {held} has not started: it is pending (JobHeldUser)" in cluster.refusal(
            "--jobid", held
        )
        assert f"job {foreign} belongs to tester" in cluster.refusal("--jobid", foreign)
        assert f"{array}_1" in cluster.refusal("--jobid", array)
        assert f"job {job.id} has no running step 77" in cluster.refusal("--jobid", f"{job.id}.77")
        assert "none has a rank of the job" in cluster.refusal("--jobid", empty)
        assert "'seven' is not a Slurm job" in cluster.refusal("--jobid", "seven", code=2)
    finally:
        cluster.login("scancel", foreign, held, array, empty, check=False)


def test_what_is_missing_around_it(cluster: Cluster, job: LabJob) -> None:
    """No srun here, no Python there, no PBS job, no host file: one clear line each."""
    said = cluster.refusal("--jobid", job.id, before=["env", "PATH=/nonexistent"])
    assert said.startswith(
        "hangdoctor: squeue cannot be started: No such file or directory\n  Run "
    )
    assert "there is no such Python" in cluster.refusal(
        "--jobid", job.id, "--python", "/nonexistent/python"
    )
    assert "cannot import hangdoctor" in cluster.refusal(
        "--jobid", job.id, "--python", "/usr/bin/python3", env={"PYTHONPATH": ""}
    )
    assert "PBS_NODEFILE is not set" in cluster.refusal("--pbs", code=2)
    assert "cannot be read" in cluster.refusal("--hostfile", "/nonexistent/hosts")


def test_a_job_that_ends_meanwhile(cluster: Cluster, job: LabJob) -> None:
    """It has no ranks and is cancelled while its only node is frozen under the capture."""
    short = cluster.submit("-N1", "-w", "n2", script="srun sleep 600")
    wait_until(
        lambda: f"{short}.0" in cluster.login("squeue", "-h", "-s", "-j", short, "-o", "%i"),
        "its step runs",
    )
    command = [
        LAB / "cluster-node",
        "exec",
        "login",
        # It does not come to that: the job ends first.
        *cluster.dump_command("--jobid", short, "--timeout", "100"),
    ]
    with (
        cluster.broken("n2", "freeze", job.id),
        subprocess.Popen(
            command,
            env=cluster.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as dump,
    ):
        waiting = f"srun --jobid={short}"
        wait_until(
            lambda: bool(cluster.processes("login", waiting)) or dump.poll() is not None,
            "its srun waits",
        )
        assert dump.poll() is None, dump.communicate()
        cluster.login("scancel", short)
        _, err = dump.communicate(timeout=30)
    assert f"job {short} ended while it was being captured" in err
    assert dump.returncode == 1


def test_a_stopped_rank(cluster: Cluster, job: LabJob) -> None:
    job.finish()
    with outside.stopped(cluster.seen_from_here("n2", job.pid(2))):
        job.go()
        job.wait_at(EVERYBODY - {2}, f"{job.round} enters")
        diagnosis = cluster.dump("--jobid", job.id)
    assert cause(diagnosis) == ("stopped", [2], ["n2"])
    job.finish()  # all of them get through: neither the capture nor the stop did any harm


def test_a_crashed_node_and_then_a_killed_rank(cluster: Cluster, job: LabJob) -> None:
    """The end of the job: n3 loses its power, and then rank 2 is killed."""
    job.finish()
    # n3 is cut off before it enters, so that the others wait for it; then it is gone.
    cluster.node("link-down", "n3")
    job.go()
    job.wait_at(EVERYBODY - {4, 5}, f"{job.round} enters")
    cluster.node("crash", "n3")
    diagnosis = cluster.dump("--jobid", job.id, "--timeout", PATIENCE)
    assert cause(diagnosis) == ("unreachable", [4, 5], ["n3"])
    assert ranks_seen(diagnosis) == [0, 1, 2, 3, 6, 7]
    cluster.node("exec", "n2", "kill", "-KILL", str(job.pid(2)))
    wait_until(lambda: len(job.states()) == 5, "rank 2 is gone")
    diagnosis = cluster.dump("--jobid", job.id, "--timeout", PATIENCE)
    assert ("dead", [2], ["n2"]) in [
        (c["kind"], c["ranks"], c["nodes"]) for c in diagnosis["causes"]
    ]
    assert [(m["ranks"], m["node"]) for m in diagnosis["missing"] if m["what"] == "node"] == [
        ([4, 5], "n3")
    ]
