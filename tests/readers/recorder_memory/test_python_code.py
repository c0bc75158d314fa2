"""Functions, files and lines read from the memory of a living Python."""

from __future__ import annotations

import inspect
import json
import os
from types import CodeType

import pytest

from hangdoctor.readers.recorder_memory.process_memory import ProcessMemory, Unreadable
from hangdoctor.readers.recorder_memory.python_code import CodeReader, line_at

SOURCE = """

def größe(x):
    y = x

    return (y +
            x)
"""


def codes() -> list[CodeType]:
    made = compile(SOURCE, "/tmp/données ☃.py", "exec")
    inner = [one for one in made.co_consts if isinstance(one, CodeType)]
    return [made, *inner, inspect.getsource.__code__, json.dumps.__code__]


def lines_of(code: CodeType) -> list[tuple[int, int]]:
    """(byte, line) of each instruction that has one."""
    positions = enumerate(code.co_positions())
    return [(2 * unit, line) for unit, (line, _, _, _) in positions if line is not None]


@pytest.mark.skipif(not hasattr(CodeType, "co_positions"), reason="a table of another form")
@pytest.mark.parametrize("code", codes() if hasattr(CodeType, "co_positions") else [])
def test_every_instruction_has_the_line_that_python_gives_it(code: CodeType) -> None:
    with ProcessMemory(os.getpid()) as memory:
        reader = CodeReader(memory)
        for last, line in lines_of(code):
            place = reader.place(id(code), last)
            assert place is not None
            assert (place.name, place.filename, place.line) == (
                code.co_name,
                code.co_filename,
                line,
            )


def test_what_is_no_code_object_has_no_place() -> None:
    with ProcessMemory(os.getpid()) as memory:
        assert CodeReader(memory).place(64, 0) is None
        assert CodeReader(memory).place(id("a text"), 0) is None


def test_a_table_that_ends_early_gives_the_first_line() -> None:
    assert line_at(b"", 7, 0) == 7
    assert line_at(bytes([0x80 | 14 << 3]), 7, 100) == 7


def test_memory_that_is_not_there_is_said_to_be() -> None:
    with ProcessMemory(os.getpid()) as memory, pytest.raises(Unreadable):
        memory.read(64, 8)
    with pytest.raises(Unreadable):
        ProcessMemory(2**22 + 1)
