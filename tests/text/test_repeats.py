"""Rounds in rows, folded."""

from __future__ import annotations

import random

import pytest

from hangdoctor.text.repeats import folded


@pytest.mark.parametrize(
    ("rows", "blocks"),
    [
        ("", []),
        ("abc", [("a", 1), ("b", 1), ("c", 1)]),
        ("aab", [("a", 1), ("a", 1), ("b", 1)]),
        ("xaaaab", [("x", 1), ("a", 4), ("b", 1)]),
        ("ababababc", [("ab", 4), ("c", 1)]),
        ("abcabcabca", [("abc", 3), ("a", 1)]),
        ("aaabaaabaaab", [("aaab", 3)]),
    ],
)
def test_rounds_are_said_once(rows: str, blocks: list[tuple[str, int]]) -> None:
    assert list(folded(rows)) == blocks


def test_nothing_is_lost() -> None:
    rng = random.Random(3)
    for _ in range(300):
        rows = "".join(rng.choice("ab") for _ in range(rng.randrange(60)))
        assert "".join(block * times for block, times in folded(rows)) == rows
