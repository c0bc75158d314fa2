"""How many elements a rank's all_to_all sends to each member of its group and expects of each, as the
`detail` of an operation has it: ``sends 3,0,5; receives 4,4,4``, with `` mod 64`` behind it where the
record had no room for whole numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct


class Splits(Struct, frozen=True):
    """By place in the group; `modulus` 0 where the numbers are whole."""

    sends: tuple[int, ...]
    receives: tuple[int, ...]
    modulus: int = 0

    def __str__(self) -> str:
        text = f"sends {_listed(self.sends)}; receives {_listed(self.receives)}"
        return f"{text} mod {self.modulus}" if self.modulus else text


def _listed(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))


def read(detail: str) -> Splits | None:
    """The numbers of such a text; None of any other."""
    text, _, modulus = detail.partition(" mod ")
    sends, _, receives = text.partition("; receives ")
    if not sends.startswith("sends ") or not receives:
        return None
    sides = [part.split(",") for part in (sends.removeprefix("sends "), receives)]
    if not all(number.isdecimal() for side in sides for number in side):
        return None
    first, second = (tuple(map(int, side)) for side in sides)
    if len(first) != len(second) or not (modulus.isdecimal() or not modulus):
        return None
    return Splits(first, second, int(modulus or 0))
