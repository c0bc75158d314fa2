"""A healthy but restless training beside the sidecar for half an hour: `python -m
benchmarks.no_false_alarm [--minutes 30]`.

Two torch ranks on gloo, a step of 0.2 s of which some take five times as long at random; every
minute an evaluation, every two minutes a checkpoint that rank 0 writes while the others wait, with
phase marks in the first half and without them in the second; and once, in the middle, everything
(ranks, agent, collector) is stopped for a minute together and goes on. Incidents must be none;
looks that were taken back (a capture that showed the job going on) are counted, too.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.progress import say
from hangdoctor.storage.incidents import Incidents
from hangdoctor.train.faults import outside

TRAIN = """
import os, random, sys, time
import hangdoctor.probe as probe
probe.install()
import torch, torch.distributed as dist
rank, minutes, folder = int(os.environ["RANK"]), float(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo")
chance, begin, step = random.Random(rank), time.monotonic(), 0
evaluated = saved = begin
while True:
    now = time.monotonic()
    marks = now - begin < minutes * 30
    due = torch.tensor([now - begin > minutes * 60, now - evaluated > 60, now - saved > 120], dtype=torch.uint8)
    dist.broadcast(due, 0)
    over, evaluate, save = due.tolist()
    if over:
        break
    if evaluate:
        evaluated = now
        with probe.phase("evaluation") if marks else open(os.devnull):
            for _ in range(4):
                time.sleep(chance.uniform(1, 4))
                dist.all_reduce(torch.ones(4))
    if save:
        saved = now
        with probe.phase("checkpoint") if marks else open(os.devnull):
            if rank == 0:
                end = time.monotonic() + chance.uniform(8, 20)
                with open(os.path.join(folder, "checkpoint"), "wb") as file:
                    while time.monotonic() < end:
                        file.seek(0)
                        file.write(os.urandom(4 << 20))
                        time.sleep(0.2)
            dist.barrier()
    probe.iteration(step)
    time.sleep(0.2 * (5 if chance.random() < 0.03 else chance.uniform(0.7, 1.3)))
    dist.all_reduce(torch.ones(4))
    step += 1
    if rank == 0 and step % 50 == 0:
        print(f"step {step} after {time.monotonic() - begin:.0f} s", flush=True)
dist.destroy_process_group()
"""


def free_port() -> str:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return str(s.getsockname()[1])


def start(folder: Path, minutes: float) -> list[subprocess.Popen[bytes]]:
    """[rank 0, rank 1, collector, agent]."""
    port = free_port()
    environ = os.environ | {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "WORLD_SIZE": "2",
        "OMP_NUM_THREADS": "1",
        "HANGDOCTOR_DIR": str(folder / "boxes"),
        "TORCHELASTIC_RUN_ID": f"calm-{port}",
    }
    running = []
    for i, command in enumerate(
        (
            ["-c", TRAIN, str(minutes), str(folder)],
            ["-c", TRAIN, str(minutes), str(folder)],
            [
                "-m",
                "hangdoctor",
                "collect",
                "--folder",
                str(folder / "job"),
                "--bind",
                "tcp://127.0.0.1:*",
            ],
            [
                "-m",
                "hangdoctor",
                "agent",
                "--folder",
                str(folder / "job"),
                "--job",
                f"calm-{port}",
                "--linger",
                "2",
            ],
        )
    ):
        own = {"RANK": str(i), "LOCAL_RANK": str(i)} if i < 2 else {}
        with (folder / f"{('rank0', 'rank1', 'collector', 'agent')[i]}.log").open("wb") as log:
            running.append(
                subprocess.Popen(
                    [sys.executable, *command], env=environ | own, stdout=log, stderr=log
                )
            )
    return running


def main() -> None:
    """Run the job beside the sidecar, and print incidents and samples that were taken back."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--pause", type=float, default=60, help="seconds")
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        running = start(folder, flags.minutes)
        begin = time.monotonic()
        try:
            say(f"{flags.minutes / 2:.1f} minutes of training, with evaluations and checkpoints")
            time.sleep(flags.minutes * 30)
            say(f"everything stands still for {flags.pause:.0f} s, then the rest of the training")
            with outside.stopped(*(process.pid for process in running)):
                time.sleep(flags.pause)
            ended = [p.wait(timeout=flags.minutes * 60 + 300) for p in running[:2]]
        finally:
            for process in running:
                with contextlib.suppress(ProcessLookupError):
                    process.terminate()
            for process in running:
                process.wait(timeout=30)
        rows = Incidents(folder / "job").rows()
        log = (folder / "collector.log").read_text()
        steps = (folder / "rank0.log").read_text().strip().splitlines()[-1:]
        print(
            f"{time.monotonic() - begin:.0f} s, {steps}, ranks ended with {ended}, load {os.getloadavg()[0]:.0f}"
        )
        print(
            f"incidents: {len(rows)}; captures taken back: {log.count('goes on')}; rhythm learned: {'rhythm is known' in log}"
        )
        for row in rows:
            print(f"  {row.reason}: {row.summary}")
        print(
            "\n".join(line for line in log.splitlines() if "capturing" in line or "goes on" in line)
        )
        raise SystemExit(1 if rows or any(ended) or "rhythm is known" not in log else 0)


if __name__ == "__main__":
    main()
