"""Of a finished job, stacks that heartbeats saw last: who is elsewhere is named, and nothing more."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from hangdoctor.diagnosis import diagnose
from hangdoctor.model.capture import Frame, JobCapture, LockHolder, NodeCapture, RankCapture
from hangdoctor.model.diagnosis import Diagnosis
from hangdoctor.model.log_facts import AnyFact, Ended, JobLogs, LogFile, NoBeat
from hangdoctor.model.operations import Group, Operation, OpState, RankOps
from tests.support.captures import LOAD, MAIN, WAIT, captured, causes, sample, stack, still, thread

BACKWARD = stack(
    ("_engine_run_backward", "/site-packages/torch/autograd/graph.py", 979),
    ("backward", "/site-packages/torch/_tensor.py", 623),
    ("train_step", "/app/train.py", 18),
    MAIN,
)


def ended(
    *ranks: RankCapture, more: Sequence[AnyFact] = (), asked: str = "", beside: bool = False
) -> Diagnosis:
    """All were killed from outside; their boxes have one operation of long before; `asked`: the last
    rank made a new group of other members then; `beside`: torch's recorders were kept.
    """
    for rank in ranks:
        done = Operation("g", 1, "barrier", "done", entered_s=1.0, left_s=1.1)
        if asked:
            done.op, done.detail = "new_group", asked if rank is ranks[-1] else "0-1"
        rank.ops = RankOps(rank.rank, 4, operations=[done], heartbeat_s=60.0)
    capture = JobCapture("j", [NodeCapture("n1", ranks=list(ranks))], world_size=4)
    capture.over, capture.by_heartbeat, capture.origin = True, True, "files"
    capture.recorded_beside = beside
    killed = [Ended(rank=r.rank, at=61.0, code=-9, by="hangdoctor run") for r in ranks]
    capture.logs = JobLogs(
        files=[LogFile("ends")], facts=[*more, *killed], world_size=4, of_boxes=[0]
    )
    return diagnose(capture)


def test_who_is_in_its_own_code_while_the_others_reduce_gradients_is_named() -> None:
    found = ended(*(still(rank, LOAD if rank == 2 else BACKWARD, "") for rank in range(4)))
    assert causes(found) == [("not_entered", [2])] and found.status == "hang"
    [cause] = found.causes
    says = " ".join(e.says for e in cause.evidence)
    assert "load_batch" in cause.summary and cause.confidence <= 0.85
    assert "heartbeat" in says and "between the samples" not in says


def test_the_rank_that_holds_the_file_lock_of_the_others_is_named() -> None:
    """It waits for them in a barrier; its box has the process that they wait for, and no path."""
    out = [still(rank, LOAD, "") for rank in (0, 1, 3)]
    holder = still(2, WAIT)
    for rank in out:
        rank.lock = LockHolder(holder.pid)
    found = ended(*out, holder)
    assert causes(found) == [("order", [2])]
    assert "holds the lock on a file that ranks 0-1,3 wait for" in found.summary


def test_equal_places_everywhere_name_no_rank() -> None:
    for frames in (BACKWARD, LOAD):
        found = ended(*(still(rank, frames) for rank in range(4)))
        assert (found.status, found.causes) == ("unknown", []), found.summary


def test_two_waits_at_different_lines_name_no_rank() -> None:
    """Without counts of the loop around them, which is earlier does not show."""
    found = ended(*(still(rank, WAIT if rank == 1 else BACKWARD) for rank in range(4)))
    assert found.causes == [], found.summary


def recorded(rank: int, last: int, frames: list[Frame]) -> RankCapture:
    """By torch's recorder it waits in all_reduce 9, or has been through 8 of them."""
    made = still(rank, frames)
    state: OpState = "entered" if last == 9 else "done"
    made.recorded = RankOps(
        rank,
        4,
        source="flight_recorder",
        groups=[Group("w", [0, 1, 2, 3])],
        operations=[Operation("w", last, "all_reduce", state, entered_s=10.0 + last)],
    )
    return made


def test_beside_records_that_lack_one_rank_its_other_wait_names_it() -> None:
    """No recorder counts what it waits in, as Ray's report."""
    others = [recorded(rank, 9, BACKWARD) for rank in (0, 2, 3)]
    found = ended(recorded(1, 8, WAIT), *others, beside=True)
    assert causes(found) == [("order", [1])], found.summary
    assert found.causes[0].confidence <= 0.75


@pytest.mark.parametrize(("lacking", "kinds"), [((1, 2, 3), []), ((), ["in_communication"])])
def test_beside_records_that_lack_most_or_none_it_does_not(
    lacking: tuple[int, ...], kinds: list[str]
) -> None:
    ranks = [
        recorded(rank, 8 if rank in lacking else 9, WAIT if rank == 1 else BACKWARD)
        for rank in range(4)
    ]
    assert [kind for kind, _ in causes(ended(*ranks, beside=True))] == kinds


def test_what_was_called_otherwise_before_a_wait_that_names_no_rank_is_named() -> None:
    """Each waits in a group of its own making."""
    places = [BACKWARD, WAIT, BACKWARD, WAIT]
    found = ended(*(still(rank, at) for rank, at in enumerate(places)), asked="0,3")
    assert causes(found) == [("mismatch", [3])] and found.status == "hang"
    assert "members" in found.summary
    # Of ranks that do not wait, nothing hung.
    assert ended(*(still(rank, LOAD) for rank in range(4)), asked="0,3").causes == []


def test_many_elsewhere_or_one_unseen_name_no_rank() -> None:
    many = ended(*(still(rank, BACKWARD if rank == 1 else LOAD) for rank in range(4)))
    assert many.causes == [], many.summary
    places = [LOAD, BACKWARD, BACKWARD]
    ranks = [still(rank, frames) for rank, frames in enumerate(places)]
    found = ended(*ranks, RankCapture(pid=12, rank=3, node="n1", world_size=4))
    assert found.causes == [], found.summary


def test_a_rank_that_did_not_run_while_all_others_reduce_gradients_is_named() -> None:
    ranks = [still(rank, BACKWARD) for rank in (0, 2, 3)]
    stopped = RankCapture(pid=10, rank=1, node="n1", world_size=4)
    silent = NoBeat(rank=1, at=45.0, silent_s=15.0, says="its last heartbeat")
    found = ended(*ranks, stopped, more=[silent])
    assert causes(found) == [("not_entered", [1])]
    assert "(stopped, or native code held the GIL)" in found.summary
    killed_late = Ended(rank=1, at=90.0, code=-9, by="hangdoctor run", stayed_s=30.0)
    assert causes(ended(*ranks, stopped, more=[silent, killed_late])) == [("stopped", [1])]
    elsewhere = [still(0, LOAD, ""), still(2, BACKWARD, ""), still(3, BACKWARD, "")]
    found = ended(*elsewhere, stopped, more=[silent])
    assert causes(found) == [("not_entered", [1]), ("not_entered", [0])]
    assert "load_batch" in found.causes[1].summary
    assert [cause.confidence for cause in found.causes] == [0.6, 0.6]
    says = " ".join(e.says for e in found.causes[1].evidence)
    assert "heartbeat" in says and "between the samples" not in says
    assert ended(*elsewhere[:2], still(3, LOAD), stopped, more=[silent]).causes == []


def result_of_jax(rank: int, line: int) -> RankCapture:
    array = "/site-packages/jax/_src/array.py"
    return still(rank, stack(("_value", array, 623), ("main", "/app/train.py", line)), "")


def test_ranks_of_jax_at_two_lines_are_apart() -> None:
    """Their boxes have no operations; that no thread had worked for long stands in for them."""
    ranks = [result_of_jax(rank, 41 if rank == 0 else 52) for rank in range(4)]
    capture = JobCapture("j", [NodeCapture("n1", ranks=ranks)], world_size=4)
    capture.over, capture.by_heartbeat, capture.origin = True, True, "files"
    found = diagnose(capture)
    assert causes(found) == [("order", [0])], found.summary
    assert found.causes[0].confidence <= 0.5
    assert "hangdoctor run" not in found.causes[0].advice
    capture.nodes[0].ranks = [result_of_jax(rank, 41 + rank // 2) for rank in range(4)]
    found = diagnose(capture)
    assert found.causes == [] and "hangdoctor run" not in found.summary, found.summary


@pytest.mark.parametrize("line", [101, 95], ids=["past it", "in the next round before it"])
def test_a_rank_of_jax_that_is_not_at_the_line_where_others_wait_for_its_key(line: int) -> None:
    """Their client is compiled: innermost is the user's own line."""
    gathers = "/site-packages/jax/experimental/multihost_utils.py"
    waits = stack(
        ("main", "/app/train.py", 98), code="client.blocking_key_value_get(f'policy/{n}', WAIT_MS)"
    )
    past = stack(("process_allgather", gathers, 134), ("main", "/app/train.py", line))
    ranks = [still(rank, past if rank == 0 else waits, "") for rank in range(3)]
    for rank in ranks:
        rank.world_size = 3
    ranks[0].has_jax = True
    capture = JobCapture("j", [NodeCapture("n1", ranks=ranks)], world_size=3)
    capture.over, capture.by_heartbeat, capture.origin = True, True, "files"
    found = diagnose(capture)
    assert causes(found) == [("order", [0])], found.summary
    assert "most likely rank 0 did not set their key" in found.summary


def test_a_rank_of_jax_that_has_gone_on_to_the_end_is_named() -> None:
    module = "/site-packages/jax/_src/distributed.py"
    ended = stack(
        ("shutdown", module, 199), ("shutdown", module, 349), ("main", "/app/train.py", 60)
    )
    ranks = [result_of_jax(rank, 41) for rank in range(3)]
    capture = JobCapture(
        "j", [NodeCapture("n1", ranks=[*ranks, still(3, ended, "")])], world_size=4
    )
    capture.over, capture.by_heartbeat, capture.origin = True, True, "files"
    for rank in capture.ranks():
        rank.has_jax = True
    assert causes(diagnose(capture)) == [("end_stall", [3])]


def in_compiled(rank: int, code: str, state: str = "") -> RankCapture:
    """Innermost is a line of the user's; a heartbeat does not see what its thread sleeps in."""
    return still(rank, stack(("fit", "/app/train.py", 52), MAIN, code=code), state)


@pytest.mark.parametrize(
    ("code", "state", "named"),
    [
        ("value.block_until_ready()", "", [("order", [3])]),
        ("value.block_until_ready()", "R", []),  # they spin: that is no wait of JAX's
        ("item = queue.get()", "", []),
    ],
)
def test_a_line_in_compiled_code_is_a_wait_beside_jax(
    code: str, state: str, named: list[tuple[str, list[int]]]
) -> None:
    ranks = [in_compiled(rank, code, state) for rank in range(3)]
    capture = JobCapture("j", [NodeCapture("n1", ranks=[*ranks, result_of_jax(3, 62)])])
    capture.over, capture.by_heartbeat, capture.world_size, capture.origin = True, True, 4, "files"
    assert causes(diagnose(capture)) == named


def in_mpi(rank: int, function: str, code: str, peer: str = "", to: int = -1) -> RankCapture:
    """A rank that polls in one call of mpi4py, whose line says which."""
    frames = stack((function, "/app/solve.py", 40 + len(function)), MAIN, code=code)
    if peer:
        frames[0].values = {peer: to}
    samples = [sample(at, thread(frames, state="R", switches=-1, cpu_s=at)) for at in (0.0, 30.0)]
    return captured(rank, samples)


def mpi(*ranks: RankCapture) -> Diagnosis:
    """After SIGTERM, by boxes without operations."""
    capture = JobCapture("j", [NodeCapture("n1", ranks=list(ranks))], world_size=4)
    capture.over, capture.by_heartbeat, capture.origin = True, True, "files"
    killed = [Ended(rank=r.rank, at=61.0, code=-15, by="hangdoctor run") for r in ranks]
    capture.logs = JobLogs(files=[LogFile("ends")], facts=[*killed], world_size=4, of_boxes=[0])
    return diagnose(capture)


def reduces(rank: int) -> RankCapture:
    return in_mpi(rank, "step", "comm.Allreduce(x, y)")


def test_two_sides_of_one_transfer_of_mpi_are_named() -> None:
    sides = [
        in_mpi(0, "collect", "comm.Recv(x, source=w, tag=r)", "src", 2),
        in_mpi(2, "reply", "comm.Ssend(x, dest=0, tag=r)", "dst", 0),
    ]
    behind = [in_mpi(r, "receive", "comm.Recv(x, source=0, tag=r)", "src", 0) for r in (1, 3)]
    found = mpi(*sides, *behind)
    assert causes(found) == [("in_communication", [0, 2])], found.summary
    assert "tags or sizes that differ" in found.summary
    assert (
        "hangdoctor run" not in found.causes[0].advice
    )  # it ran so, and MPI's calls are not counted
    assert mpi(*sides, *behind[:1]).causes == [], "one was not seen"


def test_a_rank_of_mpi_elsewhere_is_named() -> None:
    busy = captured(1, [sample(at, thread(LOAD, state="R", cpu_s=at)) for at in (0.0, 30.0)])
    found = mpi(reduces(0), busy, reduces(2), reduces(3))
    assert [ranks for _, ranks in causes(found)] == [[1]], found.summary


def test_ranks_of_mpi_without_their_lines_name_no_rank() -> None:
    """The program was edited, or is not on this machine."""
    ranks = [in_mpi(rank, "collect" if rank == 1 else "reply", "") for rank in range(4)]
    assert mpi(*ranks).causes == []


def test_a_rank_of_mpi_that_got_on_keeps_all_from_being_named() -> None:
    moving = RankCapture(pid=11, rank=2, node="n1", world_size=4)
    assert mpi(reduces(0), reduces(1), moving, reduces(3)).causes == []


def bare(*ranks: RankCapture) -> str:
    """The sentence on an ended job of which no end is known, and no call recorded."""
    capture = JobCapture("j", [NodeCapture("n1", ranks=list(ranks))], world_size=len(ranks))
    capture.over, capture.by_heartbeat, capture.origin = True, True, "files"
    return diagnose(capture).summary


def gone_on(rank: int) -> RankCapture:
    return RankCapture(pid=100 + rank, rank=rank, world_size=4)


def test_the_only_rank_that_had_not_moved_is_a_lead_and_no_verdict() -> None:
    moved = [gone_on(rank) for rank in (0, 1, 2)]
    stuck = still(3, LOAD, "")
    said = bare(*moved, stuck)
    assert said.startswith("Could not tell: ")
    assert said.endswith(". Rank 3 alone had not moved for 1 s: it was in load_batch (data.py:40).")
    # Another one had not moved either, waits in a call, or the place is none of the user's.
    for others in ([*moved[:2], still(2, BACKWARD, "")], moved[:2], [*moved[:2], waiting(2)]):
        assert "alone" not in bare(*others, stuck)
    assert "alone" not in bare(*moved, still(3, BACKWARD, ""))
    assert "alone" not in bare(*moved, still(3, BACKWARD[:2], ""))


def waiting(rank: int) -> RankCapture:
    inside = Operation("g", 1, "barrier", "entered", entered_s=1.0)
    return RankCapture(pid=9, rank=rank, world_size=4, ops=RankOps(rank, 4, operations=[inside]))


LOADER = "/site-packages/torch/utils/data/dataloader.py"


def test_a_loader_that_asks_its_workers_waits_for_data_though_no_box_shows_them() -> None:
    frames = stack(
        ("select", "/usr/lib/python3.11/selectors.py", 415),
        ("get", "/usr/lib/python3.11/multiprocessing/queues.py", 113),
        ("_try_get_data", LOADER, 1291),
        MAIN,
    )
    found = ended(*(still(rank, frames if rank == 2 else BACKWARD) for rank in range(4)))
    assert causes(found) == [("data_wait", [2])], found.summary
    assert "See its workers in the evidence" in found.causes[0].advice


JOINS = stack(
    ("initialize", "/site-packages/jax/_src/distributed.py", 173),
    ("connect", "/app/train.py", 37),
    MAIN,
)


def joined(*frames: list[Frame]) -> Diagnosis:
    """Ranks 0, 1 and 3 of four left a box each, without an operation."""
    ranks = [still(rank, own) for rank, own in zip((0, 1, 3), frames, strict=True)]
    capture = JobCapture("j", [NodeCapture("n1", ranks=ranks)], world_size=4)
    capture.over, capture.by_heartbeat, capture.origin = True, True, "files"
    return diagnose(capture)


def test_who_left_no_box_while_all_others_wait_in_the_set_up_has_not_joined() -> None:
    found = joined(JOINS, JOINS, JOINS)
    assert causes(found) == [("start_stall", [2])], found.summary
    assert "no black box of it is there" in found.summary
    assert joined(JOINS, JOINS, LOAD).causes == [], "one of them has not come so far"
