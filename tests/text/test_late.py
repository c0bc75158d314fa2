"""Patterns that are compiled late are the same patterns, and all of them compile."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator

import pytest

import hangdoctor
from hangdoctor.text.late import Late, late

READING = ("readers", "diagnosis", "stacks", "text")


def test_it_does_what_a_compiled_one_does() -> None:
    one, other = (
        late(r"(?P<rank>\d+) of (\d+)", re.IGNORECASE),
        re.compile(r"(?P<rank>\d+) of (\d+)", re.I),
    )
    for text in ("rank 3 OF 8", "", "3 of 8", "none"):
        for method in ("search", "match", "fullmatch"):
            found, expected = getattr(one, method)(text), getattr(other, method)(text)
            assert (found and found.groups()) == (expected and expected.groups())
        assert one.findall(text) == other.findall(text)
        assert one.sub("x", text, count=1) == other.sub("x", text, count=1)
        assert one.split(text) == other.split(text)
    assert (one.pattern, one.flags, one.groups) == (other.pattern, other.flags, other.groups)
    assert late(rb"\d+").findall(b"1 22") == [b"1", b"22"]


def test_nothing_is_compiled_before_it_is_used() -> None:
    broken = late("(")
    with pytest.raises(re.error):
        broken.search("text")


def _patterns(value: object) -> Iterator[Late]:
    if isinstance(value, Late):
        yield value
    elif isinstance(value, dict):
        for each in (*value, *value.values()):
            yield from _patterns(each)
    elif isinstance(value, list | tuple | set | frozenset):
        for each in value:
            yield from _patterns(each)


def test_every_pattern_of_the_package_compiles() -> None:
    found = 0
    for part in READING:
        package = importlib.import_module(f"hangdoctor.{part}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            for name, value in vars(importlib.import_module(module.name)).items():
                for pattern in _patterns(value):
                    found += 1
                    try:
                        pattern.search("" if isinstance(pattern._source, str) else b"")
                    except re.error as e:
                        raise AssertionError(f"{module.name}.{name}: {e}") from e
    assert found > 400, hangdoctor.__file__
