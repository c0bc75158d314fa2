"""The same training with and without probe and agent: `python -m benchmarks.training_overhead
[--pairs 10] [--steps 300]`.

Two gloo ranks train a small model with all_reduce of each gradient. Pairs are interleaved: each
runs once plain and once with the probe, an agent and a collector, in alternating order. Reported:
the median over pairs of the ratio of seconds a step, measured by rank 0 after the first tenth of
the steps, and of its main thread's processor seconds, which other work on the machine disturbs less
(what agent and collector use themselves is `benchmarks.agent_idle`). The main thread works in a
fifth of the step and waits in the rest, so that its processor seconds are given in two ways: as
ratio to those without the probe, and what is added to them as a share of the step by the clock.
`benchmarks.probe_cost` tells the second more exactly: both ways take turns in one process. Needs
torch.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.progress import say

TRAIN = """
import os, sys, time
if os.environ.get("WITH_PROBE"):
    import hangdoctor.probe
    hangdoctor.probe.install()
import torch, torch.distributed as dist
steps = int(sys.argv[1])
torch.manual_seed(1); torch.set_num_threads(1)
dist.init_process_group("gloo")
model = torch.nn.Sequential(*[m for _ in range(4) for m in (torch.nn.Linear(256, 256), torch.nn.GELU())])
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
batch = torch.randn(64, 256)
for step in range(steps):
    if step == steps // 10:
        begin, used = time.perf_counter(), time.thread_time()
    if os.environ.get("WITH_PROBE"):
        hangdoctor.probe.iteration(step)
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
    optimizer.step()
if dist.get_rank() == 0:
    counted = steps - steps // 10
    print((time.perf_counter() - begin) / counted, (time.thread_time() - used) / counted)
dist.destroy_process_group()
"""


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def wait_for(ready: Callable[[], bool]) -> None:
    """Return once `ready` is true.

    Raises:
        SystemExit: it was not within a minute.
    """
    end = time.monotonic() + 60
    while not ready():
        if time.monotonic() > end:
            raise SystemExit("the collector did not start")
        time.sleep(0.1)


def train(folder: Path, steps: int, watched: bool) -> tuple[float, float]:
    """(seconds, processor seconds) a step."""
    port = str(free_port())
    environ = os.environ | {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "WORLD_SIZE": "2",
        "OMP_NUM_THREADS": "1",
    }
    beside = []
    if watched:
        environ |= {"WITH_PROBE": "1", "HANGDOCTOR_DIR": str(folder / f"boxes-{port}")}
        job = ["--folder", str(folder / port)]
        for verb, more in (
            ("collect", ["--bind", "tcp://127.0.0.1:*"]),
            ("agent", ["--job", port]),
        ):
            beside.append(
                subprocess.Popen(
                    [sys.executable, "-m", "hangdoctor", verb, *job, *more],
                    stderr=subprocess.DEVNULL,
                )
            )
        wait_for(lambda: (folder / port / "collector.json").exists())
        time.sleep(3)  # their own start is not a part of it
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", TRAIN, str(steps)],
            env=environ | {"RANK": str(r), "LOCAL_RANK": str(r)},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for r in range(2)
    ]
    try:
        said = [r.communicate(timeout=300)[0] for r in ranks]
        wall, used = said[0].split()
        return float(wall), float(used)
    finally:
        for process in [*ranks, *beside]:
            process.kill()
            process.wait()


def main() -> None:
    """Run the pairs, and print the median ratios."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--steps", type=int, default=300)
    flags = parser.parse_args()
    ratios: list[tuple[float, float, float]] = []
    with tempfile.TemporaryDirectory() as name:
        say("to warm up")
        train(Path(name), 20, False)  # warms the file cache
        for i in range(flags.pairs):
            say(f"pair {i + 1} of {flags.pairs}")
            order = (False, True) if i % 2 else (True, False)
            took = {watched: train(Path(name), flags.steps, watched) for watched in order}
            (wall, used), (plain_wall, plain_used) = took[True], took[False]
            share = 1 + (used - plain_used) / plain_wall
            ratios.append((wall / plain_wall, used / plain_used, share))
            print(
                f"pair {i + 1}: {took[False][0] * 1e3:.2f} ms plain, {took[True][0] * 1e3:.2f} ms watched, ratio {ratios[-1][0]:.3f}; "
                f"processor {took[False][1] * 1e3:.2f} and {took[True][1] * 1e3:.2f} ms, ratio {ratios[-1][1]:.4f}; load {os.getloadavg()[0]:.0f}",
                flush=True,
            )
    names = ("time", "processor time", "1 + processor time added, of the step by the clock")
    for name, found in zip(names, zip(*ratios, strict=True), strict=True):
        print(
            f"{name}: median ratio {statistics.median(found):.4f} of {len(found)} pairs ({min(found):.3f} to {max(found):.3f})"
        )


if __name__ == "__main__":
    main()
