"""Scripts for Slurm and PBS, and what is asked of the two."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from hangdoctor.readers.launch_words import launch_of
from hangdoctor.train.options import ConfigError
from hangdoctor.train.submit import scripts
from hangdoctor.train.submit.__main__ import main
from hangdoctor.train.submit.job import Job, rank_command, torchrun_command
from hangdoctor.train.submit.schedulers import Pbs, Slurm, hosts_of
from tests.support import mpi

ROOT = Path(__file__).parents[2]
SMALL = """
parallel: {tp: 2}
model: {layers: 2, hidden_size: 32, heads: 4, seq_length: 32}
train: {global_batch: 2, iterations: 2}
data: {workers: 0}
"""
# Stands in for PBS at the edge: it runs the script on this host, and answers in the form of
# PBS Professional's manual. No PBS was at hand to record from.
QSUB = """#!/usr/bin/env bash
uname -n > {folder}/nodefile
PBS_NODEFILE={folder}/nodefile PBS_JOBID=77.server bash "$1" & echo $! > {folder}/pid
echo 77.server
"""
QSTAT = """#!/usr/bin/env bash
if kill -0 "$(cat {folder}/pid)" 2>/dev/null; then state=R; else state=F; fi
[ $state = R ] || {{ echo "qstat: 77.server Job has finished, use -x or -H to obtain" >&2; exit 35; }}
echo '{{"timestamp": 1, "Jobs": {{"77.server": {{"job_state": "R", "exec_host": "n1/0*8+n2/0*8"}}}}}}'
"""


def job(folder: Path, **other: Any) -> Job:
    """Two nodes of four ranks."""
    usual: dict[str, Any] = {
        "nodes": 2,
        "minutes": 90,
        "cores": 8,
        "gpus": 4,
        "environment": {"A": "it's"},
    }
    return Job(
        name="gpt",
        command=rank_command("--config", "a b.yaml"),
        per_node=4,
        log=folder / "gpt.log",
        **usual | other,
    )


def stand_in(folder: Path, monkeypatch: Any, **programs: str) -> None:
    """Put programs of these names in front of PATH."""
    bin_folder = folder / "bin"
    bin_folder.mkdir()
    for name, text in programs.items():
        path = bin_folder / name
        path.write_text(text.format(folder=folder))
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_folder}:{os.environ['PATH']}")


def words_of(script: str, mark: str) -> list[str]:
    """The lines for the scheduler."""
    return [
        line.removeprefix(f"#{mark} ")
        for line in script.splitlines()
        if line[: len(mark) + 1] == f"#{mark}"
    ]


def test_the_script_for_slurm_asks_for_the_jobs_nodes_and_none_of_the_originals(
    tmp_path: Path,
) -> None:
    script = scripts.slurm(job(tmp_path, directives=("--partition=gpu",)))
    assert words_of(script, "SBATCH") == [
        "--job-name=gpt",
        "--nodes=2",
        "--ntasks-per-node=4",
        "--time=90",
        f"--output={tmp_path}/gpt.log",
        "--open-mode=append",
        "--cpus-per-task=8",
        "--gres=gpu:4",
        "--partition=gpu",
    ]
    lines = script.splitlines()
    assert """export A='it'"'"'s'""" in lines
    assert f"set -- {sys.executable} -u -m hangdoctor.train --config 'a b.yaml'" in lines
    own = (ROOT / "scripts/slurm/train_with_hangdoctor.sbatch").read_text().splitlines()
    assert set(own) - set(lines) == {line for line in own if line.startswith("#SBATCH")}
    assert lines.index("set -u") > lines.index("export A='it'\"'\"'s'")


def test_the_scripts_for_pbs(tmp_path: Path) -> None:
    plain, polaris = scripts.pbs(job(tmp_path)), scripts.polaris(job(tmp_path))
    assert words_of(plain, "PBS") == [
        "-N gpt",
        "-l select=2:ncpus=32:mpiprocs=4:ngpus=4",
        "-l place=scatter",
        "-l walltime=01:30:00",
        "-j oe",
    ]
    assert "-l select=2:system=polaris" in words_of(polaris, "PBS")
    assert "export RANKS_PER_NODE=4" in plain and "export CORES_PER_RANK=8" in plain
    assert "export CPU_BIND=none" in polaris and "export CPU_BIND" not in plain
    for script in (plain, polaris, scripts.slurm(job(tmp_path))):
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)


@pytest.mark.parametrize(
    ("version", "places"),
    [
        ("PALS 1.3.4", "-n 4 --ppn 4 --depth 8 --cpu-bind depth"),
        (
            "mpiexec (OpenRTE) 4.1.4",
            "-n 4 --map-by ppr:4:node --bind-to none -x PATH -x MASTER_ADDR -x MASTER_PORT "
            "-x PYTHONPATH -x HANGDOCTOR_DIR -x HANGDOCTOR_SIDECAR -x HANGDOCTOR_DISABLE",
        ),
        ("HYDRA build details:", "-n 4 -ppn 4"),
    ],
)
def test_the_script_for_pbs_knows_the_words_of_each_mpiexec(
    tmp_path: Path, monkeypatch: Any, version: str, places: str
) -> None:
    """An mpiexec that prints its version, then its words: the places of ranks are in them."""
    mpiexec = f'#!/bin/sh\n[ "$1" = --version ] && echo "{version}" || echo "words: $@"\n'
    stand_in(tmp_path, monkeypatch, mpiexec=mpiexec, qsub=QSUB)
    made = job(tmp_path, environment={"HANGDOCTOR_SIDECAR": "off", "HANGDOCTOR_DISABLE": "1"})
    script = tmp_path / "job.pbs"
    # The virtual environment's own folder comes first in the script; the stand-in has to.
    own = f'"{tmp_path}/bin:$PATH"\nset -- '
    script.write_text(scripts.pbs(made).replace('"$PATH"\nset -- ', '"$PATH"\nexport PATH=' + own))
    (tmp_path / "nodefile").write_text("here\nhere\n")
    environ = os.environ | {"PBS_NODEFILE": str(tmp_path / "nodefile"), "PBS_JOBID": "7"}
    subprocess.run(["bash", str(script)], env=environ, check=True, timeout=90)
    log = made.log.read_text()
    assert "4 ranks on 1 hosts, rank 0 on here" in log
    assert f"words: {places} {sys.executable} -u -m hangdoctor.train --config a b.yaml" in log


@pytest.mark.torch
@pytest.mark.full
@pytest.mark.timeout(300)
@pytest.mark.skipif(not mpi.kinds(), reason="mpiexec is not installed (scripts/setup-slurm)")
def test_a_job_of_pbs_trains_by_its_script(tmp_path: Path, monkeypatch: Any) -> None:
    stand_in(
        tmp_path, monkeypatch, qsub=QSUB, qstat=QSTAT, qdel="#!/bin/sh\nkill $(cat {folder}/pid)\n"
    )
    small = "--parallel.tp 2 --train.iterations 2 --train.global_batch 2 --model.layers 1 --model.hidden_size 32 --model.seq_length 32 --data.workers 0"
    environ = {"HANGDOCTOR_SIDECAR": "off", "OMP_NUM_THREADS": "1", "MASTER_PORT": "29763"}
    made = Job(
        "gpt", rank_command(*small.split()), 1, 2, tmp_path / "gpt.log", environ | mpi.AS_ANYONE
    )
    script = tmp_path / "gpt.pbs"
    script.write_text(scripts.pbs(made))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    scheduler = Pbs()
    number = scheduler.submit(script)
    assert number == "77.server"
    assert scheduler.target(number, tmp_path) == ["--hostfile", str(tmp_path / "hosts")]
    assert (tmp_path / "hosts").read_text() == "n1\nn2\n"
    end = time.monotonic() + 250
    while scheduler.state(number) != "ended":
        assert time.monotonic() < end, made.log.read_text()
        time.sleep(0.2)
    assert "iteration        2/       2" in made.log.read_text(), made.log.read_text()[-3000:]


def test_states_of_a_job(tmp_path: Path, monkeypatch: Any) -> None:
    answer = "#!/bin/sh\ncat {folder}/answer; cat {folder}/error >&2; exit $(cat {folder}/code)\n"
    stand_in(tmp_path, monkeypatch, squeue=answer, qstat=answer)

    def states(text: str, error: str = "", code: int = 0) -> list[str]:
        for name, content in (("answer", text), ("error", error), ("code", str(code))):
            (tmp_path / name).write_text(content)
        return [scheduler.state("7") for scheduler in schedulers]

    schedulers: list[Any] = [Slurm()]
    # Slurm 22.05's own words.
    assert states("PENDING\n") == ["queued"] and states("RUNNING\n") == ["running"]
    assert states("COMPLETING\n") == ["running"] and states("") == ["ended"]
    assert states("", "slurm_load_jobs error: Invalid job id specified\n", 1) == ["ended"]
    with pytest.raises(
        ConfigError, match="squeue failed: slurm_load_jobs error: Unable to contact"
    ):
        states("", "slurm_load_jobs error: Unable to contact slurm controller\n", 1)
    schedulers = [Pbs()]
    for letter, state in {"Q": "queued", "H": "queued", "R": "running", "F": "ended"}.items():
        assert states(json.dumps({"Jobs": {"7": {"job_state": letter}}})) == [state]
    assert states("", "qstat: Unknown Job Id 7.server\n", 153) == ["ended"]
    with pytest.raises(ConfigError, match="no JSON"):
        states("oops")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="qstat was not found"):
        states("")


def test_hosts_of_a_job_come_once_each() -> None:
    assert hosts_of("x3001c0s1b0n0/0*64+x3002/0*64+x3002/1*64") == ["x3001c0s1b0n0", "x3002"]
    assert hosts_of("") == []


@pytest.mark.torch
@pytest.mark.timeout(400)
@pytest.mark.full
def test_the_chronicles_tail_follows_the_newest_run(tmp_path: Path) -> None:
    """`tail -f $(tail -1 logfiles)`, here of a run of two ranks that torchrun starts."""
    (tmp_path / "gpt.yaml").write_text(SMALL)
    environ = os.environ | {"PYTHONPATH": str(ROOT), "HOME": str(tmp_path)}
    words = "--system torchrun --per-node 2 --no-sidecar --env OMP_NUM_THREADS=1 --bind auto"
    command = [sys.executable, "-m", "hangdoctor.train.submit", "gpt.yaml", *words.split()]
    (tmp_path / "logfiles").write_text("/an/older/run.log\n")
    done = subprocess.run(
        [*command, "--json", "made.json"],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    made = json.loads((tmp_path / "made.json").read_text())
    assert "to view output: tail -f $(tail -1 logfiles)" in done.stdout
    name = "gpt-0.0347M-nl2-hs32-seq32-tp2-pp1-dp1-mbs1-gbs2-z1-fp32"
    assert made["name"] == name and f"/outputs/{name}/logs/" in made["log"]
    # tail itself, which ends with the run.
    follow = f'exec tail -n +1 --pid={made["job"]} -f "$(tail -1 logfiles)"'
    seen = subprocess.run(
        ["bash", "-c", follow], cwd=tmp_path, capture_output=True, text=True, timeout=350
    ).stdout
    assert "iteration        2/       2" in seen, seen[-3000:]
    for rank in range(2):
        assert f"bind: rank {rank} " in seen
    assert Path(made["script"]).read_text() != ""


def submitted(capsys: Any, *words: str) -> tuple[int, str, str]:
    """Exit code and output of the command."""
    try:
        code = main(list(words))
    except SystemExit as ended:
        code = int(ended.code or 0)
    seen = capsys.readouterr()
    return code, seen.out, seen.err


def test_a_script_is_printed_and_nothing_written(
    tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    config = str(ROOT / "train/configs/gpu_1b3.yaml")
    words = (config, "--system", "polaris", "--nodes", "2", "--directive", "-A project")
    code, out, _ = submitted(capsys, *words, "--train.iterations", "7", "--print")
    assert code == 0 and list(tmp_path.iterdir()) == []
    assert words_of(out, "PBS")[-1] == "-A project"
    command = next(line for line in out.splitlines() if line.startswith("set -- "))
    assert command.endswith(f"--config {config} --bind auto --train.iterations 7")
    for system in ("slurm", "pbs", "torchrun"):
        code, out, _ = submitted(capsys, config, "--system", system, "--print")
        assert code == 0 and "hangdoctor run -- " in out and "hangdoctor sidecar --" in out


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["--system", "torchrun", "--nodes", "2"], 2, "this host alone"),
        (["--system", "slurm", "--env", "A"], 2, "--env takes NAME=VALUE"),
        (["--system", "slurm", "--per-node", "3", "--nodes", "3"], 2, "--train.global_batch"),
        (["--system", "slurm", "--model.layer", "3"], 2, "did you mean 'model.layers'"),
        (["--system", "slurm", "--name", "a b"], 2, "--name a b"),
        (["--system", "pbs"], 1, "qsub failed: no such queue"),
    ],
)
def test_what_cannot_be_submitted_says_why(
    tmp_path: Path, monkeypatch: Any, capsys: Any, words: list[str], code: int, says: str
) -> None:
    stand_in(tmp_path, monkeypatch, qsub="#!/bin/sh\necho no such queue >&2; exit 1\n")
    monkeypatch.chdir(tmp_path)
    config = str(ROOT / "train/configs/gpu_1b3.yaml")
    found, _, errors = submitted(capsys, config, *words)
    assert found == code and says in errors
    assert not (tmp_path / "logfiles").exists()


def test_a_job_is_handed_to_the_scheduler_and_its_log_noted(
    tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    stand_in(tmp_path, monkeypatch, sbatch='#!/bin/sh\ncp "$2" {folder}/seen; echo "12;cluster"\n')
    monkeypatch.chdir(tmp_path)
    config = str(ROOT / "train/configs/gpu_1b3.yaml")
    logs = []
    for _ in range(2):
        code, out, _ = submitted(capsys, config, "--system", "slurm", "--json", "-")
        made = json.loads(out)
        assert (code, made["job"], made["schema"]) == (0, "12", "hangdoctor.submit/1")
        assert (tmp_path / "seen").read_text() == Path(made["script"]).read_text()
        logs.append(made["log"])
    assert logs[0] != logs[1] and all(Path(log).exists() for log in logs)
    assert (tmp_path / "logfiles").read_text().splitlines() == logs


def test_torchrun_starts_on_this_host_inside_hangdoctor_run(tmp_path: Path) -> None:
    words = torchrun_command(job(tmp_path, nodes=1))
    assert words[:5] == [sys.executable, "-m", "hangdoctor", "run", "--"]
    assert words[-5:] == ["--nproc-per-node=4", "-m", "hangdoctor.train", "--config", "a b.yaml"]


def test_run_reads_how_many_ranks_the_job_has(tmp_path: Path) -> None:
    """`hangdoctor run` notes it for who looks at the job from outside."""
    launch = launch_of(torchrun_command(job(tmp_path, nodes=1)))
    assert launch is not None
    assert (launch.launcher, launch.nodes, launch.world_size) == ("torchrun", 1, 4)
