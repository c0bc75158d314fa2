"""Accelerate's debug mode: it compares what all processes bring to an operation before it runs.

Cannot apply desired operation due to shape mismatches. All shapes across devices must be valid.

Operation: `accelerate.utils.operations.gather`
Input shapes:
  - Process 0: [1024]
  - Process 1: [2048]
"""

from __future__ import annotations

from ...model.log_facts import Mismatch
from ...text.late import late
from .prefix import Said, Speaker

_OPERATION = late(r"^\s*Operation: `?(?:\w{1,60}\.){0,8}(\w{1,60})`?\s*$")
_SHAPE = late(r"^\s*- Process (\d{1,7}): (\S.{0,400})$")
_PLAIN = late(r"\[([\d, ]{0,200})\]")  # of one tensor
_LIST = "Input shapes:"
BEGINS = ("due to shape mismatches", _LIST)


class ShapeLists:
    """Takes the lines of one file one after the other."""

    def __init__(self) -> None:
        self._operations: dict[Speaker, str] = {}
        self._open: set[Speaker] = set()
        self._told: set[tuple[str, int, str]] = set()  # each rank prints the whole list

    def feed(self, said: Said) -> Mismatch | None:
        """What one process brought, where no rank has printed it before."""
        key, text = said.speaker(), said.text
        if key in self._open:
            return self._listed(key, text)
        if "Operation: " in text and (match := _OPERATION.match(text)) is not None:
            self._operations[key] = match[1]
        elif text.strip() == _LIST:
            self._open.add(key)
        return None

    def _listed(self, key: Speaker, text: str) -> Mismatch | None:
        match = _SHAPE.match(text)
        if match is None:
            self._open.discard(key)
            return None
        plain = _PLAIN.fullmatch(match[2].strip())
        shape = plain[1] if plain is not None else match[2].strip()
        told = (self._operations.get(key, "operation"), int(match[1]), shape)
        if told in self._told:
            return None
        self._told.add(told)
        return Mismatch(one=told[1], one_op=told[0], one_shape=shape)
