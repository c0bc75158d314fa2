"""An inference server's processes, as vLLM and SGLang start theirs: no rank in any environment, titles instead.

    served_job.py FOLDER PORT ENGINE WORKER...

ENGINE is the title of the process that starts the others, WORKER that of a worker, with `#RANK` behind
it in the group, or of a helper, without. Helpers sleep. Workers reduce; rank 1 stays in `load_adapter`.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def set_title(title: str) -> None:
    """Write over the process's own arguments, as setproctitle does."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    begin, end = int(fields[45]), int(fields[46])
    words = title.encode()
    assert len(words) < end - begin
    ctypes.memmove(begin, words.ljust(end - begin, b"\0"), end - begin)


def load_adapter(folder: Path) -> None:
    (folder / "at.1").touch()
    time.sleep(3600)


def execute_model(rank: int, folder: Path) -> None:
    for step in range(3):
        if rank == 1 and step == 2:
            load_adapter(folder)
        dist.all_reduce(torch.ones(4))
        if step == 1:
            (folder / f"at.{rank}").touch()


def process(place: int, folder: Path, port: str, titles: list[str]) -> None:
    title, _, rank = titles[place].partition("#")
    set_title(title)
    if not rank:
        (folder / f"helps.{place}").touch()
        time.sleep(3600)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    size = sum("#" in title for title in titles)
    dist.init_process_group("gloo", rank=int(rank), world_size=size)
    execute_model(int(rank), folder)


if __name__ == "__main__":
    engine, *titles = sys.argv[3:]
    context = mp.spawn(
        process, (Path(sys.argv[1]), sys.argv[2], titles), nprocs=len(titles), join=False
    )
    set_title(engine)
    context.join()
