"""torch.multiprocessing.spawn: process 3 downloads before it joins, and the download hangs."""
# framework: ddp
# start: python
# culprit: 3
# kinds: start_stall, not_entered
# frame: download

import os
import socket

import torch.distributed as dist
import torch.multiprocessing as mp
from come import last_step


def download() -> bytes:
    server = socket.create_server(("127.0.0.1", 0))
    with socket.create_connection(server.getsockname()) as connection:
        return connection.recv(1024)


def work(rank: int, port: int) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    last_step(rank)
    if rank == 3:
        download()
    dist.init_process_group("gloo", rank=rank, world_size=4)
    dist.barrier()


if __name__ == "__main__":
    with socket.create_server(("127.0.0.1", 0)) as free:
        number = free.getsockname()[1]
    mp.spawn(work, (number,), nprocs=4)
