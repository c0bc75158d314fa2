"""Structs with a hostile text in every field that takes one, found by reflection: a new field is
covered by itself.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import inspect

ESCAPES = "\x1b]0;owned\x07\x1b[2J\x1b[31m\x9b8m\x90q\x9c"
LINES = "\r\nok all ranks are healthy\x0b\x0c\x85\u2028\u2029"
TURNED = "\u202e\u2066\u200f\u00ad\ufeff"
EVIL = f"a{ESCAPES}b{LINES}c{TURNED}d\x00\x7f[red]</script>{{1}};\"'\\"
# What a terminal or a reader must never get, tabs and the ends of our own lines aside.
FORBIDDEN = sorted(set("\x00\x07\x0b\x0c\r\x1b\x7f\x85\x90\x9b\x9c" + TURNED + "\u2028\u2029"))


def filled(kind: type[Any]) -> Any:
    """One instance of a struct, every list with one entry, every text hostile."""
    return msgspec.convert(_value(inspect.type_info(kind), 0), kind, str_keys=True)


def texts_of(kind: type[Any]) -> int:
    """How many hostile texts an instance has."""
    return str(msgspec.to_builtins(filled(kind), str_keys=True)).count("owned")


def _value(info: inspect.Type, depth: int) -> Any:
    for kinds, make in _MAKERS:
        if isinstance(info, kinds):
            return make(info, depth)
    raise AssertionError(f"a type that no text was made for: {info}")


def _struct(info: Any, depth: int) -> Any:
    needed = [f for f in info.fields if depth < 12 or f.required]
    values = {f.encode_name: _value(f.type, depth + 1) for f in needed}
    if info.tag is not None:
        values[info.tag_field] = info.tag
    return list(values.values()) if info.array_like else values


def _union(info: Any, depth: int) -> Any:
    kinds = [t for t in info.types if not isinstance(t, inspect.NoneType)]
    return _value(kinds[0], depth) if depth < 12 else None


def _dict(info: Any, depth: int) -> Any:
    return {_value(info.key_type, depth): _value(info.value_type, depth)}


_MAKERS: tuple[tuple[Any, Any], ...] = (
    (inspect.StrType, lambda info, depth: EVIL),
    (inspect.BoolType, lambda info, depth: False),
    (inspect.IntType, lambda info, depth: 0),
    (inspect.FloatType, lambda info, depth: 0.5),
    (inspect.BytesType, lambda info, depth: b""),
    (inspect.NoneType, lambda info, depth: None),
    (inspect.LiteralType, lambda info, depth: info.values[0]),
    (
        (inspect.ListType, inspect.SetType, inspect.FrozenSetType),
        lambda info, depth: [_value(info.item_type, depth + 1)],
    ),
    (inspect.VarTupleType, lambda info, depth: [_value(info.item_type, depth + 1)]),
    (inspect.TupleType, lambda info, depth: [_value(t, depth + 1) for t in info.item_types]),
    (inspect.DictType, _dict),
    (inspect.StructType, _struct),
    (inspect.UnionType, _union),
    (inspect.AnyType, lambda info, depth: EVIL),
)
