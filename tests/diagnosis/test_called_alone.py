"""One rank makes a collective call under a condition that holds for it alone."""

from __future__ import annotations

from hangdoctor.diagnosis import diagnose
from hangdoctor.model.capture import Frame, JobCapture, NodeCapture, RankCapture
from hangdoctor.model.diagnosis import Diagnosis
from hangdoctor.model.operations import Group, Operation, RankOps, group_uid
from tests.support.captures import C10D, causes, judged, still

_FUNCTIONAL = "/site-packages/torch/distributed/_functional_collectives.py"
_WAIT = ("wait_tensor", _FUNCTIONAL)
_REDUCE = ("all_reduce", C10D)


def at(
    rank: int, call: tuple[str, str], line: int, *, only: str = "", step: int = 17
) -> RankCapture:
    """In a call below a line of the user's loop, which may be under a condition."""
    name, file = call
    main = Frame("main", "/app/tp.py", line, values={"step": step}, only=only)
    return still(rank, [Frame(name, file, 9), Frame("look", "/app/tp.py", 20), main])


def four(odd: RankCapture) -> list[RankCapture]:
    """The others are in three calls of two steps: their order shows nothing."""
    return [at(0, _WAIT, 43, step=18), at(1, _REDUCE, 45), at(2, _WAIT, 43, step=18), odd]


def test_the_rank_that_alone_comes_to_its_call_is_named() -> None:
    said = judged(*four(at(3, _WAIT, 42, only="rank == 3 and step == 17")))
    assert causes(said) == [("order", [3])]
    assert "alone calls functional collective" in said.causes[0].summary
    assert "under 'rank == 3 and step == 17'" in said.causes[0].summary
    assert "only rank 3 comes to it" in said.causes[0].advice


def test_none_is_named_without_a_condition_that_holds_for_it_alone() -> None:
    for only in ("", "step == 17", "tp_rank == 1", "rank in (1, 3)", "rank == 2"):
        said = judged(*four(at(3, _WAIT, 42, only=only)))
        assert said.causes == [], only


def test_none_is_named_where_others_come_to_theirs_by_a_condition_too() -> None:
    """The call may be of a group of these ranks."""
    ranks = four(at(3, _WAIT, 42, only="rank == 3"))
    ranks[1] = at(1, _REDUCE, 45, only="rank == 1")
    assert judged(*ranks).causes == []


def test_none_is_named_where_another_is_in_a_call_of_that_name() -> None:
    """It may be the other side of a broadcast, which is called from two lines."""
    ranks = [at(rank, ("broadcast", C10D), 40 + rank) for rank in range(3)]
    said = judged(*ranks, at(3, ("broadcast", C10D), 50, only="rank == 3"))
    assert all("alone calls" not in cause.summary for cause in said.causes)


def test_of_two_sides_the_one_under_a_condition_is_said_and_not_named() -> None:
    """The call may be of a group of these ranks, of which one did not come."""
    asked = "step % 12 == 0 and rank in reporters"
    report = [at(rank, _WAIT, 68, only=asked, step=12) for rank in (0, 2)]
    forward = [at(rank, _REDUCE, 60, step=13) for rank in (1, 3)]
    said = judged(*report, *forward)
    assert (said.status, said.causes) == ("unknown", [])
    assert f"Ranks 0,2 alone come there under '{asked}'." in said.summary


def test_of_two_sides_that_ask_for_the_rank_both_or_differently_none_is_said() -> None:
    for conditions in (["rank in a"] * 4, ["rank in a", "", "rank in b", ""]):
        ranks = [
            at(rank, _WAIT if rank % 2 else _REDUCE, 68 + rank % 2, only=only, step=12 + rank % 2)
            for rank, only in enumerate(conditions)
        ]
        assert "come there" not in judged(*ranks).summary


def test_none_is_named_in_a_call_whose_line_names_a_group_of_its_own() -> None:
    """Another member of the group may have left its call out."""
    asked = "rank == 3"
    call = Frame("reduce_scatter", C10D, 9, group="sub")
    line = "dist.reduce_scatter(out, parts, group=writers)"
    main = Frame("main", "/app/tp.py", 42, code=line, values={"step": 17}, only=asked)
    assert judged(*four(still(3, [call, main]))).causes == []
    everyone = Frame("reduce_scatter", C10D, 9, group="world")
    assert causes(judged(*four(still(3, [everyone, main])))) == [("order", [3])]


def below(rank: int, entry: str, line: int, only: str = "") -> RankCapture:
    """In a broadcast that a library makes below the user's call of `entry`."""
    sync = Frame("_sync_module_states", "/site-packages/torch/distributed/utils.py", 315)
    called = Frame(entry, "/site-packages/lightning/pytorch/trainer/trainer.py", 821)
    main = Frame("main", "/app/two_stage.py", line, only=only)
    return still(rank, [sync, called, main])


def test_another_function_of_the_library_is_no_other_side() -> None:
    """`test` on the first rank alone, the next `fit` on the others: each begins with a broadcast."""
    others = [below(rank, "Trainer.fit", 66) for rank in (1, 2, 3)]
    said = judged(below(0, "Trainer.test", 62, only="first.is_global_zero"), *others)
    assert causes(said) == [("order", [0])], said.summary
    assert "under 'first.is_global_zero'" in said.summary
    said = judged(below(0, "Trainer.fit", 62, only="first.is_global_zero"), *others)
    assert "alone calls" not in said.summary


def mismatched(only: str) -> Diagnosis:
    """A job of two ranks in one place of their histories, in a barrier and a broadcast: either may
    be wrong.
    """
    world = Group(group_uid([0, 1]), [0, 1])
    found = []
    for rank, op, line in ((0, "barrier", 79), (1, "broadcast", 30)):
        one = at(rank, (op, C10D), line, only=only if rank == 0 else "")
        before = Operation(
            world.uid,
            1,
            "all_reduce",
            "done",
            entered_s=1.0,
            left_s=2.0,
            site="main (/app/tp.py:20)",
        )
        here = Operation(
            world.uid, 2, op, "entered", entered_s=3.0, site=f"main (/app/tp.py:{line})"
        )
        one.world_size = 2
        one.ops = RankOps(rank, 2, "blackbox", groups=[world], operations=[before, here])
        found.append(one)
    return diagnose(JobCapture("j", [NodeCapture("n1", ranks=found)], world_size=2))


def test_of_a_mismatch_of_two_the_one_under_a_condition_is_named() -> None:
    said = mismatched("trainer.is_global_zero")
    assert causes(said) == [("order", [0])], said.summary
    assert "alone calls barrier" in said.summary and "is_global_zero" in said.summary
    assert mismatched("").causes == []
