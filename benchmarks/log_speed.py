"""python -m benchmarks.log_speed [--gb 1] [--keep FILE]: how fast job logs are read, and with how much memory.

Writes a log of a long job of 64 ranks (iterations, DeepSpeed's and NCCL's lines, a few warnings and
tracebacks that the job survives, time-outs at the end), reads it in a process of its own, and
prints MB/s of processor time and the peak of its memory.
"""

from __future__ import annotations

import argparse
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_MEGATRON = (
    " iteration {i:8d}/ 5000000 | consumed samples: {n:12d} | elapsed time per iteration (ms): 512.{r:03d} | learning rate: 1.000E-04 | "
    "global batch size:   512 | lm loss: 2.{r:03d}E+00 | grad norm: 0.{r:03d} | number of skipped iterations:   0 |\n"
)
_DEEPSPEED = (
    "[2026-07-09 12:{m:02d}:{s:02d},{r:03d}] [INFO] [logging.py:96:log_dist] [Rank 0] step={i}, skipped=0, lr=[0.0001], "
    "mom=[(0.9, 0.999)]\n"
)
_NCCL = "n{k}:81{r:03d}:82{r:03d} [{k}] NCCL INFO Channel {k:02d}/0 : {k}[{k}] -> {k}[{k}] via NET/IB/0/GDRDMA\n"
_TEE = "[default{k}]:[rank{r}]: step {i}: loss 2.{r:03d}, {n} tokens/s, 40.1 % MFU\n"
_WARNING = "/venv/lib/python3.11/site-packages/torch/utils/checkpoint.py:31: UserWarning: None of the inputs have requires_grad=True\n"
_RETRY = (
    "[rank{r}]: Traceback (most recent call last):\n"
    '[rank{r}]:   File "/job/data.py", line 40, in fetch\n'
    "[rank{r}]:     sock.connect(address)\n"
    "[rank{r}]: ConnectionError: shard {i}: try again\n"
)


def write(path: Path, size: int) -> None:
    """A log of about `size` bytes."""
    chance = random.Random(7)
    number = 0
    with path.open("w", buffering=1 << 20) as file:
        while file.tell() < size:
            piece = []
            for _ in range(5000):
                number += 1
                r = chance.randrange(64)
                values = {
                    "i": number // 4,
                    "n": number * 128,
                    "r": r,
                    "k": r % 8,
                    "m": number // 400 % 60,
                    "s": number % 60,
                }
                form = (_MEGATRON, _DEEPSPEED, _NCCL, _TEE)[number % 4]
                piece.append(form.format(**values))
                if number % 1000 == 0:
                    piece.append(_WARNING)
                if number % 20_000 == 0:
                    piece.append(_RETRY.format(**values))
            file.write("".join(piece))
        for rank in range(63):
            file.write(
                f"[rank{rank}]:[E709 17:05:08.1625{rank:04d} ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective operation "
                f"timeout: WorkNCCL(SeqNum=81, OpType=ALLREDUCE, NumelIn=1024, NumelOut=1024, Timeout(ms)=600000) ran for 600100 "
                "milliseconds before timing out.\n"
            )


def read(path: Path) -> None:
    """Read one log in this process and print what it took."""
    from hangdoctor.cli.diagnose import load
    from hangdoctor.diagnosis import diagnose

    size = path.stat().st_size
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    wall, cpu = time.perf_counter(), time.process_time()
    capture = load([path])
    cpu_s, wall_s = time.process_time() - cpu, time.perf_counter() - wall
    verdict = diagnose(capture)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    facts = len(capture.logs.facts) if capture.logs is not None else 0
    print(
        f"{size / 1e6:.0f} MB in {cpu_s:.1f} s of processor time ({wall_s:.1f} s): {size / 1e6 / cpu_s:.0f} MB/s; "
        f"memory {peak / 1024:.0f} MB, {before / 1024:.0f} MB before; {facts} facts; {verdict.summary[:100]}"
    )


def main() -> None:
    """Write, read, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gb", type=float, default=1.0)
    parser.add_argument("--keep", type=Path, help="write the log here and keep it")
    parser.add_argument("--read", type=Path, help="only read this one")
    args = parser.parse_args()
    if args.read:
        read(args.read)
        return
    with tempfile.TemporaryDirectory(prefix="log-speed-") as folder:
        path = args.keep or Path(folder) / "job.log"
        write(path, int(args.gb * 1e9))
        command = [sys.executable, "-m", "benchmarks.log_speed", "--read", str(path)]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
