"""A chain of stages: each receives from the one before, works, and sends on; rank 0 closes the round.

chain_job.py KIND RANK WHEN      WHEN: import, received, sent, closing
"""

from __future__ import annotations

import sys

import ends

KIND, CULPRIT, WHEN = sys.argv[1], int(sys.argv[2]), sys.argv[3]


def at(place: str, rank: int, turn: int) -> None:
    """Fail here, where it is this rank's turn to."""
    if place == WHEN and rank == CULPRIT and turn == 2:
        ends.strike(KIND)


class Stage:
    """One rank."""

    def __init__(self) -> None:
        import torch
        import torch.distributed as dist

        self.dist, self.torch = dist, torch
        dist.init_process_group("gloo")
        self.me, self.world = dist.get_rank(), dist.get_world_size()

    def round(self, turn: int) -> None:
        x = self.torch.zeros(8)
        if self.me > 0:
            self.dist.recv(x, self.me - 1)
        at("received", self.me, turn)
        x = (x + self.me).tanh()
        if self.me + 1 < self.world:
            self.dist.send(x, self.me + 1)
        at("sent", self.me, turn)
        done = [None] * self.world if self.me == 0 else None
        at("closing", self.me, turn)
        self.dist.gather_object({"rank": self.me, "turn": turn}, done, dst=0)


def main() -> None:
    import os

    if WHEN == "import":
        at("import", int(os.environ["RANK"]), 2)
    stage = Stage()
    for turn in range(5):
        stage.round(turn)
    stage.dist.destroy_process_group()


if __name__ == "__main__":
    main()
