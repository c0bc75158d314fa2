"""Each rule is asked about the lines that hold one of its anchors, and about no others."""

from __future__ import annotations

from hangdoctor.readers.job_logs.rules import COMMON, rules


def test_every_anchor_calls_for_its_rule() -> None:
    known = rules()
    for rule in known.rules:
        for anchor in rule.anchors:
            assert rule in known.of(anchor) and rule in known.of(f"7: {anchor} (step 3)"), anchor


def test_every_anchor_is_found_by_a_text_that_is_searched_for() -> None:
    known = rules()
    searched = [text.decode() for text in known.broad]
    for rule in known.rules:
        if not rule.beside:
            for anchor in rule.anchors:
                assert any(text in anchor for text in searched), anchor
    assert set(COMMON) <= set(searched) and len(searched) < 100


def test_a_line_without_any_anchor_calls_for_none() -> None:
    assert rules().of("step 120 | loss 2.31 | 410 ms") == []
    assert rules().of("") == [] and rules().of("ok") == []
