"""Rings of which the histories show no wrong call, or show it of two: which one is likelier."""

from __future__ import annotations

import pytest

from hangdoctor.diagnosis.ops import diagnose_ops
from tests.support.ops_programs import Job, only_cause

ROUNDS = ((2, 3, 4), (1, 3, 4), (1, 2, 4), (1, 3, 4))


def drawn(last: dict[int, bool]) -> Job:
    """Rounds of federated averaging: the server and the clients that were drawn reduce in a group of
    their own, then all take the weights. `last`: which ranks are in the last round's reduction.
    """
    job = Job(5)
    for clients in sorted(set(ROUNDS)):
        job.group("".join(map(str, clients)), [0, *clients])
    for rank in range(5):
        program = job.rank(rank)
        for clients in ROUNDS[:-1]:
            if rank in (0, *clients):
                program.all_reduce("".join(map(str, clients)), site="average (fed.py:61)")
            program.broadcast("world", 0, site="send (fed.py:70)")
        if last.get(rank, False):
            program.all_reduce("".join(map(str, ROUNDS[-1])), site="average (fed.py:61)")
        program.broadcast("world", 0, site="send (fed.py:70)")
    return job


def test_of_groups_drawn_for_a_round_who_is_not_in_one_has_left_nothing_out() -> None:
    """Rank 4 left its round; rank 1, which was not drawn for the first, did what the others did."""
    cause = only_cause(diagnose_ops(drawn({0: True, 1: True, 3: True}).run()))
    assert (cause.kind, cause.ranks) == ("order", [4])
    assert "Rank 4 skipped all_reduce #2" in cause.summary
    assert "went on to broadcast #4 (fed.py:70)" in cause.summary


def test_all_that_are_in_the_later_call_left_the_earlier_one_out() -> None:
    cause = only_cause(diagnose_ops(drawn({0: True, 1: True}).run()))
    assert (cause.kind, cause.ranks) == ("order", [3, 4])


def test_where_no_history_decides_the_one_rank_is_named() -> None:
    """Each client was in other rounds than all others, so that none is like another."""
    rounds = [(1, 2, 3), (2, 3, 4), (1, 2, 4), (1, 3, 4), (1, 3, 4)]
    job = Job(5)
    for clients in sorted(set(rounds)):
        job.group("".join(map(str, clients)), [0, *clients])
    for rank in range(5):
        program = job.rank(rank)
        for number, clients in enumerate(rounds):
            if rank in (0, *clients) and (rank, number) != (4, 4):
                for _ in range(2):
                    program.all_reduce("".join(map(str, clients)), site="average (fed.py:61)")
            program.broadcast("world", 0, site="send (fed.py:70)")
    cause = only_cause(diagnose_ops(job.run()))
    assert (cause.kind, cause.ranks) == ("not_entered", [4])
    assert "it is in broadcast #5 (fed.py:70)" in cause.summary
    assert "went on to fed.py:70" in cause.advice


def first_round(elsewhere: set[int]) -> Job:
    """No rank has a past: three or four members reduce in their group, the rest is in that of all."""
    job = Job(5)
    job.group("drawn", [0, 1, 3, 4])
    for rank in range(5):
        if rank in (0, 1, 3, 4) and rank not in elsewhere:
            job.rank(rank).all_reduce("drawn", site="average (fed.py:61)")
        else:
            job.rank(rank).broadcast("world", 0, site="send (fed.py:70)")
    return job


def test_without_a_past_the_one_rank_is_the_likelier_to_have_left_its_call_out() -> None:
    cause = only_cause(diagnose_ops(first_round({4}).run()))
    assert (cause.kind, cause.ranks) == ("order", [4])


def test_without_a_past_two_and_two_name_none_alone() -> None:
    found = diagnose_ops(first_round({3, 4}).run()).findings
    assert all(len(finding.ranks) != 1 for finding in found)


def two_replicas(micro_batches: dict[int, int]) -> Job:
    """Two stages of two replicas: ranks 0, 1 pass on to 2, 3; each stage reduces in its own group."""
    job = Job(4)
    job.group("first", [0, 1])
    job.group("last", [2, 3])
    for rank in range(4):
        program = job.rank(rank)
        for _ in range(3):
            for _ in range(micro_batches[rank]):
                if rank < 2:
                    program.send(rank + 2, site="pass_on (pp.py:42)")
                else:
                    program.recv(rank - 2, site="take (pp.py:45)")
            program.all_reduce("first" if rank < 2 else "last", site="average (pp.py:31)")
    return job


@pytest.mark.parametrize("short", [2, 3])
def test_a_stage_that_takes_fewer_micro_batches_left_these_out(short: int) -> None:
    counts = {rank: 4 if rank == short else 8 for rank in range(4)}
    cause = only_cause(diagnose_ops(two_replicas(counts).run()))
    assert cause.ranks == [short]
    said = cause.summary
    assert f"Rank {short} skipped recv #5 from rank {short - 2}" in said and "all_reduce #1" in said


PARAMETERS = ("[8]", "[4, 8]", "[4]")


def test_a_run_of_gradients_that_begins_again_is_the_next_round() -> None:
    """Ranks 1 and 2 made no exchange among experts and are in the gradients of the next step."""
    job = Job(4)
    job.group("left", [0, 1])
    job.group("right", [2, 3])
    for rank in range(4):
        program, own = job.rank(rank), "left" if rank < 2 else "right"
        for _ in range(3):
            program.call("all_to_all_single", own, site="counts (moe.py:34)")
            for parameter in PARAMETERS:
                program.all_reduce("world", shapes=parameter, site="sync (pretrain.py:57)")
        if rank in (0, 3):
            program.call("all_to_all_single", own, site="counts (moe.py:34)")
        else:
            program.all_reduce("world", shapes=PARAMETERS[0], site="sync (pretrain.py:57)")
    cause = only_cause(diagnose_ops(job.run()))
    assert cause.ranks == [1, 2] and "skipped all_to_all_single #4" in cause.summary


def test_a_collective_met_by_another_one_at_its_number_was_not_left_out() -> None:
    """Rank 3 runs one block more: its gather of that pairs with the first one of the backward."""
    job = Job(4)
    for rank in range(4):
        program = job.rank(rank)
        for step in range(4):
            for _ in range(3 if (rank, step) != (3, 3) else 4):
                program.call("all_gather", site="forward (train.py:45)")
            for _ in range(3):
                program.call("all_gather", site="backward (train.py:94)")
            program.call("reduce_scatter", site="backward (train.py:94)")
    cause = only_cause(diagnose_ops(job.run()))
    assert cause.ranks == [3] and "skipped all_gather" not in cause.summary
