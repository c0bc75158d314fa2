"""torch's check of operations (TORCH_DISTRIBUTED_DEBUG=DETAIL) where records have other lengths, as
torch 2.13 prints it: gloo, three ranks, rank 2 in a barrier and the others in all_gather.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.read_logs import diagnosed, named

DEVICES = "TensorDeviceTypes=TensorOptions(dtype=float (default), device=cpu, layout=Strided (default), requires_grad=false (default), pinned_memory=false (default), memory_format=(nullopt))"
HEAD = (
    "RuntimeError: Detected mismatch between collectives on ranks. Rank {} is running collective: "
)
GATHER = f"CollectiveFingerPrint(SequenceNumber=7, OpType=ALLGATHER, TensorShape=[1], TensorDtypes=Float, {DEVICES})"
BARRIER = "CollectiveFingerPrint(SequenceNumber=7OpType=BARRIER)"
# How the check prints lengths: 3 as the operation of that number, 7 likewise.
SHORT = "CollectiveFingerPrint(SequenceNumber=0OpType=REDUCE)"
LONG = "CollectiveFingerPrint(SequenceNumber=0OpType=GATHER)"
BEGUN = '[rank5]: Traceback (most recent call last):\n[rank5]:   File "/job/train.py", line 40, in train\n'


def says(one: int, mine: str, other: int, theirs: str) -> str:
    text = f"{HEAD.format(one)}{mine}, but Rank {other} is running collective: {theirs}.Collectives differ in the following aspects: Sequence number: 7vs 0\n"
    return f"[rank{one}]: {text}"


def test_a_rank_in_a_barrier_by_its_own_words(tmp_path: Path) -> None:
    """The names that the others print for its record are none: those are lengths."""
    lines = [says(rank, GATHER, 2, SHORT) for rank in (0, 1)] + [says(2, BARRIER, 0, LONG)]
    found = diagnosed(tmp_path, "".join(lines))
    assert (found.status, named(found)) == ("hang", [("mismatch", [2])]), found.summary
    assert "Rank 2 ran barrier #7 where the others ran all_gather #7 [1] Float" in found.summary
    assert "reduce" not in found.summary


def test_one_line_names_the_first_rank_that_differs(tmp_path: Path) -> None:
    """It goes through the ranks in order, so that ranks 0 to 4 have what rank 1 has. Rank 5 raised the
    same, of which only the beginning is in the log.
    """
    found = diagnosed(tmp_path, says(1, GATHER, 5, SHORT) + BEGUN)
    assert named(found) == [("mismatch", [5])], found.summary
    what = "an operation without tensors (such as barrier) where the others ran all_gather #7"
    assert f"Rank 5 ran {what}" in found.summary


@pytest.mark.parametrize("seq", ["SequenceNumber=7", "SequenceNumber=7, ", "SequenceNumber=7 "])
def test_with_and_without_commas(tmp_path: Path, seq: str) -> None:
    """Before torch 2.1 the other's operation was right, and its shapes were missing."""
    theirs = f"CollectiveFingerPrint({seq}OpType=BROADCAST)"
    found = diagnosed(tmp_path, says(1, GATHER, 0, theirs))
    assert named(found) == [("mismatch", [0, 1])], found.summary
    assert "broadcast #7 and all_gather #7 [1] Float" in found.summary


def test_the_first_two_ranks_do_not_outvote_each_other(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, says(1, GATHER, 0, LONG))
    assert named(found) == [("mismatch", [0, 1])], found.summary
    assert "which of them is wrong does not show" in found.summary
