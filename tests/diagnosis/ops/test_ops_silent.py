"""Where a silent rank must be, by what its peers did with it and what its neighbours call."""

from __future__ import annotations

import pytest

from hangdoctor.diagnosis.ops import OpsEvidence, diagnose_ops
from hangdoctor.diagnosis.ops.evidence import Remark
from hangdoctor.model.layout import Layout
from tests.support.ops_programs import Job, only_cause
from tests.support.ops_records import done, entered, evidence, rank_ops


def without_rank_0(*programs: str) -> OpsEvidence:
    """Two replicas of two slices; each rank's calls by the names of their groups. Rank 0 is silent."""
    job = Job(4, Layout(dp=2, pp=1, tp=2))
    for ranks in ([0, 1], [2, 3]):
        job.group("tp", ranks)
    for ranks in ([0, 2], [1, 3]):
        job.group("dp", ranks)
    for program, calls in zip(job.everyone(), programs, strict=True):
        for word in calls.split():
            if word == "stuck":
                program.stuck()
            elif word == "end":
                program.finish()
            else:
                program.all_reduce(word)
    of = job.run()
    del of.ops[0]
    of.silent[0] = "no answer"
    return of


PLACED = {
    "it waits for one that is elsewhere": ("dp tp", "dp tp", "stuck", "dp end"),
    "after calls that it has passed": ("tp dp tp", "tp dp tp", "tp stuck", "tp dp end"),
    "in the second round": ("dp tp dp tp", "dp tp dp tp", "dp tp stuck", "dp tp dp end"),
}


@pytest.mark.parametrize("case", PLACED)
def test_a_silent_rank_that_waits_itself_is_not_the_cause(case: str) -> None:
    cause = only_cause(diagnose_ops(without_rank_0(*PLACED[case])))
    assert (cause.kind, cause.ranks, cause.confidence) == ("not_entered", [2], 0.85)


HELD = {
    "its peers have passed all that lies between": ("dp stuck", "dp tp", "dp end", "dp end"),
    "nothing lies before": ("stuck", "tp", "stuck", "stuck"),
}


@pytest.mark.parametrize("case", HELD)
def test_a_silent_rank_that_no_other_can_block_is_the_cause(case: str) -> None:
    cause = only_cause(diagnose_ops(without_rank_0(*HELD[case])))
    assert (cause.kind, cause.ranks) == ("unreachable", [0])


# ----------------------------------------------------------------- one side of a disagreement

PAIR = [0, 1]
LINE = {"site": "reduce (train.py:30)", "dtype": "float32"}


@pytest.mark.parametrize(
    ("shapes", "kind", "named"), [("[5]", "mismatch", [0]), ("[4]", "unreachable", [1])]
)
def test_what_a_rank_never_called_on_a_line_accuses_it_beside_a_silent_one(
    shapes: str, kind: str, named: list[int]
) -> None:
    past = [done(PAIR, n, shapes="[4]", **LINE) for n in (1, 2)]
    ranks = [rank_ops(0, 2, [*past, entered(PAIR, 3, shapes=shapes, **LINE)])]
    cause = only_cause(diagnose_ops(evidence(ranks, silent={1: "no answer"})))
    assert (cause.kind, cause.ranks) == (kind, named)
    if kind == "mismatch":
        assert cause.confidence == 0.7
        assert "with shapes [5], where calls like it have shapes [4]" in cause.summary


def test_of_very_many_silent_ranks_none_is_named() -> None:
    pairs = [[n, n + 40] for n in range(40)]
    ranks = [rank_ops(n, 80, [entered(pairs[n], 1)], pairs[n]) for n in range(40)]
    verdict = diagnose_ops(evidence(ranks, silent={n: "no answer" for n in range(40, 80)}))
    assert (verdict.status, verdict.findings) == ("unknown", [])
    [note] = [n for n in verdict.notes if n.remark is Remark.MANY_UNSEEN]
    assert note.ranks == tuple(range(40)) and note.blamed == tuple(range(40, 80))
