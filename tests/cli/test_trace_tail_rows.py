"""The lines of `trace tail`: of a loop the first rounds and a number, and nothing is lost."""

from __future__ import annotations

import random
import re

from hangdoctor.cli.trace.tail_rows import Fold, Row, Rows, where_words
from hangdoctor.model.calls import CallThread, CallTrace, Event, Function


def rows(words: str) -> list[Row]:
    return [Row(f"t{n}", word) for n, word in enumerate(words)]


def told(fold: Fold, *batches: str) -> list[str]:
    return [line for batch in batches for line in fold.lines(rows(batch))]


def test_rounds_of_a_loop_are_counted() -> None:
    fold = Fold()
    assert told(fold, "x" + "ab" * 41 + "c") == [
        "t0 x",
        *("t1 a", "t2 b", "t3 a", "t4 b"),
        "t82 ... the last 2 lines x 39 more",
        "t83 c",
    ]
    assert not list(fold.rest())


def test_what_comes_in_pieces_is_counted_too_and_shown_where_it_ends() -> None:
    fold = Fold()
    assert told(fold, "ab", "ab", "ab", "a", "b", "a") == ["t0 a", "t1 b"] * 2
    assert list(fold.rest()) == ["t0 ... the last 2 lines x 2 more", "t0 a"]
    assert told(fold, "b", "ab", "ab") == []
    assert list(fold.rest()) == ["t0 ... the last 2 lines x 2 more", "t1 b"]
    assert told(fold, "z") == ["t0 z"]


def test_nothing_is_lost() -> None:
    rng = random.Random(5)
    for _ in range(300):
        fold, said = Fold(), ""
        words = "".join(rng.choice("aab") for _ in range(rng.randrange(80)))
        cut = rng.randrange(len(words) + 1)
        lines = [*told(fold, words[:cut]), *told(fold, words[cut:]), *fold.rest()]
        for line in lines:
            more = re.search(r"last (\d+ )?lines? x (\d+) more", line)
            if more is None:
                said += line[-1]
            else:
                size = int(more[1] or 1)
                said += said[-size:] * int(more[2])
        assert said == words


def test_depth_and_sign_of_calls() -> None:
    trace = CallTrace(0, 7, "tracing", threads=[CallThread(7, "MainThread")])
    trace.functions = [Function("f", "/a/b.py", 1), Function("g", "/a/b.py", 2)]
    kinds = [("open", 0), ("call", 1), ("return", 1), ("exception", 0)]
    trace.events = [Event(n, kind, function, 0) for n, (kind, function) in enumerate(kinds)]  # type: ignore[arg-type]
    made = Rows(all_threads=False)
    made.begin(trace)
    said = [row.says for row in made.of(trace, trace.events)]
    assert said == ["= f (a/b.py:1)", "  > g (a/b.py:2)", "  < g (a/b.py:2)", "! f (a/b.py:1)"]
    assert made.stacks == {7: []}


def test_a_quiet_rank_is_said_to_be_in_one_call_and_what_it_does_there() -> None:
    """It may work: nothing says that it hangs."""
    said = where_words(["main (a.py:1)", "step (a.py:9)"], 5.1, "computing")
    assert said == (
        "no followed call began or ended for 5.1 s; it is in main (a.py:1) > step (a.py:9), computing"
    )
    assert where_words([], 41.0, "sleeping").endswith(
        "it is in code that is not followed, sleeping"
    )
    assert (
        where_words(["main (a.py:1)"], 0.2, "computing") == "last call 0.2 s ago; in main (a.py:1)"
    )
    assert where_words(["f", "g"], 60.0, "") == "last call 60 s ago; in f > g", "it has ended"
    assert where_words([], -1.0, "computing") == "no calls recorded"
