"""Whole findings made fit to be shown: every text in a struct, whichever field it is in."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from .plain import escape_hidden, visible

T = TypeVar("T")
_NUMBERS = {int, float, bool}


def cleaned(value: T) -> T:
    """A copy whose every text is one line without characters that steer a terminal; structs, lists
    and dicts are walked.
    """
    copy: T = _cleaned(value)
    return copy


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, msgspec.Struct):
        return type(value)(
            **{name: _cleaned(getattr(value, name)) for name in value.__struct_fields__}
        )
    if isinstance(value, dict):
        return {_cleaned(key): _cleaned(each) for key, each in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        if set(map(type, value)) <= _NUMBERS:
            return value  # ranks, of which there may be a million
        return type(value)(map(_cleaned, value))
    return value


def as_json(value: object) -> bytes:
    """Indented JSON with a newline at its end; the data as they are, hidden characters as escapes."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=1).decode()
    return escape_hidden(text).encode() + b"\n"
