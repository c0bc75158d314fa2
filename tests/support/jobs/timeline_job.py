"""Four ranks whose history is known: `python timeline_job.py FOLDER STEPS AHEAD_NS`.

Ranks 2 and 3 stand for another node, or are on one: another host name, and a wall clock that is
AHEAD_NS ahead. Every step: two micro-batches with an all_reduce of each pair, a message from each
of the first pair to the second, an all_reduce of all, one in flight. In step SLOW rank 2 is late by
LATE seconds. At the end rank 1 stays away from an all_reduce; ranks 0 and 1 have kept a profile in
FOLDER.
"""

import importlib
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, record_function, tensorboard_trace_handler

FOLDER, STEPS, AHEAD = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
RANK = int(os.environ.get("RANK") or os.environ["SLURM_PROCID"])
os.environ.update(RANK=str(RANK), WORLD_SIZE="4")
SLOW, LATE = 5, 1.0


def begin_ahead():
    """Begin this program again, with a wall clock that is ahead."""
    library = FOLDER / f"clock-{RANK}.so"
    source = Path(__file__).with_name("clock_ahead.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    ahead = {"LD_PRELOAD": str(library), "CLOCK_AHEAD_S": str(AHEAD // 10**9)}
    os.execve(sys.executable, sys.orig_argv, os.environ | ahead)


if RANK >= 2:  # before the probe is loaded: the clock and the name at the edge of the system
    if "CLOCK_AHEAD_S" not in os.environ:
        begin_ahead()
    del os.environ["LD_PRELOAD"]  # this process only, none that it starts
    if "SLURM_PROCID" not in os.environ:
        socket.gethostname = lambda: "far"

probe = importlib.import_module("hangdoctor.probe")
probe.install()


def micro_batches(step, pair):
    for number in range(2):
        probe.micro_batch(number)
        if RANK == 2 and step == SLOW and number == 0:
            time.sleep(LATE)
        dist.all_reduce(torch.ones(16, 4), group=pair)


def messages():
    if RANK < 2:
        dist.send(torch.ones(8), RANK + 2)
    else:
        dist.recv(torch.ones(8), RANK - 2)


def train_step(step, pair):
    probe.iteration(step)
    with probe.phase("forward"):
        micro_batches(step, pair)
    messages()
    with probe.phase("reduce"), record_function("reduce of all"):
        dist.all_reduce(torch.ones(100))
        handle = dist.all_reduce(torch.ones(100), async_op=True)
        handle.wait()


def main():
    dist.init_process_group("gloo")
    pairs = [dist.new_group([0, 1], group_desc="near"), dist.new_group([2, 3], group_desc="far")]
    for _ in range(300):  # many quick ones: what the clocks are aligned with
        dist.barrier()
    messages()  # the first one connects the two
    handler = tensorboard_trace_handler(str(FOLDER / "profile"), use_gzip=RANK == 0)
    if RANK < 2:
        with profile(activities=[ProfilerActivity.CPU], on_trace_ready=handler):
            dist.barrier()
            for step in range(STEPS):
                train_step(step, pairs[0])
    else:
        dist.barrier()  # the profiler takes its time to begin
        for step in range(STEPS):
            train_step(step, pairs[1])
    dist.barrier()
    print("trained", flush=True)
    if RANK == 1:
        threading.Event().wait()
    dist.all_reduce(torch.ones(7))


main()
