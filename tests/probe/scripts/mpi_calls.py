"""A rank of MPI that calls what mpi4py has, and prints what its box holds of it."""

from __future__ import annotations

import json
import os
import pickle
import sys
from pathlib import Path

import mpi4py
import numpy

mpi4py.rc.initialize = len(sys.argv) < 2  # else as of a program that starts MPI itself
from mpi4py import MPI  # noqa: E402

if not MPI.Is_initialized():
    MPI.Init_thread()
WORLD = MPI.COMM_WORLD
RANK, SIZE = WORLD.rank, WORLD.size
NEXT, BEFORE = (RANK + 1) % SIZE, (RANK - 1) % SIZE


def collectives() -> None:
    mine, all_of = numpy.full(4, float(RANK)), numpy.empty(4)
    WORLD.Allreduce(mine, all_of, op=MPI.MAX)
    assert all_of[0] == SIZE - 1
    WORLD.Reduce(mine, all_of if RANK == 1 else None, root=1)
    assert WORLD.bcast({"a": RANK}, root=2) == {"a": 2}
    assert WORLD.allgather(RANK) == list(range(SIZE))
    handle = WORLD.Ibcast(mine, root=numpy.int64(0))
    handle.Wait()
    WORLD.Barrier()
    vectors()


def vectors() -> None:
    """Every rank sends K + 1 numbers to rank K."""
    parts = numpy.arange(1, SIZE + 1)
    begin = numpy.concatenate([[0], numpy.cumsum(parts)[:-1]])
    sent, got = numpy.ones(parts.sum()), numpy.empty(SIZE * SIZE)
    WORLD.Alltoallv([sent, (parts, begin), MPI.DOUBLE], [got, [RANK + 1] * SIZE])
    backwards = WORLD.Split(0, -RANK)
    backwards.Alltoallv([sent, (parts, begin), MPI.DOUBLE], [got, [SIZE - RANK] * SIZE])
    backwards.Free()


def transfers() -> None:
    assert WORLD.sendrecv(RANK, NEXT, 5, source=BEFORE, recvtag=5) == BEFORE
    got = WORLD.irecv(source=BEFORE, tag=3)
    WORLD.isend("as an object", dest=NEXT, tag=3).wait()
    assert got.wait() == "as an object"
    room = numpy.empty(2)
    handles = [WORLD.Irecv(room, BEFORE, 4), WORLD.Isend(numpy.ones(2), NEXT, 4)]
    assert all(isinstance(handle, MPI.Request) for handle in handles)
    MPI.Request.Waitall(handles)
    assert room.sum() == 2
    if RANK == 0:
        status = MPI.Status()
        assert {WORLD.recv(), WORLD.recv(status=status)} == {1, 2}
        assert status.Get_source() in (1, 2)
    else:
        WORLD.send(RANK, dest=0)
    WORLD.send(None, dest=MPI.PROC_NULL)
    polls()


def polls() -> None:
    if RANK == 2:
        WORLD.send("found", dest=1, tag=9)
    elif RANK == 1:
        message = None
        while message is None:
            message = WORLD.improbe(tag=9)
        assert message.recv() == "found"


def communicators() -> None:
    pair = WORLD.Split(RANK == 2, key=-RANK)
    assert isinstance(pair, MPI.Intracomm)
    if RANK < 2:
        pair.Bcast(numpy.ones(1), root=0)  # rank 1 of the world: keys order them backwards
    pair.Free()
    ring = WORLD.Create_cart([SIZE], periods=[True])
    before, after = ring.Shift(0, 1)
    assert ring.sendrecv(RANK, dest=after, source=before) == BEFORE


def unchanged() -> None:
    again = pickle.loads(pickle.dumps(WORLD))  # its own, of a moment ago
    assert again == WORLD and type(again).__name__ == "Intracomm"
    assert issubclass(MPI.Prequest, MPI.Request) and not isinstance(WORLD, MPI.Request)
    try:
        WORLD.bcast(1, root=SIZE)
    except MPI.Exception as error:
        trace = error.__traceback__
        while trace is not None:
            assert "hangdoctor" not in trace.tb_frame.f_code.co_filename
            trace = trace.tb_next
    else:
        raise AssertionError("MPI took a root that there is not")


def show() -> None:
    from hangdoctor.readers.blackbox import read_box

    [box] = Path(os.environ["HANGDOCTOR_DIR"]).glob(f"*{os.getpid()}*.blackbox")
    contents = read_box(box)
    names = {group.uid: group.ranks for group in contents.ops.groups}
    told = [
        (o.op, o.seq, o.root, o.peer, o.detail, o.asynchronous, o.state, o.shapes, o.reduce_op,
         o.site.partition(" ")[0], names.get(o.group))
        for o in contents.ops.operations
    ]  # fmt: skip
    header = contents.box.backend, contents.box.uncounted, contents.box.rank, contents.box.note
    sys.stdout.write(json.dumps([header, told]) + "\n")


def persistent() -> None:
    """Counts of a rank that has such handles would be wrong."""
    from hangdoctor.readers.blackbox import read_box

    [box] = Path(os.environ["HANGDOCTOR_DIR"]).glob(f"*{os.getpid()}*.blackbox")
    before = read_box(box)
    handles = [WORLD.Send_init(numpy.ones(1), NEXT), WORLD.Recv_init(numpy.empty(1), BEFORE)]
    MPI.Prequest.Startall(handles)
    MPI.Request.Waitall(handles)
    WORLD.Barrier()
    after = read_box(box)
    assert (before.box.uncounted, after.box.uncounted) == (False, True)
    assert after.last_serial == before.last_serial


for part in (collectives, transfers, communicators, unchanged, show, persistent):
    part()
if not mpi4py.rc.initialize:
    MPI.Finalize()  # who starts MPI ends it: MPICH kills the others of a rank that does not
