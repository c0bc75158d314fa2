"""Which parameter changed: a short line for every tensor of a rank, written at chosen moments and
compared between runs, over a restart, or between replicas of one run.

As a library, for any module and optimizer of torch or DeepSpeed:

    from hangdoctor.train.digests import Place, write
    write("digests", Place(iteration=805, when="after", rank=rank, at={"dp": rank}), model, optimizer)
"""

from .files import Place, write

__all__ = ["Place", "write"]
