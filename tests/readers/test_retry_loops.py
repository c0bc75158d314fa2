"""Which lines of a program are in a loop that tries again after an exception."""

from __future__ import annotations

import textwrap

import pytest

from hangdoctor.readers.retry_loops import begins, caught, counted, ended

RETURNS = """
    def read(url):
        while True:
            try:
                answer = get(url)  # here
                return answer
            except (ConnectionError, TimeoutError) as error:
                log(error)
                time.sleep(1)  # there
"""
BREAKS = """
    for attempt in range(1000):
        try:
            with open(path) as file:
                data = file.read()  # here
        except OSError:

            # the file system may come back
            if attempt > 3:
                warn()  # there
        else:
            break
"""
BARE = """
    while not done:
        try:
            done = step()
        except:
            restore()  # here
"""
TRAINING = """
    def train(loader):
        for batch in loader:
            try:
                loss = step(batch)  # here
                total += loss
            except OutOfMemory:
                continue
"""
ITERATING = """
    while True:
        try:
            batch = next(it)
            if batch is None:
                break
            step(batch)  # here
        except StopIteration:
            break
"""
ENDS = """
    def outer():
        while True:
            def inner():
                try:
                    return get()  # here
                except ValueError:
                    pass  # there
            inner()
"""
ONCE = """
    def f():
        try:
            return get()  # here
        except ValueError:
            return other()  # there
"""


@pytest.mark.parametrize(
    ("source", "marks", "names"),
    [
        (RETURNS, ("here", "there"), "ConnectionError, TimeoutError"),
        (BREAKS, ("here", "there"), "OSError"),
        (BARE, ("here",), "Exception"),
        (TRAINING, ("here",), ""),
        (ITERATING, ("here",), ""),
        (ENDS, ("here", "there"), ""),
        (ONCE, ("here", "there"), ""),
    ],
)
def test_loops_that_try_again(source: str, marks: tuple[str, ...], names: str) -> None:
    lines = textwrap.dedent(source).split("\n")
    for mark in marks:
        number = next(n for n, line in enumerate(lines, 1) if f"# {mark}" in line)
        assert caught(lines, number) == names


@pytest.mark.parametrize("number", [-1, 0, 1, 2, 99])
def test_lines_that_are_not_there(number: int) -> None:
    assert caught([], number) == "" and caught(["x"], number) == ""


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("for i in range(9):", "i"),
        ("for i, row in enumerate(rows):", "i"),
        ("for (k, v) in table.items():", "k"),
        ("for i in itertools.count():", ""),
        ("for i in iter(get, None):", ""),
        ("while i < 9:", "while"),
        ("if i in range(9):", ""),
    ],
)
def test_the_variable_of_a_loop_that_ends(header: str, name: str) -> None:
    lines = ["def f():", f"    {header}", "        if x:", "            work()"]
    assert counted(lines, 4) == name
    assert counted(["for i in a:", "    def f():", "        work()"], 3) == ""


EPOCHS = """
def main():
    for name in setup:
        prepare(name)
    for epoch in range(9):
        for i, batch in enumerate(train):
            step(batch)  # inside
        for i in range(3):
            warm(i)  # second
        validate()  # after
"""


@pytest.mark.parametrize(
    ("mark", "names"), [("inside", "name"), ("second", "batch name"), ("after", "batch i name")]
)
def test_variables_of_loops_that_are_over(mark: str, names: str) -> None:
    lines = EPOCHS.split("\n")
    number = next(n for n, line in enumerate(lines, 1) if f"# {mark}" in line)
    assert ended(lines, number) == names
    assert ended([], number) == "" and ended(["for i in a:", "    f()", "g()"], 3) == "i"


@pytest.mark.parametrize(
    ("mark", "headers"), [("inside", [5, 6]), ("second", [5, 8]), ("after", [5])]
)
def test_where_the_loops_around_a_line_begin(mark: str, headers: list[int]) -> None:
    lines = EPOCHS.split("\n")
    number = next(n for n, line in enumerate(lines, 1) if f"# {mark}" in line)
    assert begins(lines, number) == headers
    assert (
        begins([], number) == [] and begins(["for i in a:", "    def f():", "        g()"], 3) == []
    )
