"""Small parts of the sentences: figures at their ends, one and several, what is left out."""

from __future__ import annotations

from typing import Any

import pytest

from hangdoctor.diagnosis import findings as f
from hangdoctor.diagnosis.findings import Clue, Finding, Home, Op, stories
from hangdoctor.diagnosis.findings.difference import difference
from hangdoctor.diagnosis.findings.log_stories import Someone
from hangdoctor.diagnosis.health import Reason, Remaining
from hangdoctor.diagnosis.ops.evidence import Note, Remark
from hangdoctor.diagnosis.wording import calls, clues, gpu_words, lock_words, note_words, remaining
from hangdoctor.diagnosis.wording import release as releases
from hangdoctor.diagnosis.wording.advice import by_story
from hangdoctor.model.capture import Frame
from hangdoctor.model.diagnosis import CallsOf
from hangdoctor.model.gpu import Gpu, Xid

BOTH = "ranks 5 and 1"


def of(rank: int, *said: str) -> CallsOf:
    return CallsOf(rank, list(said))


@pytest.mark.parametrize(
    ("culprit", "peer", "alike", "text"),
    [
        (
            of(5, "called a", "called b"),
            of(1, "called c", "called d"),
            "called z",
            f"{BOTH} did the same until both called z; then rank 5 called a, rank 1 called c",
        ),
        (
            of(5),
            of(1, "called c"),
            "called z",
            f"{BOTH} did the same until both called z; "
            "then rank 5 made no further call, rank 1 called c",
        ),
        (
            of(5, "called a"),
            of(1),
            "called z",
            f"{BOTH} did the same until both called z; "
            "then rank 5 called a, rank 1 made no further call",
        ),
        (
            of(5, "called a", "called b"),
            of(1),
            "",
            f"the recorded calls of {BOTH} have nothing in common; rank 5 last called b",
        ),
        (
            of(5, "called a", "called b"),
            None,
            "",
            "the last recorded call of rank 5: called b",
        ),
        (of(5), None, "", "the last recorded call of rank 5: recorded nothing"),
    ],
)
def test_where_the_calls_of_two_ranks_part(
    culprit: CallsOf, peer: CallsOf | None, alike: str, text: str
) -> None:
    assert calls.parting(culprit, peer, alike) == text


@pytest.mark.parametrize(
    ("gpu", "text"),
    [
        (Gpu(0), "no figures"),
        (Gpu(0, busy=0), "0 % busy"),
        (Gpu(0, clock_mhz=0), "clock 0 MHz"),
        (Gpu(0, clock_mhz=1, clock_max_mhz=2), "clock 1 of 2 MHz"),
        (Gpu(0, memory_mb=0, memory_total_mb=1), "0 of 1 MB used"),
        (Gpu(0, memory_mb=0, memory_total_mb=0), "no figures"),
        (Gpu(0, uncorrected=0, link_errors=0), "no figures"),
        (
            Gpu(0, uncorrected=1, link_errors=2),
            "1 uncorrectable memory error since the driver was loaded, 2 NVLink errors",
        ),
        (
            Gpu(0, xids=[Xid(1), Xid(43, says="x."), Xid(79)]),
            "Xid 43: x, Xid 79 (the GPU has fallen off the bus)",
        ),
        (Gpu(0, slowed=["a", "b"]), "slowed down by a, b"),
    ],
)
def test_the_figures_of_a_gpu(gpu: Gpu, text: str) -> None:
    assert clues.say(f.GpuState(gpu)) == text


# As in NVIDIA's list of Xid errors.
@pytest.mark.parametrize(
    ("word", "numbers"),
    [
        ("memory access", {13, 31}),
        ("uncorrectable memory", {48, 64, 94, 95, 140}),
        ("NVLink", {74, 144, 145, 149}),
        ("off the bus", {79}),
        ("give way", {109}),
        ("does not answer", {119, 120}),
        ("a reset", {154}),
    ],
)
def test_what_the_drivers_numbers_mean(word: str, numbers: set[int]) -> None:
    assert {n for n in range(200) if word in gpu_words.meaning(n)} == numbers
    assert gpu_words.meaning(43) == "Xid 43"


def test_the_name_of_a_lock_is_the_last_part_of_its_path() -> None:
    names = [lock_words._name(path) for path in ("/a/b.lock", "b.lock", "/a/b/")]
    assert names == ["b.lock", "b.lock", "/a/b/"]


@pytest.mark.parametrize(
    ("frame", "text"),
    [
        (None, ""),
        (Frame("f", "/a b.py", 1), "less +1 '/a b.py'"),
        (Frame("f", "/a.py", 0), ""),
        (Frame("f", "a.py", 7), ""),
    ],
)
def test_a_file_that_can_be_opened(frame: Frame | None, text: str) -> None:
    assert releases.open_at(frame) == text


def test_a_process_that_has_ended_has_no_number() -> None:
    home = Home(5, "n2", 7791)
    runs = Finding("busy", [5], f.NeverReached(None), 0.9, homes=[home])
    ended = Finding("busy", [5], f.NeverReached(None), 0.9, homes=[home], over=True)
    unknown = Finding("busy", [5], f.NeverReached(None), 0.9)
    assert [releases.pid_of(one) for one in (runs, ended, unknown)] == [7791, 0, 0]


@pytest.mark.parametrize(("number", "who"), [(1, "The rank"), (2, "All 2 ranks")])
def test_all_ranks_are_more_than_one(number: int, who: str) -> None:
    text = remaining.healthy(Remaining(Reason.ALL_MOVED, number=number))
    assert text == f"{who} moved between the samples."


@pytest.mark.parametrize(
    ("ranks", "blamed", "text"),
    [
        ((3,), (3,), "by it rank 3 timed out in the operation that it is said"),
        ((3, 4), (4, 3), "by it ranks 3-4 timed out in the operation that they are said"),
        ((3,), (5,), "by it rank 3 timed out in the operation that rank 5 is said"),
    ],
)
def test_whom_the_log_saw_wait(ranks: tuple[int, ...], blamed: tuple[int, ...], text: str) -> None:
    note = Note(Remark.LOG_SAW_IT_WAIT, ranks, blamed=blamed)
    assert text in note_words.note(note)


@pytest.mark.parametrize(
    ("how", "who"),
    [
        (stories.Apart.EITHER, "only one of rank 0 and ranks 1-2"),
        (stories.Apart.OTHER_LINES, "rank 0 alone"),
    ],
)
def test_who_took_a_branch(how: stories.Apart, who: str) -> None:
    story = stories.InOther(how, Op("all_reduce", site="a.py:1"), (1, 2))
    ranks = [0, 1, 2] if how is stories.Apart.EITHER else [0]
    finding = Finding("order", ranks, story, 0.7)
    assert who in by_story(story, finding)


def test_facts_that_are_not_said_are_none() -> None:
    bare = Finding("busy", [5], f.NeverReached(None), 0.9)
    flags = (bare.children, bare.unrecorded, bare.gradients, bare.boxed, bare.over)
    assert flags == (False,) * 5
    assert (bare.where.seq, bare.where.iteration, bare.clues, bare.homes) == (None, None, [], [])
    assert Someone() == Someone(local=-1, task=-1, pid=0)


def test_a_clue_is_taken_over_once() -> None:
    a, b, c = (Clue("gpu", (n,), f.GpuState(Gpu(n))) for n in range(3))
    again = Clue("gpu", (9,), f.GpuState(Gpu(1)))
    one = Finding("busy", [5], f.NeverReached(None), 0.9, clues=[a, b])
    one.add_clues([again, c])
    assert one.clues == [a, b, c]
    one.add_clues([])
    assert one.clues == [a, b, c]


def ops(*pairs: Any) -> stories.Diverged:
    how, mine, theirs = pairs
    return stories.Diverged(how, mine, theirs, 0)


REDUCE, GATHER, SEND = Op("all_reduce"), Op("all_gather"), Op("send", peer=1)


@pytest.mark.parametrize(
    ("story", "word"),
    [
        (ops("skipped", None, REDUCE), "skipped"),
        (ops("extra", REDUCE, None), "added"),
        (ops("swapped", REDUCE, GATHER), "swapped"),
        (ops("group", REDUCE, REDUCE), "group"),
        (ops("own", REDUCE, GATHER), None),
        (ops("other", REDUCE, GATHER), "operation"),
        (ops("other", REDUCE, REDUCE), "root"),
        (ops("other", SEND, SEND), "peer"),
        (ops("other", None, SEND), None),
        (ops("other", SEND, None), None),
        (stories.InOther(stories.Apart.AHEAD, REDUCE), "skipped"),
        (stories.InOther(stories.Apart.BEHIND, REDUCE), "added"),
        (stories.InOther(stories.Apart.OTHER_GROUP, REDUCE), "group"),
        (stories.InOther(stories.Apart.ROOTS, REDUCE), "root"),
        (stories.InOther(stories.Apart.RING, REDUCE), None),
        (f.NeverReached(None), None),
    ],
)
def test_how_calls_differ_in_one_word(story: Any, word: str | None) -> None:
    assert difference(story) == word


@pytest.mark.parametrize(
    ("mine", "theirs", "text"),
    [
        ("a.py:1", "b.py:2", ": compare a.py:1 with b.py:2."),
        ("a.py:1", "a.py:1", ", at a.py:1."),
        ("", "b.py:2", ", at b.py:2."),
        ("", "", "."),
    ],
)
def test_the_lines_of_two_groups(mine: str, theirs: str, text: str) -> None:
    op, their_op = Op("all_reduce", site=mine), Op("all_reduce", site=theirs)
    story = stories.InOther(stories.Apart.OTHER_GROUP, op, (1, 2), their_op)
    finding = Finding("mismatch", [0], story, 0.7)
    assert by_story(story, finding) == f"Make all members call it on the same group{text}"
