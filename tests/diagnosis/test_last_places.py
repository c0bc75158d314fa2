"""Of a finished job, stacks that heartbeats saw last: who is elsewhere is named, and nothing more."""

from __future__ import annotations

from collections.abc import Sequence

from hangdoctor.diagnosis import diagnose
from hangdoctor.model.capture import JobCapture, LockHolder, NodeCapture, RankCapture
from hangdoctor.model.diagnosis import Diagnosis
from hangdoctor.model.log_facts import AnyFact, Ended, JobLogs, LogFile, NoBeat
from hangdoctor.model.operations import Operation, RankOps
from tests.support.captures import LOAD, MAIN, WAIT, causes, stack, still

BACKWARD = stack(
    ("_engine_run_backward", "/site-packages/torch/autograd/graph.py", 979),
    ("backward", "/site-packages/torch/_tensor.py", 623),
    ("train_step", "/app/train.py", 18),
    MAIN,
)


def ended(*ranks: RankCapture, more: Sequence[AnyFact] = (), asked: str = "") -> Diagnosis:
    """All were killed from outside; their boxes have one operation of long before; `asked`: the last
    rank made a new group of other members then.
    """
    for rank in ranks:
        done = Operation("g", 1, "barrier", "done", entered_s=1.0, left_s=1.1)
        if asked:
            done.op, done.detail = "new_group", asked if rank is ranks[-1] else "0-1"
        rank.ops = RankOps(rank.rank, 4, operations=[done], heartbeat_s=60.0)
    capture = JobCapture("j", [NodeCapture("n1", ranks=list(ranks))], world_size=4)
    capture.over, capture.by_heartbeat, capture.origin = True, True, "files"
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
    assert causes(ended(*ranks, stopped, more=[silent])) == [("stopped", [1])]
    elsewhere = [still(0, LOAD), still(2, BACKWARD), still(3, BACKWARD)]
    assert ended(*elsewhere, stopped, more=[silent]).causes == []


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
