"""A job's log and its black boxes together: the report says whether they agree."""

from __future__ import annotations

from typing import Literal

import pytest

from hangdoctor.diagnosis import diagnose
from hangdoctor.diagnosis.case import Case, open_case
from hangdoctor.diagnosis.draft import Draft
from hangdoctor.diagnosis.findings import Clue, End, Finding
from hangdoctor.diagnosis.findings.log_stories import (
    FailedFirst,
    LogContradicts,
    LoggedDeath,
    Quote,
    StoppedRunning,
)
from hangdoctor.diagnosis.logs.boxes_first import prefer
from hangdoctor.model.capture import JobCapture, NodeCapture, RankCapture
from hangdoctor.model.diagnosis import Diagnosis, Kind
from hangdoctor.model.log_facts import (
    AnyFact,
    Ended,
    GlooTimeout,
    JobLogs,
    KnownError,
    LogFile,
    PeerClosed,
    PythonError,
    RuleText,
)
from hangdoctor.model.operations import Group, Operation, OpState, RankOps, group_uid
from hangdoctor.readers import ended_ranks
from hangdoctor.readers.blackbox import Contents
from hangdoctor.readers.offline import join_logs
from hangdoctor.readers.recorded import _put_beside
from tests.support.captures import LOAD, WAIT, still
from tests.support.ended_boxes import dead_box, ended, left, verdict

Source = Literal["blackbox", "flight_recorder"]


def logs_of(*facts: AnyFact, name: str = "train.log") -> JobLogs:
    return JobLogs(files=[LogFile(name, 9)], facts=list(facts), world_size=4)


def error(rank: int, at: float, says: str = "ValueError: bad shard") -> PythonError:
    return PythonError(rank=rank, at=at, error="ValueError", message="bad shard", says=says, line=7)


def killed(rank: int, at: float, by: str = "hangdoctor run") -> Ended:
    return Ended(rank=rank, at=at, code=-9, by=by, first=True, says="ended by signal 9")


def both(log: JobLogs, boxes: JobLogs) -> Diagnosis:
    join_logs(log, boxes)
    capture = JobCapture("files", [NodeCapture("n1")], world_size=4)
    capture.logs = log
    return diagnose(capture)


def test_a_box_that_names_the_same_rank_agrees() -> None:
    boxes = logs_of(error(2, 10.0), name="n1-7.blackbox")
    [cause] = both(logs_of(error(2, 10.0)), boxes).causes
    assert cause.ranks == [2]
    says = [e.says for e in cause.evidence]
    assert any("The log and the black boxes agree" in text for text in says), says


def test_a_box_that_names_another_rank_contradicts() -> None:
    boxes = logs_of(killed(1, 20.0), name="n1: exit codes")
    found = both(logs_of(error(2, 10.0)), boxes)
    [cause] = found.causes  # a process that was killed did not wait for another's exception
    assert cause.ranks == [1]
    says = [e.says for e in cause.evidence]
    assert any("The log contradicts: by its lines rank 2" in text for text in says), says
    assert any("one names rank 2, the other rank 1" in note for note in found.notes)
    alone = JobCapture("files", [NodeCapture("n1")], world_size=4)
    alone.logs = logs_of(killed(1, 20.0))
    assert cause.confidence < diagnose(alone).causes[0].confidence


def test_a_box_that_was_first_contradicts_the_log() -> None:
    log = logs_of(killed(1, 200.0, by="torchelastic"))
    found = both(log, logs_of(error(2, 10.0), name="n1-7.blackbox"))
    [cause] = found.causes
    says = [e.says for e in cause.evidence]
    assert cause.ranks == [2]
    assert any("The log contradicts: by its lines rank 1" in text for text in says), says


def test_one_of_them_that_names_none_says_nothing() -> None:
    lost = PythonError(rank=0, at=11.0, error="RuntimeError", role="consequence", says="closed")
    found = both(logs_of(error(2, 10.0)), logs_of(lost, name="n1-7.blackbox"))
    [cause] = found.causes
    assert not any("black box" in e.says for e in cause.evidence) and not found.notes


def gloo_wait(rank: int) -> GlooTimeout:
    return GlooTimeout(rank=rank, at=600.0, what="recv", limit_ms=60000.0, says="Timed out")


def beside_stacks(outside: int, waited: list[int]) -> Diagnosis:
    """Four ranks of which one is elsewhere by its stack, and gloo's time-outs by the log."""
    ranks = [still(r, LOAD if r == outside else WAIT) for r in range(4)]
    capture = JobCapture("j", [NodeCapture("n1", ranks=ranks)], world_size=4)
    capture.logs = logs_of(*(gloo_wait(rank) for rank in waited))
    return diagnose(capture)


def test_a_rank_that_timed_out_in_gloo_itself_was_not_elsewhere() -> None:
    found = beside_stacks(outside=1, waited=[0, 1, 3])
    says = [e.says for c in found.causes for e in c.evidence]
    assert not any("rank 1 did not" in text for text in says), says
    assert any("contradicts" in text and "rank 1 timed out" in text for text in says), says
    assert any("rank 1" in note for note in found.notes)


def test_waits_in_gloo_of_all_others_support_the_stacks() -> None:
    found = beside_stacks(outside=2, waited=[0, 1, 3])
    [cause] = found.causes
    assert any("The log agrees" in e.says and "rank 2 did not" in e.says for e in cause.evidence)


def case_of(*facts: AnyFact) -> Case:
    return open_case(JobCapture("j", [NodeCapture("n1")], world_size=4, logs=logs_of(*facts)))


@pytest.mark.parametrize(
    ("code", "at", "kind"),
    [(-9, 1044.0, "stopped"), (-9, 1030.0, "dead"), (-9, 0.0, "dead"), (-11, 1044.0, "dead")],
    ids=["after the others' limit", "before it", "undated", "it crashed"],
)
def test_a_rank_that_did_not_run_is_not_dead_since_its_launcher_killed_it(
    code: int, at: float, kind: str
) -> None:
    """It was stopped, by its heartbeat; the log has the SIGKILL that came for the others' time-out."""
    alone, draft = Draft(), Draft()
    alone.findings = [Finding("stopped", [2], StoppedRunning(8.0), 0.85)]
    draft.findings = [Finding("dead", [2], LoggedDeath(End(code)), 0.93)]
    alone.status, draft.status = "hang", "failed"
    waited = PythonError(rank=0, at=1040.0, error="RuntimeError", role="consequence")
    prefer(case_of(waited, Ended(rank=2, at=at, code=code)), alone, draft)
    assert draft.findings[0].kind == kind


def test_jaxs_abort_after_its_barriers_limit_is_no_first_death() -> None:
    """Two of three ranks waited for rank 2 until the limit, and then the coordinator ended all
    three.
    """
    says = (
        "JaxRuntimeError\nDEADLINE_EXCEEDED: Barrier timed out. Id: epoch-3::0. This usually happens because a task "
        "triggered the barrier too early. # of tasks that reached the barrier: 2/3. The first task at the barrier: 0. "
        "Some timed out task names: 2   RPC: /xla.coordination"
    )
    boxes = [left(0, 1012.0, says), left(1, 1012.01, says), left(2)]
    found = verdict(boxes, [ended(rank, -6, 1020.0 + rank / 100) for rank in range(3)])
    assert [(c.kind, c.ranks) for c in found.causes] == [("not_entered", [2])], found.summary
    assert "never joined the barrier epoch-3" in found.summary
    alone = verdict([left(0), left(1), left(2)], [ended(0, -6, 1020.0), ended(1, -15, 1021.0)])
    assert alone.causes[0].kind == "dead"


# ---------------------------------------------------------------------- dumps beside boxes


def at(rank: int, last: int, state: OpState, source: Source) -> RankOps:
    """A rank of four whose last all_reduce is this one."""
    world = Group(group_uid([0, 1, 2, 3]), [0, 1, 2, 3])
    ops = [
        Operation(world.uid, n, "all_reduce", "done", entered_s=float(n), left_s=n + 0.1)
        for n in range(1, last)
    ]
    ops.append(Operation(world.uid, last, "all_reduce", state, entered_s=float(last)))
    return RankOps(rank, 4, source=source, groups=[world], operations=ops)


def beside_dumps(by_boxes: int, by_dumps: int, kept: bool = False) -> Diagnosis:
    """Ranks with both records, in each of which one has not come; `kept`: the probe wrote both."""
    ranks = []
    for rank in range(4):
        box = (
            at(rank, 7, "done", "blackbox")
            if rank == by_boxes
            else at(rank, 8, "entered", "blackbox")
        )
        dump = at(rank, 7, "done", "flight_recorder")
        if rank != by_dumps:
            dump = at(rank, 8, "entered", "flight_recorder")
        ranks.append(RankCapture(pid=rank + 1, rank=rank, world_size=4, ops=box, recorded=dump))
    capture = JobCapture("j", [NodeCapture("", ranks=ranks)], world_size=4, origin="files")
    capture.recorded_beside = kept
    return diagnose(capture)


def test_of_records_that_differ_it_is_said_which_counts() -> None:
    """Those of one process are of one moment; a person's files may be of two."""
    [of_files] = [note for note in beside_dumps(2, 3).notes if "contradict" in note]
    assert "one names rank 2, the other rank 3. Check that they are of the same job" in of_files
    found = beside_dumps(2, 3, kept=True)
    assert found.causes[0].ranks == [3]
    [note] = [note for note in found.notes if "recorder" in note]
    assert note == (
        "By the black boxes rank 2 is the cause, by torch's own recorder rank 3 is. Of the two the "
        "recorder decides: a rank waits in a call that C++ began, which no box counts."
    )


def test_dumps_that_name_the_same_rank_agree() -> None:
    [cause] = beside_dumps(2, 2).causes
    assert cause.ranks == [2]
    assert any("Flight Recorder dumps agree" in e.says for e in cause.evidence)


def contents(rank: int) -> Contents:
    return Contents(dead_box(70 + rank, rank, world_size=4), at(rank, 8, "entered", "blackbox"), [])


def test_boxes_and_dumps_of_the_same_ranks_are_both_read() -> None:
    """Not the dumps alone, nor some ranks by one and some by the other."""
    dumps = [at(rank, 8, "entered", "flight_recorder") for rank in range(2)]
    node = NodeCapture("", ranks=[RankCapture(pid=0, rank=ops.rank, ops=ops) for ops in dumps])
    _put_beside(node, [contents(0)])
    assert [r.ops.source for r in node.ranks if r.ops] == ["flight_recorder"] * 2
    _put_beside(node, [contents(0), contents(1)])
    sources = [(r.ops.source, r.recorded.source) for r in node.ranks if r.ops and r.recorded]
    assert sources == [("blackbox", "flight_recorder")] * 2
    assert [(r.pid, r.node) for r in node.ranks] == [(70, "n1"), (71, "n1")]


def test_dumps_that_name_another_rank_contradict() -> None:
    """Those are read in which a wait shows that the box of a rank does not have."""
    found = beside_dumps(2, 1)
    [cause] = found.causes
    says = [e.says for e in cause.evidence]
    assert cause.ranks == [1]
    assert any("The black boxes contradict: by them rank 2" in text for text in says), says
    assert any("one names rank 2, the other rank 1" in note for note in found.notes)
    assert cause.confidence < beside_dumps(2, 2).causes[0].confidence


def test_gloos_word_on_sizes_explains_the_abort_of_who_received_them() -> None:
    sizes = KnownError(rule="gloo_sizes", line=11, says="Received data size doesn't match")
    log = logs_of(sizes)
    log.rules = {"gloo_sizes": RuleText(meaning="ranks made different calls", kind="mismatch")}
    aborted = Ended(rank=1, at=10.0, code=-6, by="hangdoctor run", first=True)
    found = both(log, logs_of(aborted, name="n1: exit codes"))
    [cause] = found.causes
    assert (cause.kind, cause.ranks) == ("mismatch", []), found.summary
    assert "log-dir" not in cause.advice


def over_with_operations(log: JobLogs | None, *ends: AnyFact) -> Diagnosis:
    """A job that is over: rank 1 gave all_reduce #8 another shape, by the boxes."""
    ranks = []
    for rank in range(4):
        ops = at(rank, 8, "entered", "blackbox")
        ops.operations[-1].shapes = "[16]" if rank == 1 else "[8]"
        ranks.append(RankCapture(pid=rank + 1, rank=rank, world_size=4, ops=ops))
    capture = JobCapture("j", [NodeCapture("n1", ranks=ranks)], world_size=4, over=True)
    boxes = logs_of(*ends, name="n1: exit codes")
    boxes.of_boxes = [0]
    capture.logs = boxes
    if log is not None:
        join_logs(log, boxes)
        capture.logs = log
    return diagnose(capture)


def test_a_log_takes_away_no_rank_that_the_boxes_name() -> None:
    aborted = Ended(rank=0, at=70.0, code=-6, by="hangdoctor run", first=True)
    [alone] = over_with_operations(None, aborted).causes
    assert (alone.kind, alone.ranks) == ("mismatch", [1])
    sizes = KnownError(rule="gloo_sizes", rank=0, line=11, says="Received data size doesn't match")
    log = logs_of(sizes)
    log.rules = {"gloo_sizes": RuleText(meaning="ranks made different calls", kind="mismatch")}
    [cause] = over_with_operations(log, aborted).causes
    assert (cause.kind, cause.ranks, cause.confidence) == ("mismatch", [1], alone.confidence)
    assert any("Received data size" in e.says for e in cause.evidence)


def draft_on(rank: int, kind: Kind, *clues: Clue) -> Draft:
    story = FailedFirst(error="ValueError")
    return Draft(findings=[Finding(kind, [rank], story, 0.9, clues=list(clues))], status="failed")


def test_where_both_together_name_another_rank_the_boxes_are_followed() -> None:
    quoted = Clue("log", (3,), Quote("train.log", 7, "ValueError: bad shard"))
    alone, together = draft_on(1, "mismatch"), draft_on(3, "error", quoted)
    prefer(case_of(), alone, together)
    [finding] = together.findings
    assert (finding.kind, finding.ranks) == ("mismatch", [1]) and finding.confidence < 0.9
    assert quoted in finding.clues
    assert any(isinstance(c.fact, LogContradicts) and c.ranks == (3,) for c in finding.clues)
    assert [(n.ranks, n.blamed) for n in together.notes] == [((3,), (1,))]


def test_a_node_that_slurm_lost_stays_the_cause() -> None:
    together = draft_on(3, "unreachable")
    prefer(case_of(), draft_on(1, "stopped"), together)
    assert together.findings[0].ranks == [3]


def test_beside_exit_codes_a_log_of_lost_connections_takes_nothing_away() -> None:
    """As of JAX, whose calls no box records: a rank's own exit is known by its code alone."""
    ends = [ended(1, 3, 1010.0), ended(2, -6, 1011.0), ended(0, 1, 1012.0)]
    closed = [
        PeerClosed(
            rank=rank, at=1010.5, line=40 + rank, says="Connection closed by peer", library="gloo"
        )
        for rank in (0, 2)
    ]
    boxed = [left(rank) for rank in range(3)]
    alone = verdict(boxed, ends)
    log = logs_of(*closed)
    boxes = ended_ranks.facts_of([left(rank) for rank in range(3)], ends)
    assert boxes is not None
    join_logs(log, boxes)
    capture = JobCapture("j", [NodeCapture("n1")], world_size=3)
    capture.logs, capture.over = log, True
    together = diagnose(capture)
    assert [c.ranks for c in alone.causes] == [[1]] == [c.ranks for c in together.causes]
    assert "exit code 3" in together.summary
