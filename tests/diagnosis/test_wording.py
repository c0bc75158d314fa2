"""Findings in words: the patterns of docs/voice.md, word for word, and that nothing is without
words.
"""

from __future__ import annotations

import re
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Any, get_args

import pytest

from hangdoctor.diagnosis import findings as f
from hangdoctor.diagnosis import wording
from hangdoctor.diagnosis.confidence import Ground, Less, Limit, agreed, lowered, sure
from hangdoctor.diagnosis.findings import Doing, Finding, GroupRef, Home, Op, Waiters
from hangdoctor.diagnosis.health import Reason, Remaining
from hangdoctor.diagnosis.ops.evidence import Note, Remark
from hangdoctor.diagnosis.wording import clues, note_words, reasons, remaining, stories, terms
from hangdoctor.diagnosis.wording.release import release
from hangdoctor.model.capture import Frame
from hangdoctor.model.diagnosis import Kind

VOICE = Path(__file__).parents[2] / "docs" / "voice.md"
WORLD = GroupRef("world", "", tuple(range(8)))
REDUCE = Op("all_reduce", 12, WORLD, site="train (train.py:31)")
LOAD = Frame("load_batch", "/app/data.py", 40)
SLEEPS = Doing("blocked", "clock_nanosleep")


def finding(kind: Kind, story: f.Story, **facts: Any) -> Finding:
    """A finding on rank 5, which runs on n2 as process 7791."""
    home = Home(5, "n2", 7791)
    return Finding(kind, [5], story, 0.9, ["n2"], homes=[home], **facts)


PATTERNS: dict[Kind, Finding] = {
    "not_entered": finding("not_entered", f.NeverReached(REDUCE), frame=LOAD, doing=SLEEPS),
    "stopped": finding("stopped", f.Stopped("signal"), frame=LOAD),
    "dead": Finding("dead", [5], f.Died(f.End(-9)), 0.9, ["n2"]),
    "io_wait": finding(
        "io_wait", f.InputOutput("read", "nfs_wait"), frame=Frame("read_index", "/app/data.py", 12)
    ),
    "data_wait": finding(
        "data_wait",
        f.NeverReached(REDUCE),
        frame=Frame("next", "loader.py", 7),
        holding=f.ChildEnded(8012, f.End(1)),
    ),
    "checkpoint_wait": finding(
        "checkpoint_wait",
        f.NeverReached(REDUCE),
        frame=Frame("save", "ckpt.py", 31),
        doing=Doing("blocked", "write(7 -> /scratch/step100.pt)"),
    ),
    "busy": finding(
        "busy",
        f.NeverReached(REDUCE),
        frame=Frame("tokenize", "data.py", 9),
        doing=Doing("running"),
    ),
    "interpreter_lock": finding(
        "interpreter_lock", f.HoldsGil(7795, Frame("solve", "native.py", 3))
    ),
    "device_wait": finding("device_wait", f.NeverStarted(REDUCE)),
    "unreachable": Finding(
        "unreachable", [5], f.NotSeen(("node n3 did not report (no answer within 20 s)",)), 0.7
    ),
    "mismatch": finding(
        "mismatch",
        f.Disagrees(
            REDUCE, REDUCE, ("shapes",), ("shapes [9]",), ("shapes [8]",), f.DecidedBy.MAJORITY
        ),
    ),
    "order": finding(
        "order",
        f.Diverged("skipped", Op("all_gather", 4, WORLD, site="train (train.py:40)"), REDUCE, 1),
    ),
    "p2p_unmatched": finding("p2p_unmatched", f.NeverPosted(Op("send", 3, peer=5), 1)),
    "in_communication": Finding(
        "in_communication", list(range(8)), f.AllIn(REDUCE, tuple(range(8)), counted=True), 0.8
    ),
    "start_stall": finding(
        "start_stall",
        f.NotJoined(Op("init_process_group")),
        frame=Frame("wait_file", "main.py", 8),
        doing=SLEEPS,
    ),
    "end_stall": finding("end_stall", f.StillIn(Op("destroy_process_group"))),
    "slow": finding("slow", f.SlowByWaiting(0.04, 0.61)),
}


def test_each_kind_reads_as_the_voice_has_it() -> None:
    voice = VOICE.read_text().replace("\n  ", " ")
    rows = dict(re.findall(r"^- `(\w+)`: (.*)$", voice, re.M))
    del rows["error"]  # made from logs, not by these passes
    assert rows.keys() == PATTERNS.keys() and rows.keys() <= {*get_args(Kind)}
    assert {kind: wording.summary(one) for kind, one in PATTERNS.items()} == rows


def test_the_waiters_come_last_and_say_since_when() -> None:
    one = finding(
        "not_entered",
        f.NeverReached(REDUCE),
        frame=LOAD,
        doing=SLEEPS,
        waiters=Waiters((0, 1, 2, 3), REDUCE, 41.0),
    )
    said = wording.summary(one)
    assert said in " ".join(VOICE.read_text().replace("\n>", "").split())
    one.waiters = Waiters((3,), REDUCE, 900.0)
    assert wording.summary(one).endswith(" Rank 3 has been waiting for 15 min.")
    one.waiters = Waiters((3,), REDUCE)
    assert wording.summary(one).endswith(" Rank 3 is waiting.")


@pytest.mark.parametrize("width", [10, 120, 400])
def test_no_sentence_is_longer_than_it_may_be(width: int) -> None:
    one = finding(
        "not_entered",
        f.NeverReached(REDUCE),
        frame=Frame("f" * width, "data.py", 1),
        doing=SLEEPS,
        holding=f.OnChild(8, "python helper.py " + "x" * width),
        waiters=Waiters(tuple(range(0, width, 2)), REDUCE, 41.0),
    )
    said = wording.summary(one)
    assert len(said) <= wording.LONGEST and said.startswith(
        "Rank 5 (n2, pid 7791) never reached all_reduce #12"
    )
    assert said.endswith(".")


def test_a_sentence_that_is_cut_keeps_what_it_claims() -> None:
    sides = "; ".join(f"rank {r} in recv of a pipeline stage (pipe_{r}.py:72)" for r in range(12))
    claim = "most likely rank 5 left the schedule early"
    said = wording._cut(f"{sides}: {claim}", 200)
    assert len(said) <= 201 and said.endswith(f"…: {claim}."), said


def test_one_and_several() -> None:
    several = Finding(
        "not_entered", [4, 5], f.NeverReached(REDUCE), 0.9, ["n2", "n3"], frame=LOAD, doing=SLEEPS
    )
    assert wording.summary(several).startswith(
        "Ranks 4-5 (n[2-3]) never reached all_reduce #12; they are sleeping in load_batch"
    )
    assert (
        wording.summary(Finding("stopped", [4, 5], f.Stopped("signal"), 0.9))
        == "Ranks 4-5 are stopped (SIGSTOP)."
    )


@pytest.mark.parametrize(
    ("seconds", "written"),
    [
        (0.44, "0.4 s"),
        (1, "1 s"),
        (41.2, "41 s"),
        (119, "119 s"),
        (720, "12 min"),
        (11520, "3.2 h"),
    ],
)
def test_durations(seconds: float, written: str) -> None:
    assert terms.duration(seconds) == written


def test_operations_are_named_by_their_group_unless_it_is_the_whole_job() -> None:
    assert terms.op(REDUCE) == "all_reduce #12"
    assert (
        terms.op(Op("all_reduce", 12, GroupRef("tp", "", (2, 3))))
        == "all_reduce #12 of TP group 2-3"
    )
    assert (
        terms.op(Op("all_reduce", 12, GroupRef("", "mine", (0, 1, 3))))
        == "all_reduce #12 of group 'mine' (0-1,3)"
    )
    assert terms.op(Op("recv", 5, peer=-1)) == "recv #5 from any rank"
    assert (
        terms.op(Op("all_reduce", frame=Frame("step", "/a/b/train.py", 31)))
        == "all_reduce in step (train.py:31)"
    )


def _has_words(function: Any, kind: type) -> bool:
    return function.dispatch(kind) is not function.dispatch(object)


def _members(union: UnionType) -> tuple[type, ...]:
    return get_args(union)


def test_every_fact_has_its_words() -> None:
    assert [s.__name__ for s in _members(f.Story) if not _has_words(stories.tell, s)] == []
    assert [s.__name__ for s in _members(f.Fact) if not _has_words(clues.say, s)] == []
    assert [s.__name__ for s in _members(f.Holding) if not _has_words(release, s)] == []
    assert set(reasons._TEXT) == set(f.Why)


def test_every_remark_and_reason_has_its_words() -> None:
    for remark in Remark:
        said = note_words.note(Note(remark, (1, 2), 3, "all_reduce", LOAD, (4,)))
        assert said.endswith(".") and not said[0].islower(), said
    healthy = {
        Reason.ALL_MOVED,
        Reason.OTHERS_MOVED,
        Reason.MOST_MOVED,
        Reason.ALL_STIRRED,
        Reason.SLEEP_BY_TURNS,
    }
    for reason in Reason:
        of = Remaining(reason, (1,), (2, 3), REDUCE, ("n3: no answer",), 4)
        said = remaining.healthy(of) if reason in healthy else remaining.unknown(of)
        assert said.endswith(".") and not said[0].islower(), said


@pytest.mark.parametrize("table", [Ground, Limit, Less])
def test_each_confidence_has_a_reason_of_its_own(table: type[Enum]) -> None:
    assert all(0 < member.value[0] < 1 and len(member.value[1]) > 20 for member in table)
    assert len({member.value[1] for member in table}) == len(table)
    assert len(table.__members__) == len(table), "no two names for one entry"


def test_doubts_lower_a_confidence() -> None:
    assert sure(Ground.OUTSIDE) == Ground.OUTSIDE.share
    assert sure(Ground.OUTSIDE, Limit.NO_STACK) == Limit.NO_STACK.highest
    assert sure(Ground.OUTSIDE, Less.RANKS_UNSEEN, Limit.NO_STACK) == pytest.approx(
        Limit.NO_STACK.highest - Less.RANKS_UNSEEN.amount
    )
    assert lowered(0.12, Less.STACKS_DISAGREE) == 0.1
    assert agreed(0.9, 0.92) == 0.94 and agreed(0.98, 0.5) == 0.98


def test_a_nested_function_has_its_own_name() -> None:
    nested = Frame(name="make.<locals>.step", file="/app/train.py", line=7)
    inside = Frame(name="make.<locals>.fill.<locals>.<genexpr>", file="/app/train.py", line=7)
    assert terms.frame(inside) == "fill (train.py:7)"
    assert terms.frame(nested) == "step (train.py:7)"
