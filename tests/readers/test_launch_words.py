"""What command lines of launchers say of nodes and ranks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hangdoctor.errors import BadInput
from hangdoctor.model.start_up import Launch
from hangdoctor.probe.folder import LAUNCH
from hangdoctor.readers import discover, launch_file, offline
from hangdoctor.readers.launch_words import launch_of, program_of
from tests.support.stage import hangdoctor

LINES = {
    "torchrun --nnodes=4 t.py": "torchrun 4x1=4 at 127.0.0.1:29500, 0",
    "/v/bin/python3 -m torch.distributed.run --nnodes 2:8 --nproc-per-node 4 t.py --nnodes 9": "torchrun 2x4=8 at 127.0.0.1:29500, 0",
    "python /v/bin/torchrun --nproc_per_node 8 t.py": "torchrun 1x8=8 at , 0",
    "torchrun --nnodes 2 --nproc-per-node gpu --rdzv-backend c10d --rdzv-endpoint n1 t.py": "torchrun 2x0=0 at n1:29500, -1",
    "hangdoctor run -- torchrun --standalone --nproc-per-node 2 t.py": "torchrun 1x2=2 at , 0",
    "srun -N2 --ntasks-per-node 1 torchrun --nnodes 2 --nproc-per-node 8 --node-rank 1 --master-addr n1 t.py": "torchrun 2x8=16 at n1:29500, 1",
    "srun -N 2 -n16 -w n[3-4] python t.py": "srun 2x8=16 at , -1 on n3 n4",
    "mpirun --oversubscribe -np 16 --host n1:8,n2:8 --mca btl tcp python t.py -n 3": "mpirun 2x8=16 at , -1 on n1 n2",
    "mpiexec -n 8 --ppn 4 --depth 8 python x.py": "mpirun 2x4=8 at , -1",
    "mpirun -n 8 --map-by ppr:2:node python x.py": "mpirun 4x2=8 at , -1",
    "deepspeed --num_nodes 2 --num_gpus 8 t.py --num_gpus 1": "deepspeed 2x8=16 at , -1",
    "accelerate launch --num_machines 2 --num_processes 16 --machine_rank 1 --main_process_ip n1 --main_process_port 29501 t.py": "accelerate 2x8=16 at n1:29501, 1",
    "torchrun --nnodes": "",
    "torchrun --nnodes x t.py": "",
    "python t.py --nnodes 4": "",
    "": "",
}


def in_brief(launch: Launch | None) -> str:
    if launch is None:
        return ""
    on = f" on {' '.join(launch.names)}" if launch.names else ""
    size = f"{launch.nodes}x{launch.per_node}={launch.world_size}"
    return f"{launch.launcher} {size} at {launch.endpoint}, {launch.node_rank}{on}"


@pytest.mark.parametrize("line", LINES)
def test_a_command_line_says_how_many_nodes_and_ranks_it_starts(line: str) -> None:
    assert in_brief(launch_of(line.split())) == LINES[line]


def test_the_environment_and_host_files_complete_it(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("n1 slots=4  # first\n\nn2 slots=4\n")
    told = launch_of(["deepspeed", "--hostfile", str(hosts), "t.py"])
    assert in_brief(told) == "deepspeed 2x4=8 at , -1 on n1 n2"
    words = ["torchrun", "--nnodes", "2", "--nproc-per-node", "4", "t.py"]
    assert launch_of(words, {"SLURM_JOB_NODELIST": "n[5-6]"}).names == ("n5", "n6")  # type: ignore[union-attr]
    assert launch_of(words, {"SLURM_JOB_NODELIST": "n[5-7]"}).names == ()  # type: ignore[union-attr]
    assert launch_of(["torchrun", "t.py"], {"PET_NNODES": "3"}).nodes == 3  # type: ignore[union-attr]
    assert in_brief(launch_of(["python", "t.py"], {"WORLD_SIZE": "16"})) == " 0x0=16 at , -1"


CONFIG = """
compute_environment: LOCAL_MACHINE
deepspeed_config:
  num_machines_of_mine: 5
machine_rank: 1
main_process_ip: 'n1'   # the first
main_process_port: 29501
num_machines: 2
num_processes: 16
downcast_bf16: 'no'
"""
OF_CONFIG = "accelerate 2x8=16 at n1:29501, 1"


def test_accelerate_takes_what_its_configuration_says(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(CONFIG)
    words = ["accelerate", "launch", "--config_file", "mine.yaml", "t.py"]
    assert in_brief(launch_of(words, {"PWD": str(tmp_path)})) == OF_CONFIG
    flag = [*words[:-1], "--machine_rank", "0", "t.py"]
    assert in_brief(launch_of(flag, {"PWD": str(tmp_path)})) == OF_CONFIG[:-1] + "0"

    own = tmp_path / ".cache" / "huggingface" / "accelerate"
    own.mkdir(parents=True)
    plain, home = ["accelerate", "launch", "t.py"], {"HOME": str(tmp_path)}
    assert launch_of(plain, home) is None
    (own / "default_config.json").write_text(
        '{\n  "num_machines": 2,\n  "num_processes": 16,\n  "machine_rank": null\n}\n'
    )
    assert in_brief(launch_of(plain, home)) == "accelerate 2x8=16 at 127.0.0.1:29500, 0"
    (own / "default_config.yaml").write_text(CONFIG)
    assert in_brief(launch_of(plain, home)) == OF_CONFIG
    (own / "default_config.yaml").write_bytes(b"\x00\xff: [\n" + b"num_machines: 9" * 10)
    assert launch_of(plain, home) is None


def test_srun_takes_what_its_job_has() -> None:
    slurm = {"SLURM_NTASKS": "8", "SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_NODELIST": "n[1-2]"}
    words = "srun --kill-on-bad-exit=1 python -m hangdoctor.train -n 3".split()
    assert in_brief(launch_of(words, slurm)) == "srun 2x4=8 at , -1 on n1 n2"
    assert in_brief(launch_of(["srun", "-n", "2", "x"], slurm)) == "srun 2x1=2 at , -1 on n1 n2"


def test_run_notes_what_its_command_starts_and_takes_the_note_away(tmp_path: Path) -> None:
    """A stand-in for mpirun that shows what lies in the folder while the job runs."""
    shown, folder = tmp_path / "shown", tmp_path / "boxes"
    program = tmp_path / "mpirun"
    program.write_text(f"#!/bin/sh\ncp $HANGDOCTOR_DIR/{LAUNCH} {shown}\n")
    program.chmod(0o755)
    environ = os.environ | {"HANGDOCTOR_DIR": str(folder)}
    hangdoctor("run", "--", str(program), "-n", "4", "x", cwd=tmp_path, env=environ)
    (tmp_path / LAUNCH).write_bytes(shown.read_bytes())
    assert in_brief(launch_file.read(tmp_path)) == "mpirun 0x0=4 at , -1"
    assert not list(folder.iterdir()), "the command has ended: nothing of ours is left"
    with pytest.raises(BadInput, match="no rank has left a black box: mpirun was to start 4 ranks"):
        offline.read([tmp_path / LAUNCH])
    (tmp_path / LAUNCH).write_text('{"schema": "other", "launch": {}}')
    assert launch_file.read(tmp_path) is None


def test_a_rank_without_its_launcher_finds_the_note_in_its_folder(tmp_path: Path) -> None:
    launch_file.write(tmp_path, Launch("mpirun", 2, per_node=2, world_size=4))
    environ = os.environ | {"RANK": "0", "WORLD_SIZE": "4", "HANGDOCTOR_DIR": str(tmp_path)}
    program = "print('here', flush=True); import time; time.sleep(300)"
    rank = subprocess.Popen(
        [sys.executable, "-c", program], env=environ, stdout=subprocess.PIPE, text=True
    )
    try:
        assert rank.stdout is not None and rank.stdout.readline() == "here\n"
        found = discover.candidate(rank.pid, None)
        assert found is not None
        assert launch_file.of_ranks(found) == Launch("mpirun", 2, per_node=2, world_size=4)
    finally:
        rank.kill()
        rank.communicate()


def test_the_program_that_a_launcher_starts() -> None:
    lines = {
        "torchrun --nnodes=2 --node_rank 0 --master_port=7 /app/two_nodes.py --nnodes 9": "two_nodes.py",
        "python -m torch.distributed.run --nnodes=2 -m pkg.train --lr 1": "pkg.train",
        "srun -N 2 torchrun --nnodes 2 -- t.py": "t.py",
        "accelerate launch --num_machines 2 --multi_gpu train.py x.py": "train.py",
        "torchrun --nnodes=2": "",
        "python train.py": "",
    }
    assert {line: program_of(line.split()) for line in lines} == lines
