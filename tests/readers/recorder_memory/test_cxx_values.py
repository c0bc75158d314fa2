"""Values of C++ types, laid out by hand in this process's own memory."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator

import pytest

from hangdoctor.readers.recorder_memory import cxx_values as cxx
from hangdoctor.readers.recorder_memory.process_memory import ProcessMemory, Unreadable


@pytest.fixture
def memory() -> Iterator[ProcessMemory]:
    with ProcessMemory(os.getpid()) as own:
        yield own


class Laid:
    """Bytes at an address."""

    def __init__(self, size: int) -> None:
        self.buffer = ctypes.create_string_buffer(size)
        self.address = ctypes.addressof(self.buffer)

    def put(self, at: int, form: str, *values: object) -> None:
        struct.pack_into(form, self.buffer, at, *values)

    @property
    def data(self) -> bytes:
        return self.buffer.raw


def test_a_short_text_is_inside_the_object(memory: ProcessMemory) -> None:
    laid = Laid(40)
    laid.put(8, "<2Q15s", laid.address + 24, 15, b"gloo:all_reduce")
    assert cxx.text(memory, laid.data, 8, laid.address) == "gloo:all_reduce"


def test_a_long_text_is_elsewhere(memory: ProcessMemory) -> None:
    words = Laid(64)
    words.put(0, "<30s", b"gloo:reduce_scatter_tensor_coa")
    laid = Laid(32)
    laid.put(0, "<2Q", words.address, 30)
    assert cxx.text(memory, laid.data, 0, laid.address) == "gloo:reduce_scatter_tensor_coa"


def test_a_text_of_a_length_that_none_has_is_refused(memory: ProcessMemory) -> None:
    laid = Laid(32)
    laid.put(0, "<2Q", laid.address + 16, 1 << 40)
    with pytest.raises(Unreadable):
        cxx.text(memory, laid.data, 0, laid.address)


@pytest.mark.parametrize("inside", [True, False])
def test_numbers_of_a_small_vector(memory: ProcessMemory, inside: bool) -> None:
    elsewhere = Laid(64)
    elsewhere.put(0, "<3q", 4, -1, 8)
    laid = Laid(48)
    laid.put(16, "<3q", 4, -1, 8)
    laid.put(0, "<Q2I", laid.address + 16 if inside else elsewhere.address, 3, 4)
    assert cxx.small_vector(memory, laid.data, 0, laid.address) == [4, -1, 8]


def test_what_a_vector_holds(memory: ProcessMemory) -> None:
    held, laid = Laid(8), Laid(24)
    held.put(0, "<3B", 6, 4, 15)
    laid.put(0, "<3Q", held.address, held.address + 3, held.address + 8)
    assert cxx.vector_bytes(memory, laid.data, 0) == b"\x06\x04\x0f"
    assert cxx.vector_bytes(memory, Laid(24).data, 0) == b""
    laid.put(8, "<Q", held.address - 1)
    with pytest.raises(Unreadable):
        cxx.vector_bytes(memory, laid.data, 0)


def test_an_optional_number_may_be_absent() -> None:
    laid = Laid(16)
    laid.put(0, "<qB", 7, 0)
    assert cxx.optional_whole(laid.data, 0) is None
    laid.put(8, "<B", 1)
    assert cxx.optional_whole(laid.data, 0) == 7


def tree(keys: list[int]) -> tuple[Laid, list[Laid]]:
    """The head of a map and its nodes, balanced."""
    nodes = {key: Laid(48) for key in keys}

    def hang(some: list[int]) -> int:
        if not some:
            return 0
        middle = len(some) // 2
        key = some[middle]
        left, right = hang(some[:middle]), hang(some[middle + 1 :])
        nodes[key].put(8, "<5Q", 0, left, right, key, key * 10)
        return nodes[key].address

    head = Laid(48)
    head.put(16, "<4Q", hang(keys), 0, 0, len(keys))
    return head, list(nodes.values())


def test_pairs_of_a_map_come_in_order(memory: ProcessMemory) -> None:
    head, _nodes = tree([1, 4, 9, 16, 25, 36, 49])
    pairs = [struct.unpack("<2Q", pair) for _, pair in cxx.map_values(memory, head.data, 0, 16)]
    assert pairs == [(n * n, n * n * 10) for n in range(1, 8)]
    empty, _none = tree([])
    assert not list(cxx.map_values(memory, empty.data, 0, 16))


def test_a_map_that_runs_in_a_circle_ends(memory: ProcessMemory) -> None:
    head, nodes = tree([1])
    nodes[0].put(24, "<Q", nodes[0].address)
    with pytest.raises(Unreadable):
        list(cxx.map_values(memory, head.data, 0, 16))
