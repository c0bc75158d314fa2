"""Where the fields of a C++ class lie, by its declaration in a header that the job's torch has with it.

Sizes are those of the Itanium C++ ABI on 64-bit Linux with libstdc++ (GCC 5 and later), and of
c10::SmallVector. A class with a field of another type is refused: a wrong place would show wrong
numbers.
"""

from __future__ import annotations

import re

from msgspec import Struct

from ...text.late import late

_COMMENT = late(r"//[^\n]*|/\*.*?\*/", re.S)
_FIELD = late(
    r"^\s*(?P<type>[\w:]+(?:\s*<[^;(){}]*>)?)"
    r"(?P<names>(?:\s+|\s*\*\s*)\w+(?:\s*,\s*\**\s*\w+)*)\s*(?:=[^;]*)?;"
)
_NO_FIELD = frozenset(("class", "enum", "friend", "return", "static", "struct", "typedef", "using"))
_MOST_TEXT = 1 << 20

# type -> (bytes, alignment)
_SIZES = {
    "bool": (1, 1),
    "size_t": (8, 8),
    "int64_t": (8, 8),
    "uint64_t": (8, 8),
    "c10::time_t": (8, 8),
    "std::string": (32, 8),
    "std::tuple<std::string,std::string>": (64, 8),
    "std::optional<float>": (8, 4),
    "std::optional<c10::time_t>": (16, 8),
    "std::optional<int64_t>": (16, 8),
    "std::optional<size_t>": (16, 8),
    "std::thread::id": (8, 8),
    "std::mutex": (40, 8),
}
_TEMPLATES = {
    "std::vector": (24, 8),
    "std::shared_ptr": (16, 8),
    "std::unique_ptr": (8, 8),
    "std::unordered_map": (56, 8),
    "std::map": (48, 8),
}
_SMALL = late(r"^c10::SmallVector<int64_t,(\d+)>$")
_SMALL_HEAD = 16  # pointer, and two 32-bit numbers


class UnknownClass(Exception):
    """The header does not declare it in a form that is known here."""


class Field(Struct, frozen=True):
    """One field of a class."""

    offset: int
    size: int
    type: str


class ClassLayout(Struct, frozen=True):
    """Fields by name, and what one object takes."""

    fields: dict[str, Field]
    size: int


def layout_of(header: str, name: str) -> ClassLayout:
    """The layout of ``struct NAME`` as the text of a header declares it.

    Raises:
        UnknownClass: it is not there, or has a field of an unknown type.
    """
    fields: dict[str, Field] = {}
    at, widest = 0, 1
    for type_, field in _declared(header, name):
        size, alignment = _size_of(type_)
        at = -(-at // alignment) * alignment
        fields[field] = Field(at, size, type_)
        at += size
        widest = max(widest, alignment)
    if not fields:
        raise UnknownClass(f"{name} has no fields")
    return ClassLayout(fields, -(-at // widest) * widest)


def _declared(header: str, name: str) -> list[tuple[str, str]]:
    """(type, name) of the fields in their order."""
    found: list[tuple[str, str]] = []
    for statement in _statements(_body(header, name)):
        match = _FIELD.match(statement)
        if match is None or match["type"] in _NO_FIELD:
            continue
        base = re.sub(r"\s", "", match["type"])
        for one in match["names"].split(","):
            found.append((base + "*" * one.count("*"), one.strip(" *\n")))
    return found


def _body(header: str, name: str) -> str:
    """What is between the braces of the class."""
    text = _COMMENT.sub(" ", header[:_MOST_TEXT])
    match = re.search(rf"\bstruct\s+{name}\s*\{{", text)
    if match is None:
        raise UnknownClass(f"no struct {name}")
    depth = 1
    for place in range(match.end(), len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if not depth:
            return text[match.end() : place]
    raise UnknownClass(f"struct {name} has no end")


def _statements(body: str) -> list[str]:
    """Its declarations, without what stands in the braces of functions and inner classes."""
    flat: list[str] = []
    depth = 0
    for piece in re.split(r"([{}])", body):
        if piece == "{":
            depth += 1
        elif piece == "}":
            depth -= 1
            flat.append(";" if not depth else "")
        elif not depth:
            flat.append(piece)
    return [f"{statement};" for statement in "".join(flat).split(";")]


def _size_of(type_: str) -> tuple[int, int]:
    if type_.endswith("*"):
        return 8, 8
    if type_ in _SIZES:
        return _SIZES[type_]
    small = _SMALL.match(type_)
    if small:
        return _SMALL_HEAD + 8 * int(small[1]), 8
    known = _TEMPLATES.get(type_.partition("<")[0])
    if known is None:
        raise UnknownClass(f"a field of type {type_}")
    return known
