"""What a rule takes from a line, at a length that one can print: folders of a path say the least of it."""

from __future__ import annotations

from ...text.late import late

_KEPT = 120  # characters
# From the third folder on it is worth less than the words behind it.
_PATH = late(r"(?<![\w.:/-])/(?:[\w.+@~-]{1,100}/){2,30}(?=[\w.+-])")


def kept(value: str) -> str:
    """The value, with file names instead of whole paths where it is too long."""
    if len(value) > _KEPT:
        value = _PATH.sub("", value)
    return value[:_KEPT]
