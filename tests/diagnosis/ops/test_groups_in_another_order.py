"""Groups that a rank makes in another order than the others: the sentence says whose groups they
are.
"""

from __future__ import annotations

from hangdoctor.diagnosis import wording
from hangdoctor.diagnosis.ops import OpsVerdict, diagnose_ops
from hangdoctor.model.operations import Operation
from tests.support.ops_records import entered, evidence, rank_ops

WORLD = [0, 1, 2, 3]
MEMBERS, BANDS = "build_members (phases.py:56)", "build_bands (phases.py:65)"


def made(seq: int, members: str, site: str = MEMBERS, state: str = "done") -> Operation:
    return entered(WORLD, seq, "new_group", detail=members, site=site, state=state)


def phases() -> OpsVerdict:
    """Rank 3 makes the group of 1 and 3 before that of 0 and 2."""
    both = [made(1, "0,2"), made(2, "1,3")]
    ranks = [
        rank_ops(0, 4, [*both, made(3, "0-1", BANDS, "entered")], [0, 2]),
        rank_ops(1, 4, [both[0], made(2, "1,3", state="entered")]),
        rank_ops(2, 4, [*both, made(3, "0-1", BANDS), made(4, "2-3", BANDS, "entered")], [0, 2]),
        rank_ops(3, 4, [made(1, "1,3", state="entered")]),
    ]
    return diagnose_ops(evidence(ranks, ranks))


def test_the_members_of_both_are_said() -> None:
    [finding] = phases().findings
    assert (finding.kind, finding.ranks) == ("order", [3])
    said = wording.summary(finding)
    assert (
        "Rank 3 made new_group #1 (phases.py:56), of ranks 1,3, where rank 1 made that of" in said
    )
    assert "of ranks 0,2: it makes its groups in another order, or left that one out" in said
    assert "the same groups in one order: compare the lists that lead to phases.py:56" in (
        wording.advice(finding)
    )
