"""Faults of every kind at random places of random trainings: exactly the culprits, and no victim."""

from __future__ import annotations

import random

import pytest

from hangdoctor.diagnosis.ops import OpsEvidence, diagnose_ops
from hangdoctor.diagnosis.wording import LONGEST
from hangdoctor.model.layout import Layout
from tests.support.ops_faults import FAULTS, Case, kernel_fault, make_case
from tests.support.ops_programs import causes

LAYOUTS = [
    Layout(dp=dp, pp=pp, tp=tp)
    for dp in (1, 2, 3)
    for pp in (1, 2, 3)
    for tp in (1, 2, 4)
    if 8 <= dp * pp * tp <= 24
]
SEEDS = range(8)


def cases(kind: str) -> list[Case]:
    found = []
    for seed in SEEDS:
        layout = random.Random(seed).choice(LAYOUTS)
        if kind == "kernel":
            found.append(kernel_fault(layout, seed))
        else:
            found += [
                c
                for ahead in (False, True)
                if (c := make_case(kind, layout, seed, ahead)) is not None
            ]
    return found


def hung(evidence: OpsEvidence) -> bool:
    return not all(o.finished for o in evidence.ops.values())


@pytest.mark.parametrize("kind", [*FAULTS, "kernel"])
def test_exact_culprits(kind: str):
    right = total = 0
    for case in cases(kind):
        evidence = case.evidence()
        if not hung(evidence):
            continue
        verdict = diagnose_ops(evidence)
        named = {r for c in verdict.findings for r in c.ranks}
        assert case.culprits <= named, f"{case.job.layout}: missed {case.culprits - named}"
        assert {c.kind for c in verdict.findings} <= case.kinds
        for cause in causes(verdict):
            assert cause.evidence and 0 < cause.confidence <= 1
            assert cause.summary.endswith(".") and len(cause.summary) <= LONGEST, cause.summary
        total += 1
        right += named == case.culprits
    assert total >= 4
    assert right >= 0.95 * total


def test_with_a_tenth_of_the_ranks_silent():
    right = total = victims = 0
    for kind in FAULTS:
        if kind == "broken link":
            continue  # a silent member and a broken link look the same
        for case in cases(kind):
            chance = random.Random(total)
            evidence = case.evidence()
            if not hung(evidence):
                continue
            silence(evidence, [r for r in evidence.ops if chance.random() < 0.1])
            named = {r for c in diagnose_ops(evidence).findings for r in c.ranks}
            total += 1
            right += named == case.culprits
            victims += bool(named - case.culprits - evidence.silent.keys())
    assert total > 200
    assert right >= 0.9 * total
    assert victims <= 0.01 * total


def silence(evidence: OpsEvidence, ranks: list[int]) -> None:
    for rank in ranks:
        del evidence.ops[rank]
        evidence.silent[rank] = "its node does not answer"
    evidence.stopped -= set(ranks)
    evidence.dead = {r: why for r, why in evidence.dead.items() if r not in ranks}
    evidence.outside = {r: kind for r, kind in evidence.outside.items() if r not in ranks}


def test_without_layout_and_names():
    right = total = 0
    for kind in FAULTS:
        for seed in (1, 2):
            case = make_case(kind, Layout(dp=3, pp=2, tp=2), seed)
            if case is None:
                continue
            evidence = case.evidence(named=False)
            evidence.layout = None
            total += 1
            right += {r for c in diagnose_ops(evidence).findings for r in c.ranks} == case.culprits
    assert total >= 2 * len(FAULTS) - 2  # nearly every fault has its place in this layout
    assert right >= 0.95 * total


def test_same_evidence_same_verdict():
    case = make_case("skipped", Layout(dp=2, pp=2, tp=2), 3)
    assert case is not None
    assert diagnose_ops(case.evidence()) == diagnose_ops(case.evidence())
