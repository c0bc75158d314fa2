"""Calls that NCCL prints with NCCL_DEBUG=INFO: ranks that differ at one number of one communicator."""

from __future__ import annotations

from pathlib import Path

from tests.support.read_logs import diagnosed, named


def call(
    rank: int, seq: int, count: int, op: str = "AllReduce", size: int = 4, comm: str = ""
) -> str:
    return (
        f"g7:{900 + rank}:{900 + rank} [{rank}] NCCL INFO {op}: opCount {seq:x} sendbuff 0x7f{rank}0 recvbuff 0x7f{rank}8 "
        f"count {count} datatype 7 op 0 root 0 comm {comm or f'0x55{rank}'} [nranks={size}] stream 0x9{rank}\n"
    )


def test_the_rank_with_another_call_at_one_number(tmp_path: Path) -> None:
    same = "".join(call(rank, seq, 64) for seq in (16, 17) for rank in range(4))
    odd = "".join(call(rank, 18, 640 if rank == 2 else 64) for rank in range(4))
    found = diagnosed(tmp_path, same + odd)
    assert named(found) == [("mismatch", [2])], found.summary
    assert "all_reduce #18 with 640 elements of float32" in found.summary


def test_behind_the_names_of_files_that_grep_prints(tmp_path: Path) -> None:
    lines = [
        f"logs/nccl.{rank}.txt:" + call(rank, 3, 8 if rank else 9, "Broadcast") for rank in range(3)
    ]
    assert named(diagnosed(tmp_path, "".join(lines))) == [("mismatch", [0])]


def test_calls_that_are_alike_or_may_be_of_several_communicators(tmp_path: Path) -> None:
    alike = "".join(call(rank, 1, 64) for rank in range(4))
    pairs = "".join(call(rank, 1, 64 + rank // 2, size=2) for rank in range(4))
    second = call(0, 1, 64) + call(0, 1, 7, comm="0xab") + call(1, 1, 64)
    later = call(0, 1, 64) + call(1, 2, 32)
    for number, text in enumerate((alike, pairs, second, later)):
        assert named(diagnosed(tmp_path / str(number), text)) == [], text


CALLED = (
    "n1:{1}:{1} [{0}] NCCL INFO {2}: opCount 0 sendbuff 0x7f recvbuff 0x7f count {3} datatype 7 op 0 root 0 "
    "comm 0x5{0} [nranks=2] stream 0x6\n"
)


def test_numbers_that_are_always_0_place_no_call(tmp_path: Path) -> None:
    both = [("AllReduce", 1), ("AllGather", 260)]
    text = "".join(CALLED.format(gpu, 71 + gpu, *call) for call in both for gpu in (1, 0))
    verdict = diagnosed(tmp_path, text + CALLED.format(0, 71, "AllReduce", 64))
    assert verdict.causes == []
    assert "rank 0 went on to all_reduce with 64 elements, and rank 1 had not" in verdict.summary
    assert "went on to" not in diagnosed(tmp_path, text).summary


def test_other_calls_before_are_no_lead(tmp_path: Path) -> None:
    text = CALLED.format(0, 71, "AllReduce", 8) + CALLED.format(1, 72, "AllGather", 9)
    verdict = diagnosed(tmp_path, text + CALLED.format(0, 71, "AllReduce", 64))
    assert "went on to" not in verdict.summary
