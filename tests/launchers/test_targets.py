"""Job ids, host files, environments and command lines: what is decided before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangdoctor.errors import BadInput, UsageError
from hangdoctor.launchers import pbs, ssh
from hangdoctor.launchers.slurm import step_command
from hangdoctor.launchers.slurm_job import clean_environment, parse_job
from hangdoctor.launchers.slurm_nodes import describe_state


@pytest.mark.parametrize(
    ("text", "parsed"),
    [("7", ("7", "")), ("7.0", ("7", "0")), ("12_3", ("12_3", "")), (" 12_3.4 ", ("12_3", "4"))],
)
def test_job_ids(text: str, parsed: tuple[str, str]) -> None:
    assert parse_job(text) == parsed


@pytest.mark.parametrize("text", ["", "seven", "7.", "7.batch", "-j", "7;ls", "7_", "7 8"])
def test_what_is_no_job_id(text: str) -> None:
    with pytest.raises(UsageError):
        parse_job(text)


def test_a_host_file(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text(
        "# nodes\nn1 slots=8\n\n  n2   slots=8 # spare\nn1\nnode-3.cluster\nr7i6n[0-1]\n10.77.0.4\nme@n9\nn5:8\n"
    )
    assert ssh.read_hostfile(path) == [
        "n1",
        "n2",
        "node-3.cluster",
        "r7i6n0",
        "r7i6n1",
        "10.77.0.4",
        "me@n9",
        "n5",
    ]


@pytest.mark.parametrize(
    "line", ["-oProxyCommand=x", "n1 slots=two", "n1 n2", "n[1-", "n1;reboot", "$(id)"]
)
def test_a_bad_line_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "hosts"
    path.write_text(f"n1\n{line}\n")
    with pytest.raises(BadInput, match="line 2, is not a host"):
        ssh.read_hostfile(path)


def test_an_empty_host_file(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("# nobody\n")
    with pytest.raises(BadInput, match="has no host in it"):
        ssh.read_hostfile(tmp_path / "hosts")


def test_the_callers_job_does_not_reach_the_step() -> None:
    environ = {
        "PATH": "/bin",
        "HOME": "/root",
        "SLURM_CONF": "/etc/slurm.conf",
        "SLURM_JOB_ID": "7",
        "SLURM_CPU_BIND": "cores",
        "SLURM_NTASKS_PER_NODE": "8",
        "SBATCH_EXPORT": "NONE",
        "RANK": "3",
        "PMI_RANK": "3",
        "MASTER_ADDR": "n1",
    }
    assert clean_environment(environ) == {
        "PATH": "/bin",
        "HOME": "/root",
        "SLURM_CONF": "/etc/slurm.conf",
    }


def test_the_step_shares_what_the_training_holds() -> None:
    assert {"--overlap", "--gres=gpu:0", "--mem=0", "--jobid=7", "-N1", "-n1"} <= set(
        step_command("7", "n1", ["agent"]).argv
    )
    assert "--overlap" not in step_command("7", "n1", ["agent"], overlap=False).argv


@pytest.mark.parametrize(
    ("state", "reason", "words"),
    [
        ("mixed", "none", "Slurm still lists the node as up"),
        (
            "down*",
            "Not responding",
            "Slurm lists it as down (Not responding), it does not answer Slurm",
        ),
        ("drained", "bad GPU", "Slurm lists it as drained (bad GPU)"),
        ("allocated*", "none", "Slurm lists it as allocated, it does not answer Slurm"),
    ],
)
def test_node_states_in_words(state: str, reason: str, words: str) -> None:
    assert describe_state(state, reason) == words


def test_mpiexec_by_what_it_says_of_itself() -> None:
    assert pbs.flavour("HYDRA build details:\n    Version: 4.0.2") is pbs.hydra
    assert pbs.flavour("mpiexec (OpenRTE) 4.1.4") is pbs.openmpi
    assert pbs.flavour("mpirun (Open MPI) 5.0.3") is pbs.openmpi
    assert pbs.flavour("mpiexec version 1.2.11 (PALS)") is pbs.pals
    assert pbs.flavour("who knows") is pbs.hydra
