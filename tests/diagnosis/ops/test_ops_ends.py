"""Where waits end: ranks that have left, that are silent, whose device is stuck, whose transfers no record shows."""

from __future__ import annotations

import pytest

from hangdoctor.diagnosis.findings import End
from hangdoctor.diagnosis.ops import OpsEvidence, diagnose_ops
from hangdoctor.diagnosis.ops.evidence import Note, Remark
from hangdoctor.diagnosis.ops.scene import Scene
from hangdoctor.diagnosis.ops.silent_ranks import suspects_around
from hangdoctor.diagnosis.ops.waits import build_waits
from hangdoctor.model.capture import Frame
from hangdoctor.model.layout import Layout
from hangdoctor.model.operations import Group, Operation, RankOps, group_uid, unknown_group
from tests.support.ops_programs import Call, Job, causes, notes, only_cause, training
from tests.support.ops_records import done, entered, evidence, rank_ops

# ----------------------------------------------------------------- handles


def in_one_pipeline(*send: Operation) -> OpsEvidence:
    """Rank 1 waits for a second receive, beside a send whose handle it has not waited for."""
    pair, world = [0, 1], [0, 1]
    handles = {"state": "started", "asynchronous": True, "peer": 0}
    first = [
        done(pair, 1, "send", peer=1),
        done(pair, 1, "recv", peer=1),
        entered(world, 1, "barrier"),
    ]
    second = [
        done(pair, 1, "recv", peer=0),
        *send,
        entered(pair, 2, "recv", **handles, waited=True),
    ]
    return evidence([rank_ops(0, 2, first), rank_ops(1, 2, second)])


def test_a_send_that_was_received_is_over_before_its_handle_is_waited_for() -> None:
    handle = {"state": "started", "asynchronous": True, "peer": 0}
    scene = Scene(in_one_pipeline(entered([0, 1], 1, "send", **handle)), set())
    assert [op.op for op in scene.frontier(1).open] == ["recv"]
    cause = only_cause(diagnose_ops(scene.evidence))
    assert cause.kind != "in_communication" and 0 in cause.ranks
    unreceived = Scene(in_one_pipeline(entered([0, 1], 2, "send", **handle)), set())
    assert [op.op for op in unreceived.frontier(1).open] == ["send", "recv"]


# ----------------------------------------------------------------- the end of the job


def reductions(*counts: int) -> Job:
    """Each rank reduces over the whole job so often and ends."""
    job = Job(len(counts))
    for program, count in zip(job.everyone(), counts, strict=True):
        for _ in range(count):
            program.all_reduce()
        program.finish()
    return job


def test_one_that_waits_on_where_most_have_ended_is_named() -> None:
    of = reductions(1, 1, 1, 2).run()
    of.places = {3: Frame("evaluate", "eval.py", 7)}
    of.nodes = {3: "n1"}
    cause = only_cause(diagnose_ops(of))
    assert (cause.kind, cause.ranks, cause.nodes) == ("end_stall", [3], ["n1"])
    assert "still in all_reduce #2; ranks 0-2 have ended" in cause.summary
    assert cause.where.frame == "evaluate (eval.py:7)"
    ended, waits = cause.evidence
    assert (ended.ranks, ended.says) == ([0, 1, 2], "ended cleanly")
    assert waits.ranks == [3] and waits.says.startswith("in all_reduce #2 ")


@pytest.mark.parametrize("counts", [(2, 2, 2, 1), (2, 2, 1, 1)], ids=["one", "half of them"])
def test_those_that_end_early_are_named(counts: tuple[int, ...]) -> None:
    cause = only_cause(diagnose_ops(reductions(*counts).run()))
    gone = [rank for rank, count in enumerate(counts) if count == 1]
    assert (cause.kind, cause.ranks) == ("not_entered", gone)
    assert "ended the training cleanly and never entered all_reduce #2" in cause.summary
    assert {tuple(e.ranks) for e in cause.evidence} == {
        tuple(gone),
        tuple(r for r in range(4) if r not in gone),
    }


def test_one_that_leaves_a_call_out_before_it_ends_made_the_wrong_calls() -> None:
    job = Job(4, Layout(dp=2, pp=1, tp=2))
    job.group("tp", [0, 1])
    job.group("tp", [2, 3])
    for rank in (0, 2):
        job.rank(rank).recv(rank + 1, "tp", asynchronous=True)
    for program in job.everyone():
        program.all_reduce().all_reduce("tp").all_reduce("tp")
    for rank in (0, 2):
        job.rank(rank).wait().finish()
        job.rank(rank + 1).send(rank, "tp", asynchronous=True).finish()
    del job.rank(3).calls[2]
    cause = only_cause(diagnose_ops(job.run()))
    assert (cause.kind, cause.ranks) == ("order", [3])
    assert "skipped all_reduce #2 of TP group 2-3" in cause.summary


def test_one_that_was_killed_after_its_last_call_is_dead() -> None:
    of = reductions(2, 2, 2, 1).run()
    of.dead = {3: End(-9)}
    cause = only_cause(diagnose_ops(of))
    assert (cause.kind, cause.ranks) == ("dead", [3])


def test_one_whose_node_is_silent_in_teardown_has_not_left() -> None:
    job = Job(4)
    for program in job.everyone():
        program.init().all_reduce().destroy().finish()
    job.rank(2).calls.insert(2, Call("stuck"))
    of = job.run()
    del of.ops[2]
    of.silent = {2: "its node does not answer"}
    cause = only_cause(diagnose_ops(of))
    assert (cause.kind, cause.ranks) == ("unreachable", [2])


@pytest.mark.parametrize("gone", ["its records are removed", "it is dead", "it has ended"])
def test_those_still_in_teardown_are_named_where_the_rest_has_left(gone: str) -> None:
    job = Job(3)
    for program in job.everyone():
        program.init().all_reduce().destroy().finish()
    job.rank(2).calls.insert(2, Call("stuck"))
    of = job.run()
    if gone == "its records are removed":
        del of.ops[2]
    elif gone == "it is dead":
        of.dead = {2: End(0)}
    else:
        of.ops[2].finished = True
    cause = only_cause(diagnose_ops(of))
    assert (cause.kind, cause.ranks) == ("end_stall", [0, 1])
    assert "still in destroy_process_group" in cause.summary


# ----------------------------------------------------------------- silent ranks


def behind_silence(odd: int) -> OpsEvidence:
    """Rank `odd` leaves out a reduction with rank 0, whose node is silent."""
    job = training(Layout(dp=3, pp=1, tp=2), steps=2, layers=1)
    calls = job.rank(odd).calls
    del calls[[i for i, c in enumerate(calls) if c.group == "tp" and c.op == "all_reduce"][5]]
    of = job.run()
    del of.ops[0]
    of.silent = {0: "no answer within 20 s"}
    return of


def test_a_rank_that_parted_from_its_role_is_found_beside_a_silent_one() -> None:
    cause = only_cause(diagnose_ops(behind_silence(1)))
    assert (cause.kind, cause.ranks, cause.confidence) == ("order", [1], 0.84)


def test_all_waits_end_at_a_silent_rank() -> None:
    of = reductions(2, 2, 2, 1).run()
    del of.ops[3]
    of.silent = {3: "no answer within 20 s"}
    of.nodes = {3: "n7"}
    for earlier, confidence in (({}, 0.75), (of.ops, 0.85)):
        of.earlier = earlier
        cause = only_cause(diagnose_ops(of))
        assert (cause.kind, cause.ranks, cause.nodes) == ("unreachable", [3], ["n7"])
        assert cause.confidence == confidence
        assert "no answer within 20 s" in cause.summary
        said = {e.source: (e.ranks, e.says) for e in cause.evidence}
        assert said["silence"][0] == [3]
        assert said["ops"][0] == [0, 1, 2] and said["ops"][1].startswith("in all_reduce #2 ")
        assert said["ops"][1].endswith("all captured members have entered it")
        assert (cause.where.op, cause.where.seq) == ("all_reduce", 2)


def test_of_several_silent_ranks_one_may_wait_for_another() -> None:
    of = reductions(2, 2, 1, 1).run()
    for rank in (2, 3):
        del of.ops[rank]
        of.silent[rank] = "no answer within 20 s"
    cause = only_cause(diagnose_ops(of))
    assert (cause.ranks, cause.confidence) == ([2, 3], 0.65)


def test_ranks_around_a_silent_one_are_its_waiters_and_its_small_groups() -> None:
    """In a group of more than 64 only its waiters; of a pair the other rank, also one that is elsewhere."""
    job = Job(70)
    job.group("pair", [9, 10])
    for rank in (3, 5):
        job.rank(rank).all_reduce()
    job.rank(10).all_reduce("pair").all_reduce("pair")
    job.rank(9).all_reduce("pair")
    of = job.run()
    del of.ops[9]
    scene = Scene(of, set())
    world = next(i for i in build_waits(scene).instances if i.sample.group == group_uid(range(70)))
    assert suspects_around(scene, {9: [world]}) == [3, 5, 10]


def test_where_records_do_not_reach_back_to_the_device_no_one_is_blamed() -> None:
    """Rank 1's host has enqueued so much that its record holds only what its device has not come
    to: the device may wait for another rank.
    """
    ranks = [
        rank_ops(
            r, 2, [done([0, 1], n) for n in range(1, 5)] + [entered([0, 1], 5)], runs_ahead=True
        )
        for r in (0, 1)
    ]
    ranks[1].operations = [entered([0, 1], n) for n in range(7, 10)]
    ranks[1].overwritten = True
    verdict = diagnose_ops(evidence(ranks))
    assert (verdict.status, verdict.findings) == ("unknown", [])
    [note] = [n for n in verdict.notes if n.remark is Remark.BEYOND_RECORDS]
    assert (note.ranks, note.blamed) == ((0,), (1,))


def test_a_silent_rank_is_named_before_one_whose_records_do_not_reach_back() -> None:
    """Rank 2 has answered and may wait; of rank 1 nothing is known."""
    ranks = [
        rank_ops(
            r,
            3,
            [done([0, 1, 2], n) for n in range(1, 5)] + [entered([0, 1, 2], 5)],
            runs_ahead=True,
        )
        for r in (0, 2)
    ]
    ranks[1].operations = [entered([0, 1, 2], n) for n in range(7, 10)]
    ranks[1].overwritten = True
    seen = evidence(ranks)
    seen.silent = {1: "no answer"}
    cause = only_cause(diagnose_ops(seen))
    assert (cause.kind, cause.ranks) == ("unreachable", [1])


# ----------------------------------------------------------------- devices


def completed_by(
    done_ranks: list[int], bare: tuple[int, ...] = (), ahead: bool = True
) -> OpsEvidence:
    """An all_reduce of four that only these have completed; of `bare` ranks nothing is recorded."""
    world = range(4)
    ranks = [
        rank_ops(
            r,
            4,
            [done(world, 1), (done if r in done_ranks else entered)(world, 2)],
            runs_ahead=ahead,
        )
        for r in world
    ]
    for rank in bare:
        ranks[rank].operations = [done(world, 1)]
    return evidence(ranks)


@pytest.mark.parametrize("stuck", [[1], [0], [3]])
def test_what_most_have_completed_and_one_has_not_is_stuck_on_its_device(stuck: list[int]) -> None:
    others = [r for r in range(4) if r not in stuck]
    cause = only_cause(diagnose_ops(completed_by(others)))
    assert (cause.kind, cause.ranks, cause.confidence) == ("device_wait", stuck, 0.85)
    assert (
        f"Rank {stuck[0]} enqueued all_reduce #2, but its GPU has not completed it" in cause.summary
    )
    assert cause.alternatives[0].ranks == stuck


def test_of_hosts_that_wait_themselves_those_that_are_past_it_are_not_named() -> None:
    for past in ([0, 2, 3], [2, 3]):
        cause = only_cause(diagnose_ops(completed_by(past, ahead=False)))
        assert (cause.kind, set(cause.ranks)) == ("in_communication", set(range(4)) - set(past))
        assert "stuck in all_reduce #2, which ranks" in cause.summary
        assert "have already completed" in cause.summary


@pytest.mark.parametrize(
    "of", [completed_by([2, 3]), completed_by([])], ids=["half have completed it", "none has"]
)
def test_else_it_is_the_communication(of: OpsEvidence) -> None:
    cause = only_cause(diagnose_ops(of))
    assert (cause.kind, cause.ranks) == ("in_communication", [0, 1, 2, 3])


def test_one_that_has_not_come_is_missing_whatever_the_others_completed() -> None:
    cause = only_cause(diagnose_ops(completed_by([0, 2], bare=(3,))))
    assert (cause.kind, cause.ranks) == ("not_entered", [3])


# ----------------------------------------------------------------- transfers that are not recorded


def unseen_transfers(beside: bool = True) -> OpsEvidence:
    """Two stages of two replicas of two slices, on gloo's recorder. Rank 5 does not come to the reduction of its
    pair; ranks 0 and 1 wait for a message of that stage, all others reduce over their replicas.
    """
    pairs = [[0, 1], [2, 3], [4, 5], [6, 7]]
    replicas = [[0, 2], [1, 3], [4, 6], [5, 7]]
    ranks = []
    for rank in range(8):
        tp = next(g for g in pairs if rank in g)
        dp = next(g for g in replicas if rank in g)
        operations = [done(tp, 1), done(dp, 1)]
        if rank in (1, 3) and not beside:
            operations += [done(dp, 2), entered(range(8), 1)]
        elif rank in (2, 3):
            operations.append(entered(dp, 2))
        if rank in (6, 7):
            operations += [done(tp, 2), entered(dp, 2)]
        if rank == 4:
            operations.append(entered(tp, 2))
        ranks.append(rank_ops(rank, 8, operations, tp, dp, source="flight_recorder"))
    return evidence(ranks, layout=Layout(dp=2, pp=2, tp=2))


def test_a_stage_that_is_idle_side_by_side_waits_for_its_neighbour() -> None:
    """Rank 0 is not named. Rank 1 is: it may not have sent what rank 5 waits for."""
    cause = only_cause(diagnose_ops(unseen_transfers()))
    assert (cause.kind, cause.ranks, cause.confidence) == ("not_entered", [1, 5], 0.7)


def test_two_replicas_with_an_idle_rank_each_have_two_causes() -> None:
    of = unseen_transfers()
    of.ops[7].operations = of.ops[7].operations[:2]
    of.ops[6].operations = [*of.ops[6].operations[:2], entered([6, 7], 2)]
    assert [c.ranks for c in causes(diagnose_ops(of))] == [[1, 5], [3, 7]]


def test_a_rank_without_a_dump_explains_those_beside_it() -> None:
    """Rank 4 left no dump: what rank 5 and rank 0 wait in may be its transfer, or ended with it."""
    of = unseen_transfers()
    del of.ops[4]
    of.ops[7].operations = [*of.ops[7].operations, entered(range(8), 1)]
    cause = only_cause(diagnose_ops(of))
    assert (cause.kind, cause.ranks) == ("unreachable", [4])


def test_a_rank_that_left_a_call_out_is_found_behind_a_transfer_that_no_record_shows() -> None:
    """Rank 5 skipped its third reduction and is past rank 4, for which rank 0 waits in a transfer."""
    pairs = [[0, 1], [2, 3], [4, 5], [6, 7]]
    ranks = []
    for rank in range(8):
        tp = pairs[rank // 2]
        dp = sorted([rank, rank ^ 2])
        operations = [done(tp, 1), done(tp, 2)]
        if rank in (2, 3, 6, 7):
            operations.append(done(tp, 3))
        if rank in (1, 4):
            operations.append(entered(tp, 3))
        if rank in (2, 3, 6):
            operations.append(entered(dp, 1))
        if rank in (5, 7):
            operations += [done(dp, 1), entered(range(8), 1)]
        ranks.append(rank_ops(rank, 8, operations, tp, dp, source="flight_recorder"))
    of = evidence(ranks, layout=Layout(dp=2, pp=2, tp=2))
    cause = only_cause(diagnose_ops(of))
    assert (cause.kind, cause.ranks, cause.difference) == ("order", [5], "skipped")


def test_one_that_is_idle_alone_may_be_the_cause_as_well() -> None:
    """Rank 1 went on without rank 0: that one is in no transfer of their stage."""
    cause = only_cause(diagnose_ops(unseen_transfers(beside=False)))
    assert (cause.kind, cause.ranks, cause.confidence) == ("not_entered", [0, 1, 4, 5], 0.4)


def test_where_transfers_are_recorded_all_idle_ranks_are_named() -> None:
    of = unseen_transfers()
    for ops in of.ops.values():
        ops.source = "blackbox"
    assert [c.ranks for c in causes(diagnose_ops(of))] == [[0], [1], [5]]


def test_in_a_job_without_stages_all_idle_ranks_are_named() -> None:
    of = unseen_transfers()
    of.layout = Layout(dp=4, pp=1, tp=2)
    assert only_cause(diagnose_ops(of)).ranks == [0, 1, 5]


# ----------------------------------------------------------------- groups that nothing names


def test_what_runs_beside_the_program_obscures_no_rank() -> None:
    """Rank 1 has an operation of an unnamed group in flight, waits for it or not, and never enters the reduction."""
    for waited, named in ((False, [1]), (True, [])):
        uid = unknown_group(1, 1)
        ranks = [rank_ops(r, 3, [entered(range(3), 1)] if r != 1 else []) for r in range(3)]
        own = entered(range(3), 4, asynchronous=True, waited=waited)
        own.group = uid
        ranks[1].operations = [own]
        for ops in ranks:
            ops.source = "blackbox"
        verdict = diagnose_ops(evidence(ranks))
        assert [c.ranks for c in causes(verdict)] == ([named] if named else [])
        assert any("without a record of their members" in n for n in notes(verdict)) == waited


def test_groups_that_some_rank_lists_are_known_for_all() -> None:
    """Rank 1's box names the pair, rank 0's has only its number."""
    pair = Group(group_uid([0, 1]), [0, 1], "tp")
    ranks = [rank_ops(r, 3, []) for r in range(3)]
    ranks[0].groups.append(Group(pair.uid))
    ranks[0].operations = [entered([0, 1], 1)]
    ranks[1].groups.append(pair)
    ranks[2].operations = [entered(range(3), 1)]
    for ops in ranks:
        ops.source = "blackbox"
    verdict = diagnose_ops(evidence(ranks))
    assert [c.ranks for c in causes(verdict)] == [[1]]
    assert verdict.notes == []


# ----------------------------------------------------------------- what is not known


def test_the_size_of_a_job_is_that_of_its_highest_rank_where_none_says_it() -> None:
    ranks = [RankOps(r, 0, operations=[entered([0], 1)]) for r in (0, 2)]
    assert Scene(evidence(ranks), set()).world_size == 3
    assert Scene(evidence(ranks, silent={4: "no answer"}), set()).world_size == 5
    assert Scene(evidence(ranks, dead={6: End(1)}), set()).world_size == 7
    assert Scene(evidence(ranks, world_size=9), set()).world_size == 9


def test_ranks_without_records_are_noted_unless_something_explains_them() -> None:
    of = reductions(2, 2, 2, 2, 1).run()
    del of.ops[0], of.ops[1], of.ops[2]
    of.silent, of.dead = {1: "no answer"}, {2: End(-9)}
    assert Note(Remark.BARE_RANKS, (0,)) in diagnose_ops(of).notes


def test_without_a_clock_no_time_is_said() -> None:
    of = reductions(2, 2, 1).run()
    assert "Ranks 0-1 have been waiting for 60 s." in only_cause(diagnose_ops(of)).summary
    for ops in of.ops.values():
        ops.heartbeat_s = 0.0
    assert only_cause(diagnose_ops(of)).summary.endswith("Ranks 0-1 are waiting.")


def test_a_clock_that_began_with_the_job_is_a_clock() -> None:
    ranks = [rank_ops(r, 2, [entered([0, 1], 1, entered_s=0.25)] if r else []) for r in (0, 1)]
    cause = only_cause(diagnose_ops(evidence(ranks, taken_s=30.25)))
    assert cause.summary.endswith("Rank 1 has been waiting for 30 s.")


def test_an_iteration_is_said_where_one_is_recorded() -> None:
    for iteration, said in ((-1, None), (0, 0), (7, 7)):
        ranks = [
            rank_ops(r, 2, [entered([0, 1], 1, iteration=iteration)] if r else []) for r in (0, 1)
        ]
        assert only_cause(diagnose_ops(evidence(ranks))).where.iteration == said
