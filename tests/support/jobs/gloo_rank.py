"""One rank of a tensor x data parallel gloo job in which rank 2 never enters the last world all_reduce.

Arguments: rank, folder for store, sockets and dumps. It has a worker server on `rank<N>.sock`, prints
"ready" before it blocks, and writes `pickle_<N>` and `json_<N>` when a file named `dump` appears.
Rank 2 blocks reading its standard input; with "gil" as third argument it holds the interpreter lock.
"""

import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from hangdoctor.train.faults import acts

WORLD = 4


def dump_when_told(folder: Path, rank: int) -> None:
    while not (folder / "dump").exists():
        time.sleep(0.02)
    for name, data in (
        ("pickle", c10d._dump_fr_trace(True, True, False)),
        ("json", c10d._dump_fr_trace_json(True, False)),
    ):
        part = folder / f"{name}_{rank}.part"
        part.write_bytes(data)
        part.rename(folder / f"{name}_{rank}")


def train_step(rank: int, tp: dist.ProcessGroup, dp: dist.ProcessGroup) -> None:
    activation, gradient = torch.ones(4, 8), torch.ones(16)
    dist.all_reduce(activation, group=tp)
    dist.all_reduce(gradient, group=dp)
    outputs = [torch.zeros(16) for _ in range(2)]
    dist.all_gather(outputs, gradient, group=dp)
    if rank in (0, 1):
        (dist.send if rank == 0 else dist.recv)(activation, 1 - rank)


def main() -> None:
    rank, folder = int(sys.argv[1]), Path(sys.argv[2])
    server = c10d._WorkerServer(str(folder / f"rank{rank}.sock"))
    store = f"file://{folder}/store"
    dist.init_process_group("gloo", store, timedelta(seconds=100), WORLD, rank)
    # Every rank makes every group, in the same order, as frameworks do.
    tp = [dist.new_group([0, 1]), dist.new_group([2, 3])][rank // 2]
    dp = [dist.new_group([0, 2]), dist.new_group([1, 3])][rank % 2]
    threading.Thread(target=dump_when_told, args=(folder, rank), daemon=True).start()
    for _ in range(3):
        train_step(rank, tp, dp)
        dist.all_reduce(torch.ones(1))
    train_step(rank, tp, dp)
    print("ready", flush=True)
    if rank == 2:
        if sys.argv[3:] == ["gil"]:
            acts.hold_gil()
        sys.stdin.read()
    dist.all_reduce(torch.ones(1))
    server.shutdown()


if __name__ == "__main__":
    main()
