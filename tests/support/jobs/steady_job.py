"""A training that steps every 0.2 s until told to misbehave: `steady_job.py CONTROL`, the probe in
it unless BARE=1.

Each rank writes `at.<rank>` (iteration, pid) with every tenth step. Faults by file in CONTROL:
`skip` (a rank: it leaves one all_reduce out), `drag` (a rank: it takes 0.4 s more in each step),
`loader` (a rank: its next batch does not come until the file goes), `slow` (seconds for one step),
`save` (seconds of work outside of operations on rank 0), `event` (rank 0 says this once), `end`.
"""

import os
import random
import sys
import time
from pathlib import Path

control = Path(sys.argv[1])
rank = int(os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0")))
world = int(os.environ.get("WORLD_SIZE", os.environ.get("SLURM_NTASKS", "1")))
os.environ.update(RANK=str(rank), WORLD_SIZE=str(world))

if os.environ.get("BARE") != "1":
    import hangdoctor.probe

    hangdoctor.probe.install()

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

probe = sys.modules.get("hangdoctor.probe")


def told(name: str) -> str:
    try:
        return (control / name).read_text().strip()
    except OSError:
        return ""


def load_batch() -> torch.Tensor:
    while told("loader") == str(rank):
        time.sleep(0.1)
    time.sleep(0.15 + 0.1 * random.random() + (0.4 if told("drag") == str(rank) else 0.0))
    return torch.ones(4)


def save(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(10_000))


def train_step(number: int) -> None:
    batch = load_batch()
    if number % 10 == 0:
        part = control / f".at.{rank}"
        part.write_text(f"{number} {os.getpid()}\n")
        part.rename(control / f"at.{rank}")
    if told("skip") == str(rank):
        (control / "skip").unlink()
        return
    dist.all_reduce(batch)
    if probe and rank == 0 and told("event"):
        probe.event("spike", told("event"), number)
        (control / "event").unlink()


def main() -> None:
    dist.init_process_group("gloo")
    number = 0
    while True:
        stop = torch.tensor([1.0 if told("end") and rank == 0 else 0.0])
        dist.broadcast(stop, 0)
        if stop.item():
            break
        if rank == 0 and (seconds := told("save")):
            (control / "save").unlink()
            save(float(seconds))
        if probe is not None:
            probe.iteration(number)
        train_step(number)
        number += 1
    dist.destroy_process_group()


try:
    main()
except RuntimeError:
    while not told("end"):  # a peer is gone: NCCL would hang here, so this job does too
        time.sleep(0.1)
