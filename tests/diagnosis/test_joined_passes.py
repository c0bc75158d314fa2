"""Captures with records of operations beside stacks and states: who is the cause, and all that is said of it.

The kinds and ranks stand here; the rest is `tests/data/joined_passes/judged.txt`, which
`python -m tests.diagnosis.test_joined_passes` writes anew, to be read in the diff.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hangdoctor.diagnosis import diagnose
from hangdoctor.diagnosis.third_sample import pause_s
from hangdoctor.model.capture import Frame, JobCapture, NodeCapture, RankCapture, SilentNode
from hangdoctor.model.layout import Layout
from hangdoctor.model.log_facts import JobLogs
from hangdoctor.model.operations import Operation, RankOps, group_uid
from hangdoctor.model.ras_report import RasCommunicator, RasProcess, RasReport
from tests.support.captures import C10D, LOAD, MAIN, captured, sample, stack, still, thread, told
from tests.support.ops_records import done, entered, rank_ops

SAID = Path(__file__).parents[1] / "data" / "joined_passes" / "judged.txt"
ALL = range(4)
WORLD = [
    Frame("all_reduce", C10D, 9, group="world"),
    Frame("step", "/app/train.py", 31),
    Frame(*MAIN),
]
LEAVE = [Frame("destroy_process_group", C10D, 9), Frame("main", "/app/train.py", 90)]
SEND = [Frame("send", C10D, 9, values={"dst": 3}), Frame("step", "/app/train.py", 40), Frame(*MAIN)]
GRADIENTS = stack(
    ("_engine_run_backward", "/site-packages/torch/autograd/graph.py", 8),
    ("step", "/app/train.py", 35),
    MAIN,
)
GATHERS = ("all_gather_object", C10D, 12)
PICKLE = stack(("__getstate__", "/app/stats.py", 3), GATHERS, ("step", "/app/train.py", 31), MAIN)
OTHER = stack(("forward", "/app/model.py", 3), MAIN)
LOCK = stack(("fetch", "/app/data.py", 8), MAIN, code="with lock.acquire():")

BEHIND, THERE = [done(ALL, 1), done(ALL, 2)], [done(ALL, 1), done(ALL, 2), entered(ALL, 3)]
FLYING = [*BEHIND, entered(ALL, 3, asynchronous=True)]
AWAITED = [*BEHIND, entered(ALL, 3, asynchronous=True, waited=True)]
KEY = [entered(ALL, 1, "store_wait", detail="'rank3/ready'")]


def recorded(
    rank: int,
    frames: list[Frame] | None,
    operations: list[Operation],
    state: str = "S",
    **more: Any,
) -> RankCapture:
    """A rank with the same records in both samples; without a stack where `frames` is None."""
    fields = {
        n: more.pop(n)
        for n in ("finished", "steps", "runs_ahead", "source", "iteration")
        if n in more
    }
    ops = rank_ops(rank, 4, operations, **{"source": "blackbox", **fields})
    before = more.pop("before", ops)
    of = {"ops": ops, "ops_before": before} | more
    if frames is None:
        return captured(rank, [], **of)
    return still(rank, frames, state, **of)


def job(*ranks: RankCapture, **more: Any) -> JobCapture:
    node = NodeCapture("n1", ranks=list(ranks), ras=more.pop("ras", None))
    return JobCapture(**({"job": "j", "nodes": [node], "world_size": 4, "taken": 100.0} | more))


def three(last: RankCapture, **more: Any) -> JobCapture:
    """Ranks 0-2 in the third reduction, and another one."""
    return job(*(recorded(r, WORLD, THERE) for r in range(3)), last, **more)


def went_on(rank: int, frames: list[Frame] = WORLD, **more: Any) -> RankCapture:
    before = rank_ops(rank, 4, BEHIND, source="blackbox")
    return recorded(rank, frames, THERE, before=before, **more)


def goes_on(rank: int) -> RankCapture:
    """Outside of all operations, at another place in each sample."""
    ops = rank_ops(rank, 4, BEHIND, source="blackbox")
    samples = [
        sample(0.0, thread(OTHER, switches=1)),
        sample(1.0, thread(LOAD, switches=5)),
    ]
    return captured(rank, samples, ops=ops, ops_before=ops)


def seen_by_ras(**more: Any) -> RasReport:
    return RasReport(communicators=[RasCommunicator("ab", 4)], largest=4, **more)


N2 = [SilentNode("n2", "no answer", [3])]
Causes = list[tuple[str, list[int]]]
TABLE: dict[str, tuple[JobCapture, str, Causes]] = {
    # ---- records and stacks of the same rank
    "both name one": (three(recorded(3, LOAD, BEHIND)), "hang", [("not_entered", [3])]),
    "records alone": (job(*(recorded(r, None, THERE if r < 3 else BEHIND) for r in ALL)), "hang", [("not_entered", [3])]),
    "stopped": (three(recorded(3, LOAD, BEHIND, "T")), "hang", [("stopped", [3])]),
    "stopped in the operation": (three(recorded(3, WORLD, THERE, "T")), "hang", [("stopped", [3])]),
    "in I/O": (three(recorded(3, LOAD, BEHIND, "D")), "hang", [("io_wait", [3])]),
    "in I/O in the operation": (three(recorded(3, WORLD, THERE, "D")), "hang", [("io_wait", [3])]),
    "dead": (three(recorded(3, None, THERE, gone=True, exit_code=-9)), "hang", [("dead", [3])]),
    "dead before it came": (three(recorded(3, None, BEHIND, gone=True, exit_code=1)), "hang", [("dead", [3])]),
    "dead and another not there": (job(recorded(0, WORLD, THERE), recorded(1, WORLD, THERE), recorded(2, LOAD, BEHIND), recorded(3, None, BEHIND, gone=True, exit_code=1)), "hang", [("dead", [3]), ("not_entered", [2])]),
    "stopped far from the cause": (job(recorded(0, WORLD, THERE), recorded(1, WORLD, THERE, "T"), recorded(2, WORLD, THERE), recorded(3, LOAD, BEHIND)), "hang", [("stopped", [1]), ("not_entered", [3])]),
    "a lock": (three(recorded(3, LOCK, BEHIND)), "hang", [("not_entered", [3])]),
    "two that a file keeps": (job(recorded(0, WORLD, THERE), recorded(1, WORLD, THERE), recorded(2, LOAD, BEHIND), recorded(3, LOAD, BEHIND)), "hang", [("not_entered", [2, 3])]),
    "all have entered": (job(*(recorded(r, WORLD, THERE) for r in ALL)), "hang", [("in_communication", [0, 1, 2, 3])]),
    "all have entered, by one sample": (job(*(recorded(r, WORLD, THERE, before=None) for r in ALL)), "hang", [("in_communication", [0, 1, 2, 3])]),
    # ---- records and stacks of different ranks
    "the stack of another is outside": (job(recorded(0, LOAD, THERE), recorded(1, WORLD, THERE), recorded(2, WORLD, THERE), recorded(3, OTHER, BEHIND)), "hang", [("not_entered", [3])]),
    "a wait that its record does not show": (job(recorded(0, LOAD, THERE), recorded(1, WORLD, THERE), recorded(2, WORLD, THERE), recorded(3, WORLD, BEHIND)), "hang", [("not_entered", [0])]),
    "no record of one that was read": (three(still(3, LOAD)), "hang", [("not_entered", [3])]),
    "no record of one that may not be read": (three(captured(3, [sample(0.0, stack_error="no"), sample(1.0, stack_error="no")])), "hang", [("unreachable", [3])]),
    "no record of one that waits": (three(still(3, WORLD)), "hang", [("in_communication", [0, 1, 2, 3])]),
    "one silent": (job(*(recorded(r, WORLD, THERE) for r in range(3)), silent=N2), "hang", [("unreachable", [3])]),
    "one not captured": (job(*(recorded(r, WORLD, THERE) for r in range(3))), "hang", [("unreachable", [3])]),
    "one that was not asked for": (job(*(recorded(r, WORLD, THERE) for r in range(3)), job="pids:1,2,3"), "unknown", []),
    "one of those asked for": (job(recorded(0, WORLD, THERE), recorded(1, LOAD, BEHIND), job="pids:1,2"), "hang", [("not_entered", [1])]),
    # ---- what goes on
    "all went on": (job(*(went_on(r) for r in ALL)), "healthy", []),
    "all went on, and one was not seen": (job(*(went_on(r) for r in range(3)), silent=N2), "unknown", []),
    "all went on but one that is stopped": (job(*(went_on(r) for r in range(3)), recorded(3, LOAD, BEHIND, "T")), "hang", [("stopped", [3])]),
    "all have ended": (job(*(recorded(r, None, BEHIND, finished=True) for r in ALL)), "healthy", []),
    "records ended, one is inside": (job(*(recorded(r, LEAVE, BEHIND, finished=True) for r in range(3)), recorded(3, LOAD, BEHIND, finished=True)), "hang", [("end_stall", [3])]),
    "none waits, by records alone": (job(*(recorded(r, None, BEHIND) for r in ALL)), "unknown", []),
    "none waits, and all sleep": (job(*(recorded(r, OTHER, BEHIND) for r in range(3)), recorded(3, LOAD, BEHIND)), "unknown", []),
    "records alone, and one is dead": (job(*(recorded(r, None, BEHIND) for r in range(3)), recorded(3, None, BEHIND, gone=True, exit_code=1)), "hang", [("dead", [3])]),
    "all went on, and one is without records": (job(went_on(0), went_on(1), still(2, LOAD), silent=N2), "unknown", []),
    "one goes on outside": (three(goes_on(3)), "slow", [("slow", [3])]),
    # ---- handles
    "handles that all wait for": (job(*(recorded(r, WORLD, FLYING) for r in ALL)), "hang", [("in_communication", [0, 1, 2, 3])]),
    "a handle of one that is elsewhere": (job(*(recorded(r, WORLD, [*FLYING, entered(ALL, 4)]) for r in range(3)), recorded(3, LOAD, FLYING)), "hang", [("not_entered", [3])]),
    "a handle that one waits for elsewhere": (job(*(recorded(r, WORLD, [*FLYING, entered(ALL, 4)]) for r in range(3)), recorded(3, LOAD, AWAITED)), "hang", [("in_communication", [0, 1, 2, 3])]),
    # ---- keys of the store
    "a key alone": (job(*(recorded(r, WORLD, KEY) for r in ALL)), "hang", [("start_stall", [0, 1, 2, 3])]),
    "a key, and one is elsewhere": (job(*(recorded(r, WORLD, KEY) for r in range(3)), recorded(3, LOAD, BEHIND)), "hang", [("not_entered", [3])]),
    "a key and one that is dead": (job(*(recorded(r, WORLD, KEY) for r in range(3)), recorded(3, None, [], gone=True, exit_code=1)), "hang", [("dead", [3])]),
    # ---- what no record shows
    "gradients": (job(*(recorded(r, WORLD, THERE) for r in range(3)), recorded(3, GRADIENTS, BEHIND)), "hang", [("order", [3])]),
    "gradients of all": (job(*(recorded(r, GRADIENTS, BEHIND) for r in ALL)), "hang", [("in_communication", [0, 1, 2, 3])]),
    "gradients, and one is elsewhere": (job(recorded(0, WORLD, THERE), recorded(1, GRADIENTS, BEHIND), recorded(2, GRADIENTS, BEHIND), recorded(3, LOAD, BEHIND)), "hang", [("not_entered", [3])]),
    "a recorder that shows all": (job(*(recorded(r, WORLD, THERE, source="simulated") for r in range(2)), *(recorded(r, GRADIENTS, BEHIND, source="simulated") for r in (2, 3))), "hang", [("not_entered", [2, 3])]),
    "a message and its line": (job(*(recorded(r, SEND if r == 0 else WORLD, [entered(ALL, 1, "send", peer=3)] if r == 0 else [entered(ALL, 1)]) for r in ALL), layout=Layout(dp=1, pp=4)), "hang", [("p2p_unmatched", [0, 3])]),
    # ---- a call that is entered, and runs the program's own code
    "all have entered, and one pickles an object": (three(recorded(3, PICKLE, THERE)), "hang", [("not_entered", [3])]),
    "all have entered, and one has only begun it": (three(recorded(3, LOAD, FLYING)), "hang", [("in_communication", [0, 1, 2, 3])]),
    # ---- NCCL's RAS beside records
    "RAS reaches all that have entered": (job(*(recorded(r, WORLD, THERE) for r in ALL), ras=seen_by_ras()), "hang", [("in_communication", [0, 1, 2, 3])]),
    "RAS reaches not all": (job(*(recorded(r, WORLD, THERE) for r in ALL), ras=seen_by_ras(timeouts=1)), "hang", [("in_communication", [0, 1, 2, 3])]),
    "RAS reaches all of a larger communicator": (job(*(recorded(r, WORLD, THERE) for r in ALL), ras=RasReport(communicators=[RasCommunicator("ab", 2)], largest=4)), "hang", [("in_communication", [0, 1, 2, 3])]),
    "RAS reaches all, and shows a problem": (job(*(recorded(r, WORLD, THERE) for r in ALL), ras=RasReport(communicators=[RasCommunicator("ab", 4, problems=["MISMATCH"])], largest=4)), "hang", [("in_communication", [0, 1, 2, 3])]),
    "RAS reaches all, and one has not entered": (three(recorded(3, LOAD, BEHIND), ras=seen_by_ras()), "hang", [("not_entered", [3])]),
    "RAS where no record shows a wait": (job(*(recorded(r, None, BEHIND) for r in ALL), ras=seen_by_ras(dead=[RasProcess("h9", 7)])), "hang", [("unreachable", [])]),
    "RAS where all went on": (job(*(went_on(r) for r in ALL), ras=seen_by_ras(dead=[RasProcess("h9", 7)])), "healthy", []),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLE)
def test_who_is_the_cause(name: str) -> None:
    capture, status, causes = TABLE[name]
    found = diagnose(capture)
    told = [(c.kind, c.ranks) for c in found.causes or found.open]
    assert (found.status, told) == (status, causes)


def test_who_waits_in_what_no_recorder_counts_has_left_nothing_out() -> None:
    """Three wait for a key of the store; torch's recorder knows of the gradients of the fourth alone."""
    key = Frame("__call__", "/app/train.py", 19, code="self.store.wait([name], self.limit)")
    ranks = []
    for rank in ALL:
        frames = [key, Frame(*MAIN)] if rank < 3 else GRADIENTS
        both = recorded(rank, frames, [])
        operations = BEHIND if rank < 3 else THERE
        both.recorded = rank_ops(rank, 4, operations, source="flight_recorder")
        ranks.append(both)
    found = diagnose(job(*ranks))
    assert {rank for cause in found.causes for rank in cause.ranks} <= {3}, found.summary


def in_pairs(made_by_the_others: int) -> JobCapture:
    """Pairs call at one line, then all reduce gradients; rank 3 alone is in the call, the third."""
    line = "forward (/app/model.py:3)"
    norm = [Frame("all_reduce", C10D, 9), Frame("forward", "/app/model.py", 3), Frame(*MAIN)]
    ranks = []
    for rank, made in enumerate((made_by_the_others, made_by_the_others, 2, 2)):
        pair = (0, 1) if rank < 2 else (2, 3)
        operations = [done(pair, n, site=line) for n in range(1, made + 1)]
        if rank == 3:
            operations.append(entered(pair, 3, site=line))
        both = recorded(rank, norm if rank == 3 else GRADIENTS, [])
        both.ops = rank_ops(rank, 4, operations, pair, source="blackbox")
        both.ops_before = both.ops
        ranks.append(both)
    return job(*ranks)


def test_a_call_that_all_others_at_the_gradients_have_made_was_left_out() -> None:
    found = diagnose(in_pairs(made_by_the_others=3))
    assert [(c.kind, c.ranks) for c in found.causes] == [("order", [2])]
    assert "most likely rank 2 skipped all_reduce" in found.summary
    found = diagnose(in_pairs(made_by_the_others=2))
    assert all(cause.ranks != [2] for cause in found.causes), found.summary


def test_a_log_that_calls_the_node_localhost_names_no_second_node() -> None:
    capture = job(*(recorded(r, WORLD, THERE) for r in ALL))
    capture.logs = JobLogs(homes={0: "localhost"})
    assert diagnose(capture).job.nodes == ["n1"]
    assert diagnose(JobCapture("j", logs=capture.logs)).job.nodes == ["localhost"]


def everything() -> str:
    texts = [line for name, row in TABLE.items() for line in told(name, diagnose(row[0]))]
    return "\n".join(texts) + "\n"


def test_all_that_is_said() -> None:
    assert everything() == SAID.read_text()


# ----------------------------------------------------------------- a third sample


def reducing(waits: list[float], now_s: float, members: tuple[int, ...] = (0, 1)) -> JobCapture:
    """Rank 1 does not come to a reduction that rank 0 has waited in for `now_s`; it waited `waits` in those before."""
    past = [
        done(members, n + 1, entered_s=10.0 * n + 1, left_s=10.0 * n + 1 + wait)
        for n, wait in enumerate(waits)
    ]
    last = entered(members, len(waits) + 1, entered_s=500.0 - now_s)
    ranks = [
        captured(
            r, [], world_size=3, ops=rank_ops(r, 3, [*past, *([last] if r == 0 else [])], members)
        )
        for r in (0, 1)
    ]
    bystander = captured(2, [], world_size=3, ops=rank_ops(2, 3, [done([2], 1)], [2]))
    return JobCapture(
        "j", [NodeCapture("n1", ranks=[*ranks, bystander])], world_size=3, taken=500.0
    )


PAUSES = {
    "as long as those before": ([5.0] * 8, 4.5, 6.5),
    "a rank that has become slow": ([0.1] * 6 + [3.0, 3.04], 3.0, 3.9),
    "much longer than usual": ([0.1] * 8, 4.0, 0.0),
    "nothing is known of earlier ones": ([], 4.0, 0.0),
    "the longest counts of the last two and the middle": (
        [2.0, 2.0, 2.0, 2.0, 2.0, 2.06, 9.0, 9.0],
        2.0,
        11.7,
    ),
}


@pytest.mark.parametrize("case", PAUSES)
def test_how_long_to_wait_for_a_third_sample(case: str) -> None:
    waits, now_s, pause = PAUSES[case]
    capture = reducing(waits, now_s)
    diagnosis = diagnose(capture)
    assert [(c.kind, c.ranks) for c in diagnosis.causes] == [("not_entered", [1])]
    assert pause_s(capture, diagnosis) == pause


def test_a_rank_that_is_slow_anyway_is_not_waited_for() -> None:
    capture = reducing([5.0] * 8, 4.5)
    diagnosis = diagnose(capture)
    diagnosis.causes[0].kind = "slow"
    assert pause_s(capture, diagnosis) == 0.0
    diagnosis.causes = []
    assert pause_s(capture, diagnosis) == 0.0


def test_only_waits_of_the_same_operation_and_group_count() -> None:
    capture = reducing([5.0] * 8, 4.5)
    diagnosis = diagnose(capture)
    ops = capture.nodes[0].ranks[0].ops
    assert ops is not None
    longer = [
        done(range(3), n + 1, op=op, entered_s=20.0 * n + 1, left_s=20.0 * n + 20)
        for n, op in enumerate(["all_reduce", "barrier"] * 4)
    ]
    ops.operations = [*ops.operations, *longer]
    assert pause_s(capture, diagnosis) == 24.7, "in the group of all, rank 0 waits for rank 1 too"
    ops.groups = [g for g in ops.groups if g.uid != group_uid(range(3))]
    assert pause_s(capture, diagnosis) == 6.5


def test_the_records_of_the_culprit_do_not_count() -> None:
    capture = reducing([5.0] * 8, 4.5)
    diagnosis = diagnose(capture)
    capture.nodes[0].ranks[1].ops = RankOps(1, 3)
    capture.nodes[0].ranks[2].ops = None
    assert pause_s(capture, diagnosis) == 6.5
    ops = capture.nodes[0].ranks[0].ops
    assert ops is not None
    ops.operations = [o for o in ops.operations if o.state != "done"]
    assert pause_s(capture, diagnosis) == 0.0


if __name__ == "__main__":
    SAID.parent.mkdir(exist_ok=True)
    SAID.write_text(everything())
