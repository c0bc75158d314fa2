"""A rank whose communicator is made of `nccl_driver.c`: it enqueues, then waits for its device, as a job does.

    nccl_rank.py LIBRARY PLUGIN VERSION STATE

STATE is what its last operation has come to: enqueued, started, or missing. With JOIN set it first joins a group of
torch's (gloo), so that the probe gives it a black box.
"""

import ctypes
import os
import sys
import time


def load_batch() -> None:
    print("ready", flush=True)
    while True:
        time.sleep(1000)


def join() -> None:
    import torch.distributed as dist

    dist.init_process_group("gloo")
    dist.barrier()


def main() -> None:
    if os.environ.get("JOIN"):
        join()
    library, plugin, version, state = sys.argv[1:]
    cuda = ctypes.CDLL(library)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    cuda.be_stuck(plugin.encode(), int(version), rank, world, state.encode())
    if state == "missing":
        load_batch()
    cuda.synchronize()


main()
