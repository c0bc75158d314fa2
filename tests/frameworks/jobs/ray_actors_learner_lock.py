"""Ray without Ray Train: a learner and three rollers of two classes meet in a group of torch's; the learner
waits for a lock that it holds, and never sends the next weights."""
# framework: ray
# start: python
# culprit: 0
# kinds: not_entered
# frame: note|learn

import socket
import threading

import ray
import ray_job
import torch
import torch.distributed as dist
from come import last_step

WORLD = 4


def meet(rank: int, port: int) -> None:
    where = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", init_method=where, rank=rank, world_size=WORLD)


@ray.remote(num_cpus=0)
class Learner:
    def __init__(self) -> None:
        self.guard = threading.Lock()
        self.seen: list[float] = []

    def note(self, value: float) -> None:
        with self.guard:
            self.seen.append(value)

    def learn(self, port: int) -> None:
        meet(0, port)
        weights = torch.zeros(8)
        for step in range(6):
            dist.broadcast(weights, src=0)
            total = torch.zeros(8)
            dist.reduce(total, dst=0)
            weights = weights + 0.1 * total
            if step == 3:
                last_step(0)
                self.guard.acquire()
            self.note(float(weights.sum()))


@ray.remote(num_cpus=0)
class Roller:
    def roll(self, rank: int, port: int) -> None:
        meet(rank, port)
        weights = torch.zeros(8)
        for step in range(6):
            dist.broadcast(weights, src=0)
            dist.reduce(torch.ones(8), dst=0)
            if step == 3:
                last_step(rank)


def main() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ray_job.start()
    rollers = [Roller.remote() for _ in range(WORLD - 1)]
    learner = Learner.remote()
    work = [roller.roll.remote(n + 1, port) for n, roller in enumerate(rollers)]
    ray.get([learner.learn.remote(port), *work])


if __name__ == "__main__":
    main()
