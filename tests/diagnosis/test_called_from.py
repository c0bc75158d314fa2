"""The user's line behind a library's call: by the stack or exception of that call, or not said."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec import structs

from hangdoctor.diagnosis import called_from, wording
from hangdoctor.diagnosis.called_from import caller_of
from hangdoctor.diagnosis.case import open_case
from hangdoctor.diagnosis.draft import Draft
from hangdoctor.diagnosis.findings import (
    DecidedBy,
    Disagrees,
    Diverged,
    Finding,
    GroupRef,
    Op,
    Waiters,
)
from hangdoctor.diagnosis.wording import terms
from hangdoctor.model.capture import Frame, JobCapture, NodeCapture, RankCapture
from hangdoctor.model.log_facts import JobLogs, PythonError
from hangdoctor.model.operations import Operation, RankOps
from tests.support.captures import still

LIBRARIES = "/venv/lib/python3.11/site-packages"
METRIC = Frame("gather", f"{LIBRARIES}/torchmetrics/utilities/distributed.py", 121)
LOOP = Frame("advance", f"{LIBRARIES}/lightning/pytorch/loops/training_epoch_loop.py", 265)
BARRIER = Frame("barrier", f"{LIBRARIES}/torch/distributed/distributed_c10d.py", 5356)
CONSOLE = Frame("running", "/home/me/fit.py", 39)
MAIN = Frame("main", "/home/me/fit.py", 81)
WORLD = GroupRef(axis="world")
MINE = Op("barrier", 275, WORLD, site=str(METRIC))
THEIRS = Op("broadcast", 275, WORLD, site=str(LOOP))
OTHER_CALL = Disagrees(
    MINE, THEIRS, ("op",), ("barrier",), ("broadcast",), ground=DecidedBy.MAJORITY
)


def rank(number: int, op: Op, state: str = "entered") -> RankCapture:
    record = Operation("w", op.seq, op.name, state, entered_s=1.0, site=op.site)  # type: ignore[arg-type]
    return RankCapture(pid=100 + number, rank=number, ops=RankOps(number, 3, operations=[record]))


def judged(
    stacks: Sequence[Sequence[Frame]],
    story: Disagrees | Diverged = OTHER_CALL,
    state: str = "entered",
) -> Finding:
    """What is said of rank 0; `stacks` of the exceptions of ranks 0 and 1, innermost first."""
    ranks = [rank(0, MINE, state), rank(1, THEIRS), rank(2, THEIRS)]
    errors = [
        PythonError(rank=number, error="RuntimeError", frames=list(frames))
        for number, frames in enumerate(stacks)
    ]
    capture = JobCapture("j", [NodeCapture("n1", "files", ranks)], logs=JobLogs(facts=[*errors]))
    finding = Finding("mismatch", [0], story, 0.9, waiters=Waiters((1, 2), THEIRS, 65))
    called_from.run(open_case(capture), Draft(findings=[finding]))
    return finding


IN_CONSOLE = [BARRIER, METRIC, CONSOLE, MAIN]
IN_LOOP = [BARRIER, LOOP, MAIN]


def test_the_line_of_the_users_is_in_the_sentence_and_in_the_advice() -> None:
    finding = judged([IN_CONSOLE, IN_LOOP])
    said = wording.cause(finding)
    assert said.summary == (
        "Rank 0 entered barrier #275 (distributed.py:121, called from fit.py:39) where the others "
        "entered broadcast (training_epoch_loop.py:265). Ranks 1-2 have been waiting for 65 s."
    )
    assert said.advice.startswith("Compare fit.py:39 with training_epoch_loop.py:265: ")
    assert said.where.frame == "running (/home/me/fit.py:39)"


def test_a_traceback_that_ends_before_the_line_of_the_users_has_it_apart() -> None:
    kept = PythonError(rank=0, error="RuntimeError", frames=[BARRIER, METRIC], frame=CONSOLE)
    assert called_from.stack_of(kept) == [BARRIER, METRIC, CONSOLE]
    for whole in (IN_CONSOLE, [BARRIER, CONSOLE]):
        kept.frames = whole
        assert called_from.stack_of(kept) == whole


def test_of_a_call_left_out_the_line_of_those_who_made_it() -> None:
    story = Diverged("skipped", THEIRS, MINE, 1)
    [finding] = [judged([IN_LOOP, IN_CONSOLE], story)]
    assert "called from" not in wording.summary(finding), "rank 1 is in another call"
    skipped = Diverged("skipped", Op("broadcast", 9, WORLD, site=str(MAIN)), THEIRS, 1)
    other = [BARRIER, LOOP, Frame("validate", "/home/me/fit.py", 60)]
    finding = judged([[BARRIER, MAIN], other], skipped)
    finding.kind = "order"
    said = wording.cause(finding)
    assert "skipped broadcast #275 (training_epoch_loop.py:265, called from fit.py:60)" in (
        said.summary
    )
    assert said.advice.startswith("See why rank 0 passed fit.py:60 without the call")


def test_where_a_sentence_is_too_long_callers_are_left_out_first() -> None:
    far = Frame("gather", f"{LIBRARIES}/deepspeed/runtime/{'partitioned_' * 3}parameters.py", 121)
    story = structs.replace(OTHER_CALL, mine=structs.replace(MINE, site=str(far)))
    near = Frame("step", f"/home/me/{'train_' * 4}.py", 5)
    finding = judged([], story)
    for mine, said in ((CONSOLE, 1), (structs.replace(near, file="long_" * 12 + ".py"), 0)):
        finding.story = structs.replace(
            story,
            mine=structs.replace(story.mine, called_from=mine),
            theirs=structs.replace(THEIRS, called_from=near),
        )
        text = wording.summary(finding)
        assert len(text) <= wording.LONGEST and text.endswith("."), text
        assert text.count("called from") == text.count(terms.line(mine)) == said


@pytest.mark.parametrize(
    ("stacks", "state"),
    [
        ([[BARRIER, METRIC, MAIN], IN_LOOP], "entered"),  # all come by the trainer's call
        ([[BARRIER, CONSOLE, MAIN], IN_LOOP], "entered"),  # the stack of another call
        ([[BARRIER, Frame("gather", METRIC.file, 90), CONSOLE, MAIN], IN_LOOP], "entered"),
        ([IN_CONSOLE, IN_LOOP], "done"),  # an earlier call of the same line
        ([], "entered"),
    ],
)
def test_what_is_not_of_that_call_or_of_all_is_not_said(
    stacks: list[list[Frame]], state: str
) -> None:
    finding = judged(stacks, state=state)
    assert "called from" not in wording.summary(finding) and finding.frame is None


def test_a_users_own_line_has_no_caller() -> None:
    assert caller_of(str(CONSOLE), [BARRIER, CONSOLE, MAIN]) is None
    assert caller_of("", IN_CONSOLE) is None
    assert caller_of(str(METRIC), [BARRIER, METRIC]) is None, "no line of the user's is kept"
    cut = Frame(METRIC.name, METRIC.file[-60:], METRIC.line)
    assert caller_of(str(METRIC), [BARRIER, cut, CONSOLE]) == CONSOLE


def test_below_one_line_of_the_users_the_lines_of_the_framework_tell_them_apart() -> None:
    """Both were made at fit.py:81, as the box has it; their stacks show by which way."""
    one, other = (
        Op("barrier", 275, WORLD, site=str(MAIN)),
        Op("broadcast", 275, WORLD, site=str(MAIN)),
    )
    inner = Frame("broadcast", BARRIER.file, 2900)
    ranks = [still(0, [BARRIER, METRIC, MAIN]), *(still(n, [inner, LOOP, MAIN]) for n in (1, 2))]
    capture = JobCapture("j", [NodeCapture("n1", ranks=ranks)])
    story = structs.replace(OTHER_CALL, mine=one, theirs=other)
    finding = Finding("mismatch", [0], story, 0.9, waiters=Waiters((1, 2), other, 65))
    called_from.run(open_case(capture), Draft(findings=[finding]))
    assert "entered barrier #275 (distributed.py:121) where the others entered broadcast" in (
        wording.summary(finding)
    )
    assert "(training_epoch_loop.py:265)" in wording.summary(finding)
