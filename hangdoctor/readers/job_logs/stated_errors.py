"""A document of YAML in which a program states an error before it ends itself.

--- !BUG
src_file: lakes.F90             <- keys, in any order
message: |
    For lake # 6,               <- the sentence
      the depth is found to be 0.
...

Documents of comments and warnings have the same form, and state no error.
"""

from __future__ import annotations

from ...text.late import late

_BEGINS = late(r"^\s{0,4}--- !(?:ERROR|BUG|FATAL)\b")
_MESSAGE = late(r"^\s{0,4}message:(.{0,300})")
_OTHER_KEY = late(r"^\s{0,4}(?:[a-z_]{1,30}:|\.\.\.\s{0,8}$|---)")
_LINES = 12  # of a document
_SENTENCE = 120  # characters of its message, after which no line is added


class StatedErrors:
    """Of one file: the message of the last such document."""

    def __init__(self) -> None:
        self.line = 0  # in which its sentence begins; 0: none was read
        self.text = ""
        self._begin = 0  # the line of the document that is read; 0 outside of one
        self._open = False  # its message is read

    def feed(self, text: str, line: int) -> bool:
        """The next line; whether it belongs to such a document."""
        if _BEGINS.match(text) is not None:
            self._begin, self._open, self.line, self.text = line, False, 0, ""
            return True
        if not self._begin:
            return False
        message = _MESSAGE.match(text)
        key = message is None and _OTHER_KEY.match(text) is not None
        if line - self._begin > _LINES or (key and self._open):
            self._begin = 0
            return False
        self._open |= message is not None
        words = (message[1] if message is not None else text).strip(" \t|>'\"")
        if self._open and words and len(self.text) < _SENTENCE:
            self.line = self.line or line
            self.text = f"{self.text} {words}".strip()
        return True
