"""Where the call histories of two ranks part: made-up histories, one a way to go wrong."""

from __future__ import annotations

import pytest

from hangdoctor.diagnosis.calls import compare
from hangdoctor.diagnosis.view import view_rank
from hangdoctor.model.calls import CallThread, CallTrace, Event, Function
from hangdoctor.model.capture import RankCapture
from hangdoctor.model.diagnosis import CallsParting
from hangdoctor.model.operations import Operation, RankOps

_KINDS = {">": "call", "<": "return", "!": "exception", "=": "open", "-": "begin"}


def history(
    rank: int, text: str, late_s: float = 0.0, began_s: float = 1000.0, step_s: float = 0.001
) -> RankCapture:
    """A rank whose main thread did `>f <f`: one step each `step_s`, `late_s` after the others by
    its clock. `#5` is the beginning of its all_reduce #5.
    """
    ops = RankOps(rank, operations=[])
    trace = CallTrace(
        rank, 100 + rank, "tracing", base_ns=int((began_s + late_s) * 1e9), read_s=1010 + late_s
    )
    trace.threads = [CallThread(100 + rank, "MainThread")]
    for n, word in enumerate(text.split()):
        if word[0] == "#":
            at_s = began_s + late_s + (n - 0.5) * step_s
            ops.operations.append(Operation("g", int(word[1:]), "all_reduce", entered_s=at_s))
            continue
        function = Function(word[1:], "/app/train.py", len(word))
        if function not in trace.functions:
            trace.functions.append(function)
        kind = _KINDS[word[0]]
        trace.events.append(
            Event(round(n * step_s * 1e9), kind, trace.functions.index(function), 0)
        )  # type: ignore[arg-type]
    return RankCapture(pid=100 + rank, rank=rank, calls=trace, ops=ops)


def parting(culprit: str, peer: str, late_s: float = 0.0) -> CallsParting:
    return compare(view_rank(history(3, culprit)), view_rank(history(2, peer, late_s)))


def said(of: list[str]) -> str:
    return "; ".join(
        step.replace(" (app/train.py:", "@").rstrip(")").partition("@")[0] for step in of
    )


ROUND = ">step >load <load >forward >layer <layer <forward >reduce >sync <sync <reduce <step "


@pytest.mark.parametrize(
    ("culprit", "peer", "own", "theirs"),
    [
        # The last round of a loop, not the one before, although more of that one is alike.
        (
            "=main " + ROUND * 4 + ">step >load <load >stuck",
            "=main "
            + ROUND * 4
            + ">step >load <load >forward >layer <layer <forward >reduce >sync",
            "called stuck",
            "ran forward; called reduce; called sync",
        ),
        # The beginnings are cut at different places.
        (
            ROUND[6:] + ROUND * 3 + ">step >load",
            ROUND * 5 + ">step >load <load >forward >layer <layer <forward >reduce",
            "",
            "returned from load; ran forward; called reduce",
        ),
        # A helper that both call is no common place where its callers are two.
        (
            "=main >load >ask >tell <tell <ask <load >stuck",
            "=main >forward >ask >tell <tell <ask >reduce",
            "ran load; called stuck",
            "called forward; ran ask; called reduce",
        ),
        # Nor in the last round of a loop.
        (
            "=main " + ROUND * 2 + ">step >load >ask >tell <tell <ask <load >stuck",
            "=main " + ROUND * 2 + ">step >load <load >forward >ask >tell <tell <ask >reduce",
            "ran ask; returned from load; called stuck",
            "returned from load; called forward; ran ask; called reduce",
        ),
        # One rank does a little more on the way (it logs) and comes together with the other again.
        (
            "=main >step >log <log >load <load >forward <forward >stuck",
            "=main >step >load <load >forward <forward >reduce",
            "called stuck",
            "called reduce",
        ),
        # An exception on the way.
        (
            "=main >step >load !load >recover",
            "=main >step >load <load >reduce",
            "left load; called recover",
            "returned from load; called reduce",
        ),
        # In the same place: nothing parts them.
        ("=main >step >load <load >reduce", "=main >step >load <load >reduce", "", ""),
        # Tracing was switched on again: what was before does not count.
        (
            ">old " * 9 + "- =main >stuck",
            ">old " * 9 + "- =main >reduce",
            "called stuck",
            "called reduce",
        ),
    ],
)
def test_where_two_ranks_part(culprit: str, peer: str, own: str, theirs: str) -> None:
    for late_s in (0.0, 3600.0):  # whatever their clocks say
        found = parting(culprit, peer, late_s)
        assert found.common > 0 and found.culprit.rank == 3 and found.peer is not None
        assert said(found.culprit.calls) == own and said(found.peer.calls) == theirs


def test_without_a_common_call_the_time_separates_the_rounds() -> None:
    flat = ">a <a >b <b >c <c "
    found = parting(flat * 6 + ">a <a >stuck", flat * 6 + ">a <a >b <b >reduce")
    assert said(found.culprit.calls) == "called stuck" and found.peer is not None
    assert said(found.peer.calls) == "ran b; called reduce"


def test_nothing_in_common_and_no_peer() -> None:
    found = parting(">a <a >b", ">x <x >y")
    assert found.common == 0 and "nothing in common" in found.says and "called b" in found.says
    alone = compare(view_rank(history(3, ">a >b")), None)
    assert alone.peer is None and "called b" in alone.says and len(alone.culprit.inside) == 2
    assert alone.culprit.last_s == pytest.approx(10.0, abs=0.1)


def test_long_stories_are_shortened() -> None:
    found = parting("=main " + " ".join(f">f{i}" for i in range(50)), "=main >reduce")
    assert (
        len(found.culprit.calls) <= 6
        and "more" in found.culprit.calls[-2]
        and found.culprit.calls[-1].startswith("called f49")
    )


def test_how_many_steps_they_have_in_common() -> None:
    assert (
        parting("=main >step >load !load >recover", "=main >step >load <load >reduce").common == 3
    )
    assert parting(">old =main >step >stuck", ">other =main >step >reduce").common == 2


@pytest.mark.parametrize("peer", [">evaluate >forward", ">forward", ">forward >forward"])
def test_calls_of_one_name_in_two_others_are_not_the_same(peer: str) -> None:
    found = parting("=main >train >forward >stuck", f"=main {peer} >reduce")
    assert found.peer is not None and found.common == 1
    assert said(found.culprit.calls) == "called train; called forward; called stuck"
    assert said(found.peer.calls) == f"{peer} >reduce".replace(" ", "; ").replace(">", "called ")


def test_what_has_returned_is_not_open() -> None:
    found = compare(view_rank(history(3, ">first <first >second >third <third")), None)
    assert said(found.culprit.inside) == "second"


def test_of_a_loops_last_round_only_what_is_new_is_told() -> None:
    found = parting("=main >f <f >f <f >g >stuck", "=main >f <f >f <f >g >reduce")
    assert found.common == 6 and found.alike.startswith("called g")


ON = ">step >load <load >forward <forward <step "


@pytest.mark.parametrize("later", [2, 3])
@pytest.mark.parametrize("late_s", [0.0, 3600.0])
def test_a_trace_that_began_later_is_compared_with_the_end_of_the_other(
    later: int, late_s: float
) -> None:
    """Its rounds are in each earlier round of the other, too."""
    ends = {3: "=main " + ON * 5 + ">step >load <load >stuck"}
    ends[2] = "=main " + ON * 5 + ">step >load <load >forward >reduce"
    ends[5 - later] = ends[5 - later].replace("=main ", "=main " + ON * 1000, 1)
    began = {later: 1006.0, 5 - later: 1000.0}  # 6,000 steps of a millisecond
    culprit = view_rank(history(3, ends[3], began_s=began[3]))
    peer = view_rank(history(2, ends[2], late_s, began_s=began[2]))
    found = compare(culprit, peer)
    assert found.peer is not None
    assert said(found.culprit.calls) == "called stuck"
    assert said(found.peer.calls) == "called forward; called reduce"
    assert found.common >= 5 * 6 + 3
    assert found.since == f"for the last 4 s, in which rank {later} was traced too"
    assert f"{found.since}, ranks 3 and 2 did the same until both returned from load" in found.says


def test_traces_that_began_together_say_nothing_of_it() -> None:
    found = parting("=main " + ON * 9 + ">stuck", "=main " + ON * 9 + ">step", 3600.0)
    assert not found.since and found.says.startswith("ranks 3 and 2 did the same until")


def test_repeated_steps_are_said_once() -> None:
    found = parting("=main >step " + ">poll <poll " * 40 + ">poll", "=main >step >reduce")
    assert said(found.culprit.calls).startswith("ran poll") and len(found.culprit.calls) == 2
    assert found.culprit.calls[0].endswith(" x 40")


FLAT = ">load <load >forward <forward >reduce <reduce "
STUCK, WAITS = FLAT * 9 + ">load >stuck", FLAT * 9 + ">load <load >forward <forward >reduce"


@pytest.mark.parametrize("open_main", ["", "=main "])
@pytest.mark.parametrize("late_s", [0.0, 0.018, 3600.0], ids=["", "rounds", "hour"])
@pytest.mark.parametrize(("mine", "theirs"), [(50, 50), (50, 30), (30, 50), (47, 29), (12, 15)])
def test_traces_that_begin_in_different_places_of_a_round(
    open_main: str, late_s: float, mine: int, theirs: int
) -> None:
    """The peer waits in the reduce of the round in which the culprit is stuck."""
    words = (
        open_main + " ".join(STUCK.split()[-mine:]),
        open_main + " ".join(WAITS.split()[-theirs:]),
    )
    found = parting(*words, late_s)
    assert found.peer is not None and found.alike.startswith("called load")
    assert said(found.culprit.calls) == "called stuck"
    assert said(found.peer.calls) == "returned from load; ran forward; called reduce"


def rounds(first: int, last: int) -> str:
    return " ".join(f">load <load >reduce #{n} <reduce" for n in range(first, last + 1))


@pytest.mark.parametrize("late_s", [0.0, 3600.0])
def test_the_last_operation_that_both_entered_shows_which_rounds_belong_together(
    late_s: float,
) -> None:
    """The peer did not wait for it, and is two rounds further on."""
    found = parting(f"=main {rounds(3, 7)} >load >stuck", f"=main {rounds(1, 9)} >load", late_s)
    assert said(found.culprit.calls) == "called stuck" and found.peer is not None
    assert said(found.peer.calls).startswith("returned from load; ran reduce; ran load; ran reduce")


@pytest.mark.parametrize(
    ("field", "values"), [("site", ["a (x.py:1)", "a (x.py:2)"]), ("iteration", [7, 8])]
)
def test_an_operation_of_another_line_or_iteration_shows_nothing(
    field: str, values: list[object]
) -> None:
    """The culprit has skipped one: its number 7 is the others' number 8."""
    mine = history(3, f"=main {rounds(1, 7)} >load >stuck")
    theirs = history(2, f"=main {rounds(1, 8)} >load <load >reduce")
    assert mine.ops is not None and theirs.ops is not None
    for ops, shift in ((mine.ops, 1), (theirs.ops, 0)):
        for one in ops.operations:
            setattr(one, field, values[(one.seq + shift) % 2])
    found = compare(view_rank(mine), view_rank(theirs))
    assert said(found.culprit.calls) == "called stuck" and found.peer is not None
    assert said(found.peer.calls) == "returned from load; called reduce"


def test_rounds_that_the_times_keep_apart_are_not_laid_beside_each_other() -> None:
    """It takes 40 s for a round, and the two parted three minutes from each other."""
    mine = history(3, STUCK, step_s=7.0, began_s=500.0)
    theirs = history(2, f"{WAITS} <reduce {FLAT * 4}", step_s=7.0, began_s=500.0)
    found = compare(view_rank(mine), view_rank(theirs))
    assert "do not show which rounds belong together; rank 3 last called stuck" in found.says
    assert not found.common and "same until" not in found.says and found.peer is not None


def test_a_call_that_was_left_by_an_exception_says_so() -> None:
    found = parting("=main >step >read >parse !parse !read >recover", "=main >step >reduce")
    assert said(found.culprit.calls) == "ran read; called recover"
    assert found.culprit.calls[0].endswith(", which raised an exception")
