"""Sizes of the parts of an all_to_all, as they lie in a record, and as an operation tells them."""

from __future__ import annotations

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangdoctor.model import splits
from hangdoctor.model.splits import Splits
from hangdoctor.probe import format as fmt
from hangdoctor.probe.splits import of_single, of_vectors, packed
from hangdoctor.readers.box_splits import splits_of

SIZES = st.integers(0, 10**12)


@given(
    st.integers(1, 30).flatmap(lambda n: st.lists(st.tuples(SIZES, SIZES), min_size=n, max_size=n))
)
def test_they_come_back_as_far_as_there_is_room(pairs: list[tuple[int, int]]) -> None:
    sends, receives = zip(*pairs, strict=True)
    text = packed(sends, receives)
    assert len(text) < fmt.INLINE_BYTES and (not text) == (len(sends) > 22)
    found = splits.read(splits_of(text))
    if found is not None:
        whole = found.modulus or 1 << 60
        assert found.sends == tuple(n % whole for n in sends)
        assert found.receives == tuple(n % whole for n in receives)
    assert (found is None) == (not text)


def test_small_numbers_of_eight_ranks_are_whole() -> None:
    text = packed([4095, 0, 1, 2, 3, 4, 5, 6], [7] * 8)
    assert splits.read(splits_of(text)) == Splits((4095, 0, 1, 2, 3, 4, 5, 6), (7,) * 8)


def test_what_calls_give() -> None:
    whole = str(Splits((1, 2), (3, 4)))
    counts, places = numpy.array([1, 2], "i"), numpy.array([0, 1])
    for sent in (
        [0, counts],
        [0, counts, places],
        [0, (counts, places)],
        [0, (counts, places), "d"],
    ):
        assert splits_of(of_vectors((sent, [0, [3, 4]]), {})) == whole
    assert splits_of(of_vectors((), {"sendbuf": (0, (1, 2)), "recvbuf": [0, [3, 4]]})) == whole
    assert splits_of(of_single((None, None, [3, 4], [1, 2]), {})) == whole
    named = {"output_split_sizes": (3, 4), "input_split_sizes": [1, 2]}
    assert splits_of(of_single((None, None), named)) == whole


@pytest.mark.parametrize("given", [None, [], [1, -1], [1, "2"], [1.5], "12", 3, [[1, 2]], {1: 2}])
def test_what_is_no_list_of_sizes_is_nothing(given: object) -> None:
    assert of_single((None, None, given, [1, 2]), {}) == of_single((), {"a": given}) == ""
    assert of_vectors(([0, given], [0, [1, 2]]), {}) == of_vectors((given,), {}) == ""


@pytest.mark.parametrize(
    "text", ["", "=", "=0", "=1A", "~x11", "=2ABC", "=1A!", "{0}", "=²AA", "=9A"]
)
def test_a_text_that_is_none_of_these(text: str) -> None:
    assert splits_of(text) == ""


@pytest.mark.parametrize(
    "text",
    [
        "tag 7",
        "sends 1",
        "sends 1,2; receives 3",
        "sends a; receives b",
        "sends 1; receives 2 mod x",
    ],
)
def test_another_detail_is_none(text: str) -> None:
    assert splits.read(text) is None
