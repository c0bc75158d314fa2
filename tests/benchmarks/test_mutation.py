"""The changes that `benchmarks.mutation` makes: of each sort one, whole, and none where nothing
would change.
"""

from __future__ import annotations

from benchmarks.mutation_changes import changes, is_different
from benchmarks.mutation_tests import forked

SOURCE = b'''"""Words."""
LIMIT = 1 << 20


def f(a: int, b: list[int] = [7]) -> int:
    """Words."""
    if a < 3 and not b:
        raise ValueError(f"{a + 1}")
    g(b)
    return min(a, 2)
'''


def lines(source: bytes) -> set[str]:
    found = changes(source, "m.py")
    assert all(is_different(change, source) for change in found)
    return {change.key(source).removeprefix("m.py: ") for change in found}


def test_each_sort_of_change() -> None:
    condition = "if a < 3 and not b: ->"
    assert lines(SOURCE) == {
        "def f(a: int, b: list[int] = [7]) -> int: -> def f(a: int, b: list[int] = [8]) -> int:",
        "def f(a: int, b: list[int] = [7]) -> int: -> def f(a: int, b: list[int] = [(6)]) -> int:",
        f"{condition} if False:",
        f"{condition} if True:",
        f"{condition} if ((a < 3) or (not b)):",
        f"{condition} if ((not b)):",
        f"{condition} if ((a < 3)):",
        f"{condition} if ((a) <= (3)) and not b:",
        f"{condition} if ((a) >= (3)) and not b:",
        f"{condition} if a < 4 and not b:",
        f"{condition} if a < (2) and not b:",
        f"{condition} if a < 3 and (b):",
        'raise ValueError(f"{a + 1}") -> pass',
        "g(b) -> pass",
        "return min(a, 2) -> return None",
        "return min(a, 2) -> return max(a, 2)",
        "return min(a, 2) -> return min(a, 3)",
        "return min(a, 2) -> return min(a, (1))",
    }


def test_where_a_change_is_and_when_it_is_done() -> None:
    found = {change.line: change.body for change in changes(SOURCE, "m.py")}
    assert found == {5: None, 7: (7, 7), 8: (8, 8), 9: (9, 9), 10: (10, 10)}


def test_how_a_child_ended() -> None:
    assert forked(5, lambda: 0) == 0
    assert forked(5, lambda: 3) == 3

    def breaks() -> int:
        raise KeyError

    assert forked(5, breaks) == 99

    def endless() -> int:
        while True:
            pass

    assert forked(0.3, endless) < 0
