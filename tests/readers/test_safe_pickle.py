"""The unpickler of strangers' files: plain data passes, everything else is refused by name."""

import os
import pickle
from collections import OrderedDict

import pytest

from hangdoctor.errors import BadInput
from hangdoctor.readers import safe_pickle

PLAIN = {
    "entries": [
        {
            "sizes": [[4, 8], []],
            "pair": ("0", "default_pg"),
            "time": 1795181588722969126,
            "none": None,
        }
    ],
    "big": -(2**70),
    "float": 1.5,
    "flags": [True, False],
    "short": "é" * 20,
    "long": "x" * 70_000,
    "empty": ((), [], {}, ""),
    "triple": (1, 256, 70_000),
}


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_plain_data_comes_back_as_it_was(protocol: int) -> None:
    assert safe_pickle.loads(pickle.dumps(PLAIN, protocol=protocol)) == PLAIN


class Touches:
    """Would make a file when loaded the usual way."""

    def __init__(self, path: object) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (os.mkdir, (self.path,))


@pytest.mark.parametrize("protocol", [2, 4])
def test_a_call_is_refused_and_not_made(protocol: int, tmp_path) -> None:
    data = pickle.dumps({"entries": [Touches(tmp_path / "made")]}, protocol=protocol)
    with pytest.raises(BadInput, match=r"posix.mkdir|mkdir"):
        safe_pickle.loads(data)
    assert not (tmp_path / "made").exists()
    pickle.loads(data)
    assert (tmp_path / "made").exists(), (
        "the pickle was no threat, so that the refusal proved nothing"
    )


@pytest.mark.parametrize("protocol", [2, 4])
def test_the_second_wall_holds_alone(
    protocol: int, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(safe_pickle, "_scan", lambda data: None)
    data = pickle.dumps([Touches(tmp_path / "made")], protocol=protocol)
    with pytest.raises(
        BadInput, match=r"refused: the pickle refers to posix\.mkdir; only plain data"
    ):
        safe_pickle.loads(data)
    assert not (tmp_path / "made").exists()
    with pytest.raises(BadInput, match="persistent object; only plain data is read"):
        safe_pickle.loads(b"\x80\x02P1\n.")
    assert safe_pickle.loads(pickle.dumps(PLAIN, protocol=protocol)) == PLAIN


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (OrderedDict(a=1), "collections OrderedDict"),
        ({1, 2}, "EMPTY_SET"),
        (b"bytes", "BINBYTES"),
        (print, "builtins"),
    ],
)
def test_what_is_refused_is_named(value: object, named: str) -> None:
    with pytest.raises(BadInput, match=named):
        safe_pickle.loads(pickle.dumps(value, protocol=4))


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x02]r\xff\xff\xff\x7f.",  # LONG_BINPUT: a memo of two thousand million places
        b"\x80\x02]p999999999\n.",  # PUT: the same as text
        b"\x80\x02\x8a\xff" + b"\x01" * 255 + b".",  # an integer of two thousand bits
        b"\x80\x04\x96\xff\xff\xff\xff\xff\x00\x00\x00.",  # BYTEARRAY8 of a terabyte
        b"\x80\x02P1\n.",  # PERSID
        b"\x80\x02\x82\x01.",  # EXT1
        b"\x80\x02cos\nsystem\n(X\x04\x00\x00\x00trueR.",  # GLOBAL, REDUCE
    ],
)
def test_bombs_and_calls_made_by_hand(data: bytes) -> None:
    with pytest.raises(BadInput, match="refused"):
        safe_pickle.loads(data)


def test_truncated_at_every_byte() -> None:
    data = pickle.dumps(PLAIN | {"long": "x" * 300}, protocol=2)
    for end in range(len(data)):
        with pytest.raises(BadInput):
            safe_pickle.loads(data[:end])


def test_a_last_byte_that_is_no_end_is_named() -> None:
    with pytest.raises(BadInput, match="no opcode at byte 4"):
        safe_pickle.loads(pickle.dumps(7)[:-1] + b"\xff")


def test_bytes_after_the_end_are_no_dump() -> None:
    with pytest.raises(BadInput, match="after its end"):
        safe_pickle.loads(pickle.dumps([1]) + b"more")


def test_each_limit_is_where_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    assert safe_pickle.loads(b"\x80\x02\x8a\x10" + b"\x01" * 16 + b".") == int.from_bytes(
        b"\x01" * 16, "little"
    )
    with pytest.raises(BadInput, match="LONG1"):
        safe_pickle.loads(b"\x80\x02\x8a\x11" + b"\x01" * 17 + b".")
    for opcode, length in ((b"X", 4), (b"\x8c", 1)):
        for n in (0, 1, 63, 64, 65, 66, 255):
            data = b"\x80\x04" + opcode + n.to_bytes(length, "little") + b"x" * n + b"."
            assert safe_pickle.loads(data) == "x" * n
    data = pickle.dumps([1])
    monkeypatch.setattr(safe_pickle, "MAX_BYTES", len(data))
    assert safe_pickle.loads(data) == [1]
    monkeypatch.setattr(safe_pickle, "MAX_BYTES", len(data) - 1)
    with pytest.raises(BadInput, match="larger than the"):
        safe_pickle.loads(data)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\x80\x02\xff.", "no opcode at byte 2"),
        (b"\x80\x02K\x01.K", "1 bytes after its end"),
        (b"\x80\x02K\x01..", "1 bytes after its end"),
        (b"\x80\x02X\xff\xff", "inside BINUNICODE"),
        (b"\x80\x02cos\n", r"GLOBAL|refused"),
        (b"\x80\x02N", "in the middle"),
        (b"\x80\x02X\x50\x00\x00\x00x", "in the middle"),
        (b"", "in the middle"),
        (b"\x80\x02.", "damaged pickle"),
        (b"\x80\x02h\x05.", "damaged pickle"),
    ],
)
def test_what_is_wrong_is_said(data: bytes, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        safe_pickle.loads(data)
