"""The sizes of an uneven all_to_all, from the text in its record (`probe.splits` writes it)."""

from __future__ import annotations

from ..model.splits import Splits
from ..probe import format as fmt


def splits_of(text: str) -> str:
    """The `detail` of the operation; "" where the text is none of these."""
    mark, width, numbers = text[:1], text[1:2], text[2:]
    digits = int(width) if width.isdecimal() and width.isascii() else 0
    if mark not in ("=", "~") or not digits or len(numbers) % (2 * digits):
        return ""
    if not numbers or any(c not in fmt.SPLIT_DIGITS for c in numbers):
        return ""
    found = [_number(numbers[at : at + digits]) for at in range(0, len(numbers), digits)]
    half = len(found) // 2
    modulus = fmt.SPLIT_BASE**digits if mark == "~" else 0
    return str(Splits(tuple(found[:half]), tuple(found[half:]), modulus))


def _number(digits: str) -> int:
    value = 0
    for digit in digits:
        value = value * fmt.SPLIT_BASE + fmt.SPLIT_DIGITS.index(digit)
    return value
