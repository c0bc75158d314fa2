"""Reads pickles of strangers: plain containers, numbers, strings, and nothing else.

Two walls. First the bytes are scanned against a list of admitted opcodes: none of them can name a
class, call anything or ask for more memory than the file is long. Then an unpickler that knows no
class and no persistent object loads them. Opcodes: the standard library's `pickletools`.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import re

from hangdoctor.errors import BadInput

from ..text.late import late

MAX_BYTES = 1 << 29
_IN_PATTERN = 64  # strings up to this length are scanned by the pattern, longer ones by hand


def _sized(opcode: bytes, length_bytes: int, longest: int) -> bytes:
    """Alternatives for an opcode, its little-endian length and as many bytes."""
    each = (
        re.escape(n.to_bytes(length_bytes, "little")) + b".{%d}" % n for n in range(longest + 1)
    )
    return re.escape(opcode) + b"(?:" + b"|".join(each) + b")"


_TOKEN = b"|".join(
    [
        # None, True, False, (), [], {}, marks and what closes them, MEMOIZE; no SETs, no POP, no
        # DUP
        rb"[N\x88\x89\)\]}\(adelstu\x85\x86\x87\x94]",
        rb"[qhK\x80].",  # BINPUT, BINGET, BININT1, PROTO
        rb"M..",  # BININT2
        rb"[Jj].{4}",  # BININT, LONG_BINGET
        # LONG_BINPUT: the memo is an array, so that a large index would ask for much memory
        rb"r..[\x00-\x3f]\x00",
        rb"[G\x95].{8}",  # BINFLOAT, FRAME
        _sized(b"\x8a", 1, 16),  # LONG1
        _sized(b"X", 4, _IN_PATTERN),  # BINUNICODE
        _sized(b"\x8c", 1, _IN_PATTERN),  # SHORT_BINUNICODE
    ]
)
_ADMITTED = "N\x88\x89)]}(adelstu\x85\x86\x87\x94qhK\x80MJjrG\x95\x8aX\x8c."
# In portions: one unbounded repetition would keep a way back for each of its steps.
_TOKENS = late(b"(?:" + _TOKEN + b"){1,400}", re.DOTALL)
_LONG_STRING = late(rb"(?:X(?P<four>.{4})|\x8c(?P<one>.))", re.DOTALL)


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> object:
        raise BadInput(f"refused: the pickle refers to {module}.{name}; only plain data is read")

    def persistent_load(self, pid: object) -> object:
        raise BadInput("refused: the pickle refers to a persistent object; only plain data is read")


def loads(data: bytes) -> object:
    """What the pickle holds: dict, list, tuple, str, int, float, bool and None.

    Raises:
        BadInput: it is too large, damaged or truncated, or asks for anything but plain data.
    """
    if len(data) > MAX_BYTES:
        raise BadInput(f"{len(data)} bytes: larger than the limit of {MAX_BYTES}")
    _scan(data)
    try:
        return _PlainUnpickler(io.BytesIO(data)).load()
    except (
        pickle.UnpicklingError,
        EOFError,
        ValueError,
        TypeError,
        IndexError,
        KeyError,
        UnicodeError,
        AttributeError,
    ) as e:
        raise BadInput(f"damaged pickle: {e}") from e
    except (MemoryError, RecursionError) as e:
        raise BadInput(f"the pickle is not consistent: {type(e).__name__}") from e


def _scan(data: bytes) -> None:
    position, end = 0, len(data)
    while position < end:
        match = _TOKENS.match(data, position)
        if match:
            position = match.end()
            continue
        string = _LONG_STRING.match(data, position)
        if string:
            position = string.end() + int.from_bytes(string["four"] or string["one"], "little")
            continue
        if data[position : position + 1] == b"." and position == end - 1:
            return
        raise BadInput(_refusal(data, position))
    raise BadInput("truncated pickle: it stops in the middle")


def _refusal(data: bytes, position: int) -> str:
    """What is at the place where the scan stopped, by name."""
    opcode = next((o for o in pickletools.opcodes if o.code == chr(data[position])), None)
    if opcode is None:
        return f"damaged pickle: no opcode at byte {position}"
    if opcode.name == "STOP":
        return f"damaged pickle: {len(data) - position - 1} bytes after its end"
    argument = ""
    try:
        if opcode.name == "STACK_GLOBAL":
            # It takes module and name from the stack: the two strings before it.
            before = [
                a
                for _, a, at in pickletools.genops(data)
                if isinstance(a, str) and (at or 0) < position
            ]
            argument = f" ({' '.join(before[-2:])})"
        elif opcode.arg is not None:
            argument = f" ({opcode.arg.reader(io.BytesIO(data[position + 1 : position + 400]))})"
    except ValueError:
        if opcode.code not in _ADMITTED:
            return f"the pickle holds {opcode.name}: refused, only plain data is read"
        return f"truncated pickle: it stops inside {opcode.name}"
    return f"the pickle holds {opcode.name}{argument}: refused, only plain data is read"
