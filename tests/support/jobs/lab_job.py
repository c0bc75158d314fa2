"""A gloo job that hangs on command, for the lab cluster: `python lab_job.py CONTROL`, one process a
rank.

The folder CONTROL is shared. In round N every rank waits for the file `go.N`, which names the rank
that stays away ("" for none), and meets the others in an all_reduce. The one that stays away waits
for `release.N`. A rank writes `at.RANK` (its round and what it does) before each step: no reader
has to guess.
"""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

control = Path(sys.argv[1])
rank = int(os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0")))
world = int(os.environ.get("WORLD_SIZE", os.environ.get("SLURM_NTASKS", "1")))
os.environ.update(RANK=str(rank), WORLD_SIZE=str(world))


def say(what: str) -> None:
    part = control / f".at.{rank}"
    part.write_text(f"{what} {os.getpid()}\n")
    part.rename(control / f"at.{rank}")


def wait_for(path: Path) -> str:
    while not path.exists():
        time.sleep(0.05)
    return path.read_text().strip()


def stay_away(number: int) -> None:
    say(f"{number} away")
    wait_for(control / f"release.{number}")


def train_step(number: int) -> None:
    if wait_for(control / f"go.{number}") == str(rank):
        stay_away(number)
    say(f"{number} enters")
    dist.all_reduce(torch.ones(4))
    say(f"{number} done")


def main() -> None:
    dist.init_process_group("gloo")
    say("ready")
    number = 0
    while not (control / "end").exists():
        try:
            train_step(number)
        except RuntimeError:
            break
        number += 1
    say("lost")
    wait_for(control / "end")  # a peer is gone: NCCL would hang here, so this job does too


main()
