"""Blocks of Open MPI's on a crash that a mail, or a browser, has filled anew: several lines in one, whose prefix
may stand at the end of the line before.

[n7:812] *** Process received signal *** [n7:812]
Signal: Segmentation fault (11) [n7:812] Signal code:
Address not mapped (1)
"""

from __future__ import annotations

from ...text.late import late

_PREFIX = r"\[[A-Za-z0-9][\w.-]{0,127}:\d{1,9}\]"
_SAYS = r"(?:\*\*\* |Signal(?: code)?: |Failing at |\[ ?\d{1,3}\] )"
_BEGINS = late(rf"(?<=\S)\s{{1,8}}(?={_PREFIX}\s{{1,4}}{_SAYS})")
_AT_END = late(rf"(?:^|\s)(?P<prefix>{_PREFIX})\s*$")
_GOES_ON = late(_SAYS)


class Rewrapped:
    """Takes the lines of one file one after the other."""

    def __init__(self) -> None:
        self._carried = ""  # the prefix at the end of the line before

    def lines(self, text: str) -> list[str]:
        """The lines that this one was made of."""
        carried, self._carried = self._carried, ""
        if carried and _GOES_ON.match(text) is not None:
            text = f"{carried} {text}"
        if "]" not in text or ":" not in text:
            return [text]
        at_end = _AT_END.search(text)
        if at_end is not None and ("*** " in text or "] [ " in text):
            self._carried = at_end["prefix"]
            text = text[: at_end.start()]
        return _BEGINS.split(text)
