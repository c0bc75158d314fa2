"""By stacks: a rank waits for a key of the store, while the others are in a collective that no key needs."""

from __future__ import annotations

import pytest

from hangdoctor.model.capture import Frame, RankCapture
from hangdoctor.model.diagnosis import Diagnosis
from hangdoctor.stacks.loop_counts import SETTER
from tests.support.captures import C10D, causes, judged, still

SAVE = "/app/ckpt.py"


def asks(rank: int, key: str = "", setter: int = -1, only: str = "rank == 0") -> RankCapture:
    values = {SETTER: setter} if setter >= 0 else {}
    code = "self.store.wait([key])"
    wait = Frame("wait_shards", SAVE, 52, code, key=key, values=values)
    return still(rank, [wait, Frame("save", SAVE, 64, "self.wait_shards()", only=only)])


def joins(rank: int) -> RankCapture:
    return still(rank, [Frame("barrier", C10D, 9), Frame("save", SAVE, 67, "dist.barrier()")])


def beside(one: RankCapture) -> Diagnosis:
    return judged(one, *(joins(rank) for rank in range(4) if rank != one.rank))


def test_the_rank_whose_turn_it_is_did_not_set_it() -> None:
    found = beside(asks(0, "done/32/2", setter=2))
    assert causes(found) == [("order", [2])]
    assert found.summary == (
        "Rank 2 (n1, pid 11) is in barrier in save (ckpt.py:67), but rank 0 waits for done/32/2 in the store, "
        "which no rank has set. Ranks 0-1,3 are waiting."
    )
    assert "sets done/32/2" in found.causes[0].advice


def test_a_key_may_say_the_rank_itself() -> None:
    assert causes(beside(asks(0, "rank3/ready"))) == [("order", [3])]


@pytest.mark.parametrize(("key", "says"), [("best/7", "best/7"), ("", "a key")])
def test_else_who_waits_is_named_with_the_key_and_not_for_its_condition(
    key: str, says: str
) -> None:
    for only in ("", "rank == 0", "self.rank == 0"):
        found = beside(asks(0, key, only=only))
        assert causes(found) == [("not_entered", [0])]
        assert f"waits for {says} in the store, which no rank has set" in found.summary
        assert "another path" not in found.summary and "only" not in found.summary
        assert found.causes[0].confidence <= 0.5


def test_its_own_key_is_nobody_elses() -> None:
    assert causes(beside(asks(0, "rank0/ready", setter=0))) == [("not_entered", [0])]


def polls(rank: int, key: str) -> RankCapture:
    get = Frame("Bus.get", "/app/bus.py", 16, "return self.store.get(key)", key=key)
    return still(rank, [get, Frame("main", "/app/fed.py", 70, "bus.get(key)")])


def all_ask(own: str, others: str = "round/8/model") -> Diagnosis:
    """Rank 0 collects what the others send in a round; these wait for its model."""
    return judged(polls(0, own), *(polls(rank, others) for rank in (1, 2, 3)))


def test_of_all_in_the_store_the_one_whose_number_is_in_the_key_did_not_set_it() -> None:
    found = all_ask("round/8/update/2")
    assert causes(found) == [("order", [2])], found.summary
    assert "rank 0 waits for round/8/update/2 in the store" in found.summary


@pytest.mark.parametrize(
    ("own", "others"),
    [
        ("round/8/update/0", "round/8/model"),  # its own
        ("round/8/update/5", "round/8/model"),  # of no rank
        ("round/2/update", "round/8/model/2"),  # the round
        ("round/1/update/2", "model"),  # either of two
        ("round/8/update/2", ""),  # not shown
    ],
)
def test_else_no_rank_is_named_for_a_number(own: str, others: str) -> None:
    assert all_ask(own, others).causes == []


def test_of_several_keys_all_are_said_and_no_rank_is_named() -> None:
    """Who waits at another line than most waits for a key itself, of one that has ended, maybe."""
    learner = Frame("collect", "/app/actors.py", 63, "store.get(key)", key="rollout/12/5")
    ranks = [still(0, [learner, Frame("main", "/app/actors.py", 73)])]
    ranks += [polls(rank, "weights/13") for rank in (1, 2, 3)]
    found = judged(*ranks)
    assert found.causes == [] and found.status == "unknown", found.summary
    assert "for weights/13 and rollout/12/5" in found.summary


def test_where_all_others_wait_for_one_key_the_last_rank_was_to_set_it() -> None:
    found = judged(*(asks(rank, "ocean/sst/6", only="") for rank in range(3)), joins(3))
    assert [(c.kind, c.ranks) for c in found.causes] == [("order", [3])]
    assert "but ranks 0-2 wait for ocean/sst/6 in the store" in found.summary
    assert found.causes[0].confidence <= 0.7


@pytest.mark.parametrize("keys", [("a/1", "a/2", "a/1"), ("", "", "")])
def test_else_it_may_have_been_one_of_those_that_wait(keys: tuple[str, ...]) -> None:
    found = judged(*(asks(rank, key, only="") for rank, key in enumerate(keys)), joins(3))
    assert not any("in the store" in cause.summary for cause in found.causes)
