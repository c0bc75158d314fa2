"""A ring of waits whose replicas rightly differ: the one group whose members part has the wrong call."""

from __future__ import annotations

from hangdoctor.diagnosis.ops import diagnose_ops
from tests.support.ops_programs import Job, only_cause

EXTRA = 5  # layers: more than a step has, so that rank 0 comes to the end of the next step


def two_replicas() -> Job:
    """Two tensor-parallel pairs, (0, 1) and (2, 3), that run other layers; rank 1 runs some more."""
    job = Job(4)
    for name, ranks in (("tp0", [0, 1]), ("tp1", [2, 3]), ("dp0", [0, 2]), ("dp1", [1, 3])):
        job.group(name, ranks)
    for rank in range(4):
        for step in range(4):
            layers = 3 + (step + rank // 2) % 2
            if rank == 1 and step == 2:
                layers += EXTRA
            for _ in range(layers):
                job.rank(rank).all_reduce(f"tp{rank // 2}")
            job.rank(rank).all_reduce(f"dp{rank % 2}")
    return job


def test_the_pair_that_parts_is_named_and_the_pair_that_agrees_is_not() -> None:
    cause = only_cause(diagnose_ops(two_replicas().run()))
    assert (cause.kind, cause.ranks, cause.confidence) == ("order", [0, 1], 0.5), cause.summary
    assert "made different calls" in cause.summary and "do not show which" in cause.summary
    assert [e.ranks for e in cause.evidence] == [[0], [2], [3], [1]]
