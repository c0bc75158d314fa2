"""The variables that say the root of a collective, out of a program's source."""

from __future__ import annotations

import pytest

from hangdoctor.stacks.root_names import names

PROGRAM = """\
class Swarm:
    def adopt(self, weights, leader):
        comm.Bcast([weights, MPI.FLOAT], root=leader)

    def rounds(self, weights):
        for turn in range(9):
            best = self.elect(turn)
            self.adopt(weights, best)
            comm.Allreduce(weights, total)


def share(box, owner):
    dist.broadcast_object_list(box, owner)


def main():
    holder, size = choose(), 4
    share([size], owner=holder)
    dist.barrier()


def others(x, dim):
    return x.gather(dim, index), comm.bcast(x, root=0)


source = 3
dist.broadcast(x, src=source)
""".splitlines()


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (3, {"leader"}),
        (9, {"best"}),  # after the call that it is given to
        (13, {"owner"}),
        (19, {"holder"}),
        (23, set()),
        (27, {"source"}),
        (0, set()),
        (99, set()),
    ],
)
def test_they_are_followed_from_the_call_to_who_gives_them(line: int, found: set[str]) -> None:
    assert names(PROGRAM, line) == found


def test_what_is_no_program_has_none() -> None:
    assert names(["def main(:", "    comm.bcast(x, root=best)"], 2) == set()
    assert names(["comm.bcast(x, root=best)", "x" * (1 << 21)], 1) == set(), "too large to be read"
