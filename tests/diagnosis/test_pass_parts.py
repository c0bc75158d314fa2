"""Small parts of the passes: what counts alone, what is left out, which number is taken."""

from __future__ import annotations

import pytest

from hangdoctor.diagnosis import (
    calls,
    faults,
    gpus,
    operations,
    position,
    rank_gpus,
    ras_culprits,
    straggling,
)
from hangdoctor.diagnosis import findings as f
from hangdoctor.diagnosis.case import open_case
from hangdoctor.diagnosis.draft import Draft
from hangdoctor.diagnosis.findings import Finding
from hangdoctor.diagnosis.ops.evidence import OpsVerdict
from hangdoctor.diagnosis.ras_counts import all_equal
from hangdoctor.diagnosis.wording import gpu_words
from hangdoctor.model.calls import CallThread, CallTrace
from hangdoctor.model.capture import Frame, JobCapture, NodeCapture, SilentNode
from hangdoctor.model.gpu import Gpu
from hangdoctor.model.ras_report import RasCommunicator, RasProcess, RasReport
from tests.support.captures import LOAD, WAIT, still


@pytest.mark.parametrize(
    ("node", "why"), [("n1", "node n1 did not report (no answer)"), ("", "no answer")]
)
def test_why_a_rank_is_missing(node: str, why: str) -> None:
    case = open_case(JobCapture("j", [], [SilentNode(node, "no answer", [0, 2])], 4))
    assert case.silent == {0: why, 2: why} and case.absent == [1, 3] and case.world_size == 4


def test_the_main_thread_by_number_or_by_name() -> None:
    several = [CallThread(8, "pool"), CallThread(7, "renamed"), CallThread(9, "MainThread")]
    assert calls.main_tid(CallTrace(0, 7, "tracing", threads=several)) == 7
    assert calls.main_tid(CallTrace(0, 6, "tracing", threads=several)) == 9
    assert calls.main_tid(CallTrace(0, 6, "tracing", threads=several[:2])) == 6


def test_what_starts_the_ranks_counts_no_steps() -> None:
    """torch.multiprocessing calls each rank with `i`, its own number."""
    spawn = "/v/lib/python3.11/site-packages/torch/multiprocessing/spawn.py"

    def rank(i: int, step: int = 3) -> list[Frame]:
        started = Frame("_wrap", spawn, 87, values={"i": i})
        return [started, Frame("train", "/home/u/t.py", 9, values={"step": step})]

    assert position.counters(rank(1)) == position.counters(rank(2)) == (("step", 3),)
    assert position.compare(rank(2), rank(1)) == 0
    assert position.compare(rank(0, step=4), rank(1)) == 1


@pytest.mark.parametrize(
    ("state", "more", "by"),
    [
        ("t", {}, "debugger"),
        ("T", {"tracer": 5}, "debugger"),
        ("T", {}, "signal"),
        ("T", {"frozen": True, "tracer": 5}, "freezer"),
    ],
)
def test_what_has_stopped_a_process(state: str, more: dict[str, int], by: str) -> None:
    assert faults._stop_story(still(0, LOAD, state, **more)).how == by


def test_frames_of_one_function_by_a_counter_that_both_have() -> None:
    def at(**values: int) -> Frame:
        return Frame("train", "t.py", 1, values={name: str(n) for name, n in values.items()})

    first = position._COUNTERS[0]
    order = position._order_by_counters
    assert order(at(**{first: 1}), at()) == order(at(), at(**{first: 1})) == 0
    assert order(at(**{first: 1}), at(**{first: 1})) == 0
    assert order(at(**{first: 1}), at(**{first: 2})) == -order(at(**{first: 2}), at(**{first: 1}))
    assert order(at(**{first: 1}), at(**{first: 2})) != 0


SLOW = {"waited": {0: 60, 1: 3, 2: 50, 3: 70}, "waited_s": 90.0, "slowest": 1}


def slow(*before: Finding) -> Draft:
    nodes = [NodeCapture("n1", ranks=[still(r, WAIT, world_size=4) for r in range(4)])]
    draft = Draft(findings=list(before))
    straggling.run(open_case(JobCapture("j", nodes, [], 4, **SLOW)), draft)  # type: ignore[arg-type]
    return draft


def test_who_is_slow_by_history_and_how_long_the_others_waited() -> None:
    draft = slow()
    assert draft.status == "slow" and [c.ranks for c in draft.findings] == [[1]]
    assert draft.findings[0].story == f.SlowByHistory(90.0, 3, 50, 60, 70)


def test_only_the_same_rank_found_slow_already_is_enough() -> None:
    for kind, ranks in (("slow", [2]), ("busy", [1])):
        draft = slow(Finding(kind, ranks, f.NeverReached(None), 0.5))  # type: ignore[arg-type]
        assert [c.ranks for c in draft.findings] == [[1]] and draft.status == "slow"
    assert slow(Finding("slow", [1], f.NeverReached(None), 0.5)).status is None


@pytest.mark.parametrize(
    ("report", "equal"),
    [
        (RasReport(largest=8), 8),
        (RasReport(largest=4, communicators=[RasCommunicator("a", 8)]), 8),
        (RasReport(largest=8, dead=[RasProcess()]), 0),
        (RasReport(largest=8, silent=[RasProcess()]), 0),
        (RasReport(largest=8, timeouts=1), 0),
        (RasReport(largest=8, communicators=[RasCommunicator("a", 8, problems=["ERROR"])]), 0),
        (None, 0),
    ],
)
def test_whether_ras_reaches_all(report: RasReport | None, equal: int) -> None:
    node = NodeCapture("n1", ranks=[still(0, WAIT)], ras=report)
    assert all_equal(open_case(JobCapture("j", [node], [], 8))) == equal


def test_a_rank_that_ras_names_makes_a_hang_of_what_the_operations_do_not_show(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = open_case(JobCapture("j", [], [], 2))
    named = Finding("busy", [1], f.NeverReached(None), 0.5)
    for ops, status in ((OpsVerdict("unknown"), "hang"), (None, None)):
        monkeypatch.setattr(ras_culprits, "find", lambda case: [named])
        draft = Draft(ops=ops)
        ras_culprits.run(case, draft)
        assert (draft.findings, draft.status) == ([named], status)
    draft = Draft(ops=OpsVerdict("hang"))
    ras_culprits.run(case, draft)
    assert draft.findings == []


def test_who_was_not_asked_for_is_not_blamed_and_it_is_remembered() -> None:
    ranks = [still(0, WAIT, world_size=4)]
    for job, blamed, kept, beyond in (
        ("pids:9", [2], 0, True),
        ("pids:9", [0], 1, False),
        ("pids:9", [0, 2], 1, False),
        ("slurm:7", [2], 1, False),
    ):
        case = open_case(JobCapture(job, [NodeCapture("n1", ranks=ranks)], [], 4))
        finding = Finding("not_entered", blamed, f.NeverReached(None), 0.5)
        draft = Draft(ops=OpsVerdict("hang", [finding]))
        operations.leave_out_unasked(case, draft)
        assert draft.ops is not None
        assert (len(draft.ops.findings), draft.beyond) == (kept, beyond), (job, blamed)


def test_ranks_outside_have_their_kind_and_facts_count_more() -> None:
    ranks = [still(0, WAIT), still(1, LOAD), still(2, LOAD)]
    case = open_case(JobCapture("j", [NodeCapture("n1", ranks=ranks)], [], 3))
    fact = Finding("io_wait", [2], f.NeverReached(None), 0.5)
    other = Finding("in_communication", [1], f.NeverReached(None), 0.5)
    kinds = operations._kinds_outside(case, [fact, other])
    assert 0 not in kinds and kinds[2] == "io_wait" and kinds[1] not in ("", "in_communication")


def test_a_rank_without_a_gpu_has_none_and_errors_that_stop_are_known() -> None:
    ranks = [still(0, WAIT), still(1, WAIT)]
    node = NodeCapture("n1", ranks=ranks, gpus=[Gpu(0, pids=[ranks[1].pid])])
    found = rank_gpus.of_ranks(JobCapture("j", [node], [], 2))
    assert {rank: gpu.index for rank, gpu in found.items()} == {1: 0}
    meant = {n for n in range(300) if "(" in gpu_words.meaning(n)}
    assert meant < gpus._STOPS and 43 not in gpus._STOPS, "43 ends one program alone"
