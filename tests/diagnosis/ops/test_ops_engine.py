"""Small jobs with one thing wrong each: who is named, as what, and in which words."""

from __future__ import annotations

import pytest

from hangdoctor.diagnosis.findings import End, WaitsFor
from hangdoctor.diagnosis.ops import OpsEvidence, diagnose_ops
from hangdoctor.model.capture import Frame
from hangdoctor.model.layout import Layout
from hangdoctor.model.operations import Group, Operation, RankOps, group_uid
from tests.support.ops_programs import Call, Job, notes, only_cause, training, variant
from tests.support.ops_records import done, evidence, rank_ops


def pairs_of_two() -> Job:
    """Two tensor-parallel pairs that reduce twice among themselves, then over everyone."""
    job = Job(4, Layout(dp=2, pp=1, tp=2))
    job.group("tp", [0, 1])
    job.group("tp", [2, 3])
    for program in job.everyone():
        program.all_reduce("tp").all_reduce("tp").all_reduce("world").finish()
    return job


def test_not_entered_reads_like_a_sentence():
    job = pairs_of_two()
    job.rank(3).calls.insert(1, Call("stuck"))
    evidence = job.run()
    evidence.places = {3: Frame("load_batch", "data.py", 41)}
    cause = only_cause(diagnose_ops(evidence))
    assert (cause.kind, cause.ranks) == ("not_entered", [3])
    assert cause.summary == (
        "Rank 3 never reached all_reduce #2 of TP group 2-3; it is in load_batch (data.py:41). "
        "Rank 2 has been waiting for 60 s."
    )
    assert (cause.where.group, cause.where.group_ranks, cause.where.op, cause.where.seq) == (
        "tp",
        [2, 3],
        "all_reduce",
        2,
    )
    assert cause.where.frame == "load_batch (data.py:41)"
    assert cause.advice
    assert {e.source for e in cause.evidence} == {"ops"}
    assert cause.alternatives[0].kind == "in_communication"


def test_waits_say_which_ranks_wait_for_which():
    job = pairs_of_two()
    job.rank(3).calls.insert(1, Call("stuck"))
    waits = {(w.on.group, tuple(w.ranks), tuple(w.for_)) for w in diagnose_ops(job.run()).waits}
    assert waits == {("tp", (2,), (3,)), ("world", (0, 1), (2, 3))}


def test_stack_evidence_chooses_the_kind():
    for kind in ("data_wait", "busy", "io_wait", "checkpoint_wait", "interpreter_lock"):
        job = pairs_of_two()
        job.rank(0).calls.insert(1, Call("stuck"))
        evidence = job.run()
        evidence.outside = {0: kind}
        cause = only_cause(diagnose_ops(evidence))
        assert (cause.kind, cause.ranks) == (kind, [0])


def test_a_stopped_rank_shows_the_same_operation_as_all():
    job = pairs_of_two()
    job.broken = {("world", 1)}
    evidence = job.run()
    evidence.stopped = {2}
    cause = only_cause(diagnose_ops(evidence))
    assert (cause.kind, cause.ranks) == ("stopped", [2])


def test_dead_with_and_without_its_records():
    job = pairs_of_two()
    job.rank(1).calls.insert(1, Call("stuck"))
    evidence = job.run()
    evidence.dead = {1: End(-9)}
    cause = only_cause(diagnose_ops(evidence))
    assert (cause.kind, cause.ranks) == ("dead", [1])
    assert "killed by SIGKILL" in cause.summary
    del evidence.ops[1]
    cause = only_cause(diagnose_ops(evidence))
    assert (cause.kind, cause.ranks) == ("dead", [1])


def test_silence_is_evidence_and_a_known_culprit_is_better_evidence():
    job = pairs_of_two()
    job.rank(3).calls.insert(1, Call("stuck"))
    evidence = job.run()
    del evidence.ops[3]
    evidence.silent = {3: "its node does not answer"}
    cause = only_cause(diagnose_ops(evidence))
    assert (cause.kind, cause.ranks) == ("unreachable", [3])
    assert "its node does not answer" in cause.summary

    evidence = job.run()
    del evidence.ops[2]  # a victim, silent for another reason
    evidence.silent = {2: "its agent does not answer"}
    cause = only_cause(diagnose_ops(evidence))
    assert cause.ranks == [3]


def test_a_rank_without_records_and_without_a_reason_is_less_sure():
    job = pairs_of_two()
    job.rank(3).calls.insert(1, Call("stuck"))
    evidence = job.run()
    del evidence.ops[3]
    verdict = diagnose_ops(evidence)
    cause = only_cause(verdict)
    evidence.silent = {3: "its node does not answer"}
    assert cause.ranks == [3]
    assert cause.confidence < only_cause(diagnose_ops(evidence)).confidence
    assert any("rank 3" in note for note in notes(verdict))


def test_mismatch_by_majority():
    job = Job(4)
    for program in job.everyone():
        program.all_reduce("world", shapes="[8]" if program.number != 2 else "[9]").finish()
    cause = only_cause(diagnose_ops(job.run()))
    assert (cause.kind, cause.ranks) == ("mismatch", [2])
    assert "shapes [9]" in cause.summary
    assert "shapes [8]" in cause.summary


def test_mismatch_of_two_is_decided_by_another_replica():
    job = pairs_of_two()
    job.rank(3).calls[1] = variant(job.rank(3).calls[1], dtype="float16")
    cause = only_cause(diagnose_ops(job.run()))
    assert (cause.kind, cause.ranks) == ("mismatch", [3])


def test_mismatch_that_nothing_decides_names_both():
    job = Job(2)
    job.rank(0).all_reduce(shapes="[8]")
    job.rank(1).all_reduce(shapes="[9]")
    cause = only_cause(diagnose_ops(job.run()))
    assert (cause.kind, cause.ranks) == ("mismatch", [0, 1])
    assert cause.confidence <= 0.5


def test_members_of_scatter_need_not_agree_on_shapes():
    job = Job(2)
    job.broken = {("world", 1)}
    job.rank(0).call("scatter", root=0, shapes="[4],[4]")
    job.rank(1).call("scatter", root=0, shapes="[4]")
    assert only_cause(diagnose_ops(job.run())).kind == "in_communication"


def test_skipped_collective_prints_the_ring_with_both_lines():
    job = pairs_of_two()
    del job.rank(3).calls[1]
    verdict = diagnose_ops(job.run())
    cause = only_cause(verdict)
    assert (cause.kind, cause.ranks) == ("order", [3])
    ring = {c.ranks[0]: c.fact for c in verdict.findings[0].clues if isinstance(c.fact, WaitsFor)}
    assert ring.keys() == {2, 3} and (ring[2].whom, ring[3].whom) == (3, 2)
    said = {e.ranks[0]: e.says for e in cause.evidence if e.says.startswith("waits in")}
    assert said[2].startswith("waits in all_reduce #2 of TP group 2-3 at ") and said[2].endswith(
        "for rank 3"
    )
    assert said[3].startswith("waits in all_reduce #1 at ") and said[3].endswith("for rank 2")
    assert cause.summary.count("train.py:") >= 2
    assert cause.alternatives[0].ranks == [2]


def test_skipped_before_the_records_begin_shows_in_the_numbers():
    layout = Layout(dp=3, pp=1, tp=2)
    job = training(layout, steps=4)
    calls = job.rank(3).calls
    del calls[
        next(
            i
            for i, c in enumerate(calls)
            if c.group == "tp" and c.op == "all_reduce" and c.iteration == 0
        )
    ]
    # Its neighbour leaves one out too: both are in step with each other, and out of it with all
    # other pairs.
    calls = job.rank(2).calls
    del calls[
        next(
            i
            for i, c in enumerate(calls)
            if c.group == "tp" and c.op == "all_reduce" and c.iteration == 0
        )
    ]
    job.rank(2).calls.insert(-2, Call("stuck"))
    evidence = job.run(ring=9)
    assert all(o.overwritten for o in evidence.ops.values())
    cause = only_cause(diagnose_ops(evidence))
    assert cause.ranks == [2]  # in step is what counts: this one just never came


def test_swapped_order_over_two_groups():
    job = Job(6, Layout(dp=3, pp=1, tp=2))
    for ranks in ([0, 1], [2, 3], [4, 5]):
        job.group("tp", ranks)
    for program in job.everyone():
        first, second = ("world", "tp") if program.number == 4 else ("tp", "world")
        program.all_reduce(first, site=f"{first} (a.py:1)").all_reduce(
            second, site=f"{second} (a.py:2)"
        ).finish()
    cause = only_cause(diagnose_ops(job.run()))
    assert (cause.kind, cause.ranks) == ("order", [4])


def test_wrong_group():
    job = Job(8, Layout(dp=4, pp=1, tp=2))
    for ranks in ([0, 1], [2, 3], [4, 5], [6, 7]):
        job.group("tp", ranks)
    for ranks in ([0, 2, 4, 6], [1, 3, 5, 7]):
        job.group("dp", ranks)
    for program in job.everyone():
        program.all_reduce("tp", site="block (m.py:3)").all_reduce(
            "dp", site="grads (o.py:5)", shapes="[64]"
        )
        program.all_reduce("world", site="norm (o.py:9)").finish()
    job.rank(5).calls[0] = variant(job.rank(5).calls[0], group="dp")
    cause = only_cause(diagnose_ops(job.run()))
    assert (cause.kind, cause.ranks) == ("mismatch", [5])


def test_a_send_that_is_never_posted():
    job = Job(4, Layout(dp=2, pp=2, tp=1))
    for rank in (0, 1):
        job.rank(rank).send(rank + 2).recv(rank + 2).all_reduce().finish()
        job.rank(rank + 2).recv(rank).send(rank).all_reduce().finish()
    del job.rank(1).calls[0]
    cause = only_cause(diagnose_ops(job.run()))
    assert cause.kind == "p2p_unmatched"
    assert 1 in cause.ranks


def test_handles_in_flight_do_not_hold_a_rank_that_is_elsewhere():
    job = Job(3)
    job.group("pair", [0, 1])
    job.rank(0).all_reduce("pair", asynchronous=True).stuck()
    job.rank(1).all_reduce("world")
    job.rank(2).all_reduce("world")
    evidence = job.run()
    evidence.outside = {0: "busy"}
    cause = only_cause(diagnose_ops(evidence))
    assert (cause.kind, cause.ranks) == ("busy", [0])


def test_waiting_for_handles_is_waiting():
    job = Job(3)
    job.group("pair", [0, 1])
    job.rank(0).all_reduce("pair", asynchronous=True).wait().all_reduce("world")
    job.rank(1).stuck()
    job.rank(2).all_reduce("world")
    cause = only_cause(diagnose_ops(job.run()))
    assert cause.ranks == [1]


def test_in_communication_only_when_all_have_entered_alike():
    job = pairs_of_two()
    job.broken = {("world", 1)}
    cause = only_cause(diagnose_ops(job.run()))
    assert (cause.kind, cause.ranks) == ("in_communication", [0, 1, 2, 3])


def test_independent_faults_are_several_causes():
    job = Job(8)
    for ranks in ([0, 1], [2, 3], [4, 5], [6, 7]):
        job.group("pair", ranks)
    for program in job.everyone():
        program.all_reduce("pair").all_reduce("world").finish()
    job.rank(1).calls.insert(0, Call("stuck"))
    job.rank(6).calls.insert(0, Call("stuck"))
    verdict = diagnose_ops(job.run())
    assert sorted(c.ranks for c in verdict.findings) == [[1], [6]]


def test_enqueued_is_not_arrived():
    job = pairs_of_two()
    job.ahead = True
    job.rank(3).calls.insert(1, Call("stuck"))
    cause = only_cause(diagnose_ops(job.run()))
    assert (cause.kind, cause.ranks) == ("not_entered", [3])


def test_a_kernel_that_never_ends():
    job = pairs_of_two()
    job.ahead = True
    job.rank(3).calls.insert(1, Call("kernel"))
    cause = only_cause(diagnose_ops(job.run()))
    assert (cause.kind, cause.ranks) == ("device_wait", [3])


def test_an_overtaken_operation_blocks_no_rank():
    """Reductions of gradients run beside the rest; that no one waits for them shows in what
    completed after them.
    """
    job = Job(4)
    job.group("tp", [0, 1])
    job.group("tp", [2, 3])
    job.group("dp", [0, 2])
    job.group("dp", [1, 3])
    uid = {ranks: group_uid(ranks) for ranks in ((0, 1), (2, 3), (0, 2), (1, 3))}

    def rank_ops(rank: int, tp: tuple[int, int], dp: tuple[int, int], states: list[str]) -> RankOps:
        calls = [
            (uid[dp], "reduce_scatter", 1),
            (uid[tp], "all_reduce", 1),
            (uid[tp], "all_reduce", 2),
        ]
        done = [
            Operation(g, n, op, state, asynchronous=True, site=f"{op} (a.py:1)")  # type: ignore[arg-type]
            for (g, op, n), state in zip(calls, states, strict=False)
        ]
        groups = [Group(uid[tp], list(tp), "tp"), Group(uid[dp], list(dp), "dp")]
        return RankOps(rank, 4, "flight_recorder", groups, done, runs_ahead=True)

    ops = {
        0: rank_ops(0, (0, 1), (0, 2), ["entered", "done", "entered"]),
        1: rank_ops(1, (0, 1), (1, 3), ["entered", "done"]),
        2: rank_ops(2, (2, 3), (0, 2), []),
        3: rank_ops(3, (2, 3), (1, 3), []),
    }
    ops[2].operations = [Operation(uid[(2, 3)], 1, "all_reduce", "entered", asynchronous=True)]
    named = {r for c in diagnose_ops(OpsEvidence(ops, world_size=4)).findings for r in c.ranks}
    assert 1 not in named or 3 in named
    assert 0 not in named


def test_rank_missing_at_the_start():
    job = Job(4)
    for program in job.everyone():
        program.init().all_reduce()
    job.rank(2).calls.insert(0, Call("stuck"))
    cause = only_cause(diagnose_ops(job.run()))
    assert (cause.kind, cause.ranks) == ("start_stall", [2])
    assert "has not joined init_process_group" in cause.summary


def test_who_does_not_come_to_a_key_of_the_jobs_own_has_joined_before() -> None:
    """Rank 0 prepares the data, the others wait for its key; none has communicated yet."""
    ops = {}
    for rank in range(3):
        start = done(range(3), 1, "init_process_group")
        wait = Operation("", 1, "store_wait", "entered", detail="data_ready")
        ops[rank] = rank_ops(rank, 3, [start, wait] if rank else [start])
    cause = only_cause(diagnose_ops(evidence(ops.values())))
    assert (cause.kind, cause.ranks) == ("not_entered", [0]), cause


def test_a_rank_missing_at_a_group_made_later_is_not_starting():
    job = Job(4)
    for program in job.everyone():
        program.init().all_reduce().call("new_group", shapes="", dtype="").all_reduce()
    job.rank(2).calls.insert(2, Call("stuck"))
    cause = only_cause(diagnose_ops(job.run()))
    assert (cause.kind, cause.ranks) == ("not_entered", [2])
    assert "never reached new_group" in cause.summary


def test_rank_that_does_not_come_to_the_teardown():
    job = Job(4)
    for program in job.everyone():
        program.init().all_reduce().destroy().finish()
    job.rank(2).calls.insert(2, Call("stuck"))
    cause = only_cause(diagnose_ops(job.run()))
    assert (cause.kind, cause.ranks) == ("end_stall", [2])


def test_rank_stuck_inside_the_teardown_when_the_others_are_gone():
    job = Job(4)
    for program in job.everyone():
        program.init().all_reduce().destroy().finish()
    evidence = job.run()
    last = evidence.ops[1]
    last.finished, last.operations[-1].state, last.operations[-1].left_s = False, "entered", 0.0
    for rank in (0, 2, 3):
        del evidence.ops[rank]  # boxes of ranks that end well are removed
    cause = only_cause(diagnose_ops(evidence))
    assert (cause.kind, cause.ranks) == ("end_stall", [1])


def test_one_rank_leaves_early():
    job = Job(4)
    for program in job.everyone():
        program.all_reduce().all_reduce().finish()
    job.rank(3).calls[1:] = [Call("finish")]
    cause = only_cause(diagnose_ops(job.run()))
    assert cause.ranks == [3]


def test_groups_without_members_are_completed_and_said_so():
    job = pairs_of_two()
    job.rank(3).calls.insert(1, Call("stuck"))
    evidence = job.run()
    full = diagnose_ops(evidence).findings[0].confidence
    for ops in evidence.ops.values():
        ops.groups = [Group(g.uid, [], g.name) for g in ops.groups]
    verdict = diagnose_ops(evidence)
    cause = only_cause(verdict)
    assert cause.ranks == [3]
    assert cause.confidence < full
    assert any("inferred" in note for note in notes(verdict))


def test_finished_job_is_healthy():
    verdict = diagnose_ops(pairs_of_two().run())
    assert (verdict.status, verdict.findings) == ("healthy", [])


def test_moving_job_is_healthy():
    job = training(Layout(dp=2, pp=2, tp=1), steps=4)
    later = job.run(limit=60)
    later.earlier = job.run(limit=35).ops
    verdict = diagnose_ops(later)
    assert (verdict.status, verdict.findings) == ("healthy", [])


def test_rank_that_others_saw_moving_is_no_culprit():
    job = pairs_of_two()
    job.rank(3).calls.insert(1, Call("stuck"))
    evidence = job.run()
    evidence.earlier = evidence.ops
    assert only_cause(diagnose_ops(evidence)).ranks == [3]
    evidence.moving = {3}
    verdict = diagnose_ops(evidence)
    assert verdict.findings == []
    assert verdict.status == "unknown"
    assert verdict.notes


def test_straggler_by_waiting_times():
    job = Job(4)
    for program in job.everyone():
        for _ in range(12):
            program.compute(1.0 if program.number == 2 else 0.1).all_reduce()
    later = job.run(limit=10)
    later.earlier = job.run(limit=6).ops
    verdict = diagnose_ops(later)
    assert verdict.status == "slow"
    assert [(c.kind, c.ranks) for c in verdict.findings] == [("slow", [2])]


@pytest.mark.parametrize(
    ("works", "slow"),
    [([1.0, 1.0, 0.1], [0, 1]), ([0.1, 1.0, 0.1, 1.0], [1, 3]), ([1.0, 0.4, 0.1, 0.1], [0])],
    ids=["most of them", "half of them", "one is late, and another a little"],
)
def test_several_stragglers_are_named_together(works, slow):
    job = Job(len(works))
    for program in job.everyone():
        for _ in range(12):
            program.compute(works[program.number]).all_reduce()
    later = job.run(limit=10)
    later.earlier = job.run(limit=6).ops
    assert [(c.kind, c.ranks) for c in diagnose_ops(later).findings] == [("slow", slow)]


def test_nothing_recorded_is_unknown_and_says_what_would_help():
    verdict = diagnose_ops(OpsEvidence({0: RankOps(0, 2)}, world_size=2))
    assert verdict.status == "unknown"
    assert "black box" in notes(verdict)[0]


def test_one_capture_without_waits_is_unknown():
    job = Job(2)
    for program in job.everyone():
        program.all_reduce().stuck()
    verdict = diagnose_ops(job.run())
    assert verdict.status == "unknown"
    assert verdict.notes


def test_one_capture_with_operations_under_way_everywhere_is_no_hang():
    job = pairs_of_two()
    job.broken = {("tp", 2)}
    evidence = job.run()
    verdict = diagnose_ops(evidence)
    assert (verdict.status, verdict.findings) == ("unknown", [])
    assert any("second capture" in note for note in notes(verdict))
    evidence.earlier = evidence.ops  # nothing moved since: now they are hung
    assert sorted(c.ranks for c in diagnose_ops(evidence).findings) == [[0, 1], [2, 3]]
