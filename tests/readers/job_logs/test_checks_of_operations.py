"""torch's check of operations (TORCH_DISTRIBUTED_DEBUG=DETAIL) where records have other lengths, as
torch 2.13 prints it: gloo, three ranks, rank 2 in a barrier and the others in all_gather.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from hangdoctor.report.terminal_report import plain
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
    assert (found.status, named(found)) == ("failed", [("mismatch", [2])]), found.summary
    assert "Rank 2 ran barrier #7 where the others ran all_gather #7 [1] Float" in found.summary
    assert "reduce" not in found.summary
    found = diagnosed(tmp_path, "".join(lines[1:]))
    assert named(found) == [("mismatch", [2])], "rank 0 has what rank 1 has"


def test_one_line_names_the_first_rank_that_differs(tmp_path: Path) -> None:
    """It goes through the ranks in order, so that ranks 0 to 4 have what rank 1 has. Rank 5 raised the
    same, of which only the beginning is in the log.
    """
    found = diagnosed(tmp_path, says(1, GATHER, 5, SHORT) + BEGUN)
    assert named(found) == [("mismatch", [5])], found.summary
    what = "an operation without tensors (such as barrier, printed as REDUCE #0) where the others ran all_gather #7"
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


def test_numbers_of_a_smaller_group_are_no_ranks(tmp_path: Path) -> None:
    """Ranks 4 to 7 are a group, in which rank 7 has number 3."""
    line = says(1, GATHER, 3, SHORT).replace("[rank1]", "[rank5]")
    found = diagnosed(tmp_path, line)
    assert named(found) == [("mismatch", [])], found.summary
    assert found.summary.startswith("A rank (the log does not show which) ran an operation")
    own = says(3, BARRIER, 0, LONG).replace("[rank3]", "[rank7]")
    found = diagnosed(tmp_path, line + own)
    assert named(found) == [("mismatch", [7])], found.summary
    found = diagnosed(tmp_path, line.replace("Rank 3", "Rank 0"))
    assert named(found) == [("mismatch", [])], found.summary
    assert found.summary.startswith("Two ranks of a group run different operations")


# ---------------------------------------------------------------------- Accelerate's debug mode

SHAPES = "Cannot apply desired operation due to shape mismatches. All shapes across devices must be valid."


def listed(speaker: int, operation: str, shapes: list[str], head: str = "") -> str:
    lines = [SHAPES, "", f"Operation: `accelerate.utils.operations.{operation}`", "Input shapes:"]
    lines[0] = f"{head}{SHAPES}"
    lines += [f"  - Process {rank}: {shape}" for rank, shape in enumerate(shapes)]
    return "".join(f"[rank{speaker}]: {line}\n" for line in lines)


@pytest.mark.parametrize("operation", ["gather", "reduce", "broadcast"])
def test_the_rank_that_brought_another_shape(tmp_path: Path, operation: str) -> None:
    """Each rank prints the whole list, in the message of its exception."""
    raised = (
        '[rank{0}]: Traceback (most recent call last):\n[rank{0}]:   File "/job/train.py", line 4\n'
    )
    error = "accelerate.utils.operations.DistributedOperationException: "
    shapes = ["[8, 1024]"] * 20 + ["[3, 1024]"] + ["[8, 1024]"] * 3
    lines = [raised.format(rank) + listed(rank, operation, shapes, error) for rank in (0, 20)]
    found = diagnosed(tmp_path, "".join(lines) + BEGUN)
    assert named(found) == [("mismatch", [20])], found.summary
    ran = f"Rank 20 ran {operation} [3, 1024] where the others ran {operation} [8, 1024]"
    assert ran in found.summary
    [evidence] = [line for line in plain(found).splitlines() if line.startswith("  log ")]
    assert "- Process 20: [3, 1024]" in evidence


def test_all_brought_another_shape(tmp_path: Path) -> None:
    shapes = ["[2, 350]", "[2, 658]", "[2, 617]", "[2, 594]"]
    found = diagnosed(tmp_path, listed(0, "gather", shapes))
    assert named(found) == [("mismatch", [0, 1, 2, 3])], found.summary
    assert "which of them is wrong does not show" in found.summary


def test_shapes_of_several_tensors(tmp_path: Path) -> None:
    usual = "{'ids': [4, 9], 'mask': [4, 9]}"
    found = diagnosed(
        tmp_path, listed(2, "gather", [usual, usual, usual.replace("4, 9", "1, 9"), usual])
    )
    assert named(found) == [("mismatch", [2])], found.summary
    assert "gather {'ids': [1, 9]" in found.summary


def test_a_list_that_is_not_in_the_log_names_no_rank(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, f"[rank3]: Error: {SHAPES}\n")
    assert (found.status, named(found)) == ("failed", [("mismatch", [])]), found.summary
    assert "different shapes" in found.summary
