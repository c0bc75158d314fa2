"""The edges of single passes: what counts, and what by one number or one word more or less does not."""

from __future__ import annotations

from typing import Any

import pytest

from hangdoctor.diagnosis import (
    call_alignment,
    conclude,
    deadends,
    file_locks,
    gpus,
    gradients,
    health,
    held_by,
    operations,
    outsiders,
    rank_gpus,
    ras_culprits,
    recorders,
    stackgraph,
    verdict,
    waiting,
)
from hangdoctor.diagnosis import findings as f
from hangdoctor.diagnosis.case import Case, open_case
from hangdoctor.diagnosis.draft import Draft
from hangdoctor.diagnosis.findings import Apart, Finding, Waiters
from hangdoctor.diagnosis.health import Reason
from hangdoctor.diagnosis.ops.evidence import OpsVerdict
from hangdoctor.diagnosis.view import Look, RankView
from hangdoctor.model.capture import Frame, JobCapture, NodeCapture, Process, RankCapture
from hangdoctor.model.gpu import Gpu
from hangdoctor.model.operations import Group, Operation, RankOps, group_uid
from hangdoctor.model.ras_report import RasCommunicator, RasCounts, RasProcess, RasReport
from hangdoctor.stacks.place_rules import Place
from tests.support.captures import (
    C10D,
    LOAD,
    MAIN,
    WAIT,
    captured,
    causes,
    judged,
    sample,
    stack,
    still,
    thread,
)


def case_of(*ranks: RankCapture, **more: Any) -> Case:
    node = NodeCapture("n1", ranks=list(ranks), **more)
    return open_case(JobCapture("j", [node], [], len(ranks)))


def view(
    rank: int = 0, kind: str = "collective", path: list[Frame] | None = None, **more: Any
) -> RankView:
    place = Place(kind, **{k: more.pop(k) for k in ("op", "peer", "frame", "caller") if k in more})  # type: ignore[arg-type]
    capture = more.pop("capture", RankCapture(pid=9 + rank, rank=rank))
    return RankView(rank, "n1", 9 + rank, capture, place, look=Look(path=path or []), **more)


def never(
    kind: str, ranks: list[int], op: str = "", waiters: tuple[int, ...] = (), **more: Any
) -> Finding:
    named = f.Op(op) if op else None
    held = Waiters(waiters, f.Op("barrier")) if waiters else None
    return Finding(kind, ranks, f.NeverReached(named), 0.5, waiters=held, **more)  # type: ignore[arg-type]


def test_histories_that_end_with_the_same_step() -> None:
    steps: Any = [(("call", "a"), None), (("call", "b"), None)]
    assert call_alignment._common_stretches(steps, steps[1:]) == [(1, 2, 1)]
    assert call_alignment._common_stretches(steps, steps) == [(2, 2, 2)]


def test_where_a_rank_is_that_has_no_frame_of_the_users() -> None:
    assert conclude._where(view(op="barrier")) == "barrier"
    assert conclude._where(view(op="barrier", stack_error="denied")) == "barrier"
    assert conclude._where(view(kind="code", stack_error="denied")) == "no stack"


def _of_root(rank: int, root: int) -> RankCapture:
    call = Frame("broadcast", C10D, 9, values={"src": root})
    return still(rank, [call, *stack(("step", "/app/train.py", 31), MAIN)])


@pytest.mark.parametrize(("roots", "story"), [((0, 0), f.AllIn), ((0, 1), f.InOther)])
def test_an_operation_that_all_are_in_by_the_roots_that_they_name(
    roots: tuple[int, int], story: type
) -> None:
    case = case_of(*(_of_root(rank, root) for rank, root in enumerate(roots)))
    views = {v.rank: v for v in case.views}
    assert [deadends._root(v) for v in case.views] == list(roots)
    instance = stackgraph.Instance(None, [0, 1], [0, 1], [])  # type: ignore[arg-type]
    assert isinstance(deadends._full(case, instance, views).story, story)


def test_what_remains_of_the_operations_beside_ranks_in_a_file_lock() -> None:
    lock = Finding("not_entered", [1], f.HoldsLock("/a", (2,)), 0.5)
    draft = Draft(excused={2}, facts=[lock])
    partly, wholly, other, bare = (never("not_entered", r) for r in ([2, 3], [1, 2], [4], []))
    assert file_locks.absorb(draft, [partly, wholly, other, bare]) == [partly, other, bare]
    assert partly.ranks == [3]


def test_a_rank_that_is_given_no_gpu_has_none() -> None:
    ranks = [still(0, WAIT, gpu="-1"), still(1, WAIT, gpu="0")]
    found = rank_gpus.of_ranks(case_of(*ranks, gpus=[Gpu(-1), Gpu(0)]).capture)
    assert {rank: gpu.index for rank, gpu in found.items()} == {1: 0}


@pytest.mark.parametrize(
    "wrong",
    [{"slowed": "heat"}, {"uncorrected": 1}, {"link_errors": 1}],
    ids=lambda w: next(iter(w)),
)
def test_what_makes_a_gpu_conspicuous(wrong: dict[str, Any]) -> None:
    assert gpus._conspicuous(Gpu(0, **wrong)) and not gpus._conspicuous(Gpu(0))


@pytest.mark.parametrize(
    ("state", "frames", "where"),
    [
        ("S", LOAD, (LOAD[0], "")),
        ("S", [], (None, "read(5)")),
        ("D", [], (None, "read(5)")),
        ("R", [], (None, "")),
    ],
)
def test_where_another_process_is(state: str, frames: list[Frame], where: object) -> None:
    last = sample(0.0, thread(frames, syscall="read(5)"), state=state)
    assert held_by._where(Process(7, samples=[last])) == where


def test_only_ranks_outside_of_communications_move() -> None:
    assert operations._moves(view(kind="code", motion="moved"), {})
    assert operations._moves(view(kind="code"), {0: "slow"})
    assert not operations._moves(view(motion="moved"), {0: "slow"})


def test_a_queue_feeds_the_training_where_there_are_workers() -> None:
    made = Frame("run", "/usr/lib/python3.11/multiprocessing/process.py", 108)
    program = Process(8, samples=[sample(0.0, thread(LOAD))])  # that it has started itself
    worker = Process(8, samples=[sample(0.0, thread([*LOAD, made]))])
    feeding = (([], ()), ([program], ("queue",)), ([worker], ("queue", "child")))
    for children, feeds in feeding:
        capture = RankCapture(pid=9, rank=0, children=children)
        for kind in ("queue", "child"):
            at = view(kind=kind, path=LOAD[::-1], capture=capture)
            assert outsiders._waits_for_data(at) is (kind in feeds)
        assert not outsiders._waits_for_data(view(kind="code", path=LOAD[::-1], capture=capture))


def _behind(name: str, size: int, launched: int = 5) -> RasCommunicator:
    rows = [RasCounts("AllReduce", 9, size - 1, [0]), RasCounts("AllReduce", launched, 1, [3])]
    return RasCommunicator(name, size, differences=rows if launched < 9 else [])


@pytest.mark.parametrize(
    ("report", "kinds"),
    [
        (RasReport(communicators=[_behind("a", 8, 9), _behind("b", 4)]), ["not_entered"]),
        (RasReport(communicators=[_behind("a", 8)], dead=[RasProcess("h", 7)]), ["unreachable"]),
        (RasReport(communicators=[_behind("a", 8)], silent=[RasProcess("h", 7)]), ["unreachable"]),
        (RasReport(communicators=[_behind("a", 8, 9)]), []),
    ],
)
def test_ranks_that_ras_shows_behind_unless_processes_are_lost(
    report: RasReport, kinds: list[str]
) -> None:
    case = open_case(JobCapture("j", [NodeCapture("n1", ras=report)], [], 8))
    assert [found.kind for found in ras_culprits.find(case)] == kinds


def _ops(source: str, *operations: Operation) -> RankOps:
    return RankOps(0, source=source, operations=list(operations))  # type: ignore[arg-type]


def test_when_torchs_own_recorder_is_believed() -> None:
    """Where a rank's box shows no wait and its recorder does; all ranks by one and the same."""
    entered = Operation("g", 1, "all_reduce")
    receiving = Operation("g", 1, "recv", peer=1)
    waits, free = _ops("flight_recorder", entered), _ops("blackbox")
    by_nccl = _ops("nccl", entered)

    def believed(*pairs: tuple[RankOps | None, RankOps | None]) -> bool:
        ranks = [still(n, WAIT, ops=ops, recorded=rec) for n, (ops, rec) in enumerate(pairs)]
        return recorders.by_recorder(case_of(*ranks))

    assert believed((free, waits)) and believed((free, waits), (None, None))
    assert not believed((free, None), (free, waits)), "one has none"
    assert not believed((free, waits), (free, by_nccl)), "they do not count alike"
    assert believed((free, by_nccl)) and not believed(
        (free, by_nccl), (_ops("blackbox", entered), by_nccl)
    )
    assert believed((free, waits), (_ops("blackbox", entered), waits))
    assert not believed((free, waits), (_ops("blackbox", receiving), waits)), "gloo records none"
    assert not believed((free, _ops("flight_recorder"))) and not believed(
        (_ops("blackbox", entered), waits)
    )


def test_ranks_whose_boxes_moved_do_not_hang_in_what_a_recorder_shows_of_one_moment() -> None:
    """A healthy job: each is in the all_reduce of its gradients when torch's recorder is asked."""
    members = list(range(4))
    uid = group_uid(members)

    def rank(number: int, moved: bool) -> RankCapture:
        def records(source: str, *operations: Operation) -> RankOps:
            groups = [Group(uid, members)]
            return RankOps(number, 4, source=source, groups=groups, operations=list(operations))  # type: ignore[arg-type]

        first, last = (
            records("blackbox", Operation(uid, seq, "all_reduce", "done")) for seq in (20, 30)
        )
        recorded = records("flight_recorder", Operation(uid, 60, "all_reduce"))
        samples = [
            sample(at, thread(stack(line, MAIN), switches=int(90 * at)))
            for at, line in ((0.0, ("step", "/app/t.py", 5)), (1.0, ("step", "/app/t.py", 6)))
        ]
        before = first if moved else last
        return captured(number, samples, ops=last, ops_before=before, recorded=recorded)

    said = judged(*(rank(number, moved=True) for number in members))
    assert (said.status, causes(said)) == ("healthy", []), said.summary
    said = judged(*(rank(number, moved=False) for number in members))
    assert causes(said) == [("in_communication", members)]


def test_the_records_of_two_captures_are_of_one_source() -> None:
    waits, by_nccl = _ops("flight_recorder", Operation("g", 1, "barrier")), _ops("nccl")
    for first, kept in ((None, None), (by_nccl, None), (waits, waits)):
        assert (
            recorders._of_the_same_source(
                RankCapture(9, rank=0, recorded=waits, recorded_before=first)
            )
            is kept
        )
    assert recorders._of_the_same_source(RankCapture(9, rank=0, recorded_before=waits)) is None


def test_the_frames_around_a_call_that_may_name_its_axis() -> None:
    path = [Frame(f"f{n}", "/app/t.py", n) for n in range(8)]
    around = stackgraph._around_call(view(path=path, frame=path[0], caller=path[5]))
    assert [frame.name for frame in around] == ["f2", "f3", "f4", "f5"]


def test_the_line_of_an_error_in_a_pass() -> None:
    def broken() -> None:
        raise KeyError(57)

    with pytest.raises(KeyError) as raised:
        broken()
    frame = verdict._left_out(raised.value).frame
    assert frame is not None
    assert (frame.name, frame.line) == ("broken", broken.__code__.co_firstlineno + 1)


STEP = ("step", "/app/train.py", 31)
LATER = stack(("all_gather", C10D, 9), ("step", "/app/train.py", 44), MAIN)


@pytest.mark.parametrize(
    ("first", "kinds"),
    [(1, [("order", [0])]), (2, [("in_communication", [0, 1])]), (3, [("order", [3])])],
)
def test_ranks_in_two_operations_by_the_order_of_their_lines(
    first: int, kinds: list[tuple[str, list[int]]]
) -> None:
    case = case_of(*(still(n, WAIT if n < first else LATER) for n in range(4)))
    found = waiting._by_lines(case, case.waiting)
    assert [(one.kind, one.ranks) for one in found] == kinds


@pytest.mark.parametrize(
    ("op", "peer", "may"),
    [("recv", 2, True), ("recv", 0, False), ("recv", -1, False), ("send", 0, True)],
)
def test_whether_a_peer_may_still_answer(op: str, peer: int, may: bool) -> None:
    receives = view(kind="p2p", op="recv", peer=1)
    assert waiting._may_answer(receives, view(1, "p2p", op=op, peer=peer)) is may
    assert not waiting._may_answer(receives, view(1, "collective", op="barrier"))


@pytest.mark.parametrize(
    ("moved", "reason"),
    [
        (1, Reason.ALL_STIRRED),
        (2, Reason.MOST_MOVED),
        (0, Reason.ALL_STIRRED),
        (4, Reason.ALL_MOVED),
    ],
)
def test_what_shows_that_a_job_gets_on(moved: int, reason: Reason) -> None:
    case = case_of(*(still(n, WAIT) for n in range(4)))
    for n, one in enumerate(case.views):
        one.motion = "moved" if n < moved else "stirred"
    found = health.why_healthy(case)
    assert found is not None and found.reason is reason


@pytest.mark.parametrize(
    ("ranks", "op", "turned"),
    [([1, 2, 3], "barrier", True), ([1], "barrier", False), ([1, 2, 3], "", False)],
)
def test_the_few_at_an_operation_are_blamed_where_most_may_reduce_gradients(
    ranks: list[int], op: str, turned: bool
) -> None:
    finding = never("not_entered", ranks, op, (0,), unrecorded=True)
    gradients._turn(finding)
    assert (finding.kind, finding.ranks) == (("order", [0]) if turned else ("not_entered", ranks))


@pytest.mark.parametrize(
    ("absent", "present", "how"),
    [([0], (1, 2), Apart.AHEAD), ([1, 2], (0,), Apart.BEHIND), ([1], (0,), Apart.SMALLER_SIDE)],
)
def test_which_side_of_a_reduction_of_gradients_the_records_count(
    absent: list[int], present: tuple[int, ...], how: Apart
) -> None:
    story = f.InOther(Apart.SMALLER_SIDE, f.Op("all_reduce"), (1, 2))
    lead = Finding("order", [0], story, 0.5)
    draft = Draft(by_stacks=[lead], ops=OpsVerdict("hang", []))
    gradients._count(draft, never("not_entered", absent, "barrier", present))
    assert isinstance(lead.story, f.InOther) and lead.story.how is how
